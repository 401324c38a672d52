"""Panels drawn from annotations equal the published ones to the pixel."""

import numpy as np
import pytest

from raise_model.data.grammar import CONFIGURATIONS
from raise_model.data.published import read_problem
from raise_model.data.render import render_panels

DRAWN = [name for name, made in CONFIGURATIONS.items() if not made.uniform]


@pytest.mark.parametrize("dataset", ["raven", "iraven"])
@pytest.mark.parametrize("name", DRAWN)
def test_every_published_panel_is_drawn_to_the_pixel(published, dataset, name):
    made = CONFIGURATIONS[name]
    files = sorted((published / dataset / made.folder).glob("*.npz"))
    assert files
    for file in files:
        problem = read_problem(
            file.read_bytes(), file.with_suffix(".xml").read_bytes(), name, index=0
        )
        drawn = render_panels(made, problem.entities)
        differing = (drawn != problem.panels).sum(axis=(1, 2))
        assert differing.tolist() == [0] * 16


def test_later_components_cover_earlier_ones():
    outer = {"component": 0, "slot": 0, "type": 2, "size": 5, "color": 0, "angle": 3}
    inner = {"component": 1, "slot": 0, "type": 5, "size": 5, "color": 9, "angle": 3}
    made = CONFIGURATIONS["out_in_center"]
    both, alone = render_panels(made, [[outer, inner], [outer]])
    assert both[80, 80] == 0
    assert alone[80, 80] == 255
    assert (both <= alone).all()


def test_white_shapes_are_outlines():
    entity = {"component": 0, "slot": 0, "type": 5, "size": 5, "color": 0, "angle": 3}
    (panel,) = render_panels(CONFIGURATIONS["center"], [[entity]])
    assert set(np.unique(panel)) == {0, 255}
    assert panel[80, 80] == 255
