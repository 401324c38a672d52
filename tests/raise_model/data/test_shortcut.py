"""The shortcut finds RAVEN's answers and not I-RAVEN's."""

import numpy as np
import pytest

from raise_model.data.generate import make_problem
from raise_model.data.shortcut import closest_by_attributes, closest_by_pixels

PROBLEMS = 120


def shares(dataset, name):
    problems = [make_problem(dataset, name, 1234, index) for index in range(PROBLEMS)]
    return (
        np.mean([closest_by_attributes(p.entities) == p.target for p in problems]),
        np.mean([closest_by_pixels(p.panels) == p.target for p in problems]),
    )


@pytest.mark.parametrize("name", ["center", "out_in_grid", "grid_2x2"])
def test_raven_falls_for_it(name):
    by_attributes, by_pixels = shares("raven", name)
    assert by_attributes > 0.8
    assert by_pixels > 0.3


@pytest.mark.parametrize("dataset", ["iraven", "iraven_paired"])
@pytest.mark.parametrize("name", ["center", "out_in_grid", "grid_2x2"])
def test_iraven_does_not(dataset, name):
    # Four standard deviations of 120 guesses around one eighth.
    for share in shares(dataset, name):
        assert 0.0 <= share < 0.125 + 4 * (0.125 * 0.875 / PROBLEMS) ** 0.5


def test_closest_by_pixels_is_the_literal_loop():
    panels = make_problem("raven", "grid_3x3", 3, 1).panels
    offered = panels[8:].astype(float)
    sums = [sum(((a - b) ** 2).sum() for b in offered) for a in offered]
    assert closest_by_pixels(panels) == int(np.argmin(sums))
