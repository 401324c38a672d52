"""What this machine and this shell have, before a long run finds out what they lack."""

import os
import platform
import resource
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

import psutil
from packaging.requirements import Requirement

from flows import processes
from flows.cluster_settings import FILE, read
from flows.credentials import check_mlflow, check_prefect
from flows.services import DEFAULT_PORTS, PORT_OPTIONS, TITLES, Services, answers
from raise_model.errors import UserError
from raise_model.store import Store

Verdict = Literal["ok", "note", "fail"]
DISTRIBUTION = "raise-rpm"
SHOWN_PACKAGES = ("prefect", "ray", "mlflow", "torch", "pyarrow")
NEEDED_DISK_GB = 1.0
WANTED_DISK_GB = 6.0
WANTED_MEMORY_GB = 6.0
WANTED_SHARED_MEMORY_GB = 0.2
WANTED_FILES = 1024


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing looked at.  Only ``fail`` makes ``doctor`` exit with an error."""

    name: str
    verdict: Verdict
    text: str


def examine(services: Services, loaded: Set[str] = frozenset()) -> list[Check]:
    """All checks, in order.

    :param loaded: variables that this process has from the cluster settings, not from its shell.
    """
    parts = (
        _python(), _packages(), _home(services.home), _machine(), _gpu(), _ports(services),
        _services(services), _settings(services.home), _prefect_api(services, loaded),
        _mlflow(services), _ray(services), _store(),
    )  # fmt: skip
    return [check for part in parts for check in part]


def _judge(name: str, text: str, *, good: bool, otherwise: Verdict = "note") -> Check:
    return Check(name=name, verdict="ok" if good else otherwise, text=text)


def _python() -> Iterator[Check]:
    yield _judge(
        "python", f"{platform.python_version()} ({sys.executable})",
        good=sys.version_info >= (3, 11), otherwise="fail",
    )  # fmt: skip


def _packages() -> Iterator[Check]:
    try:
        wanted = [Requirement(text) for text in requires(DISTRIBUTION) or []]
    except PackageNotFoundError:
        yield Check(name=DISTRIBUTION, verdict="note", text="runs from its folder, not installed")
        return
    yield Check(name=DISTRIBUTION, verdict="ok", text=version(DISTRIBUTION))
    for requirement in wanted:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            yield Check(name=requirement.name, verdict="fail", text="is not installed")
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            text = f"{found}, but {requirement} is needed"
            yield Check(name=requirement.name, verdict="fail", text=text)
        elif requirement.name in SHOWN_PACKAGES:
            yield Check(name=requirement.name, verdict="ok", text=found)


def _home(home: Path) -> Iterator[Check]:
    source = "RAISE_HOME" if os.environ.get("RAISE_HOME") else "default"
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        text = f"{home} ({source}) cannot be written: {error.strerror}; set RAISE_HOME"
        yield Check(name="home", verdict="fail", text=text)
        return
    yield Check(name="home", verdict="ok", text=f"{home} ({source}) can be written")
    free = shutil.disk_usage(existing).free / 1e9
    yield Check(
        name="disk",
        verdict="fail" if free < NEEDED_DISK_GB else "ok" if free >= WANTED_DISK_GB else "note",
        text=f"{free:.1f} GB free under {existing}; demo and services want {WANTED_DISK_GB:g}",
    )


def _machine() -> Iterator[Check]:
    memory = psutil.virtual_memory().total / 1e9
    yield Check(name="cpu", verdict="ok", text=f"{os.cpu_count()} cores, {platform.machine()}")
    yield _judge("memory", f"{memory:.1f} GB", good=memory >= WANTED_MEMORY_GB)
    if Path("/dev/shm").exists():
        shared = shutil.disk_usage("/dev/shm").free / 1e9
        advice = "" if shared >= WANTED_SHARED_MEMORY_GB else "; containers: --shm-size=512m"
        yield _judge(
            "/dev/shm", f"{shared:.1f} GB free{advice}", good=shared >= WANTED_SHARED_MEMORY_GB
        )
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield _judge("open files", f"limit {files}", good=files >= WANTED_FILES)


def _gpu() -> Iterator[Check]:
    import torch

    if not torch.cuda.is_available():
        yield Check(name="gpu", verdict="note", text="none that torch can use: device=cpu")
        return
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    yield Check(name="gpu", verdict="ok", text=f"{len(names)}: {', '.join(sorted(set(names)))}")


def _ports(services: Services) -> Iterator[Check]:
    alive = services.alive()
    for name, port in DEFAULT_PORTS.items():
        label = f"port {port}"
        if name in alive:
            continue
        text = f"free for {TITLES[name]}"
        if not processes.is_free(port):
            text = f"busy; start {TITLES[name]} elsewhere: raise-rpm up {PORT_OPTIONS[name]} N"
        yield _judge(label, text, good=processes.is_free(port))


def _services(services: Services) -> Iterator[Check]:
    status = services.status()
    running = [service.title for service in status if service.answers]
    text = f"{', '.join(running)} answer" if running else "none runs here; start: raise-rpm up"
    silent = [s.title for s in status if not s.answers]
    if running and silent:
        text += f"; not {', '.join(silent)}: raise-rpm up"
    yield _judge("services", text, good=not silent)


def api_source(directory: Path, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Where Prefect takes ``PREFECT_API_URL`` from in a directory, and the value.

    In Prefect's order: environment, ``prefect.toml``, ``pyproject.toml``; None: the profile.
    """
    if url := environment.get("PREFECT_API_URL"):
        return "environment", url
    for name, keys in (("prefect.toml", ("api",)), ("pyproject.toml", ("tool", "prefect", "api"))):
        path = directory / name
        if not path.exists():
            continue
        table = tomllib.loads(path.read_text())
        for key in keys:
            table = table.get(key, {})
        if "url" in table:
            return str(path), table["url"]
    return None


