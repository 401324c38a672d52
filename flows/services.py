"""The embedded services of one home: Prefect server, MLflow server, Ray head, runner.

All listen on 127.0.0.1 and keep databases, tokens and logs under the home (``RAISE_HOME``,
else ``.raise`` in the current directory).  ``services.json`` there holds ports and process
ids.  Nothing is written to ``~/.prefect``, ``~/.ray`` or ``~/.mlflow``, and none of them
reports its use.

The four start together: the runner imports the flow while the Prefect server starts, and
registers the deployment once that answers.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flows import processes
from raise_model.errors import UserError

NAMES = ("prefect", "mlflow", "ray", "runner")
TITLES = {
    "prefect": "Prefect",
    "mlflow": "MLflow",
    "ray": "Ray dashboard",
    "runner": "runner",
}
PORT_OPTIONS = {"prefect": "--port", "mlflow": "--mlflow-port", "ray": "--dashboard-port"}
DEFAULT_PORTS = {"prefect": 4200, "mlflow": 5000, "ray": 8265}
DATABASES = ("prefect", "mlflow")
"""Services with a database in a folder of their name."""
RAY_PORT = 6379
RAY_CLIENT_PORT = 10001
"""Of Ray's control store and client server; nobody types them: where one is busy, another."""
OBJECT_STORE_BYTES = 128 * 1024**2
"""Ray's shared memory: specs and curve rows, no tensors."""
SOCKET_PATH_BYTES = 40
"""Longest Ray folder that keeps its socket paths within the system's 107 bytes."""

Report = Callable[[str, str], None]
"""Called with a service's name and what it does now: ``starting``, ``ready``, ``stopped``."""


def home_folder() -> Path:
    """``RAISE_HOME``, else ``.raise`` in the current directory."""
    return Path(os.environ.get("RAISE_HOME", ".raise")).expanduser().absolute()


@dataclass(frozen=True, kw_only=True)
class Service:
    """A started service, as ``services.json`` has it."""

    name: str
    pid: int
    url: str
    log: str


@dataclass(frozen=True, kw_only=True)
class Status:
    """What is known of one service."""

    name: str
    title: str
    running: bool
    answers: bool
    pid: int | None
    url: str
    log: str


