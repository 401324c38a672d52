"""The rule checker finds exactly the answer, and every fault put in by hand."""

from dataclasses import replace

import numpy as np
import pytest

from raise_model.data import generate
from raise_model.data.generate import make_problem
from raise_model.data.grammar import CONFIGURATIONS
from raise_model.data.rule_checker import satisfying, violations
from raise_model.data.schema import Problem


@pytest.mark.parametrize("dataset", ["raven", "iraven"])
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_only_the_answer_obeys_the_rules(dataset, configuration):
    for index in range(15):
        problem = make_problem(dataset, configuration, 7, index)
        assert satisfying(problem, configuration) == [problem.target], f"problem {index}"
        assert violations(problem, configuration, problem.target) == []


@pytest.mark.parametrize("configuration", ["out_in_grid", "grid_3x3", "left_right"])
def test_steps_and_signs_may_be_unknown(configuration):
    for index in range(15):
        problem = make_problem("iraven", configuration, 7, index)
        rules = [{**rule, "value": None} for rule in problem.rules]
        assert satisfying(replace(problem, rules=rules), configuration) == [problem.target]


def problem_of(panels, rules, uniformity=3):
    """A 2x2 problem whose candidates are all alike; panels are lists of entities."""
    panels = [*panels[:8], *[panels[8]] * 8]
    entities = [
        [{"component": 0, "type": 1, "size": 0, "color": 0, "angle": 3, "slot": 0} | e for e in p]
        for p in panels
    ]
    layouts = [
        [
            {
                "component": 0,
                "number": len(p) - 1,
                "position": sorted(e["slot"] for e in p),
                "uniformity": uniformity,
            }
        ]
        for p in entities
    ]
    named = {"number_position": "constant", "type": "constant", "size": "constant"}
    named |= {"color": "constant"}
    for attribute in rules:
        if attribute in ("number", "position"):
            del named["number_position"]
    return Problem(
        index=0,
        panels=np.zeros((16, 160, 160), np.uint8),
        target=0,
        rules=[
            {"component": 0, "attribute": attribute, "rule": rule, "value": None}
            for attribute, rule in (named | rules).items()
        ],
        layouts=layouts,
        entities=entities,
        modified=None,
    )


def levels(attribute, matrix):
    return [[{attribute: level}] for row in matrix for level in row]


def slots(matrix):
    return [[{"slot": slot} for slot in panel] for row in matrix for panel in row]


OBEYED = {
    "size arithmetic counts from one": (
        levels("size", [[0, 1, 2], [1, 1, 3], [2, 0, 3]]), {"size": "arithmetic"},
    ),
    "color arithmetic counts from zero": (
        levels("color", [[1, 1, 2], [3, 2, 5], [4, 0, 4]]), {"color": "arithmetic"},
    ),
    "size minus": (levels("size", [[3, 0, 2], [4, 1, 2], [2, 0, 1]]), {"size": "arithmetic"}),
    "step -1": (levels("type", [[3, 2, 1], [5, 4, 3], [4, 3, 2]]), {"type": "progression"}),
    "three types": (
        levels("type", [[1, 2, 3], [2, 3, 1], [3, 1, 2]]), {"type": "distribute_three"},
    ),
    "union": (
        slots([[[0], [1], [0, 1]], [[0, 2], [1], [0, 1, 2]], [[3], [0, 3], [0, 3]]]),
        {"position": "arithmetic"},
    ),
    "difference": (
        slots([[[0, 1], [1], [0]], [[0, 2], [2, 3], [0]], [[1, 2, 3], [0, 2], [1, 3]]]),
        {"position": "arithmetic"},
    ),
    "places move around": (
        slots([[[3], [0], [1]], [[0, 1], [1, 2], [2, 3]], [[0], [1], [2]]]),
        {"position": "progression"},
    ),
    "number plus": (
        slots([[[0], [1], [0, 3]], [[2], [0, 1], [0, 1, 2]], [[3], [3], [1, 2]]]),
        {"number": "arithmetic"},
    ),
}  # fmt: skip

