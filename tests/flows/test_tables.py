"""``raise-rpm results``: what of a store it shows, with and without parameters of the flow."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from flows.cli import cli
from raise_model.data.held_out import held_out_name
from raise_model.presets import shortened, trial_spec
from raise_model.specs import EvaluationSpec
from raise_model.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "store"))


@pytest.fixture
def trained(store):
    """Write a finished training with an evaluation on its own data set, as imported records are:
    without any data."""

    def train(accuracy, *, preset="demo", shorten=False, seed=0, **options):
        given = {"model": "raise", "dataset": "raven", "configuration": "center"} | options
        spec = trial_spec(
            preset=preset, train_digest="a", validation_digest="b", seed=seed, **given
        )
        spec = shortened(spec) if shorten else spec
        folder = store.trial(spec)
        folder.put_spec(spec)
        done = {"step": 1, "best_step": 1, "validation_accuracy": 0.8, "seconds": 1.0}
        store.create_json(folder.file("done.json"), done)
        evaluation = EvaluationSpec(
            protocol="bottom_right", options={"space": "latent"}, dataset=given["dataset"],
            configuration=given["configuration"], split="test", digest="c", rounds=3, seed=0,
            revision=1,
        )  # fmt: skip
        result = {"problems": 2000, "accuracy": [accuracy]}
        folder.evaluation(evaluation).create_result(evaluation, result)
        return spec

    return train


@pytest.fixture
def results(tmp_path, monkeypatch, store):
    """Run the command on the store, 80 columns wide; returns what it prints."""
    monkeypatch.setenv("RAISE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "80")

    def run(*parameters, code=0):
        pairs = [word for pair in parameters for word in ("-p", pair)]
        found = CliRunner().invoke(cli, ["results", "--store", store.root, "--json", *pairs])
        assert found.exit_code == code, found.output
        return found.stderr if code else found.stdout

    return run


def details(output):
    """Means and what the details have of the paper, in the object on the last line."""
    value = json.loads(output.splitlines()[-1])
    return {row["mean"]: row["published"] for row in value["details"]}


def test_imported_records_are_shown_without_data_sets(results, trained):
    trained(0.875)
    trained(0.5, preset="lite", model="raise_plus")
    output = results("preset=demo")
    assert "RAISE (demo)" in output
    assert "87.5" in output
    assert details(output) == {0.875: 0.992}
    # A run has two seeds, and I-RAVEN; what it would train has no name before there are data.
    missing = json.loads(output.splitlines()[-1])["missing"]
    assert "raise-center-5pct-s0 on iraven" in missing
    assert "raise-center-5pct-s1 on raven" in missing
    assert "raise-center-5pct-s0 on raven" not in missing
    assert "raise-center-5pct-s0 on raven (pixel)" in missing


def test_a_parameter_that_is_not_given_leaves_nothing_out(results, trained):
    trained(0.1, preset="lite")
    trained(0.1, preset="lite", seed=7)
    trained(0.2, preset="lite", model="raise_plus", configuration="up_down")
    trained(0.3, preset="lite", label_ratio=0.2)
    trained(0.4, preset="lite", shorten=True)
    trained(0.5, preset="lite", dataset=held_out_name("raven"))
    trained(0.6, preset="demo")
    output = results("preset=lite")
    assert details(output).items() >= {0.1: 0.992, 0.2: None, 0.3: None, 0.4: None}.items()
    assert details(output).keys() == {0.1, 0.2, 0.3, 0.4, 0.5}
    assert "10.0 ± 0.0" in output


@pytest.mark.parametrize(
    ("parameter", "means"),
    [
        ('models=["raise_plus"]', {0.2, 0.8}),
        ('configurations=["up_down"]', {0.2}),
        ("trials=1", {0.1, 0.2, 0.3, 0.4, 0.8}),
        ("label_ratio=0.2", {0.3}),
        ("data=published", {0.7}),
        ('studies=["label_ratio"]', {0.1, 0.3}),
        ('studies=["ablation"]', {0.8}),
    ],
)
def test_a_parameter_that_is_given_leaves_out_what_does_not_fit(results, trained, parameter, means):
    trained(0.1, preset="lite")
    trained(0.2, preset="lite", model="raise_plus", configuration="up_down")
    trained(0.3, preset="lite", label_ratio=0.2)
    trained(0.4, preset="lite", shorten=True)
    trained(0.7, preset="lite", dataset="raven_published")
    trained(0.8, preset="lite", model="raise_plus", shorten=True)
    trained(0.9, preset="lite", configuration="left_right", seed=1)
    assert details(results("preset=lite", parameter)).keys() == means


def test_only_where_nothing_fits_there_is_an_error_of_one_line(results, trained, store):
    trained(0.875)
    # The default, auto, is lite on a machine without a GPU.
    said = results('configurations=["center"]', "device=cpu", code=2)
    assert said.startswith(
        f"error: store {store.root} has no bottom-right selection of preset lite"
    )
    assert said.count("\n") == 1
    assert "87.5" in results()


def test_where_other_evaluations_fit_it_says_what_shows_them(results, trained, store):
    spec = trained(0.875)
    evaluation = EvaluationSpec(
        protocol="arbitrary_position",
        options={"space": "latent", "masks": "batch", "duplicates": "keep"},
        dataset="raven", configuration="center", split="test", digest="c", rounds=1, seed=0,
        revision=1,
    )  # fmt: skip
    settings = [{"targets": 1, "distractors": 1, "problems": 2000, "accuracy": [0.5]}]
    result = {"problems": 2000, "settings": settings}
    store.trial(spec).evaluation(evaluation).create_result(evaluation, result)
    said = results("preset=demo", 'studies=["arbitrary_position"]', code=2)
    assert said.endswith("raise-rpm report --preset demo shows other evaluations (1)\n")


def test_of_data_sets_that_are_there_the_trials_that_a_run_lacks_have_their_names(
    results, trained, monkeypatch
):
    have = trained(0.875)
    manifest = SimpleNamespace(digest="other")
    monkeypatch.setattr("flows.tables.find_manifest", lambda *split: manifest)
    missing = json.loads(results("preset=demo").splitlines()[-1])["missing"]
    asked = trial_spec(
        model="raise", preset="demo", dataset="raven", configuration="center",
        train_digest="other", validation_digest="other", seed=0,
    )  # fmt: skip
    # Trained on other data of this name, so that a run would train again.
    assert f"{asked.name} on raven" in missing
    assert f"{have.name} on raven" not in missing


@pytest.mark.parametrize("place", ["missing", "file"])
def test_results_of_no_store_are_one_line(tmp_path, monkeypatch, place):
    monkeypatch.setenv("RAISE_HOME", str(tmp_path / "home"))
    (tmp_path / "file").write_text("")
    found = CliRunner().invoke(cli, ["results", "--store", str(tmp_path / place)])
    assert found.exit_code == 2
    assert found.stderr.startswith(f"error: store {tmp_path / place} ")
    assert found.stderr.count("\n") == 1
