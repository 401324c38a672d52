"""Whether a problem obeys its own annotated rules, from levels and slots alone.

Written against the description of the rules, not against the generator: it shares no code with
:mod:`raise_model.data.rules`, and reads nothing but the ``rules``, ``layouts`` and ``entities``
of a problem, so that it can judge generated and published problems alike.

Rules act along rows; every component has one rule for each of four groups: Number and Position
together, Type, Size, Color.

* Progression: a level (of Number: the count; of Position: every occupied slot, modulo the
  number of slots) grows by one step from panel to panel.
* Arithmetic: third = first +- second.  Sizes and numbers count from one, colors from zero
  (white adds nothing); of positions the third panel has the union or the difference.
* Distribute three: three different values, in another order in each row and column.
* Constant: a row keeps what its first panel has.  Where the panels are not uniform, Constant
  says nothing about Type, Size and Color if the entities are drawn anew in each panel (rules on
  Number, Arithmetic on Position): the data's attribute noise.  Otherwise the entities keep
  their levels, slot by slot; where a rule on Position moves them, all levels together are
  compared, since the annotations do not say which entity went where.

A rule on Type, Size or Color other than Constant makes all entities of a panel equal in it.
Steps and signs that the source does not say (None) may be any, but one for the three rows.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from raise_model.data.grammar import UNIFORM_LEVEL, configuration
from raise_model.data.schema import Problem
from raise_model.matrix import NUM_CANDIDATES, NUM_PANELS

_GROUPS = (("number_position", "number", "position"), ("type",), ("size",), ("color",))
_STEPS = (-2, -1, 1, 2)
_SIGNS = (-1, 1)
_Row = Sequence[Any]
_Panel = Sequence[Mapping[str, int]]
"""Entities of one component in one panel."""


def violations(problem: Problem, name: str, candidate: int) -> list[str]:
    """What is wrong with the matrix that ``candidate`` completes; empty if nothing.

    :param name: the problem's configuration.
    :return: one short text each: component, attribute, rule, and why.
    """
    return [text for check in _checks(problem, name) for text in check(candidate)]


def satisfying(problem: Problem, name: str) -> list[int]:
    """The candidates, 0 to 7, whose completed matrix obeys every rule."""
    checks = _checks(problem, name)
    return [
        candidate
        for candidate in range(NUM_CANDIDATES)
        if not any(check(candidate) for check in checks)
    ]


_Check = Callable[[int], Sequence[str]]
"""Violations of one rule by the matrix that a candidate completes."""


def _checks(problem: Problem, name: str) -> Sequence[_Check]:
    return [
        check
        for number, component in enumerate(configuration(name).components)
        for check in _Component(problem, number, len(component.slots)).checks()
    ]


class _Component:
    """One component of a problem: its rules, and its entities by panel."""

    def __init__(self, problem: Problem, number: int, num_slots: int) -> None:
        self.number = number
        self.num_slots = num_slots
        self.rules = [rule for rule in problem.rules if rule["component"] == number]
        self.panels: list[_Panel] = [
            [entity for entity in panel if entity["component"] == number]
            for panel in problem.entities
        ]
        self.is_uniform = all(
            layout["uniformity"] == UNIFORM_LEVEL
            for layout in problem.layouts[0]
            if layout["component"] == number
        )

    def checks(self) -> Sequence[_Check]:
        found = []
        for group in _GROUPS:
            rules = [rule for rule in self.rules if rule["attribute"] in group]
            if len(rules) == 1:
                found.append(self._check(rules[0]))
            else:
                found.append(self._complaint(group[0], f"{len(rules)} rules, not one"))
        known = {attribute for group in _GROUPS for attribute in group}
        for rule in self.rules:
            if rule["attribute"] not in known:
                found.append(self._complaint(rule["attribute"], "no such attribute"))
        return found

    def _complaint(self, attribute: str, why: str) -> _Check:
        return lambda _: [f"component {self.number}, {attribute}: {why}"]

    def _check(self, rule: Mapping[str, Any]) -> _Check:
        attribute, kind = rule["attribute"], rule["rule"]
        subject = f"component {self.number}, {attribute}, {kind}"
        if kind == "constant" and attribute in ("type", "size", "color"):
            return self._constant(subject, attribute)
        if kind == "constant" and attribute == "number_position":
            return self._per_row(subject, self._slots(), _is_constant)
        if kind == "constant" or attribute == "number_position":
            return lambda _: [f"{subject}: Number and Position are constant together"]
        values = self._values(attribute)
        if kind == "distribute_three":
            return self._distribute_three(subject, values)
        if kind not in ("progression", "arithmetic"):
            return lambda _: [f"{subject}: no such rule"]
        choices = _STEPS if kind == "progression" else _SIGNS
        if rule["value"] is not None:
            choices = (rule["value"],)
        obeys = self._progression if kind == "progression" else self._arithmetic
        return self._one_value(
            subject, values, choices, lambda row, value: obeys(attribute, row, value)
        )

    def _slots(self) -> Sequence[frozenset[int]]:
        return [frozenset(entity["slot"] for entity in panel) for panel in self.panels]

    def _values(self, attribute: str) -> Sequence[Hashable]:
        """By panel; None where its entities are not equal."""
        if attribute == "number":
            return [len(panel) - 1 for panel in self.panels]
        if attribute == "position":
            return self._slots()
        levels = [{entity[attribute] for entity in panel} for panel in self.panels]
        return [level.pop() if len(level) == 1 else None for level in levels]

    def _is_drawn_anew(self) -> bool:
        """Whether the entities of a panel do not come from the panel to its left."""
        return any(
            rule["attribute"] == "number"
            or (rule["attribute"] == "position" and rule["rule"] == "arithmetic")
            for rule in self.rules
        )

    def _constant(self, subject: str, attribute: str) -> _Check:
        if self._is_drawn_anew():
            if not self.is_uniform:
                return lambda _: []
            return self._per_row(subject, self._values(attribute), _is_constant)
        keeps_places = not any(rule["attribute"] == "position" for rule in self.rules)
        looks: list[Hashable] = [
            frozenset((entity["slot"], entity[attribute]) for entity in panel)
            if keeps_places
            else frozenset(Counter(entity[attribute] for entity in panel).items())
            for panel in self.panels
        ]
        return self._per_row(subject, looks, _is_constant)

    def _per_row(
        self, subject: str, values: Sequence[Hashable], obeys: Callable[[_Row], bool]
    ) -> _Check:
        wrong = [number for number in (1, 2) if not obeys(values[3 * number - 3 : 3 * number])]

        def check(candidate: int) -> Sequence[str]:
            last = _last_row(values, candidate)
            rows = wrong if obeys(last) else [*wrong, 3]
            return [f"{subject}: row {number} does not obey" for number in rows]

        return check

    def _one_value(
        self,
        subject: str,
        values: Sequence[Any],
        choices: Sequence[int],
        obeys: Callable[[_Row, int], bool],
    ) -> _Check:
        """All rows obey under one of ``choices``."""
        upper = [values[0:3], values[3:6]]

        def check(candidate: int) -> Sequence[str]:
            rows = [*upper, _last_row(values, candidate)]
            wrong = [
                [number for number, row in enumerate(rows, 1) if None in row or not obeys(row, v)]
                for v in choices
            ]
            fewest = min(wrong, key=len)
            return [f"{subject}: row {number} does not obey" for number in fewest]

        return check

    def _distribute_three(self, subject: str, values: Sequence[Any]) -> _Check:
        def check(candidate: int) -> Sequence[str]:
            rows = [values[0:3], values[3:6], _last_row(values, candidate)]
            if any(value is None for row in rows for value in row):
                return [f"{subject}: the entities of a panel are not equal"]
            lines = [*rows, *zip(*rows, strict=True)]
            if len({value for row in rows for value in row}) != 3:
                return [f"{subject}: not three values in all"]
            if any(len(set(line)) != 3 for line in lines):
                return [f"{subject}: a value twice in a row or column"]
            return []

        return check

    def _progression(self, attribute: str, row: _Row, step: int) -> bool:
        if attribute == "position":
            moved = [
                frozenset((slot + k * step) % self.num_slots for slot in row[0]) for k in (1, 2)
            ]
            return [row[1], row[2]] == moved
        return row[1] - row[0] == step and row[2] - row[1] == step

    def _arithmetic(self, attribute: str, row: _Row, sign: int) -> bool:
        first, second, third = row
        if attribute == "position":
            return third == (first | second if sign > 0 else first - second)
        if attribute == "color":
            return third == first + sign * second
        return third + 1 == first + 1 + sign * (second + 1)


def _is_constant(row: _Row) -> bool:
    return None not in row and row[0] == row[1] == row[2]


def _last_row(values: Sequence[Any], candidate: int) -> _Row:
    return [values[6], values[7], values[NUM_PANELS - 1 + candidate]]
