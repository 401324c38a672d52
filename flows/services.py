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
import json
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from flows import processes
from flows.cluster_settings import FILE, names_other_machine, read
from flows.credentials import check_prefect
from flows.service_commands import COMMANDS, EXTRAS, addresses, clean_environment
from raise_model import atomic_write
from raise_model.errors import UserError
from tune_spaces.home import raise_home

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

Report = Callable[[str, str], None]
"""Called with a service's name and what it does now: ``starting``, ``ready``, ``stopped``."""


def default_store(preset: str = "") -> str:
    """``RAISE_STORE``, else ``store`` under the home.

    ``smoke`` has data of its own, and hence its own store there.
    """
    return os.environ.get("RAISE_STORE") or str(
        raise_home() / ("smoke" if preset == "smoke" else "store")
    )


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
        self.home = home or raise_home()
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

    def url(self, name: str) -> str:
        """Address of a running service.

        :raises UserError: if it does not run.
        """
        alive = self.alive()
        if name not in alive:
            raise UserError(f"{TITLES[name]} does not run in {self.home}; start it: raise-rpm up")
        return alive[name].url

    def reach_prefect(self) -> None:
        """Point this process at the Prefect server of this home, unless the shell names one.

        To be called before Prefect is imported.

        :raises UserError: if the server refuses this process's credentials.
        """
        alive = self.alive()
        if "PREFECT_API_URL" not in os.environ and "prefect" in alive:
            os.environ.update(addresses(self.home, {"prefect": alive["prefect"].url}))
        if url := os.environ.get("PREFECT_API_URL"):
            check_prefect(url)

    def up(
        self, ports: Mapping[str, int], report: Report, timeout_seconds: float = 180.0
    ) -> dict[str, Service]:
        """Start what does not run; on any failure everything started here is stopped again.

        :raises UserError: if a port is busy, a service ends or does not answer in time, or the
            home has the settings of servers elsewhere.
        """
        if elsewhere := names_other_machine(self.home):
            raise UserError(
                f"{elsewhere}; raise-rpm up starts services of this machine: use another RAISE_HOME"
            )
        # Tokens and databases of one user.
        try:
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UserError(
                f"RAISE_HOME {self.home} cannot be made: {error.strerror}; choose another folder"
            ) from error
        with self._locked():
            alive = self.alive()
            missing = [name for name in NAMES if name not in alive]
            if not missing:
                return alive
            # What is left of a service whose leader died still holds its port.
            processes.stop(self.home, missing)
            _check_ports({name: ports[name] for name in missing if name in ports})
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
                for name in processes.stop(self.home, names):
                    report(name, "stopped")
            self._file.unlink(missing_ok=True)
            return found

    def is_changing(self) -> bool:
        """Whether another ``up`` or ``down`` of this home is at work."""
        if not self.home.exists():
            return False
        try:
            with self._locked():
                return False
        except UserError:
            return True

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
        atomic_write.replace(self._file, (text + "\n").encode())

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
            command = COMMANDS[name](self.home, ports.get(name, 0))
            environment = clean_environment() | addresses(self.home, urls)
            environment |= EXTRAS[name](self.home)
            report(name, "starting")
            pid = processes.start(name, command, self.home, environment, log)
            services[name] = Service(name=name, pid=pid, url=urls.get(name, ""), log=str(log))
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


def ray_token_command(home: Path) -> str:
    """What a user types to see the token that the Ray dashboard asks for."""
    if "RAY_AUTH_TOKEN" in read(home):
        return f"grep RAY_AUTH_TOKEN= {home / FILE}"
    return f"cat {home / 'ray_token'}"
