"""The stage that makes data: which sets a source means, and what strict refuses."""

import pytest

from flows.ingest import _splits_to_make, ingest
from flows.studies import Request
from raise_model.data.generate import SEEDS, generate
from raise_model.data.schema import open_manifest
from raise_model.errors import UserError
from raise_model.store import Store


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("RAISE_HOME", str(tmp_path / "home"))
    store = Store(str(tmp_path / "store"))
    for dataset in SEEDS:
        generate(store, dataset=dataset, configuration="center", problems=100)
    return store


class Silent:
    """Progress outside a flow."""

    def update(self, *_, **__):
        pass


def run(store, data, strict, studies=("main_table",)):
    request = Request(preset="smoke", studies=studies, configurations=["center"], data=data)
    return ingest.fn(store, request, Silent(), strict)


@pytest.mark.parametrize(
    ("data", "test"),
    [
        ("generated", "iraven"),
        ("paired", "iraven_paired"),
        ("overlapping", "iraven_overlapping"),
    ],
)
def test_sources_name_their_test_sets(store, data, test):
    splits = set(run(store, data, strict=False))
    assert splits == {
        ("raven", "center", "train"),
        ("raven", "center", "val"),
        ("raven", "center", "test"),
        (test, "center", "test"),
    }


def test_strict_refuses_a_leak_only(store):
    run(store, "generated", strict=True)
    run(store, "paired", strict=True)  # its contexts are those of the test split
    with pytest.raises(UserError, match="strict: 8 of 20 test problems of iraven_overlapping"):
        run(store, "overlapping", strict=True)


def test_held_out_splits_are_made_of_all_problems_of_both_data_sets(store):
    digests = run(store, "generated", strict=False, studies=["main_table", "held_out"])
    held = {split for split in digests if split[0].endswith("_held_out")}
    assert held == {
        ("raven_held_out", "center", "train"),
        ("raven_held_out", "center", "val"),
        ("raven_held_out", "center", "test"),
        ("iraven_held_out", "center", "test"),
    }
    parts = [open_manifest(store, *split) for split in held if split[0] == "raven_held_out"]
    assert sum(part.problems for part in parts) == 100
    assert {part.split: part.digest for part in parts} == {
        split: digest
        for (dataset, _, split), digest in digests.items()
        if dataset[:5] == "raven" and dataset.endswith("_held_out")
    }


def test_of_sources_that_are_split_again_all_splits_are_made():
    both = Request(preset="smoke", studies=["main_table", "held_out"], configurations=["center"])
    assert _splits_to_make(both) == {
        ("raven", "center"): ("train", "val", "test"),
        ("iraven", "center"): ("train", "val", "test"),
    }
    table = Request(preset="smoke", studies=["main_table"], configurations=["center"])
    assert _splits_to_make(table)["iraven", "center"] == ["test"]


def test_strict_knows_that_held_out_training_problems_are_tests_of_other_splits(store):
    run(store, "generated", strict=True, studies=["main_table", "held_out"])
