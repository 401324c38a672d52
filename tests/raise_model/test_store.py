"""Exclusive create, whole writes and claims, on a folder and on S3 (a server that speaks it)."""

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time

import pytest

from raise_model import store as store_module
from raise_model.errors import UserError
from raise_model.specs import DataSpec, EvaluationSpec, TrialSpec
from raise_model.store import Claim, ClaimLost, Held, Process, Store


def make_spec(**changes):
    data = DataSpec(
        dataset="raven", configuration="center", train_digest="a", validation_digest="b",
        image_size=32, resize="area", label_map="official", label_ratio=0.05,
    )  # fmt: skip
    fields = {
        "model": "toy", "config": {"width": 3}, "revision": 1, "precision": "fp32", "data": data,
        "seed": 0, "steps": 7, "validate_every": 3, "validation_problems": 5,
    }  # fmt: skip
    return TrialSpec(**(fields | changes))


@pytest.fixture(params=["file", "s3"])
def store(request, tmp_path, monkeypatch):
    if request.param == "file":
        return Store(str(tmp_path / "store"))
    return request.getfixturevalue("s3_store")


def test_create_refuses_what_exists_and_leaves_it(store):
    store.create("a/b.json", b"first")
    with pytest.raises(FileExistsError):
        store.create("a/b.json", b"second")
    assert store.read("a/b.json") == b"first"


def test_what_never_changes_is_asked_of_s3_once(store, monkeypatch):
    if "://" not in store.root:
        pytest.skip("local files are read each time")
    store.create_json("trials/x/done.json", {"best_step": 1})
    asked = []
    cat_file = store.filesystem.cat_file
    monkeypatch.setattr(
        store.filesystem, "cat_file", lambda path: asked.append(path) or cat_file(path)
    )
    trial = store.trial("x")
    assert trial.is_done
    assert trial.done() == trial.done() == {"best_step": 1}
    assert len(asked) == 1
    assert not trial.evaluation("y").is_done
    store.create_json("trials/x/evaluations/y/result.json", {})
    assert trial.evaluation("y").is_done, "what was missing may come"
    store.delete("trials/x/done.json")
    assert not trial.is_done


def test_write_replaces_and_list_shows_only_whole_files(store):
    store.write("a/b", b"one")
    store.write("a/b", b"two")
    store.write("a/c/d", b"")
    assert store.read("a/b") == b"two"
    assert store.list("a") == ["b", "c"]
    assert store.list("nowhere") == []
    store.delete("a/b")
    store.delete("a/b")
    assert not store.exists("a/b")
    with pytest.raises(FileNotFoundError):
        store.read("a/b")


def test_only_one_of_many_creators_wins(store):
    wins = []
    start = threading.Barrier(8)

    def create(number):
        start.wait()
        try:
            store.create("race", str(number).encode())
        except FileExistsError:
            return
        wins.append(number)

    threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1
    assert store.read("race") == str(wins[0]).encode()


def test_unknown_scheme_is_refused():
    with pytest.raises(UserError, match="gs://"):
        Store("gs://bucket/x")


def test_file_uri_and_path_are_the_same_store(tmp_path):
    Store(f"file://{tmp_path}/x").write("a", b"1")
    assert Store(str(tmp_path / "x")).read("a") == b"1"


