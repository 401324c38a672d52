"""CLAP: its processes, prediction and loss by hand, the table, settings, golden numbers.

What every solver must do is in ``test_solver_contract.py``, the total correlation itself in
``test_total_correlation.py``.  A change of the golden numbers is a change of every trial: raise
``Clap.revision``, then write the file anew with
``RAISE_WRITE_GOLDEN=1 pytest tests/raise_model/models/test_clap.py``.
"""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Normal, kl_divergence

from raise_model.data.generate import make_problem
from raise_model.data.grammar import CONFIGURATIONS
from raise_model.data.loader import resize_panels
from raise_model.errors import UserError
from raise_model.models.clap import config as named
from raise_model.models.clap.model import Clap
from raise_model.models.common.grouped_mlp import GroupedMLP
from raise_model.models.common.masking import draw_masks
from raise_model.models.common.total_correlation import total_correlation
from raise_model.models.solver import UnsupportedProtocol, config_to_json
from raise_model.problem import Batch

GOLDEN = Path(__file__).parent.parent / "golden" / "clap.json"
SIZE = 12
SIZES = {"paper": 64, "lite": 32, "demo": 20, "smoke": 20}


def tiny(**changes):
    small = dataclasses.replace(
        named.smoke("center"),
        num_concepts=5, encoder_channels=(3, 7), encoder_kernels=(4, 3), encoder_strides=(2, 3),
        encoder_paddings=(1, 0), encoder_hidden=11, decoder_hidden=13, decoder_channels=(7, 5),
        sigma_z=0.2, beta_target=3.0, beta_function=5.0, beta_total_correlation=7.0,
        reconstruction_weight=2.0, learning_rate=1e-3, functions_from="all", concept_size=3,
    )  # fmt: skip
    return dataclasses.replace(small, **changes)


def build(seed=0, **changes):
    """A tiny float64 solver whose functions differ from problem to problem."""
    torch.manual_seed(seed)
    solver = Clap(tiny(**changes), SIZE).double()
    with torch.no_grad():
        for weight in (*solver.processes.point.weights, *solver.processes.function.weights):
            weight.mul_(3)
    return solver


def train(solver, batches, steps, generator):
    """Total loss of every step."""
    solver.train()
    (optimizer,) = solver.optimizers().values()
    totals = []
    for number in range(steps):
        (rate,) = solver.set_step(number, steps).values()
        (loss,) = solver.training_steps(batches, generator)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
        totals.append(loss.total.item())
    return totals


def missing_of(rows):
    return torch.zeros(len(rows), 9, dtype=torch.bool).scatter(1, torch.tensor(rows), True)


def predict(solver, panels, missing, seed=0):
    with torch.no_grad():
        return solver.eval().predict(panels, missing, torch.Generator().manual_seed(seed))


def noise(generator, *shape):
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def mlp(grouped, concept, values):
    for layer, (weight, bias) in enumerate(zip(grouped.weights, grouped.biases, strict=True)):
        values = values.clamp_min(0) if layer else values
        values = values @ weight[concept] + bias[concept][0]
    return values


