"""The real servers with passwords, started by the commands of the systemd units.

Right, wrong and no credentials, from raise-rpm, through TLS, and what process lists and logs
show meanwhile.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from flows.cluster_settings import parse, write
from flows.credentials import check_mlflow, check_prefect
from flows.processes import free_port
from flows.services import answers
from raise_model.errors import UserError
from tests.deploy.tls_proxy import make_certificate, running_nginx, wait_until_open

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
MODULES = {"prefect": "prefect", "mlflow": "mlflow", "ray": "ray.scripts.scripts"}
START_SECONDS = 400.0


@dataclass(frozen=True, kw_only=True)
class Servers:
    folder: Path
    settings: dict[str, str]
    """Of cluster.env, with the ports of this test."""
    secrets: set[str]
    processes: dict[str, subprocess.Popen[bytes]]

    def environment(self, **changes: str) -> dict[str, str]:
        """Of a user's shell; an empty value removes a variable."""
        base = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        base["PYTHONPATH"] = os.pathsep.join([str(ROOT), base.get("PYTHONPATH", "")])
        home = {"HOME": str(self.folder), "RAISE_HOME": str(self.folder / "home")}
        merged = base | home | {"PREFECT_HOME": str(self.folder / "prefect")} | self.settings
        return {name: value for name, value in (merged | changes).items() if value}

    def raise_rpm(self, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "flows.cli", *words], env=self.environment(**changes),
            cwd=self.folder, capture_output=True, text=True, timeout=300,
        )  # fmt: skip


