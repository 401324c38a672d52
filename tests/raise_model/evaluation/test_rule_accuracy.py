"""Rules named before and after the answer: known answers and a literal posterior."""

import dataclasses

import numpy as np
import pytest
import torch

from raise_model.evaluation.rule_accuracy import named_right, rule_accuracy
from raise_model.evaluation.selection import bottom_right
from raise_model.models import registry
from raise_model.models.raise_net.config import smoke
from raise_model.models.solver import UnsupportedProtocol, config_to_json

CPU = torch.device("cpu")


def run(world, solver):
    return rule_accuracy(solver, world.val, world.trial, world.evaluation("rule_accuracy"), CPU)


def raise_solver(ema_decay=0.0):
    config = dataclasses.replace(smoke(), ema_decay=ema_decay)
    solver = registry.build("raise", config_to_json(config), 20, seed=3)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in solver.networks.executors.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return solver.eval()


def test_a_solver_that_knows_the_rules_names_them_all(world, oracle):
    result = run(world, oracle)
    one = {"prior": 1.0, "posterior": None}
    assert result == {
        "problems": 30, **one, "by_attribute": {"type0": one, "size0": one, "color0": one},
    }  # fmt: skip


def test_solvers_without_rules_are_refused(world, scene_oracle):
    with pytest.raises(UnsupportedProtocol, match="Dull names no rules"):
        run(world, scene_oracle.Dull([world.train, world.val]))


def test_shares_by_attribute_make_up_the_whole(world):
    result = run(world, raise_solver())
    for kind in ("prior", "posterior"):
        shares = [each[kind] for each in result["by_attribute"].values()]
        assert result[kind] == pytest.approx(np.mean(shares))
    assert 0 < result["prior"] < 1


def test_prior_is_that_of_selection(world):
    solver = raise_solver()
    selected = bottom_right(
        solver, world.val, space="latent", rounds=1, seed=0, device=CPU, label_map="official"
    )
    assert run(world, solver)["prior"] == pytest.approx(selected["rule_accuracy"])


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_posterior_is_that_of_a_literal_loop(world, ema_decay):
    solver = raise_solver(ema_decay)
    config = solver.config
    networks = solver.average.module if ema_decay else solver.networks
    if ema_decay:  # the averaged networks are the ones that predict
        with torch.no_grad():
            for parameter in networks.executors.parameters():
                parameter.mul_(1.5)
    with torch.no_grad():
        codes = solver.encode(world.val.batch(torch.arange(3), CPU).panels)
        found = solver.rule_posterior(codes)
        missing = torch.zeros(1, 9, dtype=torch.bool)
        missing[0, 8] = True
        for row in range(3):
            prior = solver.predict_encoded(codes[row : row + 1], missing, torch.Generator()).rules
            for concept in range(config.num_concepts):
                size = config.concept_size
                cells = codes[row, :, concept * size : (concept + 1) * size]
                shown = cells.clone()
                shown[8] = 0
                every = networks.executors.masked(cells[None], missing)
                assert torch.allclose(every, networks.executors.masked(shown[None], missing))
                logs = [
                    float(prior[0, concept, rule].log())
                    - float((every[rule, 0, 8] - cells[8]).square().sum()) / (2 * config.sigma_z**2)
                    for rule in range(config.num_rules)
                ]
                weights = np.exp(np.array(logs) - max(logs))
                assert np.allclose(found[row, concept], weights / weights.sum(), atol=1e-4)


def test_unknown_labels_and_attributes_without_concept_are_never_right():
    rules = torch.eye(4)[torch.tensor([[1, 0], [2, 3]])]
    labels = torch.tensor([[1, 0, 0], [2, -1, 3]])
    assert named_right(rules, labels, [0, 1, None]).tolist() == [
        [True, True, False],
        [True, False, False],
    ]
