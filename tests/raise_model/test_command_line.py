"""``python -m raise_model``: the whole way with torch alone, and mistakes."""

import json

import pytest

from raise_model.__main__ import main
from raise_model.data.generate import leak_source


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
        (("evaluate", "nothing"), "no trial nothing"),
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
