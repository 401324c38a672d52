"""What is read of a store's trials, and what may be deleted of it."""

import json
import os
import time

import pytest
from click.testing import CliRunner

from flows import clean as clean_module
from flows import trial_states
from flows.clean import delete, find_items
from flows.cli import cli
from flows.trial_states import Observer, stored_files
from raise_model.data.schema import Manifest, create_manifest
from raise_model.errors import UserError
from raise_model.presets import trial_spec
from raise_model.store import Store

MONTH = 30 * 86400


def make_spec(seed):
    return trial_spec(
        model="raise", preset="smoke", dataset="raven", configuration="center",
        train_digest="a" * 64, validation_digest="b" * 64, seed=seed,
    )  # fmt: skip


@pytest.fixture(params=["file", "s3"])
def store(request, tmp_path, monkeypatch):
    if request.param == "file":
        (tmp_path / "store").mkdir()
        return Store(str(tmp_path / "store"))
    return request.getfixturevalue("s3_store")


def put_checkpoint(folder, kind, step, accuracy=0.25, seconds=10.0):
    folder.store.write(folder.file(f"{kind}-{step:08d}.pt"), b"weights")
    meta = {"best_accuracy": accuracy, "seconds": seconds}
    folder.store.write_json(folder.file(f"{kind}-{step:08d}.json"), {"step": step, "meta": meta})


def begin(store, seed):
    spec = make_spec(seed)
    folder = store.trial(spec)
    folder.put_spec(spec)
    return folder


@pytest.fixture
def trials(store):
    """One trial in each state; the running one is held by this process."""
    done, failed, running, stopped = (begin(store, seed) for seed in range(4))
    for folder in (done, failed, stopped):
        with folder.claim():
            put_checkpoint(folder, "last", 5)
    put_checkpoint(done, "best", 5)
    store.create_json(
        done.file("done.json"), {"best_step": 5, "validation_accuracy": 0.5, "seconds": 20.0}
    )
    log = "T attempt 1 failed\nTraceback:\n  File x\nOutOfMemoryError: CUDA out of memory\n"
    store.write(failed.file("log.txt"), log.encode())
    put_checkpoint(running, "last", 5)
    with running.claim():
        yield {"done": done, "failed": failed, "running": running, "stopped": stopped}


def test_every_trial_has_the_state_that_its_files_tell(store, trials):
    found = {state.name: state for state in Observer(store).look()}
    assert {state: found[folder.name].state for state, folder in trials.items()} == {
        state: state for state in trials
    }
    running, failed = found[trials["running"].name], found[trials["failed"].name]
    assert (running.step, running.accuracy) == (5, 0.25)
    assert running.seconds_left == pytest.approx(2.0 * (running.steps - 5))
    assert failed.detail == "OutOfMemoryError: CUDA out of memory"
    assert found[trials["done"].name].accuracy == 0.5
    assert dict(Observer(store).counts()) == dict.fromkeys(trials, 1)


def test_clean_lists_checkpoints_of_finished_trials_alone(store, trials, tmp_path):
    items = find_items(store, tmp_path / "home")
    done = trials["done"].path
    assert [item.path for item in items] == [
        f"{done}/last-00000005.json", f"{done}/last-00000005.pt",
    ]  # fmt: skip
    before = set(stored_files(store, ""))
    delete(store, items)
    assert before - set(stored_files(store, "")) == {item.path for item in items}
    assert find_items(store, tmp_path / "home") == []


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_a_finished_trial_that_is_held_keeps_its_files(store, trials, tmp_path):
    with trials["done"].claim():
        assert find_items(store, tmp_path / "home") == []


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_only_what_is_old_and_of_nobody_is_on_the_list(store, tmp_path, monkeypatch):
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    monkeypatch.setattr(clean_module.tempfile, "gettempdir", lambda: str(temporary))
    digest = "c" * 64
    create_manifest(
        store,
        Manifest(
            dataset="raven", configuration="center", split="val", problems=0, digest=digest,
            files={}, recipe={}, version="1",
        ),
    )  # fmt: skip
    old = {
        "half": tmp_path / "store" / "trials" / "x" / ".writing-1",
        "other": home / "cache" / f"{'d' * 32}-20-area.npy",
        "known": home / "cache" / f"{digest[:32]}-20-area.npy",
        "ray": home / "logs" / "ray.log",
        "mlflow": home / "logs" / "mlflow.log",
        "sweep": temporary / "raise-tune-1" / "a",
    }
    for path in old.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    (tmp_path / "store" / "trials" / "x" / ".writing-2").write_bytes(b"x")
    (home / "cache" / f"{'e' * 32}-20-area.npy").write_bytes(b"x")
    for path in (*old.values(), temporary / "raise-tune-1"):
        os.utime(path, (time.time() - MONTH,) * 2)
    items = find_items(store, home, services={"mlflow"})
    assert [(item.kind, item.path) for item in items] == [
        ("half-written", "trials/x/.writing-1"),
        ("cache", str(old["other"])),
        ("log", str(old["ray"])),
        ("log", str(temporary / "raise-tune-1")),
    ]
    delete(store, items)
    assert {name for name, path in old.items() if path.exists()} == {"known", "mlflow"}


@pytest.mark.parametrize("store", ["file"], indirect=True)
@pytest.mark.parametrize("days", [0.0, -1.0, float("nan"), float("inf")])
def test_clean_wants_a_number_of_days(store, tmp_path, days):
    with pytest.raises(UserError, match="--days"):
        find_items(store, tmp_path / "home", days=days)


@pytest.mark.parametrize("place", ["missing", "file"])
def test_without_its_store_nothing_is_offered(tmp_path, monkeypatch, place):
    home = tmp_path / "home"
    array = home / "cache" / f"{'d' * 32}-20-area.npy"
    array.parent.mkdir(parents=True)
    array.write_bytes(b"x")
    os.utime(array, (time.time() - MONTH,) * 2)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAISE_HOME", str(home))
    found = CliRunner().invoke(cli, ["clean", "--yes", "--store", str(tmp_path / place)])
    assert found.exit_code == 2
    assert found.stderr.startswith(f"error: store {tmp_path / place} ")
    assert found.stderr.count("\n") == 1
    assert array.exists()


def test_an_s3_store_without_an_object_does_not_exist(s3_store, tmp_path):
    with pytest.raises(UserError, match="has nothing"):
        find_items(s3_store, tmp_path / "home")


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_commands_show_trials_and_clean_only_when_told(store, trials, tmp_path, monkeypatch):
    monkeypatch.setenv("RAISE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RAISE_STORE", store.root)
    found = CliRunner().invoke(cli, ["trials", "--json"])
    assert found.exit_code == 0, found.output
    value = json.loads(found.stdout.splitlines()[-1])
    assert {state["state"] for state in value["trials"]} == set(trials)
    assert f"raise-rpm logs {trials['failed'].name}" in found.stderr
    last = store.path(trials["done"].file("last-00000005.pt"))
    shown = CliRunner().invoke(cli, ["clean"])
    assert "raise-rpm clean --yes" in shown.stdout
    assert os.path.exists(last)
    assert "2 items" in CliRunner().invoke(cli, ["clean", "--yes"]).stdout
    assert not os.path.exists(last)


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_a_trial_whose_claim_stands_still_is_silent(store, trials, monkeypatch):
    observer, now = Observer(store), [0.0]
    monkeypatch.setattr(trial_states.ClaimWatch, "still_for", lambda *a: now[0])
    now[0] = 100.0
    running = next(state for state in observer.look() if state.state == "running")
    assert running.silent_seconds == 100.0
