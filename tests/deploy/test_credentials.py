"""Wrong and missing passwords: one line that names the server and what to set."""

import base64
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from flows.credentials import check_mlflow, check_prefect
from flows.services import Services
from raise_model.errors import UserError
from tune_spaces.cluster_access import check_token_file

PASSWORD = "raise:right"


class _Server(BaseHTTPRequestHandler):
    """Asks for a password as Prefect and MLflow do; their health checks answer to anybody."""

    def do_GET(self):
        given = self.headers.get("Authorization", "")
        right = "Basic " + base64.b64encode(PASSWORD.encode()).decode()
        open_to_all = self.path.endswith("/health")
        self.send_response(200 if open_to_all or given == right else 401)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def url():
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_right_passwords_are_taken(url):
    check_prefect(f"{url}/api", {"PREFECT_API_AUTH_STRING": PASSWORD})
    check_mlflow(
        url, {"MLFLOW_TRACKING_USERNAME": "raise", "MLFLOW_TRACKING_PASSWORD": "right"}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "asks for a password; set PREFECT_API_AUTH_STRING"),
        ({"PREFECT_API_AUTH_STRING": "raise:wrong"}, "refuses PREFECT_API_AUTH_STRING"),
    ],
)
def test_prefect_refuses_in_one_line(url, environment, says):
    with pytest.raises(UserError) as refusal:
        check_prefect(f"{url}/api", environment)
    _is_one_line(refusal, f"the Prefect server at {url}/api {says}")


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "asks for a password; set MLFLOW_TRACKING_USERNAME and"),
        ({"MLFLOW_TRACKING_PASSWORD": "right"}, "refuses MLFLOW_TRACKING_USERNAME and"),
        (
            {"MLFLOW_TRACKING_USERNAME": "raise", "MLFLOW_TRACKING_PASSWORD": "wrong"},
            "refuses MLFLOW_TRACKING_USERNAME and",
        ),
    ],
)
def test_mlflow_refuses_in_one_line(url, environment, says):
    with pytest.raises(UserError) as refusal:
        check_mlflow(url, environment)
    _is_one_line(refusal, f"the MLflow server at {url} {says}")


def _is_one_line(refusal, beginning):
    text = str(refusal.value)
    assert text.startswith(beginning)
    assert "\n" not in text
    assert "right" not in text
    assert "wrong" not in text


def test_a_server_that_is_away_is_somebody_elses_message():
    check_prefect("http://127.0.0.1:9/api", {})
    check_mlflow("http://127.0.0.1:9", {})
    check_mlflow("sqlite:///mlflow.db", {})


def test_commands_that_need_prefect_check_first(url, monkeypatch, tmp_path):
    monkeypatch.setenv("PREFECT_API_URL", f"{url}/api")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "raise:wrong")
    with pytest.raises(UserError, match="refuses PREFECT_API_AUTH_STRING"):
        Services(tmp_path).reach_prefect()
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", PASSWORD)
    Services(tmp_path).reach_prefect()


def test_a_token_file_that_is_missing_or_empty_is_named(tmp_path):
    # Ray ends the process without a word of its own for either.
    path = tmp_path / "token"
    with pytest.raises(UserError, match="cannot be read"):
        check_token_file({"RAY_AUTH_TOKEN_PATH": str(path)})
    path.write_text("\n")
    with pytest.raises(UserError, match="is empty"):
        check_token_file({"RAY_AUTH_TOKEN_PATH": str(path)})
    check_token_file({"RAY_AUTH_TOKEN_PATH": str(path), "RAY_AUTH_TOKEN": "given"})
    path.write_text("token\n")
    check_token_file({"RAY_AUTH_TOKEN_PATH": str(path)})
