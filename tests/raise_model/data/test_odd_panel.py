"""The odd panel breaks one rule, and only by what was changed."""

from collections import Counter

import numpy as np
import pytest

from raise_model.data.generate import generate, make_problem
from raise_model.data.grammar import CONFIGURATIONS, configuration
from raise_model.data.loader import resize_panels
from raise_model.data.odd_panel import (
    broken_places,
    count_suspects,
    make_odd,
    odd_panels,
    read_problems,
    scene_of,
    with_panel,
)
from raise_model.data.render import render_panels
from raise_model.data.rule_checker import violations
from raise_model.store import Store


def of(scene, component):
    return [entity for entity in scene if entity["component"] == component]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_one_attribute_of_one_panel_is_changed_and_its_rule_broken(name):
    for index in range(12):
        problem = make_problem("raven", name, 5, index)
        odd = make_odd(problem, name, odd="any", seed=1)
        assert set(odd.places) <= set(configuration(name).merged_labels)
        ((component, attribute),) = odd.places
        spoiled = with_panel(problem, odd.position, odd.entities)
        texts = violations(spoiled, name, problem.target)
        groups = ("number", "position", "number_position")
        named = groups if attribute == "number_position" else (attribute,)
        assert any(
            text.startswith(f"component {component}, {group}, ")
            for text in texts
            for group in named
        )
        before, after = scene_of(problem, odd.position), odd.entities
        assert all(text.startswith(f"component {component}, ") for text in texts)
        for other in range(len(configuration(name).components)):
            if other != component:
                assert of(after, other) == of(before, other)
        before, after = of(before, component), of(after, component)
        if odd.changed == "number":
            assert len(after) != len(before)
        elif odd.changed == "position":
            assert len(after) == len(before)
            assert {e["slot"] for e in after} != {e["slot"] for e in before}
        else:
            assert odd.changed == attribute
            assert broken_places(spoiled, name) == set(odd.places)
            rest = [{**e, attribute: None} for e in before]
            assert [{**e, attribute: None} for e in after] == rest
            assert all(a[attribute] != b[attribute] for a, b in zip(after, before, strict=True))
        low, high = 0, len(configuration(name).components[component].slots) - 1
        assert len({e["slot"] for e in after}) == len(after)
        assert all(low <= e["slot"] <= high for e in after)
        for each in ("type", "size", "color"):
            low, high = configuration(name).components[component].levels(each)
            assert all(low <= e[each] <= high for e in after)


def test_every_change_can_be_seen():
    """Squares of sizes 0.6 and 0.7 look alike in the smallest slots."""
    name = "out_in_grid_uni"
    problems = [make_problem("raven", name, 5, index) for index in range(60)]
    alike = [
        problem
        for problem in problems
        if all((e["type"], e["size"]) in ((2, 2), (2, 3)) for e in of(scene_of(problem, 8), 1))
    ]
    assert len(alike) >= 3
    resized = 0
    for problem in alike:
        (before,) = render_panels(configuration(name), [scene_of(problem, 8)])
        for seed in range(40):
            odd = make_odd(problem, name, odd="bottom_right", seed=seed)
            assert not np.array_equal(odd.picture, before)
            assert np.array_equal(
                odd.picture, render_panels(configuration(name), [odd.entities])[0]
            )
            resized += odd.places == ((1, "size"),)
    assert resized >= 10


def test_equal_entities_stay_equal():
    for index in range(40):
        problem = make_problem("raven", "grid_2x2_uni", 5, index)
        odd = make_odd(problem, "grid_2x2_uni", odd="any", seed=1)
        assert all(len({e[a] for e in odd.entities}) == 1 for a in ("type", "size", "color"))


def test_positions_and_attributes_are_uniform():
    problems = [make_problem("raven", "center", 5, index) for index in range(270)]
    odd = [make_odd(problem, "center", odd="any", seed=1) for problem in problems]
    positions, places = Counter(o.position for o in odd), Counter(o.places[0] for o in odd)
    assert set(positions) == set(range(9))
    assert set(places) == set(configuration("center").merged_labels)
    # 99.9 % quantiles of chi-square with 8 and 2 degrees of freedom.
    assert sum((n - 30) ** 2 / 30 for n in positions.values()) < 26.1
    assert sum((n - 90) ** 2 / 90 for n in places.values()) < 13.8


def test_the_odd_version_depends_on_seed_and_index_alone():
    problems = [make_problem("raven", "grid_2x2", 5, index) for index in range(8)]
    made = [make_odd(problem, "grid_2x2", odd="any", seed=1) for problem in problems]
    again = [make_odd(problem, "grid_2x2", odd="any", seed=1) for problem in problems[::-1]]
    assert made == again[::-1]
    assert made != [make_odd(problem, "grid_2x2", odd="any", seed=2) for problem in problems]
    assert len({odd.position for odd in made}) > 1


