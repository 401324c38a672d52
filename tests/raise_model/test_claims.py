"""Claims on a trial: one living owner at a time, on a folder and on S3."""

import json
import multiprocessing
import subprocess
import sys
import time

import pytest

from raise_model import claims
from raise_model.claims import Claim, ClaimLost, Held, Process
from raise_model.errors import UserError
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


def test_a_claim_made_between_look_and_take_is_not_doubled(store):
    """Whoever takes over wants the number after the one whose owner it has judged."""
    trial, rival = store.trial("toy"), Store(store.root).trial("toy")
    listed = store.list
    taken = []

    def list_then_lose(folder):
        names = listed(folder)
        if not taken:
            taken.append(rival.claim())
            taken[0].__enter__()
        return names

    store.list = list_then_lose
    with pytest.raises(Held), trial.claim():
        pass
    assert listed("trials/toy/claims") == ["0001.json"]
    taken[0].__exit__(None, None, None)


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


def foreign_claim(store, **changes):
    """A trial whose claim is of another machine."""
    trial = store.trial("toy")
    claim = {
        "owner": "x", "attempt": 1, "counter": 3, "released": False,
        "process": {"machine": "elsewhere", "pid": 1, "started": 1},
    }  # fmt: skip
    store.write_json(trial.file("claims/0001.json"), claim | changes)
    return trial


def test_claim_from_another_machine_is_taken_over_only_when_its_counter_stands_still(
    tmp_path, monkeypatch
):
    store = Store(str(tmp_path))
    trial = foreign_claim(store)
    clock = [0.0]
    monkeypatch.setattr(claims.time, "monotonic", lambda: clock[0])
    assert trial.holder() is not None
    clock[0] = claims.STALE_SECONDS - 1
    assert trial.holder() is not None
    foreign_claim(store, counter=4)
    clock[0] = claims.STALE_SECONDS + 1
    assert trial.holder() is not None, "the counter moved: the owner lives"
    clock[0] = 2 * claims.STALE_SECONDS + 1
    assert trial.holder() is None


def test_what_one_process_found_abandoned_another_need_not_wait_for(tmp_path, monkeypatch):
    first, second = Store(str(tmp_path)), Store(str(tmp_path))
    foreign_claim(first)
    clock = [0.0]
    monkeypatch.setattr(claims.time, "monotonic", lambda: clock[0])
    assert first.trial("toy").holder() is not None
    assert first.claim_watch.abandoned() == {}
    clock[0] = claims.STALE_SECONDS + 1
    second.claim_watch.trust(json.loads(json.dumps(first.claim_watch.abandoned())))
    with second.trial("toy").claim() as claim:
        assert claim.attempt == 2
    foreign_claim(first, counter=4)
    third = Store(str(tmp_path))
    third.claim_watch.trust(first.claim_watch.abandoned())
    third.delete("trials/toy/claims/0002.json")
    with pytest.raises(Held), third.trial("toy").claim():
        pass


def test_what_is_seen_to_have_ended_here_another_machine_is_told(tmp_path):
    process = vars(claims.Process(claims._machine(), 2**22 + 1, 1))
    first, second = Store(str(tmp_path)), Store(str(tmp_path))
    foreign_claim(first, process=process)
    assert first.trial("toy").holder() is None
    foreign_claim(second)
    with pytest.raises(Held), second.trial("toy").claim():
        pass
    second.claim_watch.trust(first.claim_watch.abandoned())
    with second.trial("toy").claim() as claim:
        assert claim.attempt == 2


@pytest.mark.parametrize("text", [b"%%garbage", b"{}", b'{"process": 1}'])
def test_a_damaged_claim_is_one_line_that_names_it(tmp_path, text):
    store = Store(str(tmp_path))
    store.create("trials/toy/claims/0001.json", text)
    with pytest.raises(UserError, match=r"0001\.json is damaged; if nobody trains that trial"):
        store.trial("toy").holder()
    with pytest.raises(UserError, match="is damaged"), store.trial("toy").claim():
        pass


def test_a_process_that_proc_hides_is_not_gone(monkeypatch):
    here = claims.Process(claims._machine(), 77, 1)
    monkeypatch.setattr(claims, "_start_ticks", lambda pid: None)

    def kill(pid, number):
        assert (pid, number) == (77, 0)
        raise found

    monkeypatch.setattr(claims.os, "kill", kill)
    found = PermissionError()
    assert not here.is_gone()
    found = ProcessLookupError()
    assert here.is_gone()
    assert not claims.Process("elsewhere", 77, 1).is_gone()


@pytest.mark.parametrize("lives", [False, True])
def test_lone_training_waits_for_a_sign_of_life_of_another_machine(tmp_path, monkeypatch, lives):
    monkeypatch.setattr(claims, "STALE_SECONDS", 1.0)
    store = Store(str(tmp_path))
    trial = foreign_claim(store)
    polls, said = [], []

    def sleep(seconds):
        polls.append(seconds)
        if lives and len(polls) == 3:
            foreign_claim(store, counter=4)
        monkeypatch.setattr(claims, "STALE_SECONDS", 1.0 if lives or len(polls) < 5 else 0.0)

    monkeypatch.setattr(claims.time, "sleep", sleep)
    trial.outwait(said.append)
    assert len(polls) == (3 if lives else 5)
    (line,) = said
    assert line.startswith("attempt 1 of another machine has not ended; waiting up to 1 s")
    if lives:
        with pytest.raises(Held), trial.claim():
            pass
    else:
        with trial.claim() as claim:
            assert claim.attempt == 2


def test_what_is_of_this_machine_or_free_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(claims.time, "sleep", None)
    store = Store(str(tmp_path))
    store.trial("toy").outwait(None)
    with store.trial("toy").claim():
        store.trial("toy").outwait(None)


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
