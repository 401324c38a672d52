"""Splits, label tables, nested label subsets."""

import itertools

import numpy as np
import pytest

from raise_model.data.grammar import CONFIGURATIONS
from raise_model.data.splits import label_attributes, labelled_subset, rule_labels, split_of


def test_split_follows_the_last_digit():
    assert [split_of(10 + digit) for digit in range(10)] == (
        ["train"] * 6 + ["val"] * 2 + ["test"] * 2
    )


@pytest.mark.parametrize("label_seed", [0, 5])
def test_labelled_subsets_are_nested_by_ratio(label_seed):
    ratios = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
    subsets = [labelled_subset(600, ratio, label_seed) for ratio in ratios]
    assert [len(subset) for subset in subsets] == [0, 6, 30, 60, 120, 300, 600]
    for smaller, larger in itertools.pairwise(subsets):
        assert set(smaller.tolist()) < set(larger.tolist())
    assert all((np.diff(subset) > 0).all() for subset in subsets)


def test_labelled_subset_size_is_exact_where_binary_fractions_fall_short():
    assert len(labelled_subset(100, 0.29, 0)) == 29


def test_another_label_seed_labels_other_problems():
    assert not np.array_equal(labelled_subset(600, 0.1, 0), labelled_subset(600, 0.1, 1))


OFFICIAL = {
    "center": 3, "left_right": 6, "up_down": 6, "out_in_center": 5, "out_in_grid": 5,
    "out_in_grid_uni": 5, "grid_2x2": 4, "grid_2x2_uni": 4, "grid_3x3": 4, "grid_3x3_uni": 4,
}  # fmt: skip
MERGED = OFFICIAL | {"out_in_grid": 6, "out_in_grid_uni": 6}
SEPARATE = MERGED | dict.fromkeys(("grid_2x2", "grid_2x2_uni", "grid_3x3", "grid_3x3_uni"), 5)
SEPARATE |= {"out_in_grid": 7, "out_in_grid_uni": 7}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_number_of_labels_of_every_layout(name):
    assert len(label_attributes(name, "official")) == OFFICIAL[name]
    assert len(label_attributes(name, "merged")) == MERGED[name]
    assert len(label_attributes(name, "separate")) == SEPARATE[name]


def test_official_labels_know_number_in_2x2_and_position_in_3x3():
    rules = [
        [(0, "number", "arithmetic"), (0, "type", "constant"), (0, "size", "progression"),
         (0, "color", "distribute_three")],
        [(0, "position", "arithmetic"), (0, "type", "constant"), (0, "size", "progression"),
         (0, "color", "distribute_three")],
        [(0, "number_position", "constant"), (0, "type", "progression"),
         (0, "size", "constant"), (0, "color", "constant")],
    ]  # fmt: skip
    assert rule_labels("grid_2x2", rules, "official").tolist() == [
        [2, 0, 1, 3], [0, 0, 1, 3], [0, 1, 0, 0],
    ]  # fmt: skip
    assert rule_labels("grid_3x3", rules, "official").tolist() == [
        [0, 0, 1, 3], [2, 0, 1, 3], [0, 1, 0, 0],
    ]  # fmt: skip
    for name in ("grid_2x2", "grid_3x3"):
        assert rule_labels(name, rules, "merged").tolist() == [
            [2, 0, 1, 3], [2, 0, 1, 3], [0, 1, 0, 0],
        ]  # fmt: skip


def test_separate_labels_leave_open_what_a_rule_name_does_not_say():
    others = [(0, "type", "constant"), (0, "size", "progression"), (0, "color", "constant")]
    groups = [("number", rule) for rule in ("progression", "arithmetic", "distribute_three")]
    groups += [("position", rule) for rule in ("progression", "arithmetic", "distribute_three")]
    rules = [[(0, *group), *others] for group in [*groups, ("number_position", "constant")]]
    number_and_position = rule_labels("grid_3x3", rules, "separate")[:, :2].tolist()
    assert number_and_position == [[1, -1], [2, -1], [3, -1], [0, 1], [-1, 2], [0, 3], [0, 0]]


def test_outer_size_is_labelled_in_out_in_center_only():
    assert (0, "size") in label_attributes("out_in_center", "official")
    assert (0, "size") not in label_attributes("out_in_grid", "official")
    assert (0, "size") in label_attributes("out_in_grid", "merged")
    assert (0, "color") not in label_attributes("out_in_grid", "merged")
