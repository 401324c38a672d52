"""Rules on the attributes of a component with one slot: sampling, pruning and their effect.

The published generator draws a rule for every attribute of every component, prunes the range
of the first column so that the rule stays within the attribute's levels, and draws all of them
again if any range is empty.  Groups are independent given that, so here each attribute's rule
is drawn again by itself until its range is not empty: the same distribution.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int

Attribute = Literal["type", "size", "color"]
Levels = tuple[int, int]
"""Lowest and highest level, both included."""

_CHOICES: dict[Attribute, tuple[str, ...]] = {
    "type": ("progression", "distribute_three", "constant"),
    "size": ("progression", "arithmetic", "distribute_three", "constant"),
    "color": ("progression", "arithmetic", "distribute_three", "constant"),
}
_STEPS = (-2, -1, 1, 2)
_SIGNS = (-1, 1)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule on one attribute; ``value`` is the step or sign, 0 for the other rules."""

    attribute: Attribute
    name: str
    value: int = 0

    @property
    def offset(self) -> int:
        """What a level lacks to the quantity that is added: sizes count from 1, white is 0."""
        return 1 if self.attribute == "size" else 0


def first_column(rule: Rule, levels: Levels) -> Levels:
    """Range of the first column under a rule; empty (low > high) where it cannot be applied."""
    low, high = levels
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


def sample_rule(attribute: Attribute, levels: Levels, generator: np.random.Generator) -> Rule:
    """A rule that can be applied within ``levels``."""
    while True:
        name = str(generator.choice(_CHOICES[attribute]))
        value = 0
        if name == "progression":
            value = int(generator.choice(_STEPS))
        elif name == "arithmetic":
            value = int(generator.choice(_SIGNS))
        rule = Rule(attribute=attribute, name=name, value=value)
        low, high = first_column(rule, levels)
        if low <= high:
            return rule


def apply_rule(
    rule: Rule, levels: Levels, generator: np.random.Generator
) -> Int[np.ndarray, "rows columns"]:
    """Levels of an attribute in the 3x3 matrix."""
    low, high = first_column(rule, levels)
    if rule.name == "distribute_three":
        values = generator.permutation(np.arange(levels[0], levels[1] + 1))[:3]
        direction = generator.choice(_SIGNS)
        return np.stack([np.roll(values, direction * row) for row in range(3)])
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
