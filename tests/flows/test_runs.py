"""Runs on a real server: which are lost, how a cancelled one ends, what a laptop sees."""

import json

import pytest
from click.testing import CliRunner
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.responses import SetStateStatus
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY as HEARTBEAT
from prefect.states import Cancelling, Completed, Crashed, Running
from prefect.testing.utilities import prefect_test_harness

from flows import runs as module
from flows.cli import cli
from flows.progress import ARTIFACT_KEY
from flows.remote_runs import read_runs
from flows.runs import DEPLOYMENT, FLOW, cancel, start_run
from flows.zombies import NAME, ensure_automation


@pytest.fixture(scope="module")
def client():
    with prefect_test_harness(server_startup_timeout=900), get_client(sync_client=True) as made:
        flow_id = made.create_flow_from_name(FLOW)
        made.create_deployment(flow_id, DEPLOYMENT)
        yield made


def in_state(client, state):
    run = start_run(client, {"preset": "lite"})
    client.set_flow_run_state(run.id, state, force=True)
    return run


def state_of(client, run):
    return client.read_flow_run(run.id).state


def test_the_automation_is_made_once_and_follows_the_heartbeat(client):
    ensure_automation(client, FLOW)
    ensure_automation(client, FLOW)
    (made,) = client.read_automations_by_name(NAME)
    assert made.trigger.within.total_seconds() == 540
    with temporary_settings({HEARTBEAT: 30}):
        ensure_automation(client, FLOW)
    (changed,) = client.read_automations_by_name(NAME)
    assert changed.id == made.id
    assert changed.trigger.within.total_seconds() == 90
    assert changed.enabled


def test_what_the_automation_does_never_undoes_a_finished_run(client):
    """The server refuses the state that the automation proposes, since it does not force it."""
    ensure_automation(client, FLOW)
    (action,) = client.read_automations_by_name(NAME)[0].actions
    assert (action.state, action.force) == (StateType.CRASHED, False)
    finished, lost = in_state(client, Completed()), in_state(client, Running())
    answer = client.set_flow_run_state(finished.id, Crashed(), force=action.force)
    assert answer.status == SetStateStatus.ABORT
    assert "already in terminal state COMPLETED" in answer.details.reason
    client.set_flow_run_state(lost.id, Crashed(), force=action.force)
    assert state_of(client, finished).is_completed()
    assert state_of(client, lost).is_crashed()


def test_a_cancelled_run_ends_cancelled_though_its_process_says_crashed(client, monkeypatch):
    monkeypatch.setattr(module, "get_client", lambda **options: _Kept(client))
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.2)
    run = in_state(client, Running())
    said: list[str] = []
    # The process ends between two looks, and no runner is there to say more.
    original = client.set_flow_run_state

    def set_state(run_id, state, force=False):
        answer = original(run_id, state, force=force)
        if state.type == Cancelling().type:
            original(run_id, Crashed(), force=True)
        return answer

    monkeypatch.setattr(client, "set_flow_run_state", set_state)
    assert cancel(run.name, said.append).is_cancelled()
    assert state_of(client, run).is_cancelled()
    assert said == [f"cancelling {run.name} ..."]


class _Kept:
    """A client that stays open."""

    def __init__(self, client):
        self._client = client

    def __enter__(self):
        return self._client

    def __exit__(self, *error):
        pass


def test_a_run_elsewhere_is_told_with_its_stages_and_parameters(client, monkeypatch, tmp_path):
    run = in_state(client, Running())
    line = "trials 3/14 done, 2 running, 1 failed; best validation accuracy 0.412; about 2 h left"

    client.create_artifact(
        ArtifactCreate(
            key=ARTIFACT_KEY,
            type="progress",
            data=40.0,
            description=f"- problems: 4 splits\n- train: {line}\n- evaluate: to come",
            flow_run_id=run.id,
        )
    )
    found = {status.id: status for status in read_runs(client)}[str(run.id)]
    assert (found.state, found.percent) == ("Running", 40.0)
    assert found.stages == {"problems": "4 splits", "train": line}
    assert found.parameters == {"preset": "lite"}
    monkeypatch.setenv("RAISE_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_API_URL", PREFECT_API_URL.value())
    shown = CliRunner().invoke(cli, ["status", "--json"])
    value = json.loads(shown.stdout.splitlines()[-1])
    assert value["services"] == []
    assert value["servers"][0]["answers"]
    assert run.name in [status["name"] for status in value["runs"]]
    assert f"{run.name}: train: {line}" in shown.stdout
    assert shown.exit_code == 0
