"""Sweeps of real trainings on real Ray: what is run, what survives, what is said."""

import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
import ray
import torch

from raise_model.store import Process, Store
from raise_model.training.trial import run_trial
from tune_spaces import sweep as sweep_module
from tune_spaces.cluster import Resources
from tune_spaces.trial_process import PRELOADED

# Ray's own use of old idioms; files that Ray leaves to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("default::DeprecationWarning"),
    pytest.mark.filterwarnings("default::FutureWarning"),
    pytest.mark.filterwarnings("default::ResourceWarning"),
    pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning"),
]


def trial_process(store, spec):
    """Process id of the training that holds a trial."""
    return store.trial(spec).holder()["process"]["pid"]


def best_weights(store, spec):
    folder = store.trial(spec)
    data = store.read(folder.file(f"best-{folder.done()['best_step']:08d}.pt"))
    return torch.load(io.BytesIO(data), weights_only=True)["solver"]


def test_every_trial_is_trained_once_in_its_own_process(run, store, make_spec, events):
    specs = [make_spec(seed) for seed in range(3)]
    processes = {}
    events.act = lambda trial, row: processes.setdefault(
        trial, Process(**store.read_json(f"trials/{trial}/claims/0001.json")["process"])
    )
    outcome = run(store, specs)
    assert outcome.failed == {}
    assert sorted(outcome.done) == sorted(spec.name for spec in specs)
    for spec in specs:
        assert events.of(spec) == ["running", "done"]
        assert events.steps(spec) == [3, 6]
        done = store.trial(spec).done()
        assert done["attempts"] == 1
        assert done["provenance"]["threads"] == 1
    assert len(set(processes.values())) == 3
    assert os.getpid() not in {process.pid for process in processes.values()}


def test_finished_trials_are_not_submitted(run, store, make_spec, data, events, monkeypatch):
    spec = make_spec()
    run_trial(store, spec, device="cpu", threads=1, cache=data[0] / "cache")
    monkeypatch.setattr(sweep_module, "_run_tuner", None)
    assert run(store, [spec]).done == [spec.name]
    assert events.states == [(spec.name, "done", "finished before")]


def test_killed_trial_resumes_and_ends_with_the_same_bits(
    run, store, make_store, make_spec, data, events
):
    spec = make_spec(steps=12)
    killed = []

    def kill_once(trial, row):
        if not killed:
            killed.append(trial_process(store, spec))
            os.kill(killed[0], signal.SIGKILL)

    events.act = kill_once
    outcome = run(store, [spec])
    assert outcome.done == [spec.name]
    assert events.of(spec) == ["running", "retrying", "running", "done"]
    assert "SIGKILL" in next(detail for _, state, detail in events.states if state == "retrying")
    assert store.trial(spec).done()["attempts"] == 2
    log = store.read(store.trial(spec).file("log.txt")).decode()
    assert "attempt 2 starts at step 0" not in log, "it resumed from a checkpoint"
    undisturbed = make_store("undisturbed")
    run_trial(undisturbed, spec, device="cpu", threads=1, cache=data[0] / "cache")
    first, second = best_weights(store, spec), best_weights(undisturbed, spec)
    assert all(torch.equal(first[name], second[name]) for name in second)


def test_killed_worker_takes_its_trial_along_and_it_is_restarted(run, store, make_spec, events):
    spec = make_spec(steps=12)
    processes = []

    def kill_worker_once(trial, row):
        if not processes:
            child = psutil.Process(trial_process(store, spec))
            processes.extend([child, child.parent(), child.parent().parent()])
            processes[2].kill()

    events.act = kill_worker_once
    assert run(store, [spec]).done == [spec.name]
    assert "retrying" in events.of(spec)
    _gone, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive


