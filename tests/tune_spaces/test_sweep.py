"""Sweeps of real trainings on real Ray: what is run, what survives, what is said."""

import contextlib
import dataclasses
import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from raise_model.claims import Process
from raise_model.store import Store
from raise_model.training.trial import run_trial
from tune_spaces import sweep as sweep_module
from tune_spaces.cluster import Resources
from tune_spaces.sweep import sweep

# Ray's own use of old idioms; files that Ray leaves to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("default::DeprecationWarning"),
    pytest.mark.filterwarnings("default::FutureWarning"),
    pytest.mark.filterwarnings("default::ResourceWarning"),
    pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning"),
]


CPU = Resources(device="cpu")


def trial_process(store, spec):
    """Process id of the training that holds a trial."""
    return store.trial(spec).holder()["process"]["pid"]


def best_weights(store, spec):
    folder = store.trial(spec)
    data = store.read(folder.file(f"best-{folder.done()['best_step']:08d}.pt"))
    return torch.load(io.BytesIO(data), weights_only=True)["solver"]


@pytest.fixture(scope="module")
def eventful(ray_cluster, data, make_spec, new_events, tmp_path_factory):
    """One sweep in which much goes wrong: a trial is killed, one has the wrong data, Tune's
    folder is deleted in the middle; two go undisturbed."""
    folder = tmp_path_factory.mktemp("eventful")
    (folder / "store").mkdir()
    (folder / "store" / "datasets").symlink_to(data[0] / "store" / "datasets")
    store = Store(str(folder / "store"))
    plain, other, killed = make_spec(0), make_spec(1), make_spec(2, steps=12)
    wrong = dataclasses.replace(plain, data=dataclasses.replace(plain.data, train_digest="0" * 64))
    events = new_events()
    processes, deleted, printed, nodes = {}, [], io.StringIO(), []

    def act(trial, row):
        claim = Process(**store.read_json(f"trials/{trial}/claims/0001.json")["process"])
        if trial not in processes and trial == killed.name:
            os.kill(claim.pid, signal.SIGKILL)
        processes.setdefault(trial, claim)
        for path in folder.glob("raise-tune-*"):
            shutil.rmtree(path)
            deleted.append(path)

    events.act = act
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            outcome = sweep(
                store,
                [wrong, killed, plain, other],
                resources=CPU,
                cache=data[0] / "cache",
                on_report=events.on_report,
                on_state=events.on_state,
                on_node=lambda trial, node: nodes.append((trial, node)),
            )
    return SimpleNamespace(
        store=store, plain=plain, other=other, killed=killed, wrong=wrong, events=events,
        processes=processes, deleted=deleted, printed=printed.getvalue(), outcome=outcome,
        folder=folder, nodes=nodes,
    )  # fmt: skip


def test_trials_are_trained_once_each_in_its_own_process(eventful):
    for spec in (eventful.plain, eventful.other):
        assert eventful.events.of(spec) == ["running", "done"]
        assert eventful.events.steps(spec) == [3, 6]
        done = eventful.store.trial(spec).done()
        assert done["attempts"] == 1
        assert done["provenance"]["threads"] == 1
    assert len(set(eventful.processes.values())) == 3
    assert os.getpid() not in {process.pid for process in eventful.processes.values()}


def test_the_node_of_a_trial_is_said_once(eventful):
    trained = (eventful.killed, eventful.plain, eventful.other)
    assert sorted(eventful.nodes) == sorted((spec.name, platform.node()) for spec in trained)


def test_outcome_lists_done_and_failed(eventful):
    assert sorted(eventful.outcome.done) == sorted(
        spec.name for spec in (eventful.plain, eventful.other, eventful.killed)
    )
    assert list(eventful.outcome.failed) == [eventful.wrong.name]


