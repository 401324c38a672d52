"""Successive halving: who is given up, what the store says of it, and what goes on."""

import dataclasses
import json
from types import SimpleNamespace

import pytest
from ray.tune.schedulers import TrialScheduler

from raise_model.claims import Process
from tune_spaces.halving import Halving, ended_curve, is_pruned, write_pruned
from tune_spaces.sweep import _Progress, _Watcher
from tune_spaces.trial_process import Ended, Nursery

pytestmark = [
    # As in the tests of sweeps.
    pytest.mark.filterwarnings("default::DeprecationWarning"),
    pytest.mark.filterwarnings("default::FutureWarning"),
    pytest.mark.filterwarnings("default::ResourceWarning"),
    pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning"),
]
STOP, CONTINUE = TrialScheduler.STOP, TrialScheduler.CONTINUE


def point(spec, rate):
    return dataclasses.replace(spec, config={**spec.config, "learning_rate": rate})


def tune_trial(spec):
    return SimpleNamespace(trial_id=spec.fingerprint, config={"spec": json.dumps(spec.to_json())})


def decide(scheduler, spec, step, accuracy):
    result = {"row/step": float(step), "row/validation_accuracy": accuracy}
    return scheduler.on_trial_result(None, tune_trial(spec), result)


@pytest.fixture
def specs(make_spec):
    """Four settings of 90 steps: rungs at 10, 30 and 90."""
    base = make_spec(steps=90, validate_every=5)
    return [point(base, rate) for rate in (1e-3, 2e-3, 3e-3, 4e-3)]


@pytest.fixture
def scheduler(specs):
    made = Halving(specs, {spec.name for spec in specs[:3]})
    for spec in specs:
        made.on_trial_add(None, tune_trial(spec))
    return made


def test_who_falls_behind_at_a_rung_is_given_up(scheduler, specs):
    first, second, third, _ = specs
    assert decide(scheduler, first, 10, 0.5) == CONTINUE
    assert decide(scheduler, second, 5, 0.1) == CONTINUE  # before the first rung
    assert decide(scheduler, second, 10, 0.4) == STOP
    assert decide(scheduler, third, 10, 0.6) == CONTINUE
    assert decide(scheduler, third, 30, 0.6) == CONTINUE
    assert decide(scheduler, first, 30, 0.5) == STOP


def test_who_may_not_be_given_up_and_who_has_ended_goes_on(scheduler, specs):
    first, second, _, kept = specs
    assert decide(scheduler, first, 10, 0.5) == CONTINUE
    assert decide(scheduler, kept, 10, 0.0) == CONTINUE
    assert decide(scheduler, first, 90, 0.5) == CONTINUE
    assert decide(scheduler, second, 90, 0.1) == CONTINUE


def test_only_trainings_that_differ_in_their_config_alone_are_compared(specs, make_spec):
    other = make_spec(steps=90, validate_every=5)
    other = dataclasses.replace(other, data=dataclasses.replace(other.data, label_ratio=0.5))
    both = [specs[0], other]
    scheduler = Halving(both, {spec.name for spec in both})
    for spec in both:
        scheduler.on_trial_add(None, tune_trial(spec))
    assert decide(scheduler, specs[0], 10, 0.9) == CONTINUE
    assert decide(scheduler, other, 10, 0.1) == CONTINUE


def test_trainings_that_ended_before_are_known(scheduler, specs):
    scheduler.know(specs[0].name, [{"step": 10.0, "validation_accuracy": 0.9}])
    assert decide(scheduler, specs[1], 10, 0.5) == STOP


