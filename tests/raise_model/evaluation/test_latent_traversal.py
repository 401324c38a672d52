"""Traversals: a straight line in one concept, and what it is seen to change."""

import base64
import dataclasses

import cv2
import numpy as np
import pytest
import torch

from raise_model.evaluation.latent_traversal import STEPS, latent_traversal, traverse
from raise_model.models import registry
from raise_model.models.raise_net.config import smoke
from raise_model.models.solver import UnsupportedProtocol, config_to_json

CPU = torch.device("cpu")


def run(world, solver):
    return latent_traversal(
        solver, world.val, world.trial, world.evaluation("latent_traversal"), CPU
    )


def test_concepts_of_known_attributes_change_those_alone(world, oracle):
    result = run(world, oracle)
    assert result["panels"] == 30
    assert result["attributes"] == ["type0", "size0", "color0"]
    changed = np.array(result["changed"])
    matched = np.zeros((3, 4), dtype=bool)
    matched[[0, 1, 2], [3, 0, 2]] = True
    assert (changed[~matched] == 0).all()
    assert (changed[matched] > 0.6).all()
    assert result["purity"] == pytest.approx(changed[matched].mean())


def test_picture_holds_one_concept_a_row(world, oracle):
    picture = np.frombuffer(base64.b64decode(run(world, oracle)["png"]), np.uint8)
    grid = cv2.imdecode(picture, cv2.IMREAD_GRAYSCALE)
    assert grid.shape == (4 * 21, STEPS * 21)
    panels = world.val.batch(torch.arange(30), CPU).panels
    codes = oracle.encode(panels)
    images = traverse(oracle, codes[:1, 0], codes.flatten(0, 1))[0, :, :, 0]
    # Rounded to a fourth of the grey values.
    assert np.abs(grid[21:41, 42:62] / 255 - images[1, 2].numpy()).max() < 2.5 / 255


def test_lines_are_those_of_a_literal_loop():
    config = dataclasses.replace(smoke())
    solver = registry.build("raise", config_to_json(config), 20, seed=3).eval()
    generator = torch.Generator().manual_seed(0)
    size = config.concept_size
    batch = torch.randn(40, config.num_concepts * size, generator=generator)
    with torch.no_grad():
        found = traverse(solver, batch[:2], batch)
        assert found.shape == (2, config.num_concepts, 12, 1, 20, 20)
        for concept in range(config.num_concepts):
            for step in (0, 4, 11):
                code = batch[1].clone()
                for dim in range(concept * size, (concept + 1) * size):
                    low, high = batch[:, dim].min(), batch[:, dim].max()
                    code[dim] = low + (high - low) * step / 11
                wanted = solver.decode(code[None, None])[0, 0]
                assert torch.allclose(found[1, concept, step], wanted, atol=1e-5)


def test_solvers_without_concepts_are_refused(world, scene_oracle):
    with pytest.raises(UnsupportedProtocol, match="Dull has no concepts that can be drawn"):
        run(world, scene_oracle.Dull([world.train, world.val]))
