"""Who runs out of memory beside others is tried once more alone; no Ray needed."""

import json
import threading
from types import SimpleNamespace

import pytest
import ray

from raise_model.presets import trial_spec
from raise_model.store import Store
from tune_spaces import sweep as module
from tune_spaces import trial_process
from tune_spaces.cluster import Resources, alone_request
from tune_spaces.sweep import sweep
from tune_spaces.trial_process import SIGKILLED, Ended

OUT = "OutOfMemoryError: CUDA out of memory"


@pytest.fixture
def specs():
    return [
        trial_spec(
            model="raise", preset="smoke", dataset="raven", configuration="center",
            train_digest="a" * 64, validation_digest="b" * 64, seed=seed,
        )
        for seed in range(2)
    ]  # fmt: skip


@pytest.fixture
def run(monkeypatch, tmp_path, specs):
    """A sweep whose Tuner is played: each round its trials end as ``ends`` says."""

    def run(ends, resources):
        rounds, states = [], []

        def tuner(specs, request, share, resources, progress):
            rounds.append(([spec.seed for spec in specs], share, request["threads"]))
            watcher = module._Watcher(progress, threading.Event())
            for spec in specs:
                trial = SimpleNamespace(
                    trial_id=spec.name, config={"spec": json.dumps(spec.to_json())}
                )
                watcher.on_trial_start(0, [], trial)
                outcome, reason = ends[spec.seed].pop(0)
                end = {"outcome": "failed" if outcome == "error" else outcome, "reason": reason}
                watcher.on_trial_result(0, [], trial, end)
                ended = watcher.on_trial_error if outcome == "error" else watcher.on_trial_complete
                ended(0, [], trial)
            watcher.raise_kept()

        monkeypatch.setattr(module, "_run_tuner", tuner)
        outcome = sweep(
            Store(str(tmp_path)), specs, resources=resources, on_report=lambda *a: None,
            on_state=lambda name, state, detail: states.append((name, state, detail)),
        )  # fmt: skip
        return SimpleNamespace(rounds=rounds, states=states, outcome=outcome)

    return run


GPU = Resources(device="cuda", gpus_per_trial=0.25)
DONE = ("done", "")


@pytest.mark.parametrize("first", [("memory", OUT), ("error", f"killed ({SIGKILLED})")])
def test_it_runs_again_alone_after_the_others(run, specs, first):
    found = run({0: [first, DONE], 1: [DONE]}, GPU)
    assert found.rounds == [
        ([0, 1], {"cpu": 1, "gpu": 0.25}, 1),
        ([0], {"cpu": 1, "gpu": 1.0}, 1),
    ]
    assert sorted(found.outcome.done) == sorted(spec.name for spec in specs)
    waited = [detail for name, state, detail in found.states if state == "waiting"]
    assert len(waited) == 1
    assert "tried once more alone" in waited[0]


def test_it_fails_where_it_runs_out_of_memory_alone_too(run, specs, tmp_path):
    store = Store(str(tmp_path))
    store.write(store.trial(specs[0]).file("log.txt"), b"what its process said")
    found = run({0: [("memory", OUT), ("memory", OUT)], 1: [DONE]}, GPU)
    assert len(found.rounds) == 2
    assert f"{OUT}; alone on its device too; log: " in found.outcome.failed[specs[0].name]
    assert found.outcome.done == [specs[1].name]


def test_other_errors_are_no_matter_of_memory(run, specs):
    found = run({0: [("error", "OSError: store away")], 1: [DONE]}, GPU)
    assert len(found.rounds) == 1
    assert "store away" in found.outcome.failed[specs[0].name]


def test_without_gpus_alone_means_all_cpus_of_the_largest_node(monkeypatch):
    nodes = [
        {"Alive": True, "Resources": {"CPU": 4.0}},
        {"Alive": True, "Resources": {"CPU": 8.0}},
        {"Alive": False, "Resources": {"CPU": 64.0}},
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert alone_request(Resources(device="cpu", cpus_per_trial=2)) == {"cpu": 8.0, "gpu": 0.0}


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(MemoryError("no"), "memory"), (RuntimeError("no"), "failed")],
)
def test_a_trial_says_whether_it_ran_out_of_memory(monkeypatch, specs, tmp_path, error, outcome):
    from raise_model.training import trial

    def fails(*arguments, **options):
        raise error

    monkeypatch.setattr(trial, "run_trial", fails)
    said: list[Ended] = []
    request = {
        "store": str(tmp_path), "abandoned": "{}", "spec": json.dumps(specs[0].to_json()),
        "device": "cpu", "threads": 1, "cache": str(tmp_path),
    }  # fmt: skip
    trial_process._train_and_say(said.append, request)
    assert [ended.outcome for ended in said] == [outcome]