def test_killed_trial_resumes_and_ends_with_the_same_bits(eventful, make_store, data):
    spec, store = eventful.killed, eventful.store
    assert eventful.events.of(spec) == ["running", "retrying", "running", "done"]
    details = [detail for _, state, detail in eventful.events.states if state == "retrying"]
    assert "SIGKILL" in details[0]
    assert store.trial(spec).done()["attempts"] == 2
    log = store.read(store.trial(spec).file("log.txt")).decode()
    assert "attempt 2 starts at step 0" not in log, "it resumed from a checkpoint"
    undisturbed = make_store("undisturbed")
    run_trial(undisturbed, spec, device="cpu", threads=1, cache=data[0] / "cache")
    first, second = best_weights(store, spec), best_weights(undisturbed, spec)
    assert all(torch.equal(first[name], second[name]) for name in second)


def test_refused_trial_is_not_repeated_and_says_where_its_log_is(eventful):
    reason = eventful.outcome.failed[eventful.wrong.name]
    assert "\n" not in reason
    assert "digest" in reason
    log = f"{eventful.store.root}/trials/{eventful.wrong.name}/log.txt"
    assert reason.endswith(f"log: {log}")
    assert Path(log).exists()
    assert eventful.events.of(eventful.wrong) == ["running", "failed"]


def test_tunes_folder_may_vanish(eventful):
    assert eventful.deleted
    assert not list(eventful.folder.glob("raise-tune-*")), "nothing is left of it"


def test_sweep_prints_nothing(eventful):
    assert eventful.printed == ""


def test_finished_trials_are_not_submitted(eventful, run, events, monkeypatch):
    monkeypatch.setattr(sweep_module, "_run_tuner", None)
    specs = [eventful.plain, eventful.killed]
    assert run(eventful.store, specs).done == [spec.name for spec in specs]
    assert [event[1:] for event in events.states] == [("done", "finished before")] * 2


@pytest.mark.slow
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


def test_trials_held_elsewhere_are_waited_for_and_taken_over_if_given_up(
    run, store, make_spec, data, events
):
    held, given_up = make_spec(0, steps=30), make_spec(1)
    started = threading.Event()
    holder = threading.Thread(
        target=run_trial,
        args=(Store(store.root), held),
        kwargs={
            "device": "cpu",
            "threads": 1,
            "cache": data[0] / "cache",
            "report": lambda row: (started.set(), time.sleep(0.3)),
        },
    )
    holder.start()
    assert started.wait(60)
    store.trial(given_up).put_spec(given_up)
    claim = store.trial(given_up).claim()
    claim.__enter__()
    timer = threading.Timer(1.0, lambda: claim.__exit__(None, None, None))
    timer.start()
    outcome = run(store, [held, given_up])
    holder.join()
    timer.join()
    assert outcome.done == [held.name, given_up.name]
    assert events.of(held) == ["waiting", "done"]
    assert store.trial(held).done()["attempts"] == 1
    assert events.of(given_up) == ["waiting", "running", "done"]


def foreign_claim(store, spec):
    """A trial whose claim is of a machine that is gone."""
    folder = store.trial(spec)
    folder.put_spec(spec)
    process = {"machine": "elsewhere", "pid": 1, "started": 1}
    claim = {"owner": "gone", "attempt": 1, "counter": 7, "released": False, "process": process}
    store.create_json(folder.file("claims/0001.json"), claim)
    return folder


def test_trial_of_a_machine_that_is_gone_is_taken_over(run, store, make_spec, events, monkeypatch):
    """Its claim stands still for the driver; the trial's own process has not seen that."""
    monkeypatch.setattr("raise_model.claims.STALE_SECONDS", 1.0)
    monkeypatch.setattr(sweep_module, "HELD_POLL_SECONDS", 0.2)
    spec = make_spec()
    folder = foreign_claim(store, spec)
    assert run(store, [spec]).done == [spec.name]
    assert events.of(spec) == ["waiting", "running", "done"]
    assert folder.done()["attempts"] == 2


@pytest.mark.slow
def test_failure_that_may_pass_is_tried_three_times(run, store, make_spec, events, tmp_path):
    (tmp_path / "file").write_text("no folder can be made under a file")
    spec = make_spec()
    outcome = run(store, [spec], cache=tmp_path / "file" / "cache")
    assert list(outcome.failed) == [spec.name]
    assert events.of(spec).count("retrying") == 2
    assert "Error" in outcome.failed[spec.name]


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM]
)
def test_signal_stops_trials_first_then_reaches_its_handler(
    run, store, make_spec, events, number, free_cpus
):
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
    assert free_cpus() == 2, "its slot is free again"