def place(processes, concept, cell):
    coordinates = torch.tensor([cell // 3 - 1, cell % 3 - 1], dtype=torch.float64)
    return mlp(processes.place, concept, coordinates)


def function_by_hand(processes, concept, codes, known):
    """Distribution of one concept's function from its codes (9, concepts, dims) at known cells."""
    points = [
        mlp(
            processes.point,
            concept,
            torch.cat(
                [
                    mlp(processes.value, concept, codes[cell, concept]),
                    place(processes, concept, cell),
                ]
            ),
        )
        for cell in known
    ]
    mean, log_std = mlp(processes.function, concept, sum(points) / len(points)).chunk(2)
    return Normal(mean, log_std.clamp(np.log(0.01), np.log(3)).exp())


def value_by_hand(processes, concept, function, cell):
    joined = torch.cat([function, place(processes, concept, cell)])
    return mlp(processes.target, concept, joined)


def test_grouped_perceptrons_are_linear_layers_of_their_own():
    torch.manual_seed(0)
    grouped = GroupedMLP(400, (4, 6, 3))
    values = torch.randn(400, 5, 4)
    for group in (0, 17, 399):
        (first, second), (bias, last) = grouped.weights, grouped.biases
        hidden = F.linear(values[group], first[group].T, bias[group][0]).relu()
        wanted = F.linear(hidden, second[group].T, last[group][0])
        torch.testing.assert_close(grouped(values)[group], wanted)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(6, 3) for _ in range(400)]
    for ours, theirs in (
        (grouped.weights[1].detach(), torch.stack([layer.weight.detach() for layer in layers])),
        (grouped.biases[1].detach(), torch.stack([layer.bias.detach() for layer in layers])),
    ):
        assert float(ours.abs().max()) == pytest.approx(float(theirs.abs().max()), rel=0.01)
        assert float(ours.std()) == pytest.approx(float(theirs.std()), rel=0.05)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_predictions_equal_those_by_hand(number, batch):
    solver, panels = build(), batch(3).panels
    places = torch.rand(3, 9, generator=torch.Generator().manual_seed(number)).argsort(1)
    places = places[:, :number].sort(1).values.tolist()
    prediction = predict(solver, panels, missing_of(places), seed=4)
    generator = torch.Generator().manual_seed(4)
    code_noise = noise(generator, 3 * (9 - number), 5, 3).view(3, 9 - number, 5, 3)
    function_noise = noise(generator, 5, 3, 6)
    target_noise = noise(generator, 3 * number, 5, 3).view(3, number, 5, 3)
    with torch.no_grad():
        for b, hidden in enumerate(places):
            known = [cell for cell in range(9) if cell not in hidden]
            codes = torch.full((9, 5, 3), torch.nan, dtype=torch.float64)
            codes[known] = solver.encoder(panels[b, known]).view(-1, 5, 3) + 0.2 * code_noise[b]
            latents = torch.empty(number, 5, 3, dtype=torch.float64)
            for c in range(5):
                prior = function_by_hand(solver.processes, c, codes, known)
                function = prior.mean + prior.stddev * function_noise[c, b]
                for t, cell in enumerate(hidden):
                    value = value_by_hand(solver.processes, c, function, cell)
                    latents[t, c] = value + 0.2 * target_noise[b, t, c]
            torch.testing.assert_close(prediction.latents[b], latents.flatten(1))
            images = solver.decoder(latents.flatten(1)).sigmoid()
            torch.testing.assert_close(prediction.images[b], images)


@pytest.mark.parametrize(
    ("decoded", "functions"), [("targets", "all"), ("all", "all"), ("all", "known")]
)
def test_loss_is_that_by_hand(decoded, functions, batch):
    """With the normalisation of evaluation, so that panels do not depend on one another."""
    solver = build(
        masks_per_problem=2, max_missing=3, decoded_panels=decoded, functions_from=functions
    ).eval()
    problems = batch(3)
    loss = solver.loss(problems, torch.Generator().manual_seed(6))
    generator = torch.Generator().manual_seed(6)
    means = torch.stack([solver.encoder(p).view(9, 5, 3) for p in problems.panels])
    codes = means + 0.2 * noise(generator, 3, 9, 5, 3)
    masks = draw_masks(2, 3, generator)
    assert masks.sum() > 2
    function_noise = noise(generator, 5, 2, 3, 6)
    error, target, divergence, decoded_targets, decoded_all = 0, 0, 0, [], []
    for b in range(3):
        images = solver.decoder(codes[b].flatten(1)).sigmoid()
        errors = (images - problems.panels[b]).square().flatten(1).sum(1)
        decoded_all += list(errors)
        for m, mask in enumerate(masks):
            known = (~mask).nonzero()[:, 0].tolist()
            for c in range(5):
                prior = function_by_hand(solver.processes, c, codes[b], known)
                cells = range(9) if functions == "all" else known
                informed = function_by_hand(solver.processes, c, codes[b], cells)
                divergence = divergence + kl_divergence(informed, prior).sum()
                function = informed.mean + informed.stddev * function_noise[c, m, b]
                for cell in mask.nonzero()[:, 0].tolist():
                    value = value_by_hand(solver.processes, c, function, cell)
                    own = Normal(means[b, cell, c], 0.2)
                    target = target + kl_divergence(own, Normal(value, 0.2)).sum()
            decoded_targets += list(errors[mask])
    chosen = decoded_targets if decoded == "targets" else decoded_all
    error = masks.sum() / 2 * sum(chosen) / len(chosen)
    samples = codes.flatten(0, 1)[torch.randperm(27, generator=generator)[:3]]
    correlation = total_correlation(samples, means.flatten(0, 1), 0.2)
    wanted = {
        "reconstruction": error / (2 * 0.1**2), "target": target / 6, "function": divergence / 6,
        "total_correlation": correlation,
    }  # fmt: skip
    for name, value in wanted.items():
        torch.testing.assert_close(loss.terms[name], value.detach(), msg=name)
    weights = {"reconstruction": 2, "target": 3, "function": 5, "total_correlation": 7}
    total = sum(weights[name] * value for name, value in wanted.items())
    torch.testing.assert_close(loss.total, total)
    parameters = [*solver.parameters()]
    found, right = (torch.autograd.grad(value, parameters) for value in (loss.total, total))
    for ours, theirs in zip(found, right, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)


def test_predicted_panels_are_drawn_and_encoded_again_to_be_compared(batch):
    solver, panels = build(), batch(2).panels
    candidates = batch(6, seed=9).panels[:, :2].reshape(2, 3, 2, 1, SIZE, SIZE)
    prediction = predict(solver, panels, missing_of([[2, 6], [2, 6]]))
    with torch.no_grad():
        latent, pixel = (solver.score(prediction, candidates, s) for s in ("latent", "pixel"))
        for b in range(2):
            drawn = solver.encoder(prediction.images[b])
            for n in range(3):
                distance = (solver.encoder(candidates[b, n]) - drawn).square().sum()
                torch.testing.assert_close(latent[b, n], -distance)
                difference = (candidates[b, n] - prediction.images[b]).square().sum()
                torch.testing.assert_close(pixel[b, n], -difference)
    with pytest.raises(UnsupportedProtocol, match="sound"):
        solver.score(prediction, candidates, "sound")


def test_losses_and_predictions_are_in_full_precision_under_autocast(batch):
    torch.manual_seed(0)
    solver, problems = Clap(tiny(), SIZE), batch(4, dtype=torch.float32)
    exact = solver.loss(problems, torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        loss = solver.loss(problems, torch.Generator().manual_seed(0))
        prediction = predict(solver, problems.panels, missing_of([[8]] * 4))
    assert loss.total.dtype == torch.float32
    assert {value.dtype for value in loss.terms.values()} == {torch.float32}
    torch.testing.assert_close(loss.total, exact.total, rtol=1e-2, atol=0)
    assert prediction.latents.dtype == prediction.images.dtype == torch.float32


@pytest.mark.parametrize(
    ("configuration", "number"),
    [("center", 1_909_329), ("out_in_center", 2_083_969), ("grid_3x3", 2_782_529)],
)
def test_paper_size_has_the_expected_number_of_parameters(configuration, number):
    solver = Clap(named.paper(configuration), 64)
    assert sum(p.numel() for p in solver.parameters()) == number


def test_short_settings_weigh_the_divergence_of_targets_less():
    for name in ("lite", "demo", "smoke"):
        config = getattr(named, name)("out_in_center")
        weights = config.beta_target, config.beta_total_correlation
        assert weights == pytest.approx((0.6, 50.0)), name


def test_paper_settings_are_those_of_the_table():
    fields = (
        "num_concepts", "beta_target", "beta_function", "beta_total_correlation", "sigma_z",
    )  # fmt: skip
    columns = {
        "center": (5, 100, 100, 100, 0.1),
        "left_right": (10, 50, 50, 50, 0.1),
        "up_down": (10, 50, 50, 50, 0.1),
        "out_in_center": (6, 30, 60, 50, 0.4),
        "out_in_grid": (8, 30, 30, 30, 0.1),
        "grid_2x2": (8, 30, 30, 30, 0.3),
        "grid_3x3": (10, 80, 80, 80, 0.3),
    }
    for configuration in CONFIGURATIONS:
        config = named.paper(configuration)
        row = tuple(getattr(config, field) for field in fields)
        assert row == columns[configuration.removesuffix("_uni")]
        assert (config.learning_rate, config.batch_size, config.concept_size) == (5e-4, 256, 8)


@pytest.mark.parametrize("name", SIZES)
def test_named_settings_train_and_predict_at_their_image_size(name, batch):
    config = getattr(named, name)("out_in_grid")
    assert named.ClapConfig(
        **{k: tuple(v) if isinstance(v, list) else v for k, v in config_to_json(config).items()}
    ) == config  # fmt: skip
    size = SIZES[name]
    torch.manual_seed(0)
    solver = Clap(config, size)
    problems = batch(2, size=size, dtype=torch.float32)
    loss = solver.loss(problems, torch.Generator().manual_seed(0))
    assert torch.isfinite(loss.total)
    prediction = predict(solver, problems.panels, missing_of([[8]] * 2))
    assert prediction.images.shape == (2, 1, 1, size, size)
    assert prediction.latents.shape == (2, 1, config.num_concepts * config.concept_size)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"masks_per_problem": 0}, "masks_per_problem must lie in 1 to 9, not 0"),
        ({"max_missing": 9}, "max_missing must lie in 1 to 8, not 9"),
        ({"decoder_channels": (7, 5, 3)}, "2 convolutions need 2 numbers of channels, not 3"),
        ({"encoder_strides": (2, 5), "encoder_kernels": (4, 5)}, "image size 12 is no multiple"),
    ],
)
def test_impossible_settings_are_refused_with_one_line(changes, message):
    with pytest.raises(UserError, match=message):
        Clap(tiny(**changes), SIZE)


