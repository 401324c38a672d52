"""Splits, label tables and label subsets.

The split of a problem follows from its index, as in the published files: index mod 10 is
0-5 train, 6-7 val, 8-9 test.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int

from raise_model.data.grammar import configuration
from raise_model.matrix import RULES, UNLABELLED
from raise_model.specs import LabelMap

SPLITS = ("train", "val", "test")
_BY_DIGIT = ("train",) * 6 + ("val",) * 2 + ("test",) * 2

RuleRow = tuple[int, str, str]
"""(component, attribute, rule) of a problem."""

_ARITHMETIC = RULES.index("arithmetic")


def split_of(index: int) -> str:
    """``train``, ``val`` or ``test``."""
    return _BY_DIGIT[index % 10]


def label_attributes(name: str, label_map: LabelMap) -> Sequence[tuple[int, str]]:
    """(component, attribute) of each label of a configuration."""
    made = configuration(name)
    tables = {
        "official": made.official_labels,
        "merged": made.merged_labels,
        "separate": made.separate_labels,
    }
    return tables[label_map]


def rule_labels(
    name: str, rules: Iterable[Sequence[RuleRow]], label_map: LabelMap
) -> Int[np.ndarray, "problems attributes"]:
    """Rule ids (index into :data:`raise_model.problem.RULES`) of every problem.

    A Number/Position group has one rule, on ``number``, on ``position``, or constant on both.
    ``official``: an attribute that no rule names is constant, so the label of Number is
    constant under a Position rule, as in the authors' tables.  ``merged``: the rule of the
    group, whichever attribute carries it.  ``separate``: Number and Position have a label
    each.  Under a Number rule positions are random, so that Position has none (-1); Position
    rules keep the number within a row but for the arithmetic one, which leaves it open (-1).
    """
    wanted = label_attributes(name, label_map)
    table = []
    for problem in rules:
        named: dict[tuple[int, str], int] = {}
        for component, attribute, rule in problem:
            for other, label in _labels_of(attribute, RULES.index(rule), label_map):
                named[component, other] = label
        table.append([named.get(key, 0) for key in wanted])
    return np.array(table, dtype=np.int64).reshape(-1, len(wanted))


def _labels_of(attribute: str, rule: int, label_map: LabelMap) -> Sequence[tuple[str, int]]:
    """Attributes whose label follows from one named rule."""
    if attribute not in ("number", "position", "number_position"):
        return [(attribute, rule)]
    if label_map != "separate":
        return [(attribute, rule), ("number_position", rule)]
    if attribute == "number":
        return [("number", rule), ("position", UNLABELLED)]
    if attribute == "position":
        return [("position", rule), ("number", UNLABELLED if rule == _ARITHMETIC else 0)]
    return [("number", rule), ("position", rule)]


def labelled_subset(
    num_problems: int, ratio: float, label_seed: int
) -> Int[np.ndarray, " labelled"]:
    """Rows of the int(ratio * num_problems) labelled problems, ascending.

    Subsets of one ``label_seed`` are nested: a smaller ratio labels a part of a larger one's.
    """
    order = np.random.default_rng(label_seed).permutation(num_problems)
    # int(0.29 * 100) is 28: the ratio is meant in decimal.
    number = int(round(ratio * num_problems, 6))
    return np.sort(order[:number])
