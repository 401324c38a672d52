"""Claims on a trial: one living owner at a time, on a folder and on S3."""

import multiprocessing
import subprocess
import sys
import time

import pytest

from raise_model import claims
from raise_model.claims import Claim, ClaimLost, Held, Process
from raise_model.store import Store


@pytest.fixture
def store(any_store):
    return any_store


def test_a_second_claim_is_held_until_release(store):
    trial = store.trial("toy")
    other = Store(store.root).trial("toy")
    with trial.claim() as claim:
        assert claim.attempt == 1
        with pytest.raises(Held), other.claim():
            pass
    with other.claim() as claim:
        assert claim.attempt == 2


def test_losing_claim_is_noticed_before_the_next_write(store):
    trial = store.trial("toy")
    with trial.claim() as claim:
        claim.confirm()
        other = Claim(store, trial.file("claims"), 2)
        other.take()
        with pytest.raises(ClaimLost):
            claim.confirm()
        other.release()


def test_two_takeovers_of_one_claim_cannot_both_succeed(store):
    folder = store.trial("toy").file("claims")
    first = Claim(store, folder, 1)
    first.take()
    with pytest.raises(Held):
        Claim(store, folder, 1).take()
    first.release()


def _hold_forever(root, ready):
    with Store(root).trial("toy").claim():
        ready.set()
        time.sleep(600)


def test_claim_of_a_killed_process_on_this_machine_is_free_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_hold_forever, args=(str(tmp_path), ready))
    process.start()
    assert ready.wait(60)
    trial = Store(str(tmp_path)).trial("toy")
    assert trial.holder()["process"]["pid"] == process.pid
    process.kill()
    process.join()
    assert trial.holder() is None
    with trial.claim() as claim:
        assert claim.attempt == 2


def test_claim_from_another_machine_is_taken_over_only_when_its_counter_stands_still(
    tmp_path, monkeypatch
):
    store = Store(str(tmp_path))
    trial = store.trial("toy")
    foreign = {
        "owner": "x", "attempt": 1, "counter": 3, "released": False,
        "process": {"machine": "elsewhere", "pid": 1, "started": 1},
    }  # fmt: skip
    path = trial.file("claims/0001.json")
    store.write_json(path, foreign)
    clock = [0.0]
    monkeypatch.setattr(claims.time, "monotonic", lambda: clock[0])
    assert trial.holder() is not None
    clock[0] = claims.STALE_SECONDS - 1
    assert trial.holder() is not None
    store.write_json(path, foreign | {"counter": 4})
    clock[0] = claims.STALE_SECONDS + 1
    assert trial.holder() is not None, "the counter moved: the owner lives"
    clock[0] = 2 * claims.STALE_SECONDS + 1
    assert trial.holder() is None


def test_heartbeat_moves_the_counter(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "HEARTBEAT_SECONDS", 0.01)
    store = Store(str(tmp_path))
    trial = store.trial("toy")
    with trial.claim():
        deadline = time.monotonic() + 10
        while store.read_json(trial.file("claims/0001.json"))["counter"] < 2:
            assert time.monotonic() < deadline, "no heartbeat"
            time.sleep(0.01)


def test_heartbeat_survives_a_store_that_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "HEARTBEAT_SECONDS", 0.01)
    store = Store(str(tmp_path))
    trial = store.trial("toy")
    write, calls = store.write_json, []

    def away(path, value, *, durable=True):
        calls.append(path)
        if len(calls) < 3:
            raise RuntimeError("the client's own error")
        write(path, value, durable=durable)

    with trial.claim():
        monkeypatch.setattr(store, "write_json", away)
        deadline = time.monotonic() + 10
        while store.read_json(trial.file("claims/0001.json"))["counter"] < 4:
            assert time.monotonic() < deadline, "no heartbeat"
            time.sleep(0.01)


def test_a_reused_process_id_is_not_the_owner():
    own = Process.current()
    assert not own.is_gone()
    assert Process(machine=own.machine, pid=own.pid, started=own.started + 1).is_gone()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert Process(machine=own.machine, pid=ended.pid, started=1).is_gone()
    assert not Process(machine="elsewhere", pid=ended.pid, started=1).is_gone()
