"""One rule of rounding: halves go away from zero."""

import math

import numpy as np
import pytest

from artifacts.numbers import deviation, interval, percent, rounded


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0625, "6.3"),
        (0.5285, "52.9"),
        (0.8925, "89.3"),
        # As binary fractions below their half, and above the one that is not reached.
        (0.7865, "78.7"),
        (0.99449, "99.4"),
        # Means over seeds: 0.93350000000000011 and 0.062499999999999986.
        (6.5345 / 7, "93.4"),
        (0.0625 - 1.4e-17, "6.3"),
        (np.float64(0.0005), "0.1"),
        (0.0, "0.0"),
        (1.0, "100.0"),
        (math.nan, ""),
    ],
)
def test_halves_of_a_tenth_of_a_percent_are_rounded_up(share, text):
    assert percent(share) == text


def test_spreads_and_measures_follow_the_same_rule():
    assert deviation(0.00125) == " ± 0.1"
    assert deviation(0.0125) == " ± 1.3"
    assert deviation(math.nan) == ""
    assert interval(0.0625, 0.1245) == "6.3 to 12.5"
    assert interval(-0.0625, 0.5) == "-6.3 to 50.0"
    assert rounded(0.0465, 3) == "0.047"
    assert rounded(0.0625, 3) == "0.063"
