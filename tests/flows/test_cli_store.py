"""``store export`` and ``store import``: one line for what they cannot do."""

import pytest
from click.testing import CliRunner

from flows.cli import cli
from raise_model.store import Store


@pytest.fixture
def source(trained_store, tmp_path):
    return trained_store(tmp_path / "source")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("RAISE_HOME", str(tmp_path / "home"))
    return lambda *words: CliRunner().invoke(cli, ["store", *map(str, words)])


def test_export_says_what_has_no_weights(run, source, tmp_path, caplog):
    found = run("export", tmp_path / "records", "--weights", "--store", source.root)
    assert (found.exit_code, found.stdout) == (0, f"1 trials written to {tmp_path / 'records'}\n")
    assert "has no weights of raise-center" in caplog.text  # standard error, outside of pytest


def test_what_cannot_be_imported_or_exported_is_one_line(run, source, tmp_path):
    records, target = tmp_path / "records", Store(str(tmp_path / "target"))
    run("export", records, "--store", source.root)
    (name,) = (trial.name for trial in source.trials())
    with target.trial(name).claim():
        held = run("import", records, "--store", target.root)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    empty = run("import", tmp_path / "empty", "--store", target.root)
    file = run("export", tmp_path / "file", "--store", source.root)
    nowhere = run("export", records, "--store", tmp_path / "nowhere")
    for found, text in (
        (held, f"another process holds {name}"), (empty, "holds no trial record"),
        (file, str(tmp_path / "file")), (nowhere, "nowhere does not exist"),
    ):  # fmt: skip
        assert found.exit_code == 2
        assert found.stderr.startswith("error: ")
        assert found.stderr.count("\n") == 1
        assert text in found.stderr
    again = run("import", records, "--store", target.root)
    assert again.stdout == "1 trials taken, 0 were there\n"
