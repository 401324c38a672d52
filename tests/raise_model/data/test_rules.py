"""Generated problems obey their rules, under a checker that knows only levels and slots."""

from collections import Counter

import numpy as np
import pytest

from raise_model.data.generate import make_problem
from raise_model.data.grammar import CONFIGURATIONS, UNIFORM_LEVEL
from raise_model.data.rules import Rule, first_column

STRIDES = {"number": 1, "size": 1, "type": 0, "color": 0}
"""What is added to a level before it is summed."""


def parts(problem, component):
    """Entities of one component by panel: 8 context panels, then 8 candidates."""
    return [[e for e in panel if e["component"] == component] for panel in problem.entities]


def value(entities, attribute):
    """Number or slots of a panel, or the one level that all entities share, else None."""
    if attribute == "number":
        return len(entities) - 1
    if attribute == "position":
        return frozenset(entity["slot"] for entity in entities)
    levels = {entity[attribute] for entity in entities}
    return levels.pop() if len(levels) == 1 else None


def row_obeys(rule, step, attribute, row, slots):
    first, second, third = row
    if attribute == "position":
        if rule == "arithmetic":
            return third == (first | second if step > 0 else first - second)
        moved = [frozenset((slot + k * step) % slots for slot in first) for k in (1, 2)]
        return [second, third] == moved
    if rule == "progression":
        return second == first + step and third == second + step
    offset = STRIDES[attribute]
    return third + offset == first + offset + step * (second + offset)


def obeys(problem, configuration, answer):
    """Whether the matrix, completed by one candidate, obeys every rule."""
    for component in {rule["component"] for rule in problem.rules}:
        slots = len(CONFIGURATIONS[configuration].components[component].slots)
        panels = parts(problem, component)
        panels = [*panels[:8], panels[8 + answer]]
        rules = {r["attribute"]: r for r in problem.rules if r["component"] == component}
        uniformity = next(
            layout["uniformity"]
            for layout in problem.layouts[0]
            if layout["component"] == component
        )
        anew = "number" in rules or rules.get("position", {}).get("rule") == "arithmetic"
        for attribute, rule in rules.items():
            if rule["rule"] == "constant":
                noise = anew and uniformity != UNIFORM_LEVEL
                if not (noise and attribute in ("type", "size", "color")):
                    if not constant(panels, attribute, anew):
                        return False
                continue
            values = [value(panel, attribute) for panel in panels]
            if None in values:
                return False
            rows = [values[row : row + 3] for row in (0, 3, 6)]
            if rule["rule"] == "distribute_three":
                if not all(set(row) == set(rows[0]) and len(set(row)) == 3 for row in rows):
                    return False
                if any(len(set(column)) != 3 for column in zip(*rows, strict=True)):
                    return False
            elif not all(row_obeys(rule["rule"], rule["value"], attribute, r, slots) for r in rows):
                return False
    return True


def constant(panels, attribute, anew):
    """Whether a row keeps what it has: slots, or the levels of its entities.

    Entities drawn anew (all equal, then) may be more or fewer than before.
    """
    name = "slot" if attribute == "number_position" else attribute
    looks = [Counter(entity[name] for entity in panel) for panel in panels]
    if anew:
        looks = [set(look) for look in looks]
    return all(looks[row] == looks[row + column] for row in (0, 3, 6) for column in (1, 2))


@pytest.mark.parametrize("dataset", ["raven", "iraven"])
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_only_the_answer_obeys_the_rules(dataset, configuration):
    for index in range(15):
        problem = make_problem(dataset, configuration, 7, index)
        right = [candidate for candidate in range(8) if obeys(problem, configuration, candidate)]
        assert right == [problem.target], f"problem {index}"


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
