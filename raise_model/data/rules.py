"""Rules: sampling, pruning, and the nine panels of a component that they make.

The published generator draws one rule for each of four groups of every component (Number and
Position together, Type, Size, Color), prunes the range of the first column so that the rule
stays within the attribute's levels, and draws everything again if any range is empty.  Groups
are independent given that, so here each group is drawn again by itself until its range is not
empty: the same distribution.

Rules act along rows.  Number and Position come first and decide how many entities a panel has
and where; then Type, Size and Color, which make all entities of a panel equal unless constant.
Where panels are not uniform, a constant attribute keeps what the entities have: drawn once a
row, or, where the entities themselves are drawn anew in every panel (rules on Number,
arithmetic on Position), different in every panel: RAVEN's attribute noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Int

from raise_model.data.grammar import ANGLES, UNIFORM_LEVEL, Component

_Value = TypeVar("_Value")
RuledAttribute = Literal["number_position", "number", "position", "type", "size", "color"]
Attribute = Literal["type", "size", "color"]
Levels = tuple[int, int]
"""Lowest and highest level, both included."""
Slots = tuple[int, ...]
"""Occupied slots of a panel, one an entity, in order of the entities."""
Entity = Mapping[str, int]
"""component, slot, and levels of type, size, color, angle."""

ATTRIBUTES: tuple[Attribute, ...] = ("type", "size", "color")
UNROTATED = ANGLES.index(0)
_CHOICES: Mapping[Attribute, tuple[str, ...]] = {
    "type": ("progression", "distribute_three", "constant"),
    "size": ("progression", "arithmetic", "distribute_three", "constant"),
    "color": ("progression", "arithmetic", "distribute_three", "constant"),
}
_NUMBER_POSITION: tuple[tuple[RuledAttribute, str], ...] = (
    ("number", "progression"),
    ("position", "progression"),
    ("number", "arithmetic"),
    ("position", "arithmetic"),
    ("number", "distribute_three"),
    ("position", "distribute_three"),
    ("number_position", "constant"),
)
_STEPS = (-2, -1, 1, 2)
_SIGNS = (-1, 1)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule on one attribute; ``value`` is the step or sign, 0 for the other rules."""

    attribute: RuledAttribute
    name: str
    value: int = 0

    @property
    def offset(self) -> int:
        """What a level lacks to the quantity that is added: sizes and numbers count from 1."""
        return 0 if self.attribute == "color" else 1

    @property
    def draws_entities_anew(self) -> bool:
        """Whether the entities of a panel do not come from the panel to its left."""
        return self.attribute == "number" or (
            self.attribute == "position" and self.name == "arithmetic"
        )


def first_column(rule: Rule, levels: Levels) -> Levels:
    """Range of the first column under a rule; empty (low > high) where it cannot be applied.

    For a rule on positions the range is that of the number of entities.
    """
    low, high = levels
    if rule.attribute == "position":
        return _first_column_of_positions(rule, levels)
    if rule.name == "progression":
        return low - 2 * min(rule.value, 0), high - 2 * max(rule.value, 0)
    if rule.name == "arithmetic":
        if rule.attribute == "color" and high == low:
            return 1, 0
        if rule.value > 0:
            return low, high - low - rule.offset
        return 2 * low + rule.offset, high
    if rule.name == "distribute_three" and high - low < 2:
        return 1, 0
    return levels


def _first_column_of_positions(rule: Rule, levels: Levels) -> Levels:
    low, high = levels
    if rule.name == "progression":
        return low, high - 2 * abs(rule.value)
    if rule.name == "arithmetic" and rule.value < 0:
        return (high + 2) // 2 - 1, high - 1
    if rule.name == "distribute_three" and high - low < 2:
        return 1, 0
    return low, high - 1


def _pick(values: Sequence[_Value], generator: np.random.Generator) -> _Value:
    # Many times faster than generator.choice, which makes an array of the values first.
    return values[int(generator.integers(len(values)))]


def _value(name: str, generator: np.random.Generator) -> int:
    if name == "progression":
        return _pick(_STEPS, generator)
    return _pick(_SIGNS, generator) if name == "arithmetic" else 0


def sample_rule(attribute: Attribute, levels: Levels, generator: np.random.Generator) -> Rule:
    """A rule that can be applied within ``levels``."""
    while True:
        name = _pick(_CHOICES[attribute], generator)
        rule = Rule(attribute=attribute, name=name, value=_value(name, generator))
        low, high = first_column(rule, levels)
        if low <= high:
            return rule


def sample_number_position(num_slots: int, generator: np.random.Generator) -> Rule:
    """The rule of the group Number/Position; with one slot it can only be constant."""
    if num_slots == 1:
        return Rule(attribute="number_position", name="constant")
    while True:
        attribute, name = _pick(_NUMBER_POSITION, generator)
        rule = Rule(attribute=attribute, name=name, value=_value(name, generator))
        low, high = first_column(rule, (0, num_slots - 1))
        if low <= high:
            return rule


def _shifts(direction: int) -> Int[np.ndarray, "3 3"]:
    """Which of three values is where: each row is the one above, shifted to left or right."""
    rows, columns = np.ogrid[:3, :3]
    return (columns - direction * rows) % 3


def apply_rule(
    rule: Rule, levels: Levels, generator: np.random.Generator
) -> Int[np.ndarray, "rows columns"]:
    """Levels of an attribute in the 3x3 matrix."""
    low, high = first_column(rule, levels)
    if rule.name == "distribute_three":
        values = generator.permutation(np.arange(levels[0], levels[1] + 1))[:3]
        return values[_shifts(_pick(_SIGNS, generator))]
    if rule.name == "arithmetic":
        return _arithmetic(rule, levels, generator)
    first = generator.integers(low, high + 1, size=3)
    return first[:, None] + rule.value * np.arange(3)


