"""Sampling and pruning of rules, and what the panels made by them look like."""

import numpy as np
import pytest

from raise_model.data.generate import make_problem
from raise_model.data.rules import Rule, first_column


@pytest.mark.parametrize("configuration", ["out_in_grid_uni", "grid_2x2_uni", "grid_3x3_uni"])
def test_uniform_layouts_have_equal_unrotated_entities(configuration):
    for index in range(30):
        problem = make_problem("iraven", configuration, 7, index)
        assert {e["angle"] for panel in problem.entities for e in panel} == {3}
        for panel in range(8):
            by_component = {}
            for entity in problem.entities[panel]:
                look = entity["type"], entity["size"], entity["color"]
                by_component.setdefault(entity["component"], set()).add(look)
            assert all(len(looks) == 1 for looks in by_component.values())


@pytest.mark.parametrize(
    ("attribute", "name", "step", "levels", "expected"),
    [
        ("number", "progression", 1, (0, 3), (0, 1)),
        ("color", "progression", -2, (0, 9), (4, 9)),
        ("position", "progression", -1, (0, 3), (0, 1)),
        ("size", "arithmetic", 1, (0, 5), (0, 4)),
        ("size", "arithmetic", -1, (2, 5), (5, 5)),
        ("color", "arithmetic", 1, (0, 9), (0, 9)),
        ("position", "arithmetic", 1, (0, 8), (0, 7)),
        ("position", "arithmetic", -1, (0, 8), (4, 7)),
        ("position", "distribute_three", 0, (0, 8), (0, 7)),
        ("type", "constant", 0, (1, 5), (1, 5)),
    ],
)
def test_first_column_is_pruned_as_published(attribute, name, step, levels, expected):
    assert first_column(Rule(attribute=attribute, name=name, value=step), levels) == expected


@pytest.mark.parametrize(
    ("attribute", "name", "step", "levels"),
    [
        ("number", "progression", 2, (0, 3)),
        ("size", "arithmetic", 1, (3, 5)),
        ("color", "arithmetic", 1, (0, 0)),
        ("size", "distribute_three", 0, (4, 5)),
    ],
)
def test_rules_without_room_have_an_empty_first_column(attribute, name, step, levels):
    low, high = first_column(Rule(attribute=attribute, name=name, value=step), levels)
    assert low > high


def test_second_colors_are_never_white_in_both_of_the_first_rows():
    for index in range(400):
        problem = make_problem("raven", "center", 3, index)
        rule = problem.rules[3]
        if rule["attribute"] == "color" and rule["rule"] == "arithmetic":
            second = [problem.entities[panel][0]["color"] for panel in (1, 4)]
            assert second != [0, 0]


def test_rows_are_rotated_by_one_angle_in_one_slot_layouts():
    for index in range(50):
        problem = make_problem("raven", "left_right", 3, index)
        angles = np.array([[e["angle"] for e in panel] for panel in problem.entities[:6]])
        assert (angles.reshape(2, 3, 2) == angles.reshape(2, 3, 2)[:, :1]).all()
