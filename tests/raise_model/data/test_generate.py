"""The generator: deterministic, and both kinds of candidates (statistics: test_statistics)."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raise_model.data import answer_sets
from raise_model.data.generate import SEEDS, generate, make_problem
from raise_model.data.grammar import CONFIGURATIONS
from raise_model.data.rules import sample_matrix
from raise_model.errors import UserError
from raise_model.store import Store

DIGESTS = {
    ("raven", "center"): "84cc5ab788007e10",
    ("raven", "left_right"): "c5785d442ae3d491",
    ("raven", "up_down"): "e4c26165f87e47d3",
    ("raven", "out_in_center"): "d86c82ddf694b1e0",
    ("raven", "out_in_grid"): "76c106a09de91d79",
    ("raven", "grid_2x2"): "3c75bbd334c2b15d",
    ("raven", "grid_3x3"): "7226c5f665dba373",
    ("raven", "out_in_grid_uni"): "97299d44528798b6",
    ("raven", "grid_2x2_uni"): "ec900cb2c03e951e",
    ("raven", "grid_3x3_uni"): "21bfbae7147182d5",
    ("iraven", "center"): "31097b66832e9c16",
    ("iraven", "left_right"): "7cbef949bbd734e5",
    ("iraven", "up_down"): "410c60c433cbebba",
    ("iraven", "out_in_center"): "32ba301bc0bc5608",
    ("iraven", "out_in_grid"): "cb1514e349663b62",
    ("iraven", "grid_2x2"): "0e62838293b42e7e",
    ("iraven", "grid_3x3"): "82a4451552ccf13e",
    ("iraven", "out_in_grid_uni"): "c44c8221648932c4",
    ("iraven", "grid_2x2_uni"): "34ba13afeb2c167d",
    ("iraven", "grid_3x3_uni"): "ab37f5971066ddd1",
}
"""First 16 digits of problem 5; they change only together with generate.REVISION."""


@pytest.mark.parametrize("dataset", ["raven", "iraven"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_problems_are_the_same_everywhere(dataset, name):
    problem = make_problem(dataset, name, SEEDS[dataset], 5)
    assert problem.digest().hex()[:16] == DIGESTS[dataset, name]


def test_data_do_not_depend_on_workers_or_on_what_else_is_made(tmp_path):
    options = {"dataset": "iraven", "configuration": "center"}
    one, two, small = (Store(str(tmp_path / name)) for name in ("one", "two", "small"))
    alone = generate(one, splits=("val", "test"), workers=1, problems=100, **options)
    both = generate(two, splits=("test", "val"), workers=2, problems=100, **options)
    assert {k: m.digest for k, m in alone.items()} == {k: m.digest for k, m in both.items()}
    assert alone["val"].digest != alone["test"].digest
    few = generate(small, splits=("test",), problems=40, **options)
    rows = [read_split(store, m["test"]) for store, m in ((one, alone), (small, few))]
    assert rows[1].equals(rows[0].slice(0, 8))
    assert rows[1].column("index").to_pylist() == [8, 9, 18, 19, 28, 29, 38, 39]


def read_split(store, manifest):
    files = [store.path(f"{manifest.folder}/{name}") for name in manifest.files]
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])


def test_complete_splits_are_not_made_again(tmp_path):
    store = Store(str(tmp_path))
    options = {"dataset": "raven", "configuration": "center", "problems": 30}
    first = generate(store, **options)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    calls = []
    again = generate(store, progress=lambda done, total: calls.append((done, total)), **options)
    assert again == first
    assert calls == []
    assert files == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}


def test_progress_ends_at_the_total(tmp_path):
    calls = []
    generate(
        Store(str(tmp_path)), dataset="raven", configuration="center", problems=30,
        progress=lambda done, total: calls.append((done, total)),
    )  # fmt: skip
    assert calls[-1] == (30, 30)


def test_another_recipe_under_the_same_name_is_refused(tmp_path):
    store = Store(str(tmp_path))
    generate(store, dataset="raven", configuration="center", problems=20)
    with pytest.raises(UserError, match="was made with problems 20, not problems 30; delete"):
        generate(store, dataset="raven", configuration="center", problems=30)
    with pytest.raises(UserError, match="seed"):
        generate(store, dataset="raven", configuration="center", problems=20, seed=5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": "ravenn"}, "unknown data set 'ravenn'.*raven, iraven"),
        ({"configuration": "centre"}, "unknown configuration 'centre'.*center, left_right"),
        ({"problems": 9}, "at least 10"),
    ],
)
def test_unknown_requests_are_one_line(tmp_path, change, message):
    request = {"dataset": "raven", "configuration": "center", "problems": 20} | change
    with pytest.raises(UserError, match=message) as error:
        generate(Store(str(tmp_path)), **request)
    assert "\n" not in str(error.value)


def test_raven_and_iraven_share_no_contexts():
    contexts = [
        {
            make_problem(dataset, "left_right", SEEDS[dataset], i).panels[:8].tobytes()
            for i in range(60)
        }
        for dataset in ("raven", "iraven")
    ]
    assert not contexts[0] & contexts[1]


def sampled(dataset, name, count):
    """Rules and candidates of many problems, not drawn."""
    made = CONFIGURATIONS[name]
    draw = answer_sets.raven if dataset == "raven" else answer_sets.iraven
    generator = np.random.default_rng(8)
    for _ in range(count):
        matrices = [
            sample_matrix(i, component, uniform=made.uniform, generator=generator)
            for i, component in enumerate(made.components)
        ]
        yield matrices, draw(matrices, generator)


def difference(answer, candidate):
    """As the statistics have it: another number or position hides what else differs."""
    changed = []
    for c, (old, new) in enumerate(zip(answer.entities, candidate.entities, strict=True)):
        if len(old) != len(new):
            changed.append(f"number{c}")
        elif {e["slot"] for e in old} != {e["slot"] for e in new}:
            changed.append(f"position{c}")
        else:
            changed += [
                f"{name}{c}"
                for name in ("type", "size", "color")
                if [e[name] for e in old] != [e[name] for e in new]
            ]
    return changed


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_raven_distractors_differ_in_one_attribute(name):
    for _, candidates in sampled("raven", name, 60):
        for candidate in candidates[1:]:
            changed = [f"{attribute}{c}" for c, attribute in candidate.modified]
            assert changed == difference(candidates[0], candidate)
            assert len(changed) == 1


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_iraven_votes_are_balanced(name):
    for _, candidates in sampled("iraven", name, 60):
        votes = Counter(place for candidate in candidates for place in candidate.modified)
        numbers = [n for place, n in votes.items() if place[1] == "number"]
        assert all(n == 4 for n in votes.values()) or (len(votes) <= 2 and numbers)
        if len(votes) == 3:
            looks = [frozenset(candidate.modified) for candidate in candidates]
            assert len(set(looks)) == 8


@pytest.mark.parametrize("dataset", ["raven", "iraven"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_candidates_are_all_different(dataset, name):
    names = ("component", "slot", "type", "size", "color")
    for _, candidates in sampled(dataset, name, 150):
        looks = {
            frozenset(
                tuple(entity[n] for n in names) for part in candidate.entities for entity in part
            )
            for candidate in candidates
        }
        assert len(looks) == 8


@pytest.mark.parametrize("dataset", ["raven", "iraven"])
def test_distractors_do_more_than_swap_levels_between_entities(dataset):
    for _, candidates in sampled(dataset, "out_in_grid", 500):
        for candidate in candidates[1:]:
            for c, attribute in candidate.modified:
                parts = [one.entities[c] for one in (candidates[0], candidate)]
                if attribute in ("type", "size", "color") and len(parts[0]) == len(parts[1]):
                    old, new = (sorted(entity[attribute] for entity in part) for part in parts)
                    assert old != new


def test_targets_are_spread_evenly():
    targets = [make_problem("raven", "center", 1, i).target for i in range(240)]
    assert set(Counter(targets).values()) <= set(range(12, 52))
    assert len(set(targets)) == 8