def _arithmetic(
    rule: Rule, levels: Levels, generator: np.random.Generator
) -> Int[np.ndarray, "rows columns"]:
    """third = first +- second, in quantities."""
    low, high = first_column(rule, levels)
    while True:
        first = generator.integers(low, high + 1, size=3)
        room = levels[1] - first if rule.value > 0 else first - levels[0]
        second = generator.integers(levels[0], room - rule.offset + 1)
        # With white second panels in two rows, plus and minus could not be told apart.
        if rule.attribute == "color" and second[0] == 0 and second[1] == 0:
            continue
        third = first + rule.value * (second + rule.offset)
        return np.stack([first, second, third], 1)


def draw_slots(num_slots: int, number: int, generator: np.random.Generator) -> Slots:
    """``number`` different slots in random order."""
    return tuple(generator.permutation(num_slots)[:number].tolist())


def apply_to_slots(rule: Rule, num_slots: int, generator: np.random.Generator) -> list[Slots]:
    """Occupied slots of the nine panels under the rule of the group Number/Position."""
    if rule.attribute == "number":
        numbers = 1 + apply_rule(rule, (0, num_slots - 1), generator).ravel()
        return [draw_slots(num_slots, number, generator) for number in numbers]
    low, high = first_column(rule, (0, num_slots - 1))

    def fresh() -> Slots:
        return draw_slots(num_slots, 1 + int(generator.integers(low, high + 1)), generator)

    if rule.name == "distribute_three":
        sets = [fresh()]
        while len(sets) < 3:
            other = draw_slots(num_slots, len(sets[0]), generator)
            if all(set(other) != set(one) for one in sets):
                sets.append(other)
        return [sets[i] for i in _shifts(_pick(_SIGNS, generator)).ravel()]
    panels: list[Slots] = []
    for _ in range(3):
        first = fresh()
        if rule.name == "arithmetic":
            second = fresh()
            while not _is_operand(rule, first, second):
                second = fresh()
            third = set(first) | set(second) if rule.value > 0 else set(first) - set(second)
            panels += [first, second, tuple(sorted(third))]
        else:
            panels += [
                tuple((slot + column * rule.value) % num_slots for slot in first)
                for column in range(3)
            ]
    return panels


def _is_operand(rule: Rule, first: Slots, second: Slots) -> bool:
    """Whether a union grows, or a difference leaves something."""
    if rule.value > 0:
        return not set(second) <= set(first)
    return not set(first) <= set(second)


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """The nine panels of one component, the ninth being the answer."""

    number: int
    """Id of the component."""
    component: Component
    rules: Mapping[str, Rule]
    """By group: ``number_position``, ``type``, ``size``, ``color``."""
    uniformity: int
    ranges: Mapping[str, Levels]
    """Levels of type, size, color and angle in the first column."""
    panels: list[Sequence[Entity]]

    @property
    def is_noisy(self) -> bool:
        """Whether constant attributes differ from panel to panel."""
        anew = self.rules["number_position"].draws_entities_anew
        return anew and self.uniformity != UNIFORM_LEVEL

    def draw_entities(
        self, slots: Slots, fixed: Mapping[str, int], generator: np.random.Generator
    ) -> Sequence[Entity]:
        """Entities with the levels of ``fixed``, all else drawn from the first column's range."""
        return [
            {"component": self.number, "slot": slot}
            | {
                name: fixed[name] if name in fixed else int(generator.integers(low, high + 1))
                for name, (low, high) in self.ranges.items()
            }
            for slot in slots
        ]


def sample_matrix(
    number: int, component: Component, *, uniform: bool, generator: np.random.Generator
) -> Matrix:
    """Rules of a component and the panels that they make.

    :param uniform: all entities of a panel are equal and not rotated (the -Uni layouts).
    """
    num_slots = len(component.slots)
    rules = {"number_position": sample_number_position(num_slots, generator)}
    levels: dict[str, list[int]] = {}
    ranges = {"angle": (UNROTATED, UNROTATED) if uniform else (0, len(ANGLES) - 1)}
    for attribute in ATTRIBUTES:
        bounds = component.levels(attribute)
        rules[attribute] = sample_rule(attribute, bounds, generator)
        ranges[attribute] = first_column(rules[attribute], bounds)
        levels[attribute] = apply_rule(rules[attribute], bounds, generator).ravel().tolist()
    levels["angle"] = np.repeat(generator.integers(0, len(ANGLES), size=3), 3).tolist()
    uniformity = int(generator.integers(UNIFORM_LEVEL + 1))
    if uniform:
        uniformity, levels["angle"] = UNIFORM_LEVEL, [UNROTATED] * 9
    matrix = Matrix(
        number=number,
        component=component,
        rules=rules,
        uniformity=uniformity,
        ranges=ranges,
        panels=[],
    )
    slots = [(0,)] * 9
    if num_slots > 1:
        slots = apply_to_slots(rules["number_position"], num_slots, generator)
    is_equal = num_slots == 1 or uniformity == UNIFORM_LEVEL
    for panel in range(9):
        fixed = {
            name: values[panel]
            for name, values in levels.items()
            if is_equal or (name != "angle" and rules[name].name != "constant")
        }
        if is_equal or panel % 3 == 0 or matrix.is_noisy:
            entities: Sequence[Entity] = matrix.draw_entities(slots[panel], fixed, generator)
        else:
            entities = [
                {**entity, **fixed, "slot": slot}
                for entity, slot in zip(matrix.panels[-1], slots[panel], strict=True)
            ]
        matrix.panels.append(entities)
    return matrix