def test_the_bottom_right_panel_alone_where_asked_for():
    for index in range(20):
        problem = make_problem("iraven", "left_right", 5, index)
        odd = make_odd(problem, "left_right", odd="bottom_right", seed=1)
        assert odd.position == 8
        spoiled = with_panel(problem, 8, odd.entities)
        assert scene_of(spoiled, 8) == odd.entities
        assert spoiled.entities[:8] == problem.entities[:8]


@pytest.mark.parametrize("dataset", ["raven", "iraven"])
@pytest.mark.parametrize("name", ["center", "left_right", "out_in_grid", "grid_2x2"])
def test_the_papers_odd_panel_is_a_wrong_candidate(dataset, name):
    taken = set()
    for index in range(12):
        problem = make_problem(dataset, name, 5, index)
        odd = make_odd(problem, name, odd="candidate", seed=1)
        rows = [
            row for row in range(8, 16)
            if problem.entities[row] == odd.entities
            and np.array_equal(problem.panels[row], odd.picture)
        ]  # fmt: skip
        assert odd.position == 8
        assert rows
        assert 8 + problem.target not in rows
        taken.add(rows[0])
        broken = broken_places(with_panel(problem, 8, odd.entities), name)
        assert odd.places == tuple(p for p in configuration(name).merged_labels if p in broken)
        assert 1 <= count_suspects(problem, name, odd) <= 3
    assert len(taken) > 3


def test_suspects_are_the_panels_whose_change_mends_the_matrix():
    """Against every level in every panel."""
    seen = set()
    for index in range(60):
        problem = make_problem("raven", "center", 5, index)
        odd = make_odd(problem, "center", odd="any", seed=1)
        spoiled = with_panel(problem, odd.position, odd.entities)
        ((_, attribute),) = odd.places
        low, high = configuration("center").components[0].levels(attribute)
        mending = set()
        for position in range(9):
            for level in range(low, high + 1):
                scene = [{**scene_of(spoiled, position)[0], attribute: level}]
                if not broken_places(with_panel(spoiled, position, scene), "center"):
                    mending.add(position)
        assert odd.position in mending
        assert count_suspects(problem, "center", odd) == len(mending), f"problem {index}"
        seen.add(len(mending))
    assert seen == {1, 2, 3}


@pytest.mark.parametrize("rule", ["number", "position"])
def test_suspects_of_arithmetic_on_number_and_position(rule):
    """Against every set of slots in every panel."""
    checked = 0
    for index in range(400):
        problem = make_problem("raven", "grid_2x2_uni", 5, index)
        own = {"attribute": rule, "rule": "arithmetic"}
        if not any(own.items() <= dict(each).items() for each in problem.rules):
            continue
        odd = make_odd(problem, "grid_2x2_uni", odd="any", seed=1)
        if odd.places[0][1] != "number_position":
            continue
        spoiled = with_panel(problem, odd.position, odd.entities)
        mending = 0
        for position in range(9):
            entity = scene_of(spoiled, position)[0]
            scenes = [
                [{**entity, "slot": slot} for slot in range(4) if bits >> slot & 1]
                for bits in range(1, 16)
            ]
            mending += any(
                odd.places[0] not in broken_places(with_panel(spoiled, position, s), "grid_2x2_uni")
                for s in scenes
            )
        assert count_suspects(problem, "grid_2x2_uni", odd) == mending, f"problem {index}"
        checked += 1
        if checked == 6:
            return
    assert checked >= 3


def test_panels_of_a_split_are_drawn_and_reduced_as_its_own(tmp_path):
    store = Store(str(tmp_path))
    manifest = generate(store, dataset="raven", configuration="center", problems=200, seed=3)["val"]
    found = odd_panels(store, manifest, image_size=20, resize="area", odd="any", seed=4)
    problems = [problem for part in read_problems(store, manifest, None) for problem in part]
    assert len(found.panels) == len(problems) == 40
    for row, problem in enumerate(problems):
        odd = make_odd(problem, "center", odd="any", seed=4)
        drawn = render_panels(configuration("center"), [odd.entities])
        assert np.array_equal(found.panels[row], resize_panels(drawn, 20, "area")[0])
        assert found.position[row] == odd.position
        broken = np.flatnonzero(found.broken[row])
        assert tuple(found.places[number] for number in broken) == odd.places
        assert found.suspects[row] == count_suspects(problem, "center", odd)
        intact = render_panels(configuration("center"), [scene_of(problem, odd.position)])
        number = odd.position + (problem.target if odd.position == 8 else 0)
        assert np.array_equal(intact[0], problem.panels[number])
    some = odd_panels(store, manifest, image_size=20, resize="area", odd="any", seed=4, limit=7)
    assert np.array_equal(some.panels, found.panels[:7])
