"""The embedded services: refusals without starting anything, and (slow) the real ones."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from flows import processes, service_commands
from flows.services import Service, Services, answers
from raise_model.errors import UserError


@pytest.fixture
def services(tmp_path):
    services = Services(tmp_path / "home")
    yield services
    processes.stop(services.home, ["runner", "ray", "mlflow", "prefect"])


@pytest.fixture
def ports():
    return {name: processes.free_port() for name in ("prefect", "mlflow", "ray")}


def ignore(name, what):
    pass


def test_a_busy_port_is_named_with_its_option_and_nothing_is_started(services, ports):
    with socket.socket() as server:
        server.bind(("127.0.0.1", ports["mlflow"]))
        server.listen()
        with pytest.raises(UserError) as refusal:
            services.up(ports, ignore)
    assert str(refusal.value) == (
        f"port {ports['mlflow']} (MLflow) is busy; free it or choose another with --mlflow-port"
    )
    assert processes.find(services.home) == []


def test_one_port_for_two_services_is_refused(services, ports):
    with pytest.raises(UserError, match="is given twice"):
        services.up(ports | {"ray": ports["mlflow"]}, ignore)


def test_a_service_that_ends_while_starting_is_told_with_its_log_and_all_are_stopped(
    services, ports, monkeypatch
):
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    fail = [sys.executable, "-c", "raise SystemExit('no disk')"]
    commands = {
        "prefect": lambda home, port: sleep,
        "mlflow": lambda home, port: fail,
        "ray": lambda home, port: sleep,
        "runner": lambda home, port: sleep,
    }
    extras = dict.fromkeys(commands, lambda home: {})
    monkeypatch.setattr("flows.services.COMMANDS", commands)
    monkeypatch.setattr("flows.services.EXTRAS", extras)
    with pytest.raises(UserError) as refusal:
        services.up(ports, ignore)
    assert str(refusal.value).startswith("MLflow ended while starting: no disk; log: ")
    assert processes.find(services.home) == []
    assert services.known() == {}


def test_a_pid_that_someone_else_has_now_is_not_taken_for_a_service(services):
    services.home.mkdir()
    stale = Service(name="prefect", pid=os.getpid(), url="http://127.0.0.1:1", log="")
    services._remember({"prefect": stale})
    assert services.known() == {"prefect": stale}
    assert services.alive() == {}
    assert not services.down(ignore)


def test_two_at_once_are_refused(services, ports):
    services.home.mkdir()
    with services._locked(), pytest.raises(UserError, match="another raise-rpm up or down"):
        services.up(ports, ignore)


def test_a_damaged_state_file_is_named(services):
    services.home.mkdir()
    (services.home / "services.json").write_text("{")
    with pytest.raises(UserError, match=r"services\.json is damaged"):
        services.known()


def test_a_half_made_database_is_made_anew_and_a_whole_one_kept(services):
    folder = services.home / "mlflow"
    folder.mkdir(parents=True)
    (folder / "mlflow.db").touch()
    (folder / "initialised").touch()
    services._remove_half_made("mlflow")
    assert (folder / "mlflow.db").exists()
    (folder / "initialised").unlink()
    services._remove_half_made("mlflow")
    assert not folder.exists()


def test_what_would_mislead_a_service_is_not_passed_on(monkeypatch, tmp_path):
    monkeypatch.setenv("PREFECT_API_URL", "http://elsewhere/api")
    monkeypatch.setenv("RAY_ADDRESS", "elsewhere:6379")
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.setenv("NO_PROXY", "intranet")
    environment = service_commands.clean_environment()
    assert "PREFECT_API_URL" not in environment
    assert "RAY_ADDRESS" not in environment
    assert environment["PYTHONPATH"] == str(Path.cwd())
    assert environment["NO_PROXY"] == "intranet,127.0.0.1,localhost"


def test_state_is_under_the_home_and_nobody_reports(tmp_path):
    environment = service_commands.addresses(tmp_path, {"prefect": "http://127.0.0.1:1"})
    assert environment["PREFECT_HOME"] == str(tmp_path / "prefect")
    assert environment["PREFECT_API_URL"] == "http://127.0.0.1:1/api"
    assert environment["DO_NOT_TRACK"] == "true"
    assert environment["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert environment["RAY_USAGE_STATS_ENABLED"] == "0"


def test_what_ray_leaves_behind_is_gone_when_it_starts_again(tmp_path):
    temporary = Path(service_commands.EXTRAS["ray"](tmp_path)["TMPDIR"])
    assert temporary.is_relative_to(service_commands._ray_folder(tmp_path))
    service_commands.COMMANDS["ray"](tmp_path, 8265)
    (temporary / "left").touch()
    service_commands.COMMANDS["ray"](tmp_path, 8265)
    assert list(temporary.iterdir()) == []
    assert "TMPDIR" not in service_commands.EXTRAS["runner"](tmp_path)


def test_ray_gets_a_path_that_is_short_enough_for_sockets(tmp_path):
    assert service_commands._ray_folder(Path("/srv/raise")) == Path("/srv/raise/ray")
    long = service_commands._ray_folder(Path("/home") / ("x" * 80))
    assert len(str(long)) <= service_commands.SOCKET_PATH_BYTES
    assert long != service_commands._ray_folder(Path("/home") / ("y" * 80))


def command(home, *arguments):
    environment = os.environ | {"RAISE_HOME": str(home), "HOME": str(home.parent / "user")}
    environment.pop("PREFECT_API_URL", None)
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_up_status_crash_up_down_leave_nothing(services, ports):
    home = services.home
    (home.parent / "user").mkdir()
    options = [
        "--port", str(ports["prefect"]), "--mlflow-port", str(ports["mlflow"]),
        "--dashboard-port", str(ports["ray"]),
    ]  # fmt: skip
    started = command(home, "up", *options)
    assert started.returncode == 0, started.stderr
    assert (home / "ray_token").read_text() not in started.stdout + started.stderr
    status = json.loads(command(home, "status", "--json").stdout.splitlines()[-1])
    assert all(service["answers"] for service in status["services"])
    deployment = f"http://127.0.0.1:{ports['prefect']}/api/deployments/name/raise/full-repro"
    assert answers(deployment)

    again = command(home, "up", *options)
    assert again.returncode == 0
    assert "already running" in again.stderr

    everyone = processes.find(home)
    os.kill(status["services"][1]["pid"], signal.SIGKILL)
    assert command(home, "status").returncode == 1
    assert command(home, "up", *options).returncode == 0
    everyone += processes.find(home)

    assert command(home, "down").returncode == 0
    assert processes.find(home) == []
    _, alive = psutil.wait_procs(everyone, timeout=1)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
    assert list((home.parent / "user").iterdir()) == []