def test_twenty_steps_give_the_committed_numbers(batches):
    solver, generator = build(), torch.Generator().manual_seed(11)
    stream = batches(dtype=torch.float64)
    totals = train(solver, stream, 20, generator)
    prediction = predict(solver, stream.draw("all", 2).panels, missing_of([[2, 8], [2, 8]]))
    numbers = {
        "totals": totals,
        "latents": prediction.latents.flatten().tolist(),
        "images": prediction.images[:, :, 0, ::5, ::5].flatten().tolist(),
    }
    if os.environ.get("RAISE_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps({"revision": Clap.revision, **numbers}, indent=1) + "\n")
    golden = json.loads(GOLDEN.read_text())
    assert golden.pop("revision") == Clap.revision
    assert golden.keys() == numbers.keys()
    for part, values in numbers.items():
        assert values == pytest.approx(golden[part], rel=1e-6), part


class FewProblems:
    """The same problems in every batch."""

    def __init__(self, number):
        made = [make_problem("raven", "center", 1, i) for i in range(number)]
        panels = np.concatenate([p.panels[[*range(8), 8 + p.target]] for p in made])
        small = resize_panels(panels, 20, "area").reshape(number, 9, 1, 20, 20)
        self.panels = torch.from_numpy(small).float() / 255

    def draw(self, pool, size, *, partial=False):
        number = len(self.panels)
        labels = torch.full((number, 3), -1)
        return Batch(index=torch.arange(number), panels=self.panels, rule_labels=labels)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sixteen_problems_are_learnt():
    """Predicted panels come fourfold nearer to the right ones than any constant image."""
    torch.manual_seed(0)
    problems = FewProblems(16)
    config = dataclasses.replace(
        named.demo("center"), beta_total_correlation=1.0, max_missing=1, learning_rate=2e-3,
    )  # fmt: skip
    solver = Clap(config, 20)
    train(solver, problems, 1500, torch.Generator().manual_seed(0))
    prediction = predict(solver, problems.panels, missing_of([[8]] * 16))
    wanted = problems.panels[:, 8:]
    error = (prediction.images - wanted).square().mean()
    constant = (wanted.mean(0, keepdim=True) - wanted).square().mean()
    assert error < 0.25 * constant
