"""nginx with the project's configuration, on free ports and with a certificate of its own."""

import contextlib
import datetime
import ipaddress
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx.conf"


def make_certificate(folder: Path) -> ssl.SSLContext:
    """``tls.crt`` and ``tls.key`` for 127.0.0.1 in a folder; a context that trusts them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(hosts, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (folder / "tls.crt").write_bytes(certificate.public_bytes(encoding))
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    (folder / "tls.key").write_bytes(key.private_bytes(encoding, form, plain))
    return ssl.create_default_context(cafile=str(folder / "tls.crt"))


@contextlib.contextmanager
def running_nginx(folder: Path, ports: Mapping[str, int]) -> Iterator[None]:
    """nginx with the project's configuration, its ports replaced by those given."""
    text = CONFIGURATION.read_text().replace("/etc/raise/", f"{folder}/")
    for old, new in ports.items():
        text = re.sub(rf"(listen |127\.0\.0\.1:){old}\b", rf"\g<1>{new}", text)
    text = text.replace("listen ", "listen 127.0.0.1:")
    scratch = "".join(
        f"    {kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = folder / "nginx.conf"
    main.write_text(
        f"daemon off;\nworker_processes 1;\npid {folder}/nginx.pid;\n"
        f"error_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\n    access_log off;\n{scratch}{text}}}\n"
    )
    command = ["nginx", "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(main)]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def wait_until_open(port: int, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens at port {port}")