class Services:
    """The services of one home."""

    def __init__(self, home: Path | None = None) -> None:
        self.home = home or home_folder()
        self._file = self.home / "services.json"

    def known(self) -> dict[str, Service]:
        """What was last started here, alive or not."""
        try:
            value = json.loads(self._file.read_text())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise UserError(f"{self._file} is damaged ({error}); remove it") from error
        return {name: Service(**service) for name, service in value.items()}

    def alive(self) -> dict[str, Service]:
        """Those whose process lives."""
        return {
            name: service
            for name, service in self.known().items()
            if processes.is_alive(service.pid, self.home, name)
        }

    def status(self) -> list[Status]:
        """State of all four, in order."""
        known, alive = self.known(), self.alive()
        return [
            Status(
                name=name,
                title=TITLES[name],
                running=name in alive,
                answers=name in alive and self._answers(alive[name]),
                pid=alive[name].pid if name in alive else None,
                url=known[name].url if name in known else "",
                log=known[name].log if name in known else "",
            )
            for name in NAMES
        ]

    def environment(self) -> dict[str, str]:
        """Variables with which a process reaches these services."""
        from tune_spaces.cluster import ray_environment

        urls = {name: service.url for name, service in self.known().items()}
        ray_port = (self.home / "ray_port").read_text().strip()
        return ray_environment(self.home) | _addresses(self.home, urls) | {
            "RAY_ADDRESS": f"127.0.0.1:{ray_port}"
        }  # fmt: skip

    def up(
        self, ports: Mapping[str, int], report: Report, timeout_seconds: float = 180.0
    ) -> dict[str, Service]:
        """Start what does not run; on any failure everything started here is stopped again.

        :raises UserError: if a port is busy, or a service ends or does not answer in time.
        """
        # Tokens and databases of one user.
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked():
            alive = self.alive()
            missing = [name for name in NAMES if name not in alive]
            if not missing:
                return alive
            _check_ports({name: ports[name] for name in missing if name in ports})
            processes.stop(self.home, missing)
            try:
                self._start(missing, alive, ports, report)
                self._wait(missing, report, timeout_seconds)
            except BaseException:
                processes.stop(self.home, missing)
                self._remember(alive)
                raise
            return self.known()

    def down(self, report: Report) -> bool:
        """Stop every process of this home; False if there was none."""
        if not self.home.exists():
            return False
        with self._locked():
            found = bool(processes.find(self.home))
            # The runner first: a running flow then stops its trials in order, and says so.
            for names in (["runner"], ["ray", "mlflow", "prefect"]):
                processes.stop(self.home, names)
                for name in names:
                    report(name, "stopped")
            self._file.unlink(missing_ok=True)
            return found

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.home / "services.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(
                    f"another raise-rpm up or down is at work in {self.home}; wait for it"
                ) from error
            yield

    def _remember(self, services: Mapping[str, Service]) -> None:
        text = json.dumps({name: asdict(service) for name, service in services.items()}, indent=1)
        temporary = self._file.with_suffix(".new")
        temporary.write_text(text + "\n")
        temporary.replace(self._file)

    def _start(
        self,
        missing: Sequence[str],
        alive: Mapping[str, Service],
        ports: Mapping[str, int],
        report: Report,
    ) -> None:
        services = dict(alive)
        urls = {name: service.url for name, service in alive.items()}
        urls |= {name: f"http://127.0.0.1:{ports[name]}" for name in missing if name in ports}
        (self.home / "runner.ready").unlink(missing_ok=True)
        for name in missing:
            log = self.home / "logs" / f"{name}.log"
            self._remove_half_made(name)
            command = _COMMANDS[name](self.home, ports.get(name, 0))
            environment = _clean_environment() | _addresses(self.home, urls)
            environment |= _EXTRAS[name](self.home)
            report(name, "starting")
            process = processes.start(name, command, self.home, environment, log)
            services[name] = Service(
                name=name, pid=process.pid, url=urls.get(name, ""), log=str(log)
            )
            self._remember(services)

    def _remove_half_made(self, name: str) -> None:
        """Remove a database whose first migration was interrupted: no later one mends it."""
        folder = self.home / name
        if name in DATABASES and not (folder / "initialised").exists():
            shutil.rmtree(folder, ignore_errors=True)

    def _wait(self, missing: Sequence[str], report: Report, timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        waiting = {name: self.known()[name] for name in missing}
        while waiting:
            for name, service in list(waiting.items()):
                if not processes.is_alive(service.pid, self.home, name):
                    raise UserError(
                        f"{TITLES[name]} ended while starting: "
                        f"{processes.last_line(Path(service.log))}; log: {service.log}"
                    )
                if self._answers(service):
                    if name in DATABASES:
                        (self.home / name / "initialised").touch()
                    report(name, "ready")
                    del waiting[name]
            if waiting and time.monotonic() > deadline:
                name, service = next(iter(waiting.items()))
                raise UserError(
                    f"{TITLES[name]} did not answer within {timeout_seconds:.0f} s; "
                    f"log: {service.log}"
                )
            time.sleep(0.2)

    def _answers(self, service: Service) -> bool:
        if service.name == "runner":
            ready = self.home / "runner.ready"
            return ready.exists() and ready.read_text() == str(service.pid)
        return answers(service.url + HEALTH_PATHS[service.name])


HEALTH_PATHS = {"prefect": "/api/health", "mlflow": "/health", "ray": "/api/gcs_healthz"}

# Whatever proxy the shell has is not for 127.0.0.1.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answers(url: str, timeout_seconds: float = 2.0) -> bool:
    """Whether a GET of ``url`` succeeds."""
    try:
        with _opener.open(url, timeout=timeout_seconds) as response:
            return response.status == 200
    except (OSError, urllib.error.URLError):
        return False


def _check_ports(ports: Mapping[str, int]) -> None:
    for name, port in ports.items():
        if not processes.is_free(port):
            raise UserError(
                f"port {port} ({TITLES[name]}) is busy; "
                f"free it or choose another with {PORT_OPTIONS[name]}"
            )
    for name, port in ports.items():
        if list(ports.values()).count(port) > 1:
            raise UserError(f"port {port} is given twice; change {PORT_OPTIONS[name]}")


def _clean_environment() -> dict[str, str]:
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


def _addresses(home: Path, urls: Mapping[str, str]) -> dict[str, str]:
    """Settings of every part, and addresses of those known."""
    environment = {
        "RAISE_HOME": str(home),
        "DO_NOT_TRACK": "true",
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
        "PREFECT_CLI_PROMPT": "false",
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


def _no_extras(home: Path) -> dict[str, str]:
    return {}


def _ray_extras(home: Path) -> dict[str, str]:
    from tune_spaces.cluster import ray_environment

    return ray_environment(home)


def _runner_extras(home: Path) -> dict[str, str]:
    port = (home / "ray_port").read_text().strip()
    return _ray_extras(home) | {"RAY_ADDRESS": f"127.0.0.1:{port}"}


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
    control = processes.free_port(RAY_PORT)
    (home / "ray_port").write_text(str(control))
    client = processes.free_port(RAY_CLIENT_PORT)
    return [
        sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block",
        "--node-ip-address=127.0.0.1", f"--port={control}", f"--temp-dir={folder}",
        "--dashboard-host=127.0.0.1", f"--dashboard-port={port}", f"--ray-client-server-port={client}",
        "--dashboard-agent-listen-port=0", f"--object-store-memory={OBJECT_STORE_BYTES}",
        "--disable-usage-stats", "--log-color=false",
    ]  # fmt: skip


def _runner_command(home: Path, port: int) -> list[str]:
    return [sys.executable, "-m", "flows.cli", "serve"]


_COMMANDS: Mapping[str, Callable[[Path, int], list[str]]] = {
    "prefect": _prefect_command,
    "mlflow": _mlflow_command,
    "ray": _ray_command,
    "runner": _runner_command,
}
_EXTRAS: Mapping[str, Callable[[Path], dict[str, str]]] = {
    "prefect": _no_extras,
    "mlflow": _no_extras,
    "ray": _ray_extras,
    "runner": _runner_extras,
}


def ray_token_command(home: Path) -> str:
    """What a user types to see the token that the Ray dashboard asks for."""
    return f"cat {home / 'ray_token'}"
