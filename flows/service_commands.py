"""How each embedded service is started: its command and its environment."""

import contextlib
import hashlib
import os
import secrets
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from flows import processes
from flows.cluster_settings import read
from raise_model.errors import UserError
from tune_spaces.home import OBJECT_STORE_BYTES, ray_environment

RAY_PORT = 6379
RAY_CLIENT_PORT = 10001
"""Of Ray's control store and client server; nobody types them: where one is busy, another."""
TEMPORARY = "tmp"
SOCKET_PATH_BYTES = 40
"""Longest Ray folder that keeps its socket paths within the system's 107 bytes."""


def clean_environment() -> dict[str, str]:
    """The shell's variables without those that point a service somewhere else."""
    misleading = (
        "PREFECT_API_URL", "PREFECT_API_KEY", "PREFECT_PROFILE", "RAY_ADDRESS", "RAY_AUTH_TOKEN",
        "RAY_TMPDIR", "MLFLOW_TRACKING_URI",
    )  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name not in misleading}
    if paths := environment.get("PYTHONPATH"):
        # Workers run in other directories.
        absolute = [os.path.abspath(path) for path in paths.split(os.pathsep) if path]
        environment["PYTHONPATH"] = os.pathsep.join(absolute)
    for name in ("NO_PROXY", "no_proxy"):
        hosts = [host for host in environment.get(name, "").split(",") if host]
        environment[name] = ",".join([*hosts, "127.0.0.1", "localhost"])
    return environment


def addresses(home: Path, urls: Mapping[str, str]) -> dict[str, str]:
    """Settings of every part, and addresses of those known."""
    environment = {
        "RAISE_HOME": str(home),
        "DO_NOT_TRACK": "true",
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
        "PREFECT_CLI_PROMPT": "false",
        # `prefect deployment run --watch` shows a run's log, not only its states, and soon.
        "PREFECT_SERVER_LOGS_STREAM_OUT_ENABLED": "true",
        "PREFECT_SERVER_LOGS_STREAM_PUBLISHING_ENABLED": "true",
        "PREFECT_LOGGING_TO_API_BATCH_INTERVAL": "0.5",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
    }
    if "prefect" in urls:
        environment["PREFECT_API_URL"] = urls["prefect"] + "/api"
    if "mlflow" in urls:
        environment["MLFLOW_TRACKING_URI"] = urls["mlflow"]
    return environment


def _prefect_extras(home: Path) -> dict[str, str]:
    """The server asks for the password that its clients send, if they send one."""
    password = os.environ.get("PREFECT_API_AUTH_STRING", "")
    return {"PREFECT_SERVER_API_AUTH_STRING": password} if password else {}


def _mlflow_asks_for_password() -> bool:
    return bool(os.environ.get("MLFLOW_TRACKING_PASSWORD"))


def _mlflow_extras(home: Path) -> dict[str, str]:
    """The same for MLflow, whose only user is the one that its clients log in as."""
    if not _mlflow_asks_for_password():
        return {}
    if not os.environ.get("MLFLOW_TRACKING_USERNAME"):
        raise UserError("MLFLOW_TRACKING_PASSWORD is set without MLFLOW_TRACKING_USERNAME")
    if find_spec("flask_wtf") is None:
        raise UserError(
            "MLFLOW_TRACKING_PASSWORD is set, but MLflow asks for passwords only with Flask-WTF: "
            "pip install 'raise-rpm[cluster]'"
        )
    folder = home / "mlflow"
    folder.mkdir(parents=True, exist_ok=True)
    # Made anew at each start from the password that is set now; nothing else is in it.
    (folder / "auth.db").unlink(missing_ok=True)
    settings = folder / "auth.ini"
    settings.write_text(
        f"[mlflow]\ndefault_permission = NO_PERMISSIONS\ndatabase_uri = sqlite:///{folder}/auth.db\n"
    )
    return {
        "MLFLOW_AUTH_CONFIG_PATH": str(settings),
        "MLFLOW_AUTH_ADMIN_USERNAME": os.environ["MLFLOW_TRACKING_USERNAME"],
        "MLFLOW_AUTH_ADMIN_PASSWORD": os.environ["MLFLOW_TRACKING_PASSWORD"],
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(16),
    }


def _ray_extras(home: Path) -> dict[str, str]:
    """With the token of the home's cluster settings where they have one; Ray prefers it."""
    token = read(home).get("RAY_AUTH_TOKEN", "")
    return ray_environment(home) | ({"RAY_AUTH_TOKEN": token} if token else {})


def _ray_head_extras(home: Path) -> dict[str, str]:
    """With temporary files in Ray's folder: its dashboard leaves some behind at each end."""
    return _ray_extras(home) | {"TMPDIR": str(_ray_folder(home) / TEMPORARY)}


def _runner_extras(home: Path) -> dict[str, str]:
    port = (home / "ray_port").read_text().strip()
    return _ray_extras(home) | {
        "RAY_ADDRESS": f"127.0.0.1:{port}",
        # Prefect looks for new runs every ten seconds otherwise.
        "PREFECT_RUNNER_POLL_FREQUENCY": "2",
        # Of a stage that completed the terminal says nothing: "Finished in state Completed()"
        # reads as if the run had ended.  Failures are of a higher level.
        "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "WARNING",
    }


def _prefect_command(home: Path, port: int) -> list[str]:
    server = ["server", "start", "--host", "127.0.0.1", "--port", str(port)]
    return [sys.executable, "-m", "prefect", "--no-prompt", *server]


def _mlflow_command(home: Path, port: int) -> list[str]:
    folder = home / "mlflow"
    folder.mkdir(parents=True, exist_ok=True)
    # Persists in the file: readers no longer block the writer.
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")
    return [
        sys.executable, "-m", "mlflow", "server",
        "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}",
        "--artifacts-destination", str(folder / "artifacts"),
        "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        *(("--app-name", "basic-auth") if _mlflow_asks_for_password() else ()),
    ]  # fmt: skip


def _ray_folder(home: Path) -> Path:
    """Ray's sockets and logs: under the home where its path is short enough for sockets."""
    folder = home / "ray"
    if len(os.fsencode(folder)) <= SOCKET_PATH_BYTES:
        return folder
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:8]
    return Path(tempfile.gettempdir()) / f"raise-{os.getuid()}-{digest}"


def _ray_command(home: Path, port: int) -> list[str]:
    folder = _ray_folder(home)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.rmtree(folder / TEMPORARY, ignore_errors=True)
    (folder / TEMPORARY).mkdir(exist_ok=True)
    control = processes.free_port(RAY_PORT)
    (home / "ray_port").write_text(str(control))
    client = processes.free_port(RAY_CLIENT_PORT)
    return [
        sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block",
        "--node-ip-address=127.0.0.1", f"--port={control}", f"--temp-dir={folder}",
        "--dashboard-host=127.0.0.1", f"--dashboard-port={port}",
        f"--ray-client-server-port={client}", "--dashboard-agent-listen-port=0",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
        "--disable-usage-stats", "--log-color=false",
    ]  # fmt: skip


def _runner_command(home: Path, port: int) -> list[str]:
    return [sys.executable, "-m", "flows.cli", "serve"]


COMMANDS: Mapping[str, Callable[[Path, int], list[str]]] = {
    "prefect": _prefect_command,
    "mlflow": _mlflow_command,
    "ray": _ray_command,
    "runner": _runner_command,
}
EXTRAS: Mapping[str, Callable[[Path], dict[str, str]]] = {
    "prefect": _prefect_extras,
    "mlflow": _mlflow_extras,
    "ray": _ray_head_extras,
    "runner": _runner_extras,
}
