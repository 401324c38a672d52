"""``raise-rpm report`` and what the flow hands to MLflow and Prefect."""

import json
import shlex

import pandas as pd
import pytest
from click.testing import CliRunner

from artifacts.report import build_report
from artifacts.tables import ResultsTable
from flows.cli import cli
from flows.report import summary, upload
from flows.studies import Request, lower
from raise_model.specs import EvaluationSpec


@pytest.fixture
def store(trained_store, tmp_path):
    """One demo training on Center, evaluated on RAVEN."""
    made = trained_store(tmp_path / "store")
    (folder,) = made.trials()
    evaluation = EvaluationSpec(
        protocol="bottom_right", options={"space": "latent"}, dataset="raven",
        configuration="center", split="test", digest="c", rounds=1, seed=0, revision=1,
    )  # fmt: skip
    result = {"problems": 2000, "accuracy": [0.875]}
    folder.evaluation(evaluation).create_result(evaluation, result)
    return made


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("RAISE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("artifacts.plots.to_png", lambda figure: b"\x89PNG")
    return lambda *arguments: CliRunner().invoke(cli, ["report", *arguments])


def test_one_command_writes_all_forms_without_a_server(run, store, tmp_path, monkeypatch):
    out = tmp_path / "out"
    found = run("--preset", "demo", "--store", store.root, "--output", str(out), "--json")
    assert found.exit_code == 0, found.output
    value = json.loads(found.stdout.splitlines()[-1])
    # RAISE on Center, and the same number in the table of answer selection.
    assert value["cells"]["reproduced"] == 2
    assert value["cells"]["published"] == 912
    assert "87.5" in (out / "report.html").read_text()
    assert "| RAISE | · / 90.0 | 87.5 / 99.2 |" in (out / "report.md").read_text()
    assert "87.5/--" in (out / "latex/bottom_right_selection.tex").read_text()
    frame = pd.read_csv(out / "csv/published_cells.csv")
    assert list(frame["mean"].dropna()) == [0.875, 0.875]
    assert (out / "figures/training_curves.svg").exists()
    assert not (tmp_path / "home").exists()
    assert value["other_trials"] == 0
    # It is not the store of the home.
    in_command = f"-p store='\"{store.root}\"'"
    assert in_command in found.stdout
    assert in_command in (out / "report.md").read_text()
    monkeypatch.setenv("RAISE_STORE", store.root)
    assert "-p store" not in run("--preset", "demo", "--output", str(out)).stdout


def test_no_training_of_the_preset_is_said(run, store, tmp_path):
    found = run("--preset", "lite", "--store", store.root, "--output", str(tmp_path / "out"))
    assert found.exit_code == 0
    assert "no finished training of preset lite" in found.stdout
    assert "1 finished training of this store is not of preset lite" in found.stdout


@pytest.mark.parametrize("place", ["missing", "file"])
def test_a_report_of_no_store_is_one_line_and_writes_nothing(run, tmp_path, place):
    (tmp_path / "file").write_text("")
    found = run("--store", str(tmp_path / place), "--output", str(tmp_path / "out"))
    assert found.exit_code == 2
    assert found.stderr.startswith(f"error: store {tmp_path / place} ")
    assert found.stderr.count("\n") == 1
    assert found.stdout == ""
    assert not (tmp_path / "out").exists()


def test_a_damaged_record_leaves_nothing_behind(run, store, tmp_path):
    (trial,) = store.trials()
    store.write(trial.file("done.json"), b"{")
    found = run("--store", store.root, "--output", str(tmp_path / "out"))
    assert found.exit_code == 2
    assert found.stderr.startswith(f"error: {store.root}/trials/")
    assert found.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_flow_accepts_every_command_that_is_named(store):
    report = build_report(store, preset="demo", seeds=1)
    commands = [gap.command for gap in report.gaps if gap.command]
    assert commands
    for command in commands:
        pairs = dict(word.split("=", 1) for word in shlex.split(command)[5::2])
        values = {key: json.loads(v) if v.startswith("[") else v for key, v in pairs.items()}
        lowered = lower(Request(**values), lambda *split: "0" * 64)
        trained = {(spec.model, spec.data.configuration) for spec in lowered.trials}
        wanted = {(m, c) for m in values["models"] for c in values["configurations"]}
        assert trained == wanted, command
        assert lowered.evaluations


class FakeTracker:
    uri = "http://tracker"
    experiment_path = "#/experiments/1"

    def __init__(self):
        self.texts = {}

    def upload(self, name, text):
        self.texts[name] = text


def test_the_flow_uploads_the_report_and_links_it(store):
    report, tracker = build_report(store, preset="demo", seeds=3), FakeTracker()
    uploaded = upload(report, tracker)
    assert "87.5" in tracker.texts["report/report.html"]
    assert {"report/report.md", "report/csv/published_cells.csv"} <= set(tracker.texts)
    assert "report/latex/held_out.tex" in tracker.texts
    assert set(uploaded) == set(tracker.texts)
    table = ResultsTable(
        title="T", heading=(), cells=pd.DataFrame(), details=pd.DataFrame(), notes=(), missing=()
    )
    text = summary(report, table, store, tracker, uploaded)
    assert "(http://tracker/#/experiments/1)" in text
    assert "`report/report.html`" in text
    assert "2 of the paper's 912 numbers are reproduced" in text
    assert report.gaps[1].command in text
