"""Odd-one-out: solvers of known answers, and a literal implementation."""

import dataclasses

import numpy as np
import pytest
import torch

from raise_model.data.odd_panel import OddPanels, odd_panels
from raise_model.evaluation.odd_one_out import (
    QUANTILE,
    Errors,
    intact_errors,
    odd_errors,
    odd_one_out,
    summarise,
)
from raise_model.evaluation.pictures import pictures_of
from raise_model.models import registry
from raise_model.models.raise_net.config import smoke
from raise_model.models.solver import config_to_json

SIZE, CPU = 20, torch.device("cpu")


def run(world, solver, *, odd="any", seed=0, limit=None):
    return odd_one_out(
        solver, world.val, world.trial, world.evaluation("odd_one_out", seed=seed, odd=odd), CPU,
        store=world.store, cache=world.cache, limit=limit,
    )  # fmt: skip


def test_a_solver_that_knows_the_problems_finds_every_odd_panel_and_attribute(
    world, oracle, scene_oracle
):
    result = run(world, oracle)
    assert result["problems"] == 30
    for found in (result, result["repair"]):
        assert found["panel_accuracy"] == found["attribute_accuracy"] == 1.0
        assert set(found["by_position"]) <= {1.0, None}
    assert result["panel_accuracy_all"] == 1.0
    assert result["concept_of"] == scene_oracle.CONCEPT_OF
    assert result["false_alarms"] == 0.0
    assert result["detected"] == 1.0
    assert result["threshold"] == 0.0
    assert sum(each["problems"] for each in result["by_attribute"].values()) == 30
    assert all(each["attribute_accuracy"] == 1.0 for each in result["by_attribute"].values())


def test_the_first_problem_of_each_attribute_is_shown_with_its_errors(world, oracle):
    odd = odd_panels(
        world.store, world.val.manifest, image_size=SIZE, resize="area", odd="any", seed=0
    )
    result = run(world, oracle)
    examples = result["examples"]
    wanted = sorted({odd.broken[:, place].argmax() for place in range(3)})
    assert [each["problem"] for each in examples] == wanted
    for each in examples:
        row = each["problem"]
        assert (each["odd"], each["called"]) == (odd.position[row], odd.position[row])
        assert [each["named"]] == each["broken"]
        panels = world.val.batch(torch.tensor([row]), CPU).panels[0, :, 0].numpy()
        panels[odd.position[row]] = odd.panels[row] / 255
        shown = pictures_of(each["png"], 3, 3).reshape(panels.shape)
        assert np.abs(shown - panels).max() < 2.5 / 255
        assert len(each["png"]) <= 8192
        errors = np.array(each["errors"])
        concept = result["concept_of"][each["named"]]
        assert errors.shape == (9, 4)
        assert np.unravel_index(errors.argmax(), errors.shape) == (each["odd"], concept)


def test_a_wrong_candidate_may_break_several_rules_and_one_of_them_is_enough(world, oracle):
    result = run(world, oracle, odd="candidate")
    assert result["by_position"] == [None] * 8 + [1.0]
    assert result["attribute_accuracy"] == 1.0
    # In RAVEN a wrong candidate differs in one attribute.
    assert result["chance_attribute"] == pytest.approx(1 / 3)


def test_the_bottom_right_version_is_answered_by_a_constant(world, oracle):
    result = run(world, oracle, odd="bottom_right", limit=9)
    assert result["problems"] == 9
    assert result["constant_answer"] == 1.0
    assert result["by_position"] == [None] * 8 + [1.0]


def test_guesses_are_right_one_time_in_nine(world, scene_oracle):
    solver = scene_oracle.Guessing([world.train, world.val])
    shares = [run(world, solver, seed=seed)["panel_accuracy"] for seed in range(5)]
    deviation = (1 / 9 * 8 / 9 / (30 * len(shares))) ** 0.5
    assert np.mean(shares) == pytest.approx(1 / 9, abs=3 * deviation)


def test_a_solver_without_concepts_finds_panels_but_names_no_attribute(world, scene_oracle):
    result = run(world, scene_oracle.Dull([world.train, world.val]))
    assert result["panel_accuracy"] == result["repair"]["panel_accuracy"] == 1.0
    assert result["attribute_accuracy"] is None
    assert result["concept_of"] is None
    assert all(each["attribute_accuracy"] is None for each in result["by_attribute"].values())


def raise_solver(test_rule="argmax"):
    config = dataclasses.replace(smoke(), test_rule=test_rule)
    solver = registry.build("raise", config_to_json(config), SIZE, seed=3)
    with torch.no_grad():  # rules that differ, so that it matters which one is chosen
        solver.networks.executors.last.bias.normal_(
            0, 0.3, generator=torch.Generator().manual_seed(0)
        )
    return solver


