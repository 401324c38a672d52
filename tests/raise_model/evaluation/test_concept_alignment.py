"""The attribute-concept matrix, and information counted by hand."""

import numpy as np
import pytest
import torch

from raise_model.evaluation.concept_alignment import (
    concept_alignment,
    concept_information,
    information_gap,
    match,
    panel_levels,
    rule_gain,
)
from raise_model.models.solver import UnsupportedProtocol

CPU = torch.device("cpu")


def run(world, solver):
    evaluation = world.evaluation("concept_alignment")
    return concept_alignment(solver, world.val, world.trial, evaluation, CPU, store=world.store)


def test_a_solver_that_knows_the_rules_is_matched_and_disentangled(world, oracle):
    result = run(world, oracle)
    assert result["problems"] == result["measured_problems"] == 30
    assert result["attributes"] == ["type0", "size0", "color0"]
    assert result["concept_of"] == [3, 0, 2]
    assert result["binary"] == [[0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 1, 0]]
    matrix, information = np.array(result["matrix"]), np.array(result["information"])
    assert [matrix[a, c] for a, c in enumerate((3, 0, 2))] == [1.0, 1.0, 1.0]
    assert np.allclose(matrix[:, 1], 0.25)
    assert [information[a, c] for a, c in enumerate((3, 0, 2))] == pytest.approx([1.0] * 3)
    assert np.allclose(information[:, 1], 0.0)
    assert result["disentanglement"] == pytest.approx(information_gap(information))
    # What 270 panels share by chance.
    assert result["disentanglement"] > 0.85


def test_solvers_without_rules_are_refused(world, scene_oracle):
    with pytest.raises(UnsupportedProtocol, match="Dull names no rules of concepts"):
        run(world, scene_oracle.Dull([world.train, world.val]))


def test_gain_is_a_mean_over_labelled_problems():
    rules = torch.rand(6, 5, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[0, 3], [1, -1], [2, -1], [3, 0], [-1, 1], [0, -1]])
    for attribute in range(2):
        for concept in range(5):
            values = [
                float(rules[n, concept, labels[n, attribute]])
                for n in range(6)
                if labels[n, attribute] >= 0
            ]
            assert rule_gain(rules, labels)[attribute, concept] == pytest.approx(
                sum(values) / len(values)
            )


def test_match_leaves_out_attributes_where_concepts_are_too_few():
    gain = torch.tensor([[0.9, 0.2], [0.8, 0.1], [0.3, 0.7]])
    assert match(gain) == [0, None, 1]
    assert match(gain.T) == [0, 2]


def test_levels_are_those_of_the_nine_panels(world):
    from raise_model.data.odd_panel import read_problems, scene_of

    places = [(0, "color"), (0, "number_position")]
    levels = panel_levels(world.store, world.val.manifest, places, 11)
    (problems,) = read_problems(world.store, world.val.manifest, 11)
    wanted = [[[scene_of(p, k)[0]["color"], 1] for k in range(9)] for p in problems]
    assert levels.tolist() == wanted


def test_information_is_that_of_counts():
    """Concept 0 is the attribute, concept 1 its parity, concept 2 the same with another value."""
    generator = np.random.default_rng(0)
    values = generator.integers(0, 4, size=(50, 9))
    levels = values[..., None].copy()
    levels[:5] = -1  # left out
    codes = np.stack([values, values % 2, values + 9 * (values == 3)], 2)[..., None]
    found = concept_information(np.repeat(codes, 2, 3), levels, 0)
    shares = np.bincount(values[5:].ravel()) / values[5:].size
    whole = -(shares * np.log(shares)).sum()
    halves = np.array([shares[0] + shares[2], shares[1] + shares[3]])
    half = -(halves * np.log(halves)).sum()
    assert found[0] == pytest.approx([1.0, half / whole, 1.0])
    assert information_gap(found) == pytest.approx(0.0)
    assert information_gap(found[:, :2]) == pytest.approx(1 - half / whole)
    assert information_gap(found[:, :1]) == pytest.approx(1.0)


def test_an_attribute_that_never_varies_has_no_information():
    codes = np.random.default_rng(0).normal(size=(20, 9, 2, 3))
    levels = np.stack([np.full((20, 9), 2), np.full((20, 9), -1)], 2)
    assert concept_information(codes, levels, 0).tolist() == [[0.0, 0.0], [0.0, 0.0]]