@pytest.mark.parametrize("ended", ["running", "done"])
def test_error_about_a_state_is_raised_and_not_taken_for_the_trials(
    run, store, make_spec, events, monkeypatch, ended
):
    states = []

    def fail(trial, state, detail):
        states.append(state)
        if state == ended:
            raise ZeroDivisionError("in the flow")

    monkeypatch.setattr(events, "on_state", fail)
    with pytest.raises(ZeroDivisionError, match="in the flow"):
        run(store, [make_spec()])
    assert "retrying" not in states


def test_a_trial_that_takes_its_machine_down_is_given_up(store, make_spec, events):
    """Tune counts no failure of one that then finds its own old claim."""
    spec = make_spec()
    progress = sweep_module._Progress(
        store, [spec], events.on_report, events.on_state, lambda name, node: None, ()
    )
    for _ in range(sweep_module.MAX_FAILURES):
        progress.restart(spec.name, "lost")
        progress.held(spec.name, "another process")
    assert events.of(spec) == ["retrying", "waiting"] * sweep_module.MAX_FAILURES
    progress.restart(spec.name, "lost")
    progress.held(spec.name, "another process")
    assert events.of(spec)[-1] == "failed"
    # It never came so far as to have a log.
    assert progress.outcome().failed == {spec.name: "its worker or machine was lost 3 times"}


def test_claims_of_waiting_trials_are_looked_at_while_others_train(
    run, store, make_spec, events, monkeypatch
):
    monkeypatch.setattr(sweep_module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr("raise_model.claims.STALE_SECONDS", 3600.0)
    waiting, training = make_spec(0), make_spec(1)
    foreign_claim(store, waiting)

    def end_of_the_others(trial, state, detail):
        if trial == training.name and state == "done":
            raise ZeroDivisionError("enough")

    seen = []
    still_for = store.claim_watch.still_for
    monkeypatch.setattr(
        store.claim_watch, "still_for", lambda *claim: (seen.append(claim), still_for(*claim))[1]
    )
    monkeypatch.setattr(events, "on_state", end_of_the_others)
    with pytest.raises(ZeroDivisionError):
        run(store, [waiting, training])
    assert len(seen) > 2


@pytest.mark.slow
def test_error_of_a_callback_is_raised_and_stops_the_trials(run, store, make_spec, events):
    spec = make_spec(steps=3000)

    def fail(trial, row):
        raise ZeroDivisionError("in the flow")

    events.act = fail
    with pytest.raises(Exception, match="in the flow"):
        run(store, [spec])
    assert not store.trial(spec).is_done


@pytest.mark.slow
def test_no_more_trials_at_once_than_asked_for(run, store, make_spec, events):
    specs = [make_spec(seed) for seed in range(3)]
    run(store, specs, resources=Resources(device="cpu", max_concurrent=1))
    order = [state for _, state, _ in events.states]
    assert order == ["running", "done"] * 3


def test_trial_imports_neither_services_nor_ray(store, make_spec, data):
    code = (
        "import json, pathlib, sys\n"
        "from tune_spaces import trial_process\n"
        "trial_process._preload()\n"
        "root, cache, spec = sys.argv[1:]\n"
        "trial_process._train_and_say(print, {'store': root, 'cache': cache, 'abandoned': '{}',\n"
        "    'spec': spec, 'device': 'cpu', 'threads': 1})\n"
        "names = {name.partition('.')[0] for name in sys.modules}\n"
        "print(json.dumps(sorted(names & {'mlflow', 'prefect', 'pandas', 'ray', 'rich'})))"
    )
    spec = make_spec()
    output = subprocess.run(
        [sys.executable, "-c", code, store.root, data[0] / "cache", json.dumps(spec.to_json())],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert store.trial(spec).is_done
    assert json.loads(output.stdout.splitlines()[-1]) == []
