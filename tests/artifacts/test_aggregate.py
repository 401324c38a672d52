"""Means and spreads against numbers computed by hand."""

import dataclasses
import math

import pytest
from scipy import stats

from artifacts import aggregate
from artifacts.aggregate import results, summarise


def test_sample_deviation_and_student_interval_over_three_seeds(
    store, make_spec, make_evaluation, evaluated
):
    for seed, accuracy in enumerate((0.2, 0.3, 0.4)):
        evaluated(make_spec(seed), make_evaluation(), [accuracy, accuracy])
    row = summarise(results(store)).iloc[0]
    assert row["seeds"] == 3
    assert row["mean"] == pytest.approx(0.3)
    # Squares: .01 + 0 + .01, divided by n - 1 = 2 (by n it would be .0816).
    assert row["std"] == pytest.approx(0.1)
    # t(0.975, 2) = 4.302653; half width = 4.302653 * 0.1 / sqrt(3).
    assert row["t_high"] - row["mean"] == pytest.approx(0.248414, abs=1e-6)
    assert row["mean"] - row["t_low"] == pytest.approx(0.248414, abs=1e-6)
    assert row["lowest"] == pytest.approx(0.2)


def test_wilson_interval_is_over_the_problems_of_one_seed(
    store, make_spec, make_evaluation, evaluated
):
    for seed in range(3):
        evaluated(make_spec(seed), make_evaluation(), [0.5, 0.5])
    row = summarise(results(store)).iloc[0]
    expected = stats.binomtest(1000, 2000).proportion_ci(method="wilson")
    assert row["wilson_low"] == pytest.approx(expected.low, abs=1e-12)
    assert row["wilson_high"] == pytest.approx(expected.high, abs=1e-12)


@pytest.mark.parametrize(("right", "problems"), [(0, 10), (3, 10), (10, 10), (1999, 2000)])
def test_wilson_formula_agrees_with_scipy(right, problems):
    expected = stats.binomtest(right, problems).proportion_ci(method="wilson")
    low, high = aggregate.wilson_interval(right / problems, problems)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_rounds_are_a_spread_of_their_own(store, make_spec, make_evaluation, evaluated):
    # Means .3 and .3: seeds agree; rounds differ by .2, sample deviation .2 / sqrt(2).
    evaluated(make_spec(0), make_evaluation(), [0.2, 0.4])
    evaluated(make_spec(1), make_evaluation(), [0.4, 0.2])
    row = summarise(results(store)).iloc[0]
    assert row["std"] == pytest.approx(0.0, abs=1e-12)
    assert row["rounds"] == 2
    assert row["rounds_std"] == pytest.approx(0.2 / math.sqrt(2))


def test_one_seed_has_no_spread(store, make_spec, make_evaluation, evaluated):
    evaluated(make_spec(), make_evaluation(), [0.3])
    row = summarise(results(store)).iloc[0]
    assert math.isnan(row["std"])
    assert math.isnan(row["t_low"])
    assert math.isnan(row["rounds_std"])
    assert row["wilson_low"] < 0.3 < row["wilson_high"]


def test_settings_and_data_sets_are_not_mixed(store, make_spec, make_evaluation, evaluated):
    evaluated(make_spec(0), make_evaluation("raven"), [0.1])
    evaluated(make_spec(0), make_evaluation("iraven"), [0.2])
    evaluated(make_spec(0, steps=2000), make_evaluation("raven"), [0.4])
    summary = summarise(results(store))
    assert sorted(summary["mean"]) == [0.1, 0.2, 0.4]
    assert list(summary["seeds"]) == [1, 1, 1]


def test_only_the_pairs_asked_for_are_read(store, make_spec, make_evaluation, evaluated):
    evaluated(make_spec(0), make_evaluation("raven"), [0.1])
    evaluated(make_spec(1), make_evaluation("raven"), [0.2])
    pairs = [
        (make_spec(1).name, make_evaluation("raven")),
        (make_spec(1).name, make_evaluation("iraven")),
    ]
    frame = results(store, pairs)
    assert list(frame["trial"]) == [make_spec(1).name]
    assert frame.iloc[0]["accuracy"] == pytest.approx(0.2)


def test_empty_store_gives_empty_frames(store):
    assert summarise(results(store)).empty


def test_each_setting_of_arbitrary_positions_is_a_number(
    store, make_spec, make_evaluation, evaluated
):
    evaluation = dataclasses.replace(make_evaluation(), protocol="arbitrary_position")
    settings = [
        {"targets": 1, "distractors": 3, "accuracy": [0.5, 0.7], "problems": 1000},
        {"targets": 2, "distractors": 3, "accuracy": [0.25, 0.25], "problems": 1000},
    ]
    for seed in range(2):
        evaluated(make_spec(seed), evaluation, [], settings=settings)
    summary = summarise(results(store))
    assert list(summary["num_targets"]) == [1, 2]
    assert list(summary["mean"]) == pytest.approx([0.6, 0.25])
    assert list(summary["seeds"]) == [2, 2]
    assert list(summary["problems"]) == [1000, 1000]