def test_a_sweep_gives_up_notes_it_and_another_one_trains_in_full(
    run, store, make_spec, events, monkeypatch
):
    base = make_spec(steps=60, validate_every=3)
    kept, pruned = point(base, 1e-3), point(base, 2e-3)
    prunable = {kept.name, pruned.name}
    processes = []

    def decide_by_name(self, controller, trial, result):
        behind = json.loads(trial.config["spec"])["config"]["learning_rate"] == 2e-3
        return STOP if behind and result.get("row/step", 0) >= 6 else CONTINUE

    def note(trial, row):
        if trial == pruned.name:
            processes.append(store.trial(pruned).holder()["process"])

    with monkeypatch.context() as patch:
        patch.setattr(Halving, "on_trial_result", decide_by_name)
        events.act = note
        outcome = run(store, [kept, pruned], prunable=prunable)
    assert outcome.done == [kept.name]
    assert outcome.failed == {}
    assert events.of(pruned) == ["running", "pruned"]
    folder = store.trial(pruned)
    assert is_pruned(folder)
    assert not folder.is_done
    curve = ended_curve(folder)
    assert [row["step"] for row in curve] == [3.0, 6.0]
    assert len(ended_curve(store.trial(kept))) == 20
    assert Process(**processes[0]).is_gone()

    rows = len(events.rows)
    assert run(store, [kept, pruned], prunable=prunable).done == [kept.name]
    assert len(events.rows) == rows
    assert events.states[-1] == (pruned.name, "pruned", "given up before")

    # Wanted in full it goes on.
    assert run(store, [pruned]).done == [pruned.name]
    assert folder.is_done


def request_of(store, data, spec):
    return {
        "store": store.root,
        "spec": json.dumps(spec.to_json()),
        "device": "cpu",
        "threads": 1,
        "abandoned": "{}",
        "cache": str(data[0] / "cache"),
    }


def test_a_nursery_kills_who_is_given_up_and_serves_the_next(store, data, make_spec):
    nursery = Nursery()
    try:
        long, short = make_spec(steps=100_000, validate_every=3), make_spec(steps=3)
        messages = nursery.run(request_of(store, data, long))
        assert next(messages)["step"] == 3
        process = store.trial(long).holder()["process"]
        messages.close()
        assert Process(**process).is_gone()
        assert not store.trial(long).is_done
        row, ended = nursery.run(request_of(store, data, short))
        assert (row["step"], ended.outcome) == (3, "done")
        # Who has said how it ended is not given up when nobody reads on.
        messages = nursery.run(request_of(store, data, short))
        assert isinstance(next(messages), Ended)
        messages.close()
        assert list(nursery.run(request_of(store, data, short)))[-1].outcome == "done"
    finally:
        nursery._process.kill()
        nursery._process.wait()
        nursery._connection.close()


def test_a_trial_that_tune_stopped_before_it_said_how_it_ended_is_noted(store, make_spec, events):
    base = make_spec(steps=90, validate_every=5)
    pruned, other = point(base, 1e-3), point(base, 2e-3)
    progress = _Progress(
        store, [pruned, other], events.on_report, events.on_state, lambda *_: None, {pruned.name}
    )
    watcher = _Watcher(progress, [])
    trial = tune_trial(pruned)
    for step in (5, 10, 5, 10, 15):  # an attempt that goes on reports earlier rows again
        row = {"step": float(step), "validation_accuracy": step / 100, "loss": 1.0}
        watcher.on_trial_result(0, [], trial, {"row": row, "hostname": "here"})
    watcher.on_trial_complete(0, [], trial)
    assert [row["step"] for row in ended_curve(store.trial(pruned))] == [5, 10, 15]
    assert events.states == [(pruned.name, "pruned", "given up at step 15")]
    assert progress.unfinished() == [other]
    again = _Progress(
        store, [pruned], events.on_report, events.on_state, lambda *_: None, {pruned.name}
    )
    assert again.unfinished() == []
    in_full = _Progress(store, [pruned], events.on_report, events.on_state, lambda *_: None, ())
    assert in_full.unfinished() == [pruned]


def test_a_training_is_given_up_once(store, make_spec):
    folder = store.trial(make_spec())
    assert ended_curve(folder) == []
    write_pruned(folder, [{"step": 3.0, "validation_accuracy": 0.5}])
    write_pruned(folder, [{"step": 6.0, "validation_accuracy": 0.6}])
    assert ended_curve(folder) == [{"step": 3.0, "validation_accuracy": 0.5}]
