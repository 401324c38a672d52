"""Held-out splits: the named pairs of attribute and rule occur in the test split only."""

import pytest

from raise_model.data import schema
from raise_model.data.generate import generate, make_problem
from raise_model.data.held_out import HELD_OUT, assign_splits, hold_out
from raise_model.errors import UserError
from raise_model.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(str(tmp_path_factory.mktemp("held_out")))
    for configuration in HELD_OUT:
        generate(store, dataset="raven", configuration=configuration, problems=100)
    return store


def read(store, manifest):
    names = [name for name in schema.SCHEMA.names if name != "problem_id"]
    chunks = schema.read_chunks(store, manifest, names)
    return [problem for chunk in chunks for problem in schema.problems_of(chunk)]


def is_held_out(problem, configuration):
    rules = {(r["component"], r["attribute"]): r["rule"] for r in problem.rules}
    if configuration == "center":
        return rules[0, "size"] == "constant"
    inner = [rules[1, attribute] for attribute in ("type", "size", "color")]
    return "arithmetic" in inner or "distribute_three" in inner


@pytest.mark.parametrize("configuration", HELD_OUT)
def test_held_out_rules_are_in_the_test_split_only(store, configuration):
    manifests = hold_out(store, "raven", configuration)
    problems = {split: read(store, manifest) for split, manifest in manifests.items()}
    assert all(is_held_out(problem, configuration) for problem in problems["test"])
    others = problems["train"] + problems["val"]
    assert not any(is_held_out(problem, configuration) for problem in others)
    assert len(problems["val"]) == len(others) // 4
    assert sorted(p.index for s in problems.values() for p in s) == list(range(100))
    for split in problems.values():
        indices = [problem.index for problem in split]
        assert indices == sorted(indices)


@pytest.mark.parametrize("configuration", HELD_OUT)
def test_problems_are_those_of_the_source(store, configuration):
    manifest = hold_out(store, "raven", configuration)["test"]
    assert manifest.dataset == "raven_held_out"
    digests = []
    for problem in read(store, manifest):
        assert (
            problem.digest() == make_problem("raven", configuration, 1234, problem.index).digest()
        )
        digests.append(problem.digest())
    assert schema.combine_digests(digests) == manifest.digest


def test_complete_splits_are_not_written_again(store, tmp_path):
    first = hold_out(store, "raven", "center")
    calls = []
    assert hold_out(store, "raven", "center", lambda *call: calls.append(call)) == first
    assert calls == []


def test_an_interrupted_split_is_taken_up(store):
    first = hold_out(store, "raven", "center")
    store.delete(f"{first['val'].folder}/_manifest.json")
    again = hold_out(store, "raven", "center")
    assert again["val"].digest == first["val"].digest
    assert again["val"].files != first["val"].files
    names = [n for n in store.list(again["val"].folder) if n.endswith(".parquet")]
    assert names == list(again["val"].files)


def test_mistakes_are_one_line(store, tmp_path):
    with pytest.raises(UserError, match="no held-out splits are defined for up_down"):
        hold_out(store, "raven", "up_down")
    with pytest.raises(UserError, match="no data set iraven/center/train"):
        hold_out(store, "iraven", "center")
    small = Store(str(tmp_path))
    generate(small, dataset="raven", configuration="center", problems=20)
    hold_out(small, "raven", "center")
    for split in ("train", "val", "test"):
        store_folder = schema.folder("raven", "center", split)
        for name in small.list(store_folder):
            small.delete(f"{store_folder}/{name}")
    generate(small, dataset="raven", configuration="center", problems=30)
    with pytest.raises(UserError, match="was made from other problems"):
        hold_out(small, "raven", "center")


def test_every_fourth_of_the_rest_is_for_validation():
    rule = {"component": 0, "attribute": "size"}
    rules = [
        (index, [rule | {"rule": "constant" if index % 5 == 0 else "progression"}])
        for index in reversed(range(15))
    ]
    assigned = assign_splits(rules, "center")
    assert [i for i, s in assigned.items() if s == "test"] == [0, 5, 10]
    assert [i for i, s in assigned.items() if s == "val"] == [4, 9, 14]
