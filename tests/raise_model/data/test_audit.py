"""Contexts that two data sets share, and the data sets made to share them."""

import hashlib

import numpy as np
import pytest

from raise_model.data.audit import context_digests, overlap
from raise_model.data.generate import LEAKED, SEEDS, generate, leak_source, make_problem
from raise_model.data.splits import split_of
from raise_model.errors import UserError
from raise_model.store import Store


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with 100 problems of every generated data set, by name and split."""
    store = Store(str(tmp_path_factory.mktemp("audit")))
    return store, {
        dataset: generate(store, dataset=dataset, configuration="left_right", problems=100)
        for dataset in SEEDS
    }


def test_seen_test_problems_of_the_overlapping_set_are_the_leaked_ones(made):
    store, sets = made
    found = overlap(store, [sets["raven"]["train"]], [sets["iraven_overlapping"]["test"]])
    assert found.problems == 20
    assert len(found.seen) == 10  # .51 * 20, rounded down
    assert found.share == 0.5
    assert found.seen == {
        index: leak_source("left_right", index)
        for index in range(100)
        if leak_source("left_right", index) is not None
    }
    assert all(index // 10 == source // 10 for index, source in found.seen.items())


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_nothing_else_overlaps(made, split):
    store, sets = made
    for other in ("train", "val", "test"):
        clean = overlap(store, [sets["raven"][other]], [sets["iraven"][split]])
        assert clean.seen == {}
        if (other, split) != ("train", "test"):
            mixed = overlap(store, [sets["raven"][other]], [sets["iraven_overlapping"][split]])
            assert mixed.seen == {}


def test_paired_problems_have_the_same_contexts_and_other_candidates(made):
    store, sets = made
    for split in ("train", "val", "test"):
        manifests = sets["raven"][split], sets["iraven_paired"][split]
        raven, paired = (context_digests(store, manifest) for manifest in manifests)
        assert raven == paired
    for index in range(20):
        raven, paired = (
            make_problem(name, "left_right", SEEDS[name], index)
            for name in ("raven", "iraven_paired")
        )
        assert (raven.panels[:8] == paired.panels[:8]).all()
        assert raven.rules == paired.rules
        assert {p.tobytes() for p in raven.panels[8:]} != {p.tobytes() for p in paired.panels[8:]}
        assert len({panel.tobytes() for panel in paired.panels[8:]}) == 8


def test_candidates_alone_do_not_make_another_context(made):
    store, sets = made
    problem = make_problem("raven", "left_right", SEEDS["raven"], 0)
    answer = problem.panels[8 + problem.target]
    nine = np.concatenate([problem.panels[:8], answer[None]])
    assert context_digests(store, sets["raven"]["train"])[0] == hashlib.sha256(nine).digest()


@pytest.mark.parametrize("name", LEAKED)
def test_leaks_are_as_many_as_measured_and_all_different(name):
    sources = [leak_source(name, index) for index in range(10_000)]
    leaked = [source for source in sources if source is not None]
    assert abs(len(leaked) - LEAKED[name] * 2000) <= 1
    assert len(set(leaked)) == len(leaked)
    assert {split_of(source) for source in leaked} == {"train"}
    assert {split_of(index) for index, s in enumerate(sources) if s is not None} == {"test"}


def test_layouts_without_a_measured_leak_are_refused(tmp_path):
    with pytest.raises(UserError, match="iraven_overlapping has no grid_2x2_uni"):
        generate(Store(str(tmp_path)), dataset="iraven_overlapping", configuration="grid_2x2_uni")
