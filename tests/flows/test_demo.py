"""What ``raise-rpm demo`` says of the services when it ends, with stand-ins for them."""

import logging
import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from flows import demo, processes, service_commands
from flows.cli import cli
from flows.runs import Moment
from flows.services import NAMES, Services

STAND_IN = """
import signal, sys, time, types
from flows import services
# A suite that runs in the background hands SIGINT down as ignored; a terminal does not.
signal.signal(signal.SIGINT, signal.default_int_handler)
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
services.COMMANDS = {name: lambda home, port: sleep for name in services.NAMES}
services.EXTRAS = {name: lambda home: {} for name in services.NAMES}
services.DATABASES = ()
services.Services._answers = lambda self, service: True

def run_demo(parameters):
    print("following", parameters, file=sys.stderr, flush=True)
    time.sleep(600)

sys.modules["flows.demo"] = types.SimpleNamespace(run_demo=run_demo)
from flows.cli import main
main()
"""


@pytest.fixture
def services(tmp_path, monkeypatch):
    made = Services(tmp_path / "home")
    monkeypatch.setenv("RAISE_HOME", str(made.home))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    yield made
    processes.stop(made.home, NAMES)


def test_ctrl_c_leaves_the_services_up_and_says_so(services):
    ports = [str(processes.free_port()) for _ in range(3)]
    options = ["--port", ports[0], "--mlflow-port", ports[1], "--dashboard-port", ports[2]]
    # A terminal sends the signal to the whole group of the command.
    with subprocess.Popen(
        [sys.executable, "-c", STAND_IN, "demo", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as command:  # fmt: skip
        assert command.stderr is not None
        assert any(line.startswith("following {'preset': 'demo'}") for line in command.stderr)
        os.killpg(command.pid, signal.SIGINT)
        said, errors = command.communicate(timeout=60)
    assert command.returncode == 130
    assert "Traceback" not in errors
    assert said.splitlines()[-1] == "The services stay up; stop them by: raise-rpm down"
    assert set(services.alive()) == set(NAMES)


@pytest.fixture
def run(services, monkeypatch):
    """``demo`` whose run does as it is told."""
    monkeypatch.setattr("flows.services_console.bring_up", lambda ports: services)

    def run(work):
        monkeypatch.setattr(demo, "run_demo", lambda parameters: work())
        return CliRunner().invoke(cli, ["demo"])

    return run


def test_services_that_went_down_with_the_run_are_not_said_to_stay(run, services):
    found = run(lambda: False)
    assert found.exit_code == 1
    assert "stay up" not in found.output
    assert f"{services.home} are down; start them by: raise-rpm up" in found.output


def test_ctrl_c_while_services_start_says_that_they_are_down_again(run, services, monkeypatch):
    def interrupted(ports):
        raise KeyboardInterrupt

    monkeypatch.setattr("flows.services_console.bring_up", interrupted)
    found = run(lambda: True)
    assert found.exit_code == 130
    assert found.stdout.splitlines() == [
        f"The services of {services.home} are down; start them by: raise-rpm up"
    ]


def test_some_services_are_named_and_a_down_at_work_is_told(run, services):
    services.home.mkdir()
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    log = services.home / "mlflow.log"
    pid = processes.start("mlflow", sleep, services.home, dict(os.environ), log)
    from flows.services import Service

    services._remember({"mlflow": Service(name="mlflow", pid=pid, url="http://x", log=str(log))})
    found = run(lambda: True)
    assert found.exit_code == 0
    assert "Of the services MLflow stay up; stop them by: raise-rpm down" in found.output
    with services._locked():
        found = run(lambda: True)
    assert "stay up" not in found.output
    assert "Another raise-rpm starts or stops the services now" in found.output


class FakeClient:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


@pytest.mark.parametrize(
    ("runner", "text"),
    [("runner", "calm-otter goes on in the services; stop it by: raise-rpm cancel calm-otter"),
     ("mlflow", "calm-otter has stopped with its runner")],
)  # fmt: skip
def test_an_interrupted_demo_says_whether_its_run_goes_on(monkeypatch, capsys, runner, text):
    service = type("Service", (), {"url": "http://127.0.0.1:1", "id": 1, "name": "calm-otter"})
    monkeypatch.setattr(demo, "get_client", lambda **options: FakeClient())
    monkeypatch.setattr(demo, "start_run", lambda client, parameters: service)
    monkeypatch.setattr(Services, "reach_prefect", lambda self: None)
    monkeypatch.setattr(Services, "known", lambda self: {"prefect": service})
    monkeypatch.setattr(Services, "alive", lambda self: {runner: service})

    def follow(client, run_id):
        yield Moment(lines=["plan"], percent=1.0, state=None)
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "follow", follow)
    with pytest.raises(KeyboardInterrupt):
        demo.run_demo({})
    assert text in " ".join(capsys.readouterr().err.split())


def test_only_what_fails_of_a_stage_is_logged_by_prefect(tmp_path):
    """The flow's runs are processes of the runner, with its environment."""
    (tmp_path / "ray_port").write_text("1")
    extras = service_commands._runner_extras(tmp_path)
    code = (
        "import logging; from prefect.logging.configuration import setup_logging; setup_logging(); "
        "print(*(logging.getLogger(f'prefect.{name}_runs').getEffectiveLevel() "
        "for name in ('task', 'flow')))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | extras, capture_output=True, text=True
    )
    levels = [int(level) for level in found.stdout.split()]
    assert levels == [logging.WARNING, logging.INFO], found.stderr