def test_tunes_folder_may_vanish_and_the_sweep_goes_on(
    run, store, make_spec, events, monkeypatch, tmp_path
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    specs = [make_spec(seed) for seed in range(3)]
    deleted = []

    def delete_folder(trial, row):
        for folder in tmp_path.glob("raise-tune-*"):
            shutil.rmtree(folder)
            deleted.append(folder)

    events.act = delete_folder
    assert len(run(store, specs).done) == 3
    assert deleted
    assert not list(tmp_path.glob("raise-tune-*")), "nothing is left"
    assert run(store, [*specs, make_spec(3)]).done[-1] == make_spec(3).name


def test_trial_held_elsewhere_is_waited_for(run, store, make_spec, data, events):
    spec, other = make_spec(0, steps=30), make_spec(1)
    started = threading.Event()
    holder = threading.Thread(
        target=run_trial,
        args=(Store(store.root), spec),
        kwargs={
            "device": "cpu",
            "threads": 1,
            "cache": data[0] / "cache",
            "report": lambda row: (started.set(), time.sleep(0.3)),
        },
    )
    holder.start()
    assert started.wait(60)
    outcome = run(store, [spec, other])
    holder.join()
    assert sorted(outcome.done) == sorted([spec.name, other.name])
    assert events.of(spec) == ["waiting", "done"]
    assert store.trial(spec).done()["attempts"] == 1
    assert events.steps(spec) == []


def test_trial_given_up_elsewhere_is_taken_over(run, store, make_spec, events):
    spec = make_spec()
    store.trial(spec).put_spec(spec)
    claim = store.trial(spec).claim()
    claim.__enter__()
    timer = threading.Timer(1.0, lambda: claim.__exit__(None, None, None))
    timer.start()
    assert run(store, [spec]).done == [spec.name]
    timer.join()
    assert events.of(spec) == ["waiting", "running", "done"]


def test_refused_trial_is_not_repeated_and_does_not_stop_the_others(run, store, make_spec, events):
    good, bad = make_spec(0), make_spec(1)
    bad = dataclasses.replace(bad, data=dataclasses.replace(bad.data, train_digest="0" * 64))
    outcome = run(store, [bad, good])
    assert outcome.done == [good.name]
    reason = outcome.failed[bad.name]
    assert "\n" not in reason
    assert "digest" in reason
    assert reason.endswith(f"log: {store.root}/trials/{bad.name}/log.txt")
    assert Path(reason.rpartition("log: ")[2]).exists()
    assert events.of(bad) == ["running", "failed"]


def test_failure_that_may_pass_is_tried_three_times(run, store, make_spec, events, tmp_path):
    (tmp_path / "file").write_text("no folder can be made under a file")
    spec = make_spec()
    outcome = run(store, [spec], cache=tmp_path / "file" / "cache")
    assert list(outcome.failed) == [spec.name]
    assert events.of(spec).count("retrying") == 2
    assert "Error" in outcome.failed[spec.name]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_trials_first_then_reaches_its_handler(run, store, make_spec, events, number):
    class Terminated(BaseException):
        pass

    spec = make_spec(steps=3000)
    processes = []

    def interrupt(trial, row):
        if not processes:
            processes.append(psutil.Process(trial_process(store, spec)))
            signal.raise_signal(number)

    def handler(number, frame):
        raise Terminated

    events.act = interrupt
    before = signal.signal(number, handler)
    try:
        with pytest.raises(Terminated):
            run(store, [spec])
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    _gone, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive
    assert not store.trial(spec).is_done
    deadline = time.monotonic() + 20
    while ray.available_resources().get("CPU", 0) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ray.available_resources()["CPU"] == 2, "its slot is free again"


def test_error_of_a_callback_is_raised_and_stops_the_trials(run, store, make_spec, events):
    spec = make_spec(steps=3000)

    def fail(trial, row):
        raise ZeroDivisionError("in the flow")

    events.act = fail
    with pytest.raises(Exception, match="in the flow"):
        run(store, [spec])
    assert not store.trial(spec).is_done


def test_no_more_trials_at_once_than_asked_for(run, store, make_spec, events):
    specs = [make_spec(seed) for seed in range(3)]
    run(store, specs, resources=Resources(device="cpu", max_concurrent=1))
    order = [state for _, state, _ in events.states]
    assert order == ["running", "done"] * 3


def test_sweep_prints_nothing(run, store, make_spec, capfd):
    run(store, [make_spec()])
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""


def test_trial_processes_import_neither_services_nor_ray():
    code = (
        "import importlib, json, sys, tune_spaces.trial_process\n"
        f"[importlib.import_module(name) for name in {PRELOADED!r}]\n"
        "names = {name.partition('.')[0] for name in sys.modules}\n"
        "print(json.dumps(sorted(names & {'mlflow', 'prefect', 'pandas', 'ray', 'rich'})))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    output = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(output.stdout) == []
