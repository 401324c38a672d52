"""deploy/nginx.conf: TLS before servers that speak plain HTTP."""

import contextlib
import http.client
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from flows.processes import free_port
from tests.deploy.tls_proxy import (
    CONFIGURATION,
    make_certificate,
    running_nginx,
    wait_until_open,
)

PORTS = {"4443": "4200", "5443": "5000", "8443": "8265"}

nginx_is_installed = pytest.mark.skipif(
    shutil.which("nginx") is None, reason="nginx is not installed"
)


class _Echo(BaseHTTPRequestHandler):
    """Answers with what it was sent; a web socket's handshake with 101."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        upgrade = self.headers.get("Upgrade") == "websocket"
        self.send_response(101 if upgrade else 200)
        self.send_header("X-Host", self.headers["Host"])
        self.send_header("X-Authorization", self.headers.get("Authorization", ""))
        if upgrade:
            self.send_header("Connection", "upgrade")
            self.send_header("Upgrade", "websocket")
        else:
            self.send_header("Content-Length", "0")
        self.end_headers()
        self.close_connection = upgrade

    def do_PUT(self):
        length = len(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.send_header("X-Length", str(length))
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """Ports of nginx by their name in the file, and a context that trusts it."""
    folder = tmp_path_factory.mktemp("nginx")
    context = make_certificate(folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        fronts = {name: free_port() for name in PORTS}
        backs = {back: server.server_port for back in PORTS.values()}
        with running_nginx(folder, fronts | backs):
            for port in fronts.values():
                wait_until_open(port)
            yield fronts, context, server.server_port
        server.shutdown()
        thread.join()


def _ask(proxy, name, method="GET", **options):
    fronts, context, _ = proxy
    with contextlib.closing(
        http.client.HTTPSConnection("127.0.0.1", fronts[name], context=context, timeout=30)
    ) as connection:
        connection.request(method, "/", **options)
        return connection.getresponse()


@nginx_is_installed
@pytest.mark.parametrize("name", list(PORTS))
def test_each_server_answers_by_tls_and_gets_the_credentials(proxy, name):
    answer = _ask(proxy, name, headers={"Authorization": "Basic abc"})
    assert answer.status == 200
    assert answer.headers["X-Authorization"] == "Basic abc"


@nginx_is_installed
def test_plain_http_is_refused(proxy):
    fronts, _, _ = proxy
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", fronts["4443"], timeout=30)
    ) as connection:
        connection.request("GET", "/")
        assert connection.getresponse().status == 400


@nginx_is_installed
def test_web_sockets_of_prefect_pass(proxy):
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "x"}
    assert _ask(proxy, "4443", headers=headers).status == 101


@nginx_is_installed
def test_mlflow_sees_a_host_that_it_knows_and_takes_files_of_any_size(proxy):
    _, _, back = proxy
    assert _ask(proxy, "5443").headers["X-Host"] == f"127.0.0.1:{back}"
    answer = _ask(proxy, "5443", "PUT", body=bytes(3 * 1024**2))
    assert (answer.status, answer.headers["X-Length"]) == (200, str(3 * 1024**2))


def test_what_it_passes_on_is_on_loopback():
    targets = re.findall(r"proxy_pass (\S+);", CONFIGURATION.read_text())
    assert [target.rpartition(":")[0] for target in targets] == 3 * ["http://127.0.0.1"]