BROKEN = {
    "two steps": (
        levels("type", [[1, 2, 3], [5, 4, 3], [1, 2, 3]]), {"type": "progression"},
        ["component 0, type, progression: row 2 does not obey"],
    ),
    "plus and minus": (
        levels("color", [[1, 1, 2], [3, 2, 1], [4, 1, 5]]), {"color": "arithmetic"},
        ["component 0, color, arithmetic: row 2 does not obey"],
    ),
    "size counted from zero": (
        levels("size", [[1, 1, 2], [1, 2, 3], [2, 1, 3]]), {"size": "arithmetic"},
        [f"component 0, size, arithmetic: row {row} does not obey" for row in (1, 2, 3)],
    ),
    "a column twice": (
        levels("type", [[1, 2, 3], [1, 3, 2], [3, 1, 2]]), {"type": "distribute_three"},
        ["component 0, type, distribute_three: a value twice in a row or column"],
    ),
    "four values": (
        levels("size", [[1, 2, 3], [2, 3, 1], [3, 1, 4]]), {"size": "distribute_three"},
        ["component 0, size, distribute_three: not three values in all"],
    ),
    "not constant": (
        levels("size", [[1, 1, 1], [2, 2, 2], [3, 3, 4]]), {},
        ["component 0, size, constant: row 3 does not obey"],
    ),
    "moved": (
        slots([[[0], [0], [0]], [[1], [1], [1]], [[2], [2], [3]]]), {},
        ["component 0, number_position, constant: row 3 does not obey"],
    ),
    "entities unequal": (
        [[{"slot": 0, "type": t}, {"slot": 1, "type": t + (p == 8)}]
         for p, t in enumerate([1, 2, 3] * 3)],
        {"type": "progression"}, ["component 0, type, progression: row 3 does not obey"],
    ),
    "unknown rule": (
        levels("type", [[1] * 3] * 3), {"type": "progresion"},
        ["component 0, type, progresion: no such rule"],
    ),
    "unknown attribute": (
        levels("type", [[1] * 3] * 3), {"angle": "constant"},
        ["component 0, angle: no such attribute"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OBEYED)
def test_matrices_that_obey(kind):
    panels, rules = OBEYED[kind]
    problem = problem_of(panels, rules)
    found = [v for v in violations(problem, "grid_2x2", 0) if f" {next(iter(rules))}," in v]
    assert found == []


@pytest.mark.parametrize("kind", BROKEN)
def test_matrices_that_do_not_obey(kind):
    panels, rules, expected = BROKEN[kind]
    problem = problem_of(panels, rules)
    assert [v for v in violations(problem, "grid_2x2", 0) if v in expected] == expected
    assert satisfying(problem, "grid_2x2") == []


def test_a_given_step_is_the_only_one():
    panels = levels("type", [[1, 2, 3], [2, 3, 4], [3, 4, 5]])
    problem = problem_of(panels, {"type": "progression"})
    for value, right in ((1, list(range(8))), (2, [])):
        rules = [
            {**rule, "value": value if rule["attribute"] == "type" else None}
            for rule in problem.rules
        ]
        assert satisfying(replace(problem, rules=rules), "grid_2x2") == right


def test_a_missing_rule_is_a_violation():
    problem = problem_of(levels("type", [[1] * 3] * 3), {})
    found = violations(replace(problem, rules=problem.rules[:3]), "grid_2x2", 0)
    assert found == ["component 0, color: 0 rules, not one"]


@pytest.mark.parametrize(("uniformity", "obeys"), [(0, True), (3, False)])
def test_constant_attributes_are_noise_where_entities_are_drawn_anew(uniformity, obeys):
    panels = slots([[[0], [1, 2], [0, 1, 2]]] * 3)
    for panel, entities in enumerate(panels):
        for entity in entities:
            entity["color"] = panel
    problem = problem_of(panels, {"number": "progression"}, uniformity)
    assert (violations(problem, "grid_2x2", 0) == []) == obeys


def test_entities_keep_their_levels_slot_by_slot():
    first = [{"slot": 0, "color": 1}, {"slot": 1, "color": 2}]
    swapped = [{"slot": 0, "color": 2}, {"slot": 1, "color": 1}]
    problem = problem_of([first] * 8 + [swapped], {}, uniformity=0)
    assert violations(problem, "grid_2x2", 0) == [
        "component 0, color, constant: row 3 does not obey"
    ]


def test_pixels_are_not_read(monkeypatch):
    problem = make_problem("raven", "center", generate.SEEDS["raven"], 0)
    blank = replace(problem, panels=np.zeros_like(problem.panels))
    assert satisfying(blank, "center") == [problem.target]
