"""The commands show, gallery and data-card."""

import json

import pytest
from click.testing import CliRunner

from flows.cli import cli
from raise_model.data.generate import generate
from raise_model.store import Store


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    store = Store(str(tmp_path_factory.mktemp("show")))
    for configuration in ("center", "left_right"):
        generate(store, dataset="raven", configuration=configuration, problems=20)
    return store.root


@pytest.fixture
def run(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAISE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return lambda *arguments: CliRunner().invoke(cli, [*arguments, "--store", root])


def test_show_prints_rules_and_writes_a_picture(run, tmp_path):
    found = run("show", "raven/left_right/7")
    assert found.exit_code == 0, found.output
    lines = found.output.splitlines()
    assert lines[0].startswith("left: Number/Position constant; ")
    assert sum("the answer" in line for line in lines) == 1
    assert lines[-1] == "raven-left_right-7.png"
    assert (tmp_path / lines[-1]).read_bytes().startswith(b"\x89PNG")
    hidden = run("show", "raven/left_right/7", "--hide-answer", "--output", "x/a.svg")
    assert "the answer" not in hidden.output
    assert "<svg" in (tmp_path / "x" / "a.svg").read_text()


def test_gallery_takes_what_the_store_has(run, tmp_path):
    found = run("gallery", "--problems", "2")
    assert found.exit_code == 0, found.output
    assert (tmp_path / "raven-gallery.png").stat().st_size > 10_000


def test_data_card_ends_in_json_and_says_that_no_server_is_there(run, tmp_path):
    found = run("data-card", "--configuration", "center", "--json")
    assert found.exit_code == 0, found.output
    (card,) = json.loads(found.stdout.splitlines()[-1])["cards"]
    assert card["splits"]["train"]["problems"] == 12
    assert sum(card["targets"].values()) == 20
    assert (tmp_path / "data-cards" / "raven" / "center" / "README.md").exists()
    assert "not logged to MLflow" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "raven/center/20"), "no problem 20 in raven/center"),
        (("show", "raven"), "is no problem id"),
        (("show", "raven/center/1", "--output", "picture.doc"), "cannot write picture.doc"),
        (("gallery", "--dataset", "iraven"), "no data set iraven"),
        (("data-card", "--configuration", "up_down"), "no data set raven/up_down"),
    ],
)
def test_a_mistake_is_one_line(run, arguments, message):
    found = run(*arguments)
    assert found.exit_code == 2
    (line,) = [line for line in found.stderr.splitlines() if line.startswith("error: ")]
    assert message in line
