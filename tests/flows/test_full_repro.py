"""The flow against a temporary Prefect server; the stages' heavy halves are replaced."""

import logging
from types import SimpleNamespace
from uuid import uuid4

import httpx
import pytest
import ray
from prefect.client.orchestration import get_client
from prefect.testing.utilities import prefect_test_harness

from flows import evaluate as evaluate_stage
from flows import full_repro as module
from flows import ingest as ingest_stage
from flows import progress as progress_module
from flows import sweep as sweep_stage
from flows.full_repro import full_repro
from raise_model.errors import UserError
from tune_spaces.evaluation import EvaluationOutcome
from tune_spaces.sweep import SweepOutcome


@pytest.fixture(scope="module", autouse=True)
def server():
    with prefect_test_harness(server_startup_timeout=60):
        yield


class FakeTracker:
    """Notes what it is told; has no server."""

    uri = "http://tracker"
    experiment_path = "#/experiments/1"

    def __init__(self, uri):
        self.calls = []
        trackers.append(self)

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.calls.append(("exit", kind))

    def __getattr__(self, name):
        return lambda *arguments, **options: self.calls.append((name, *arguments))


trackers: list[FakeTracker] = []


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    """A cluster that trains and evaluates in no time, and fails what it is told to."""
    fake = SimpleNamespace(trained=[], evaluated=[], failing=set(), gpus=0)

    def sweep(store, specs, *, resources, on_report, on_state, on_node, prunable):
        for spec in specs:
            on_state(spec.name, "running", "")
            on_node(spec.name, "node-1")
            on_report(spec.name, {"step": float(spec.steps), "validation_accuracy": 0.5})
            state = "failed" if spec.seed in fake.failing else "done"
            on_state(spec.name, state, "out of memory" if state == "failed" else "")
            fake.trained.append(spec.name)
        failed = {s.name: "out of memory" for s in specs if s.seed in fake.failing}
        return SweepOutcome(done=[s.name for s in specs if s.name not in failed], failed=failed)

    def evaluate(store, pairs, *, resources, on_state):
        for trial, spec in pairs:
            on_state(trial, spec, "done", "")
            fake.evaluated.append((trial, spec.name))
        return EvaluationOutcome(done=list(pairs), failed={})

    trackers.clear()
    monkeypatch.setenv("RAISE_HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracker")
    monkeypatch.setattr(module, "connect", lambda: None)
    monkeypatch.setattr(module, "preflight", lambda *arguments: None)
    monkeypatch.setattr(module, "Tracker", FakeTracker)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0, "GPU": float(fake.gpus)})
    monkeypatch.setattr(sweep_stage, "sweep", sweep)
    monkeypatch.setattr(evaluate_stage, "evaluate_on_cluster", evaluate)
    monkeypatch.setattr(ingest_stage, "_generate", lambda *arguments: None)
    monkeypatch.setattr(
        ingest_stage, "open_manifest", lambda store, *split: SimpleNamespace(digest="-".join(split))
    )
    return fake


def run(**parameters):
    return full_repro(preset="smoke", configurations=["center"], return_state=True, **parameters)


def artifacts():
    """The newest artifact of each key."""
    with get_client(sync_client=True) as client:
        found = sorted(client.read_artifacts(), key=lambda artifact: artifact.created)
    return {artifact.key: artifact for artifact in found}


def test_a_run_trains_evaluates_and_reports(cluster):
    state = run(trials=2)
    assert state.is_completed()
    assert state.message == "2 trials, 20 evaluations"
    assert len(cluster.trained) == 2
    assert len(cluster.evaluated) == 20
    (tracker,) = trackers
    assert ("exit", None) in tracker.calls
    assert [call[2] for call in tracker.calls if call[0] == "end"] == ["FINISHED"] * 2
    found = artifacts()
    assert found["raise-progress"].data == 100.0
    assert "http://tracker/#/experiments/1" in found["raise-report"].data
    assert "raise-results" in found