def _start_command(unit: str, replace: dict[str, str]) -> list[str]:
    """A unit's ExecStart for this interpreter, with other ports and folders."""
    text = (ROOT / "deploy" / "systemd" / f"raise-{unit}.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    for old, new in replace.items():
        assert old in line, f"{unit}: {old}"
        line = line.replace(old, new)
    program, *words = shlex.split(line)
    return [sys.executable, "-m", MODULES[Path(program).name], *words]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    pytest.importorskip("flask_wtf", reason="MLflow asks for passwords only with Flask-WTF")
    folder = tmp_path_factory.mktemp("servers")
    write(folder, "127.0.0.1", "127.0.0.1")
    ports = {name: free_port() for name in ("prefect", "mlflow", "ray")}
    settings = parse((folder / "cluster.env").read_text(), folder / "cluster.env")
    own = parse((folder / "servers.env").read_text(), folder / "servers.env")
    secrets = {v for n, v in (settings | own).items() if re.search("PASSWORD|AUTH_|SECRET", n)}
    secrets = {value.removeprefix("raise:") for value in secrets if len(value) >= 20}
    settings["PREFECT_API_URL"] = f"http://127.0.0.1:{ports['prefect']}/api"
    settings["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{ports['mlflow']}"
    settings["RAY_ADDRESS"] = f"127.0.0.1:{ports['ray']}"
    # The databases of this test are files.
    own["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = f"sqlite+aiosqlite:///{folder}/prefect.db"
    own["MLFLOW_BACKEND_STORE_URI"] = f"sqlite:///{folder}/mlflow.db"
    own["MLFLOW_ARTIFACTS_DESTINATION"] = f"{folder}/files"
    own["MLFLOW_AUTH_CONFIG_PATH"] = str(folder / "mlflow_auth.ini")
    (folder / "mlflow_auth.ini").write_text(
        (ROOT / "deploy" / "mlflow_auth.ini").read_text().replace("/var/lib/raise", str(folder))
    )
    made = Servers(folder=folder, settings=settings, secrets=secrets, processes={})
    listen = {"${RAISE_LISTEN}": "127.0.0.1"}
    commands = {
        "prefect": _start_command("prefect", listen | {"4200": str(ports["prefect"])}),
        "mlflow": _start_command(
            "mlflow",
            listen | {"5000": str(ports["mlflow"]), "--workers 2": "--workers 1"},
        ),
    }  # fmt: skip
    try:
        for name, command in commands.items():
            with (folder / f"{name}.log").open("wb") as log:
                made.processes[name] = subprocess.Popen(
                    command, env=made.environment(**own), cwd=folder, stdout=log,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            _wait(f"http://127.0.0.1:{ports[name]}{HEALTH[name]}", made.processes[name])
        yield made
    finally:
        for process in made.processes.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                family = psutil.Process(process.pid).children(recursive=True)
                process.terminate()
                process.wait(timeout=60)
                for child in family:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()


HEALTH = {"prefect": "/api/health", "mlflow": "/health"}


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not answers(url):
        assert process.poll() is None, f"{url} ended"
        assert time.monotonic() < deadline, f"{url} does not answer"
        time.sleep(0.5)


def test_right_credentials_are_taken(servers):
    check_prefect(servers.settings["PREFECT_API_URL"], servers.settings)
    check_mlflow(servers.settings["MLFLOW_TRACKING_URI"], servers.settings)
    found = servers.raise_rpm("cancel")
    # Nothing is deployed yet: the server was asked, and answered.
    assert "has no deployment raise/full-repro" in found.stderr


@pytest.mark.parametrize(
    ("given", "says"), [("", "asks for a password"), ("raise:wrong", "refuses PREFECT_API_AUTH")]
)
def test_prefect_refuses_in_one_line(servers, given, says):
    found = servers.raise_rpm("cancel", PREFECT_API_AUTH_STRING=given)
    _is_one_line(servers, found, f"the Prefect server at {servers.settings['PREFECT_API_URL']}")
    assert says in found.stderr


@pytest.mark.parametrize("given", ["", "wrong"])
def test_mlflow_refuses_in_one_line(servers, given):
    (servers.folder / "store").mkdir(exist_ok=True)
    found = servers.raise_rpm(
        "sync", "--store", str(servers.folder / "store"), MLFLOW_TRACKING_PASSWORD=given
    )
    uri = servers.settings["MLFLOW_TRACKING_URI"]
    _is_one_line(servers, found, f"the MLflow server at {uri}")


def _is_one_line(servers, found, beginning):
    assert found.returncode == 2, found.stderr
    assert found.stderr.startswith(f"error: {beginning}"), found.stderr
    assert found.stderr.count("\n") == 1, found.stderr
    assert not any(secret in found.stderr + found.stdout for secret in servers.secrets)


def test_doctor_says_who_refuses(servers):
    found = servers.raise_rpm("doctor", MLFLOW_TRACKING_PASSWORD="wrong")
    assert "refuses MLFLOW_TRACKING_USERNAME" in " ".join(found.stdout.split())
    assert not any(secret in found.stdout for secret in servers.secrets)


def test_prefects_pages_call_the_server_that_they_came_from(servers):
    root = servers.settings["PREFECT_API_URL"].removesuffix("/api")
    with urllib.request.urlopen(f"{root}/ui-settings", timeout=60) as answer:
        assert json.load(answer)["api_url"] == "/api"


def test_no_secret_is_in_the_process_list_or_in_a_log(servers):
    assert len(servers.secrets) >= 5
    shown = []
    for process in servers.processes.values():
        family = [psutil.Process(process.pid)]
        family += family[0].children(recursive=True)
        shown += [" ".join(member.cmdline()) for member in family]
    shown += [path.read_text(errors="replace") for path in servers.folder.glob("*.log")]
    assert len(shown) >= 4
    assert not [text for text in shown for secret in servers.secrets if secret in text]


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_both_servers_work_behind_tls(servers, tmp_path):
    make_certificate(tmp_path)
    fronts = {name: free_port() for name in ("4443", "5443", "8443")}
    backs = {
        old: int(servers.settings[name].split(":")[2].split("/")[0])
        for old, name in (("4200", "PREFECT_API_URL"), ("5000", "MLFLOW_TRACKING_URI"))
    }
    certificate = str(tmp_path / "tls.crt")
    changes = {
        "PREFECT_API_URL": f"https://127.0.0.1:{fronts['4443']}/api",
        "MLFLOW_TRACKING_URI": f"https://127.0.0.1:{fronts['5443']}",
        "PREFECT_API_SSL_CERT_FILE": certificate,
        "MLFLOW_TRACKING_SERVER_CERT_PATH": certificate,
        "SSL_CERT_FILE": certificate,
    }
    (servers.folder / "store").mkdir(exist_ok=True)
    with running_nginx(tmp_path, fronts | backs):
        for port in fronts.values():
            wait_until_open(port)
        found = servers.raise_rpm("cancel", **changes)
        assert "has no deployment raise/full-repro" in found.stderr, found.stderr
        refused = servers.raise_rpm("cancel", **changes | {"PREFECT_API_AUTH_STRING": "wrong"})
        assert "refuses PREFECT_API_AUTH_STRING" in refused.stderr
        store = str(servers.folder / "store")
        found = servers.raise_rpm("sync", "--store", store, **changes)
        assert found.returncode == 0, found.stderr


def test_ray_refuses_a_wrong_token_and_none_in_one_line(servers, tmp_path):
    port = servers.settings["RAY_ADDRESS"].rpartition(":")[2]
    command = _start_command(
        "ray-head",
        {"6379": port, "/var/lib/raise/ray": f"/tmp/rt{os.getpid()}", "8265": str(free_port()),
         "$RAISE_RAY_OPTIONS": "--num-cpus=1 --node-ip-address=127.0.0.1 "
         "--dashboard-agent-listen-port=0 "
         f"--ray-client-server-port={free_port()} --include-dashboard=false"},
    )  # fmt: skip
    log = servers.folder / "ray.log"
    head = _start_head(command, servers.environment(), log)
    try:
        for changes, says in (
            ({}, "fine"),
            ({"RAY_AUTH_TOKEN": "wrong"}, "refuses the token in RAY_AUTH_TOKEN"),
            ({"RAY_AUTH_TOKEN": "", "RAY_AUTH_MODE": ""}, "refuses the token in "),
        ):
            assert says in _ask_ray(servers, changes)
        family = psutil.Process(head.pid).children(recursive=True)
        shown = [" ".join(process.cmdline()) for process in family] + [log.read_text()]
        assert not [text for text in shown if servers.settings["RAY_AUTH_TOKEN"] in text]
    finally:
        family = psutil.Process(head.pid).children(recursive=True)
        head.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            head.wait(timeout=60)
        for process in [*family, psutil.Process()][:-1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        head.kill()
        shutil.rmtree(f"/tmp/rt{os.getpid()}", ignore_errors=True)


def _start_head(
    command: list[str], environment: dict[str, str], log: Path
) -> subprocess.Popen[bytes]:
    for _ in range(5):  # Ray gives itself 30 seconds, which a busy machine may not do with
        with log.open("wb") as output:
            head = subprocess.Popen(
                command, env=environment, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        while head.poll() is None:
            if "Ray runtime started" in log.read_text():
                return head
            time.sleep(0.5)
    pytest.fail(log.read_text())


ASK_RAY = """
import os
from raise_model.errors import UserError
from tune_spaces.cluster import _adopt
from tune_spaces.cluster_access import check_token
from tune_spaces.home import ray_environment, raise_home
_adopt(ray_environment(raise_home()))
try:
    check_token(os.environ["RAY_ADDRESS"])
    print("fine")
except UserError as error:
    print(error)
"""


def _ask_ray(servers: Servers, changes: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ASK_RAY], env=servers.environment(**changes),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    return done.stdout


def test_check_functions_tell_wrong_from_none(servers):
    with pytest.raises(UserError, match="asks for a password"):
        check_mlflow(servers.settings["MLFLOW_TRACKING_URI"], {})
    with pytest.raises(UserError, match="refuses"):
        check_prefect(servers.settings["PREFECT_API_URL"], {"PREFECT_API_AUTH_STRING": "x:y"})