def test_probe_names_root_and_reason(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("no folder")
    with pytest.raises(UserError, match=r"file.*cannot be written"):
        Store(str(blocker)).probe()
    good = Store(str(tmp_path / "good"))
    good.probe()
    assert good.list("") == []


def test_probe_refuses_a_store_that_creates_twice(tmp_path, monkeypatch):
    store = Store(str(tmp_path))
    monkeypatch.setattr(store, "create", store.write)
    with pytest.raises(UserError, match="creates a file that exists"):
        store.probe()
    assert store.list("") == []


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    store = Store(str(tmp_path))
    store.write("a", b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.write("a", b"new")
    with pytest.raises(OSError, match="No space left"):
        store.create("b", b"new")
    assert store.read("a") == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_files_have_the_permissions_of_the_users_umask(tmp_path):
    before = os.umask(0o027)
    try:
        store = Store(str(tmp_path))
        store.create("created", b"")
        store.write("written", b"")
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("created", "written")}
    assert modes == {"created": 0o640, "written": 0o640}


def test_a_second_claim_is_held_until_release(store):
    trial = store.trial(make_spec())
    other = Store(store.root).trial(make_spec())
    with trial.claim() as claim:
        assert claim.attempt == 1
        with pytest.raises(Held), other.claim():
            pass
    with other.claim() as claim:
        assert claim.attempt == 2


def test_losing_claim_is_noticed_before_the_next_write(store):
    trial = store.trial(make_spec())
    with trial.claim() as claim:
        claim.confirm()
        other = Claim(store, trial.file("claims"), 2)
        other.take()
        with pytest.raises(ClaimLost):
            claim.confirm()
        other.release()


def test_two_takeovers_of_one_claim_cannot_both_succeed(store):
    folder = store.trial(make_spec()).file("claims")
    first = Claim(store, folder, 1)
    first.take()
    with pytest.raises(Held):
        Claim(store, folder, 1).take()
    first.release()


def _hold_forever(root, ready):
    with Store(root).trial(make_spec()).claim():
        ready.set()
        time.sleep(600)


def test_claim_of_a_killed_process_on_this_machine_is_free_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_hold_forever, args=(str(tmp_path), ready))
    process.start()
    assert ready.wait(60)
    trial = Store(str(tmp_path)).trial(make_spec())
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
    trial = store.trial(make_spec())
    foreign = {
        "owner": "x", "attempt": 1, "counter": 3, "released": False,
        "process": {"machine": "elsewhere", "pid": 1, "started": 1},
    }  # fmt: skip
    path = trial.file("claims/0001.json")
    store.write_json(path, foreign)
    clock = [0.0]
    monkeypatch.setattr(store_module.time, "monotonic", lambda: clock[0])
    assert trial.holder() is not None
    clock[0] = store_module.STALE_SECONDS - 1
    assert trial.holder() is not None
    store.write_json(path, foreign | {"counter": 4})
    clock[0] = store_module.STALE_SECONDS + 1
    assert trial.holder() is not None, "the counter moved: the owner lives"
    clock[0] = 2 * store_module.STALE_SECONDS + 1
    assert trial.holder() is None


def test_heartbeat_moves_the_counter(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "HEARTBEAT_SECONDS", 0.01)
    store = Store(str(tmp_path))
    trial = store.trial(make_spec())
    with trial.claim():
        deadline = time.monotonic() + 10
        while store.read_json(trial.file("claims/0001.json"))["counter"] < 2:
            assert time.monotonic() < deadline, "no heartbeat"
            time.sleep(0.01)


def test_heartbeat_survives_a_store_that_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "HEARTBEAT_SECONDS", 0.01)
    store = Store(str(tmp_path))
    trial = store.trial(make_spec())
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


def test_a_folder_with_another_spec_is_refused(store):
    folder = store.trial(make_spec())
    folder.put_spec(make_spec())
    folder.put_spec(make_spec())
    with pytest.raises(UserError, match="another spec"):
        folder.put_spec(make_spec(seed=1))


def test_identity_has_what_changes_numbers_and_survives_json():
    spec = make_spec()
    assert (
        TrialSpec.from_json(json.loads(json.dumps(spec.to_json()))).fingerprint == spec.fingerprint
    )
    assert spec.fingerprint in {spec.fingerprint} - {
        make_spec(seed=1).fingerprint,
        make_spec(config={"width": 4}).fingerprint,
        make_spec(revision=2).fingerprint,
        make_spec(steps=8).fingerprint,
    }
    with pytest.raises(UserError, match="label_ratio"):
        DataSpec(**{**spec.to_json()["data"], "label_ratio": 1.5})
    with pytest.raises(UserError, match="steps"):
        make_spec(steps=0)


def test_first_result_of_an_evaluation_stays(store):
    spec = EvaluationSpec(
        protocol="bottom_right", options={"space": "latent"}, dataset="iraven",
        configuration="center", split="test", digest="d", rounds=1, seed=0, revision=1,
    )  # fmt: skip
    folder = store.trial(make_spec())
    evaluation = folder.evaluation(spec)
    assert not evaluation.is_done
    evaluation.create_result(spec, {"accuracy": [0.5]})
    evaluation.create_result(spec, {"accuracy": [0.7]})
    assert evaluation.result() == {"accuracy": [0.5]}
    assert [e.spec().fingerprint for e in folder.evaluations()] == [spec.fingerprint]
