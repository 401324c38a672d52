"""The stage that makes data: which sets a source means, and what strict refuses."""

import pytest

from flows.ingest import ingest
from flows.studies import Request
from raise_model.data.generate import SEEDS, generate
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


def run(store, data, strict):
    request = Request(preset="smoke", configurations=["center"], data=data)
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
