"""Several answers: solvers that are always, sometimes and never right."""

import numpy as np
import pytest
import torch

from raise_model.data.odd_panel import broken_places, read_problems, with_panel
from raise_model.evaluation.multi_answer import EXAMPLES, draw_missing, generate, multi_answer
from raise_model.evaluation.pictures import pictures_of
from raise_model.models.solver import Prediction, UnsupportedProtocol

CPU = torch.device("cpu")


def run(world, solver, *, targets=1, samples=3, noise=0.0, limit=30):
    evaluation = world.evaluation("multi_answer", targets=targets, samples=samples, noise=noise)
    return multi_answer(
        solver, world.val, world.trial, evaluation, CPU, store=world.store, limit=limit
    )


@pytest.mark.parametrize("targets", [1, 2])
def test_a_solver_that_knows_the_problems_answers_all(world, oracle, targets):
    result = run(world, oracle, targets=targets)
    del result["examples"]
    assert result == {
        "problems": 30, "samples": 3, "targets": targets, "share_valid": 1.0,
        "distinct_valid": 1.0, "share_solved": 1.0, "share_with_other": 0.0,
        "by_attribute": {"type0": 1.0, "size0": 1.0, "color0": 1.0}, "decoded_valid": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize("targets", [1, 2])
def test_the_first_answers_are_shown_in_their_matrices(world, oracle, targets):
    examples = run(world, oracle, targets=targets)["examples"]
    missing = draw_missing(30, targets, 0)
    assert [each["problem"] for each in examples] == list(range(EXAMPLES))
    for row, each in enumerate(examples):
        assert each["missing"] == missing[row].nonzero()[:, 0].tolist()
        assert each["broken"] == []
        assert len(each["png"]) <= 8192
        panels = world.val.batch(torch.tensor([row]), CPU).panels[0, :, 0].numpy()
        shown = pictures_of(each["png"], 3, 3).reshape(9, *panels.shape[1:])
        # An oracle's answer looks like the data's, but for the angle.
        known = ~missing[row].numpy()
        assert np.abs(shown - panels)[known].max() < 2.5 / 255


def test_noise_makes_answers_that_differ(world, oracle):
    result = run(world, oracle, samples=12, noise=0.4)
    assert 0.1 < result["share_valid"] < 0.9
    assert result["share_solved"] > result["share_valid"]
    # Of Center nothing but the angle, which is not read, is left to chance.
    assert result["distinct_valid"] <= 1.0
    assert result["decoded_valid"] == 1.0


def test_a_solver_that_errs_in_color_breaks_the_rules_of_color_alone(world, scene_oracle):
    class Miscoloured(scene_oracle.SceneOracle):
        def predict_encoded(self, codes, missing, generator):
            right = super().predict_encoded(codes, missing, generator)
            latents = right.latents.clone()
            latents[..., 2] = (latents[..., 2] + 5) % 10
            return Prediction(latents=latents, rules=right.rules)

    result = run(world, Miscoloured([world.train, world.val]))
    assert all(each["broken"] == ["color0"] for each in result["examples"])
    panels = world.val.batch(torch.tensor([0]), CPU).panels[0, :, 0].numpy()
    shown = np.concatenate(pictures_of(result["examples"][0]["png"], 3, 3))
    assert np.abs(shown - panels)[8].max() > 0.1
    assert result["share_valid"] == result["share_solved"] == 0.0
    assert result["by_attribute"] == {"type0": 1.0, "size0": 1.0, "color0": 0.0}


def test_answers_are_judged_as_in_a_literal_loop(world, oracle):
    result = run(world, oracle, samples=9, noise=0.4, limit=8)
    generator = torch.Generator().manual_seed(0)
    codes = oracle.encode(world.val.batch(torch.arange(8), CPU).panels)
    missing = draw_missing(8, 1, 0)
    images = generate(oracle, codes, missing, 9, 0.4, generator)
    (problems,) = read_problems(world.store, world.val.manifest, 8)
    valid, distinct, others = 0, 0, 0
    for problem, answers in zip(problems, images, strict=True):
        right = set()
        for image in answers[:, 0, 0]:
            scene = oracle.reader.scene(oracle.reader.read(image[None])[0])
            if not broken_places(with_panel(problem, 8, scene), "center"):
                valid += 1
                right.add(tuple(scene[0][name] for name in ("type", "size", "color")))
        entity = problem.entities[8 + problem.target][0]
        distinct += len(right)
        others += bool(right - {tuple(entity[name] for name in ("type", "size", "color"))})
    assert 0 < valid < 72
    assert result["share_valid"] == pytest.approx(valid / 72)
    assert result["distinct_valid"] == pytest.approx(distinct / 8)
    assert result["share_with_other"] == pytest.approx(others / 8)


def test_missing_panels_are_the_last_and_others_of_each_problems_own():
    missing = draw_missing(300, 2, 5)
    assert missing[:, 8].all()
    assert (missing.sum(1) == 2).all()
    assert (missing[:, :8].sum(0) > 15).all()
    assert torch.equal(missing, draw_missing(300, 2, 5))
    assert draw_missing(4, 1, 0).sum() == 4


def test_solvers_that_draw_nothing_are_refused(world, scene_oracle):
    solver = scene_oracle.SceneOracle([world.train, world.val])
    solver.supports = frozenset({"latent"})
    with pytest.raises(UnsupportedProtocol, match="SceneOracle draws no panels"):
        run(world, solver)
