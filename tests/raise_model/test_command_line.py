"""``python -m raise_model``: the whole way with torch alone, and mistakes."""

import dataclasses
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from raise_model.__main__ import main
from raise_model.data.generate import generate, leak_source
from raise_model.errors import place_error
from raise_model.store import Store
from raise_model.training.fit import NonFiniteLoss
from raise_model.training.trial import run_trial


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RAISE_HOME", str(tmp_path / "home"))

    def run(command, *arguments):
        status = main([command, "--store", str(tmp_path / "store"), *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_generate_train_evaluate_export(run, tmp_path):
    for dataset in ("raven", "iraven", "iraven_overlapping"):
        status, out, _ = run(
            "generate", "--dataset", dataset, "--configuration", "center", "--problems", 100,
            "--workers", 1,
        )  # fmt: skip
        assert status == 0
        assert json.loads(out).keys() == {"train", "val", "test"}
    train = ("train", "--preset", "smoke", "--configuration", "center", "--device", "cpu")
    status, out, err = run(*train, "--minutes", 0)
    assert (status, json.loads(out)["finished"]) == (0, False)
    assert "validation_accuracy=" in err
    status, out, _ = run(*train)
    trial = json.loads(out)
    assert (status, trial["finished"], trial["attempts"]) == (0, True, 2)
    status, out, _ = run("evaluate", trial["trial"], "--dataset", "iraven", "--device", "cpu")
    (accuracy,) = json.loads(out)["accuracy"]
    assert status == 0
    assert 0 <= accuracy <= 1
    assert result_of(tmp_path, trial, "iraven")["seen"] == {
        "problems": 0, "accuracy": None, "unseen_accuracy": [accuracy],
    }  # fmt: skip
    run("evaluate", trial["trial"], "--dataset", "iraven_overlapping", "--device", "cpu")
    result = result_of(tmp_path, trial, "iraven_overlapping")
    seen, apart = result["seen"]["problems"], result["seen"]
    assert seen == 8  # .43 of 20 test problems
    hits = seen * apart["accuracy"][0] + (20 - seen) * apart["unseen_accuracy"][0]
    assert hits == pytest.approx(20 * result["accuracy"][0])
    first = [int(result["correct"][0][row]) for row in range(20) if leaks(row)]
    assert apart["accuracy"] == [sum(first) / len(first)]
    odd = ("--protocol", "odd_one_out", "--option", "odd=any", "--device", "cpu")
    status, out, _ = run("evaluate", trial["trial"], *odd)
    assert (status, json.loads(out)["problems"]) == (0, 20)
    status, out, _ = run("export", tmp_path / "records", "--weights")
    assert json.loads(out)["exported"] == [trial["trial"]]
    assert (tmp_path / "records" / f"{trial['trial']}.bf16.safetensors").exists()


def result_of(tmp_path, trial, dataset):
    folder = tmp_path / "store" / "trials" / trial["trial"] / "evaluations"
    (found,) = folder.glob(f"bottom_right-{dataset}-test-*")
    return json.loads((found / "result.json").read_text())


def leaks(row):
    """Whether a test problem of center repeats a training problem, given its row."""
    return leak_source("center", 10 * (row // 2) + 8 + row % 2) is not None


def test_held_out_splits_are_made_with_the_data(run):
    status, out, _ = run(
        "generate", "--configuration", "center", "--problems", 40, "--workers", 1, "--held-out"
    )
    held = json.loads(out)["held_out"]
    assert status == 0
    assert sum(split["problems"] for split in held.values()) == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--preset", "smoke", "--configuration", "center"), "generate"),
        (("train", "--preset", "smoke", "--configuration", "centre"), "centre"),
        (("train", "--model", "rise", "--preset", "smoke", "--configuration", "center"), "rise"),
        (("evaluate", "nothing"), "no trial in"),
        (("generate", "--configuration", "centre"), "centre"),
        (("generate", "--configuration", "up_down", "--held-out"), "no held-out splits"),
        (("generate", "--configuration", "center", "--dataset", "ravn"), "unknown data set"),
    ],
)
def test_a_mistake_is_one_clear_line(run, arguments, message):
    status, out, err = run(*arguments)
    assert status == 2
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [("--seed", "-1"), ("--seed", 2**32), ("--steps", 0), ("--minutes", "nan"), ("--minutes", -1)],
)
def test_numbers_out_of_range_are_refused_by_name(run, capsys, option, value):
    with pytest.raises(SystemExit, match="2"):
        run("train", "--preset", "smoke", "--configuration", "center", option, value)
    assert f"argument {option}: it must be a" in capsys.readouterr().err


TRAIN = ("train", "--preset", "smoke", "--configuration", "center", "--device", "cpu")


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    root = tmp_path_factory.mktemp("generated") / "store"
    generate(Store(str(root)), dataset="raven", configuration="center", problems=100, workers=1)
    return root


@pytest.fixture
def data(generated, tmp_path):
    shutil.copytree(generated, tmp_path / "store")


def test_a_loss_that_is_not_finite_names_step_and_term(data, run, tmp_path):
    _, out, _ = run(*TRAIN, "--minutes", 0)
    store = Store(str(tmp_path / "store"))
    spec = store.trial(json.loads(out)["trial"]).spec()
    wild = dataclasses.replace(spec, config={**spec.config, "learning_rate": 1e9})
    with pytest.raises(
        NonFiniteLoss,
        match=r"^step \d+: the loss .* is nan \(.*prediction=nan.*\) on training problems \d",
    ):
        run_trial(store, wild, device="cpu", threads=1, cache=tmp_path / "cache")
    assert store.trial(wild).holder() is None, "the claim is given back"


def test_what_stops_a_training_of_the_command_is_one_line(data, run, monkeypatch):
    def explode(*_, **__):
        raise NonFiniteLoss("step 3: the loss is nan")

    monkeypatch.setattr("raise_model.training.trial.run_trial", explode)
    status, _, err = run(*TRAIN)
    assert (status, err.splitlines()[-1]) == (2, "error: step 3: the loss is nan")

    def fill(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "/full/last.pt")

    monkeypatch.setattr("raise_model.training.trial.run_trial", fill)
    status, _, err = run(*TRAIN)
    assert status == 2
    assert err.splitlines()[-1].startswith("error: /full/last.pt: No space left on device; free")


def test_only_what_a_place_is_to_blame_for_is_the_users(tmp_path):
    assert place_error(ConnectionResetError(errno.ECONNRESET, "reset")) is None
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory") as caught:
        os.listdir(tmp_path / "file")
    assert "give a folder" in str(place_error(caught.value))


def test_a_stopped_training_says_so_and_gives_its_claim_back(data, run, tmp_path):
    command = [
        sys.executable, "-m", "raise_model", TRAIN[0], "--store", str(tmp_path / "store"),
        *TRAIN[1:], "--steps", "100000", "--cache", str(tmp_path / "cache"),
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    trials = tmp_path / "store" / "trials"
    while not any(trials.glob("*/last-*.json")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert err.splitlines()[-1].startswith("stopped; the same command goes on")
    assert "Traceback" not in err
    (claim,) = trials.glob("*/claims/0001.json")
    assert json.loads(claim.read_text())["released"] is True


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("done.json", "{", "done.json is damaged"),
        ("done.json", "{}", "done.json is damaged (best_step is missing)"),
        ("spec.json", "", "spec.json is damaged"),
        ("spec.json", None, "or of another version of raise-rpm"),
    ],
)
def test_a_damaged_file_of_a_trial_is_one_line(data, run, tmp_path, file, content, says):
    _, out, _ = run(*TRAIN)
    path = tmp_path / "store" / "trials" / json.loads(out)["trial"] / file
    if content is None:
        content = json.dumps(json.loads(path.read_text()) | {"novel": 1})
    path.write_text(content)
    status, _, err = run("evaluate", path.parent.name, "--device", "cpu")
    assert status == 2
    assert says in err
    assert str(path) in err
    assert err.count("\n") == 1


def test_a_damaged_checkpoint_is_passed_over_with_a_word(data, run, tmp_path, caplog):
    _, out, _ = run(*TRAIN, "--minutes", 0)
    folder = tmp_path / "store" / "trials" / json.loads(out)["trial"]
    (description,) = folder.glob("last-*.json")
    description.write_text("{")
    (folder / "claims" / "notes.txt").write_text("of somebody else")
    _, out, _ = run(*TRAIN)
    assert json.loads(out)["finished"] is True
    assert f"{description.with_suffix('')} is damaged and passed over" in caplog.text
    assert "attempt 2 starts at step 0 of 20" in (folder / "log.txt").read_text()


def test_a_store_without_trials_is_named_and_not_made(run, tmp_path):
    status, _, err = run("export", tmp_path / "records")
    assert (status, "check --store" in err) == (2, True)
    assert not (tmp_path / "store").exists()


def test_settings_that_a_model_cannot_have_are_refused(run):
    run("generate", "--configuration", "center", "--problems", 20, "--workers", 1)
    train = ("train", "--configuration", "center", "--model", "clap", "--preset", "smoke")
    status, _, err = run(*train, "--as-published")
    assert (status, "only RAISE is trained as published" in err) == (2, True)
    status, _, err = run(
        "train", "--preset", "smoke", "--configuration", "center", "--label-ratio", 1.5
    )
    assert status == 2
    assert "label_ratio must lie in [0, 1], not 1.5" in err
