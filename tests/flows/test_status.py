"""What a shell is told that points at servers elsewhere; no server is started."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from artifacts import mlflow_runs
from flows import status as module
from flows.cli import cli
from flows.remote_runs import RunStatus, _stages
from flows.status import named_servers, tracked_trials

LINE = "trials 3/14 done, 2 running, 1 failed; best validation accuracy 0.412; about 2 h left"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("RAISE_HOME", str(tmp_path / "home"))
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "RAISE_STORE"):
        monkeypatch.delenv(name, raising=False)
    asked = []

    def answers(url, timeout):
        asked.append(url)
        return "gone" not in url

    monkeypatch.setattr(module, "answers", answers)
    monkeypatch.setattr(module.Services, "reach_prefect", lambda self: None)

    def run(*arguments):
        found = CliRunner().invoke(cli, ["status", "--json", *arguments])
        return SimpleNamespace(
            code=found.exit_code, text=found.output, value=json.loads(found.stdout.splitlines()[-1])
        )

    run.asked = asked
    return run


def remote_run(**changes):
    values = {
        "name": "calm-otter", "id": "1", "state": "Running", "message": "", "seconds": 3600.0,
        "percent": 40.0, "stages": {"train": LINE}, "parameters": {"preset": "paper"},
    }  # fmt: skip
    return RunStatus(**(values | changes))


def test_servers_of_the_environment_are_asked_and_their_runs_told(run, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://cluster:4200/api")
    monkeypatch.setattr(module, "_runs", lambda: ([remote_run()], ""))
    found = run()
    assert found.code == 0
    assert run.asked == ["http://cluster:4200/api/health"]
    assert found.value["services"] == []
    assert found.value["runs"][0]["stages"] == {"train": LINE}
    assert f"calm-otter: train: {LINE}" in found.text
    assert "preset=paper" in found.text


def test_a_server_that_is_silent_makes_status_fail(run, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://gone:4200/api")
    found = run()
    assert found.code == 1
    assert found.value["servers"][0]["answers"] is False
    assert found.value["runs"] == []


def test_a_server_without_the_deployment_is_one_line(run, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://cluster:4200/api")
    monkeypatch.setattr(module, "_runs", lambda: ([], "no deployment raise/full-repro"))
    found = run()
    assert found.code == 1
    assert "no deployment raise/full-repro" in found.text


def test_mlflow_alone_tells_how_many_trials_there_are(run, monkeypatch):
    def tracked(status, **metrics):
        return SimpleNamespace(
            info=SimpleNamespace(status=status), data=SimpleNamespace(metrics=metrics)
        )

    runs = [
        tracked("FINISHED", validation_accuracy=0.9), tracked("FINISHED", validation_accuracy=0.8),
        tracked("RUNNING"),
    ]  # fmt: skip
    experiment = SimpleNamespace(search=lambda condition: runs)
    monkeypatch.setattr(mlflow_runs, "Experiment", lambda uri: experiment)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://cluster:5000")
    found = run()
    assert found.value["tracked"] == {"finished": 2, "running": 1, "best_accuracy": 0.9}
    assert "2 finished, 1 running, best validation accuracy 0.900" in found.text
    assert tracked_trials("http://cluster:5000") == found.value["tracked"]


def test_only_addresses_of_servers_are_asked():
    assert named_servers({"MLFLOW_TRACKING_URI": "sqlite:///x.db"}) == []
    assert named_servers({}) == []


def test_stages_that_have_not_begun_are_left_out():
    text = f"- problems: 4 splits\n- train: {LINE}\n- evaluate: to come\n- other: x"
    assert _stages(text) == {"problems": "4 splits", "train": LINE}
