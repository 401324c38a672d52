"""Evaluations as Ray tasks over finished trainings."""

import dataclasses
import os
import signal
import threading
import time

import pytest
import ray

from raise_model.evaluation.evaluate import PROTOCOLS
from raise_model.specs import EvaluationSpec
from raise_model.training.trial import run_trial
from tune_spaces import evaluation as evaluation_module
from tune_spaces.cluster import Resources
from tune_spaces.evaluation import evaluate

pytestmark = [
    pytest.mark.filterwarnings("default::DeprecationWarning"),
    pytest.mark.filterwarnings("default::FutureWarning"),
    pytest.mark.filterwarnings("default::ResourceWarning"),
    pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def trained(ray_cluster, store, make_spec, data):
    spec = make_spec()
    run_trial(store, spec, device="cpu", threads=1, cache=data[0] / "cache")
    return store.trial(spec)


@pytest.fixture
def evaluation_spec(data):
    return EvaluationSpec(
        protocol="bottom_right",
        options={"space": "latent"},
        dataset="raven",
        configuration="center",
        split="test",
        digest=data[1]["test"],
        rounds=2,
        seed=0,
        revision=PROTOCOLS["bottom_right"].revision,
    )


def test_evaluations_run_once_and_failures_do_not_stop_others(
    trained, evaluation_spec, store, data
):
    states = []

    def run(pairs):
        return evaluate(
            store,
            pairs,
            resources=Resources(device="cpu"),
            cache=data[0] / "cache",
            on_state=lambda trial, spec, state, detail: states.append((state, detail)),
        )

    lacking = dataclasses.replace(evaluation_spec, dataset="iraven")
    pairs = [(trained.name, lacking), (trained.name, evaluation_spec)]
    outcome = run(pairs)
    assert outcome.done == [pairs[1]]
    assert list(outcome.failed) == [f"{trained.name}/{lacking.name}"]
    (reason,) = outcome.failed.values()
    assert "iraven/center" in reason
    assert "\n" not in reason
    result = trained.evaluation(evaluation_spec).result()
    assert result["problems"] == 24
    assert len(result["accuracy"]) == 2
    states.clear()
    assert run(pairs[1:]).done == pairs[1:]
    assert states == [("done", "finished before")]
    assert trained.done()["attempts"] == 1, "a new evaluation never trains"


def test_a_signal_reaches_its_handler_while_an_evaluation_runs(
    trained, evaluation_spec, store, monkeypatch, tmp_path, free_cpus
):
    class Terminated(BaseException):
        pass

    def handler(number, frame):
        raise Terminated

    @ray.remote
    def endless(*arguments):
        (tmp_path / "started").touch()
        time.sleep(600)

    def terminate():
        while not (tmp_path / "started").exists():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(evaluation_module, "_evaluate", endless)
    before = signal.signal(signal.SIGTERM, handler)
    threading.Thread(target=terminate, daemon=True).start()
    try:
        with pytest.raises(Terminated):
            evaluate(
                store, [(trained.name, evaluation_spec)], resources=Resources(device="cpu"),
                on_state=lambda *state: None, cache=tmp_path,
            )  # fmt: skip
    finally:
        signal.signal(signal.SIGTERM, before)
    assert free_cpus() == 2, "what ran was cancelled"