def test_errors_are_those_of_a_literal_loop(world):
    solver = raise_solver()
    odd = odd_panels(
        world.store, world.val.manifest, image_size=SIZE, resize="area", odd="any", seed=0, limit=2
    )
    found = odd_errors(solver, world.val, odd, 1, torch.Generator(), CPU)
    intact, rules = intact_errors(solver, world.val, 2, 1, torch.Generator(), CPU)
    solver.eval()
    concepts = solver.num_concepts

    def predict(codes, target):
        missing = torch.zeros(1, 9, dtype=torch.bool)
        missing[0, target] = True
        return solver.predict_encoded(codes, missing, torch.Generator())

    def error(codes, target):
        difference = predict(codes, target).latents[0, 0] - codes[0, target]
        return [float((part**2).sum()) for part in difference.chunk(concepts)]

    with torch.no_grad():
        for row in range(2):
            panels = world.val.batch(torch.tensor([row]), CPU).panels
            codes = solver.encode(panels)
            wanted = [error(codes, target) for target in range(9)]
            assert np.allclose(intact[row], wanted, rtol=1e-4, atol=1e-6)
            assert np.allclose(rules[row], predict(codes, 8).rules[0], atol=1e-6)
            drawn = torch.from_numpy(odd.panels[row]).float() / 255
            panels[0, odd.position[row], 0] = drawn
            codes = solver.encode(panels)
            wanted = [error(codes, target) for target in range(9)]
            assert np.allclose(found.own[row], wanted, rtol=1e-4, atol=1e-6)
            for position in (0, 4, 8):
                mended = codes.clone()
                mended[0, position] = predict(codes, position).latents[0, 0]
                others = [error(mended, t) for t in range(9) if t != position]
                assert np.allclose(
                    found.left[row, position], np.sum(others, 0), rtol=1e-4, atol=1e-5
                )


def test_rounds_are_averaged_and_the_solver_left_as_it_was(world):
    solver = raise_solver("sample")
    solver.train()
    generator = torch.Generator().manual_seed(0)
    one, _ = intact_errors(solver, world.val, 4, 1, generator, CPU)
    other, _ = intact_errors(solver, world.val, 4, 1, generator, CPU)
    both, _ = intact_errors(solver, world.val, 4, 2, torch.Generator().manual_seed(0), CPU)
    assert not torch.equal(one, other)
    assert torch.allclose(both, (one + other) / 2)
    assert solver.training


def odd_of(position, place, suspects):
    return OddPanels(
        places=((0, "type"), (0, "size"), (0, "color")),
        position=np.array(position), broken=np.eye(3, dtype=bool)[place],
        suspects=np.array(suspects),
        panels=np.zeros((len(position), 1, 1), np.uint8),
    )  # fmt: skip


def test_summary_by_hand():
    """Three problems, three attributes in concepts 2, 0 and (none); concept 1 is noise."""
    own = torch.zeros(3, 9, 3)
    own[:, 4, 1] = 9.0  # the unmatched concept errs most, at panel 4
    own[0, 2] = torch.tensor([1.0, 0.0, 3.0])  # size 1, type 3: panel 2, type
    own[1, 5] = torch.tensor([4.0, 0.0, 3.0])  # panel 5, size
    own[2, 7] = torch.tensor([2.0, 0.0, 1.0])  # panel 7, size
    left = torch.ones(3, 9, 3)
    left[0, 2], left[1, 6], left[2, 7] = 0.5, 0.5, 0.5
    intact = torch.zeros(3, 9, 3)
    intact[1, 3, 0] = 5.0
    reference = torch.zeros(100, 9, 3)
    reference[:, 0, 2] = torch.arange(100) / 25
    odd = odd_of([2, 6, 7], [0, 1, 2], [1, 3, 2])
    result = summarise(Errors(own=own, left=left), odd, intact, reference, [2, 0, None])
    assert result["panel_accuracy"] == 2 / 3
    assert result["panel_accuracy_all"] == 0.0
    assert result["attribute_accuracy"] == 2 / 3
    assert result["by_position"] == [None, None, 1.0, None, None, None, 0.0, 1.0, None]
    assert result["by_attribute"]["size0"] == {
        "problems": 1, "panel_accuracy": 0.0, "attribute_accuracy": 1.0,
        "repair_panel_accuracy": 1.0,
    }  # fmt: skip
    assert result["by_attribute"]["color0"]["attribute_accuracy"] == 0.0
    # Repair calls panel 6 of the second problem, where nothing errs: the first attribute.
    assert result["repair"]["panel_accuracy"] == 1.0
    assert result["repair"]["attribute_accuracy"] == 1 / 3
    assert result["ceiling"] == pytest.approx((1 + 1 / 3 + 1 / 2) / 3)
    assert result["chance_attribute"] == result["constant_attribute"] == 1 / 3
    assert result["constant_answer"] == 1 / 3
    assert result["threshold"] == pytest.approx(99 * QUANTILE / 25)
    assert result["false_alarms"] == 1 / 3
    assert result["detected"] == 2 / 3
    # Size of the first and color of the third are broken as well.
    odd.broken[0, 1] = odd.broken[2, 1] = True
    result = summarise(Errors(own=own, left=left), odd, intact, reference, [2, 0, None])
    assert result["attribute_accuracy"] == 1.0
    assert result["by_attribute"]["size0"]["problems"] == 3
    assert result["chance_attribute"] == 5 / 9
    assert result["constant_attribute"] == 1.0
