"""Scenes are read back from their own pictures."""

import numpy as np
import pytest
import torch

from raise_model.data.generate import make_problem
from raise_model.data.grammar import configuration
from raise_model.data.loader import resize_panels
from raise_model.evaluation.nearest_rendering import NearestRendering, pixel_owners


@pytest.mark.parametrize(
    ("name", "size", "resize"),
    [
        ("center", 20, "area"),
        ("left_right", 32, "area"),
        ("out_in_center", 40, "area"),
        ("out_in_grid_uni", 64, "bilinear"),
        ("grid_2x2_uni", 32, "area"),
        ("grid_3x3_uni", 40, "area"),
    ],
)
def test_true_panels_are_read_as_they_were_drawn(name, size, resize):
    reader = NearestRendering(name, size, resize)
    for index in range(4):
        problem = make_problem("raven", name, 2, index)
        small = resize_panels(problem.panels, size, resize)
        levels = reader.read(torch.from_numpy(small).float() / 255)
        for scene, found in zip(problem.entities, levels, strict=True):
            unturned = [{**entity, "angle": 0} for entity in scene]
            assert unturned in [
                [{**entity, "angle": 0} for entity in reader.scene(variant)]
                for variant in reader.variants(found)
            ]
            if name != "out_in_grid_uni":  # elsewhere no two entities look alike
                assert len(list(reader.variants(found))) == 1
                assert np.array_equal(found[:, :3], reader.levels(scene)[:, :3])


def test_small_squares_of_two_sizes_are_read_as_either():
    reader = NearestRendering("out_in_grid_uni", 40, "area")
    read = reader.levels([])
    read[0], read[1], read[3] = (5, 3, 0, 3), (2, 2, 4, 3), (2, 2, 1, 3)
    variants = [variant.tolist() for variant in reader.variants(read)]
    assert len(variants) == 4
    for first in (2, 3):
        for second in (2, 3):
            wanted = read.copy()
            wanted[1, 1], wanted[3, 1] = first, second
            assert wanted.tolist() in variants


def test_noise_does_not_change_what_is_read():
    reader = NearestRendering("center", 20, "area")
    problem = make_problem("raven", "center", 2, 0)
    images = torch.from_numpy(resize_panels(problem.panels, 20, "area")).float() / 255
    noisy = images + 0.02 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    assert np.array_equal(reader.read(noisy)[..., :3], reader.read(images)[..., :3])


def test_the_nearest_is_that_of_a_literal_search():
    reader = NearestRendering("center", 20, "area")
    images = torch.rand(3, 20, 20, generator=torch.Generator().manual_seed(0))
    drawn, levels = reader._drawn[0], reader._levels[0]
    for image, found in zip(images, reader.read(images), strict=True):
        pixels = image.flatten()[reader._pixels[0]]
        distances = [float((pixels - each).square().sum()) for each in drawn]
        assert tuple(found[0]) == tuple(levels[int(np.argmin(distances))])


def test_each_pixel_belongs_to_one_slot():
    halves = pixel_owners(configuration("left_right"), 32)
    assert set(np.unique(halves[8:24, :16])) == {0}
    assert set(np.unique(halves[8:24, 16:])) == {1}
    assert set(np.unique(halves[:8])) == {-1}
    nested = pixel_owners(configuration("out_in_grid"), 160)
    assert nested[0, 0] == 0
    assert [nested[y, x] for y in (67, 93) for x in (67, 93)] == [1, 2, 3, 4]
    grid = pixel_owners(configuration("grid_3x3"), 40)
    assert [grid[y, x] for y in (6, 20, 33) for x in (6, 20, 33)] == list(range(9))