def test_first_seeds_are_evaluated_and_reported_before_the_others_are_trained(cluster, monkeypatch):
    order, reports = [], []
    train, evaluate, report = module.train, module.evaluate, module.report

    def noted(stage, call):
        def wrapped(*arguments, **options):
            order.append(stage)
            result = call(*arguments, **options)
            if stage == "report":
                reports.append(artifacts()["raise-progress"].data)
            return result

        return wrapped

    for name, call in (("train", train), ("evaluate", evaluate), ("report", report)):
        monkeypatch.setattr(module, name, noted(name, call))
    assert run(trials=3, max_concurrent=1).is_completed()
    assert order == ["train", "evaluate", "report"] * 2
    assert ["-s0-" in name for name in cluster.trained] == [True, False, False]
    assert len(set(cluster.trained)) == len(cluster.trained)
    assert 0 < reports[0] < reports[1] == 100.0


def test_a_failed_trial_fails_the_flow_after_the_others_were_reported(cluster):
    cluster.failing = {0}
    state = run(trials=2)
    assert state.is_failed()
    assert "1 of 22 trials and evaluations failed" in state.message
    assert "out of memory" in state.message
    assert {name for name, _ in cluster.evaluated} == {
        name for name in cluster.trained if "-s1-" in name
    }
    statuses = [call[2] for call in trackers[0].calls if call[0] == "end"]
    assert statuses == ["FAILED", "FINISHED"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"models": ["raize"]}, "unknown model 'raize'; known: anp, clap, lgpp, raise"),
        ({"label_ratio": -0.5}, "label_ratio must lie in [0, 1]"),
        ({"max_hours": 1e-6}, "preset=smoke would take about"),
    ],
)
def test_a_mistake_is_the_states_message_and_starts_nothing(cluster, parameters, message):
    state = run(**parameters)
    assert state.is_failed()
    assert message in state.message
    assert cluster.trained == []


def test_auto_is_paper_with_gpus_and_lite_without(cluster):
    assert module._resolve_preset("auto") == "lite"
    cluster.gpus = 8
    assert module._resolve_preset("auto") == "paper"
    assert module._resolve_preset("demo") == "demo"


def test_slots_are_what_fits_into_the_cluster(cluster):
    def slots(**options):
        return module.slots_of_cluster(module.Resources(**options))

    assert slots() == 2
    assert slots(cpus_per_trial=2) == 1
    assert slots(max_concurrent=1) == 1
    cluster.gpus = 1
    assert slots(device="cuda", gpus_per_trial=0.5) == 2
    assert slots(device="cuda", gpus_per_trial=1.0) == 1


def test_a_users_mistake_is_logged_without_a_traceback(caplog):
    logger = logging.getLogger("raise-test")
    module._silence_tracebacks(logger)
    for error in (UserError("no disk"), KeyError("x")):
        try:
            raise error
        except (UserError, KeyError):
            logger.exception("Encountered exception")
    first, second = caplog.records
    assert (first.getMessage(), first.exc_info) == ("error: no disk", None)
    assert second.exc_info is not None


def test_a_server_that_is_away_does_not_end_the_run(monkeypatch):
    logged = []
    logger = SimpleNamespace(info=lambda *a: None, warning=lambda *a: logged.append(a))
    monkeypatch.setattr(progress_module, "get_run_logger", lambda: logger)
    monkeypatch.setattr(progress_module, "create_progress_artifact", lambda **options: uuid4())
    progress = progress_module.Progress()

    def refuse(*arguments, **options):
        raise httpx.ConnectError("away")

    monkeypatch.setattr(progress_module, "update_progress_artifact", refuse)
    progress.update("train", 0.5, "half", now=True)
    assert len(logged) == 1


def test_the_table_names_what_is_missing(cluster):
    assert run(trials=1).is_completed()
    # The fake evaluations wrote no result; other protocols than this table's do not count.
    assert "PARTIAL: 4 results are missing" in artifacts()["raise-report"].data