def _settings(home: Path) -> Iterator[Check]:
    settings = read(home)  # the command line has read it already: it is well-formed
    text = f"{home / FILE}: {len(settings)} settings" if settings else f"no {home / FILE}"
    yield Check(name="cluster settings", verdict="ok", text=text)


def _refusal(check: Callable[[str], None], url: str) -> str:
    try:
        check(url)
    except UserError as error:
        return str(error)
    return ""


def _prefect_api(services: Services, loaded: Set[str]) -> Iterator[Check]:
    name = "prefect shell"
    shell = {key: value for key, value in os.environ.items() if key not in loaded}
    found = api_source(Path.cwd(), shell)
    if "PREFECT_API_URL" in loaded:
        # The prefect command does not read the file that every command of raise-rpm reads.
        file, wanted = services.home / FILE, os.environ["PREFECT_API_URL"]
        text = f"{wanted} for raise-rpm; before prefect: set -a; . {file}; set +a"
        if found is None or found[1] != wanted:
            yield Check(name=name, verdict="note", text=text)
            return
    if found is None:
        from prefect.settings import get_current_settings

        url = get_current_settings().api.url
        if url is None:
            text = "this shell reaches no server (nothing sets PREFECT_API_URL here)"
            alive = services.alive()
            if "prefect" in alive:
                text += f"; export PREFECT_API_URL={alive['prefect'].url}/api"
            yield Check(name=name, verdict="note", text=text)
            return
        found = ("profile", str(url))
    source, url = found
    if refusal := _refusal(check_prefect, url):
        yield Check(name=name, verdict="fail", text=refusal)
        return
    reached = answers(f"{url.rstrip('/')}/health")
    text = f"{url} (from {source}) {'answers' if reached else 'does not answer'}"
    yield _judge(name, text, good=reached)


def _mlflow(services: Services) -> Iterator[Check]:
    alive = services.alive()
    uri = os.environ.get("MLFLOW_TRACKING_URI") or (
        alive["mlflow"].url if "mlflow" in alive else ""
    )
    if not uri:
        yield Check(name="mlflow uri", verdict="note", text="none set, and no server runs here")
        return
    if refusal := _refusal(check_mlflow, uri):
        yield Check(name="mlflow uri", verdict="fail", text=refusal)
        return
    reached = answers(f"{uri.rstrip('/')}/health") if uri.startswith("http") else False
    text = f"{uri} {'answers' if reached else 'does not answer'}"
    yield _judge("mlflow uri", text, good=reached)


def _ray(services: Services) -> Iterator[Check]:
    if address := os.environ.get("RAY_ADDRESS"):
        from tune_spaces.cluster import check_address, check_answers

        if silent := _refusal(check_answers, address):
            here = "ray" in services.alive()
            # Often a firewall, and right so: only machines that run flows speak to Ray.
            text = f"{silent}; the head of this home runs: unset RAY_ADDRESS" if here else silent
            yield Check(name="ray address", verdict="note", text=text)
            return
        refusal = _refusal(check_address, address)
        text = refusal or f"{address} (from RAY_ADDRESS) answers and takes the token"
        yield _judge("ray address", text, good=not refusal, otherwise="fail")
    elif "ray" in services.alive():
        yield Check(name="ray address", verdict="ok", text="the cluster of this home")
    else:
        yield Check(name="ray address", verdict="note", text="none set, and no head runs here")


def _store() -> Iterator[Check]:
    root = os.environ.get("RAISE_STORE")
    if root is None:
        return
    refusal = _refusal(lambda root: Store(root).probe(), root)
    yield _judge("store", refusal or f"{root} can be written", good=not refusal, otherwise="fail")
