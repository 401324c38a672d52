"""LGPP: its prediction and loss by hand, hidden positions, settings, golden numbers.

What every solver must do is in ``test_solver_contract.py``, the process itself in
``test_gaussian_process.py``.  A change of the golden numbers is a change of every trial: raise
``Lgpp.revision``, then write the file anew with
``RAISE_WRITE_GOLDEN=1 pytest tests/raise_model/models/test_lgpp.py``.
"""

import dataclasses
import json
import math
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
from raise_model.models.lgpp import config as named
from raise_model.models.lgpp.model import Lgpp, gaussian
from raise_model.models.solver import UnsupportedProtocol, config_to_json
from raise_model.problem import Batch

GOLDEN = Path(__file__).parent.parent / "golden" / "lgpp.json"
SIZE = 12
SIZES = {"paper": 64, "lite": 32, "demo": 20, "smoke": 20}


def tiny(**changes):
    small = dataclasses.replace(
        named.smoke("center"),
        num_concepts=5, encoder_channels=(3, 7), encoder_kernels=(4, 3), encoder_strides=(2, 3),
        encoder_paddings=(1, 0), encoder_hidden=11, axis_channels=(2, 3), decoder_hidden=13,
        decoder_channels=(7, 5), learning_rate=1e-3,
    )  # fmt: skip
    return dataclasses.replace(small, **changes)


def build(seed=0, **changes):
    torch.manual_seed(seed)
    return Lgpp(tiny(**changes), SIZE).double()


def step(solver, optimizer, loss, number, steps):
    (rate,) = solver.set_step(number, steps).values()
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    loss.total.backward()
    optimizer.step()


def train(solver, batches, steps, generator):
    """Total loss of every step."""
    solver.train()
    (optimizer,) = solver.optimizers().values()
    totals = []
    for number in range(steps):
        (loss,) = solver.training_steps(batches, generator)
        step(solver, optimizer, loss, number, steps)
        totals.append(loss.total.item())
    return totals


def missing_of(rows):
    return torch.zeros(len(rows), 9, dtype=torch.bool).scatter(1, torch.tensor(rows), True)


def predict(solver, panels, missing, seed=0):
    with torch.no_grad():
        return solver.eval().predict(panels, missing, torch.Generator().manual_seed(seed))


def draws(solver, batch, known, seed):
    """The random numbers of a prediction: of codes, of axes, of the kernel's inputs."""
    generator, config = torch.Generator().manual_seed(seed), solver.config
    concepts = config.num_concepts

    def empty(*shape):
        return torch.empty(shape, dtype=torch.float64)

    codes = empty(batch * known, concepts).normal_(generator=generator)
    axes = empty(2, concepts, batch, 3, config.axis_latent_size).normal_(generator=generator)
    kernel = empty(concepts, 9 * batch, config.kernel_inputs).uniform_(-1, 1, generator=generator)
    return (
        codes.view(batch, known, concepts), axes, kernel.view(concepts, batch, 9, -1), generator,
    )  # fmt: skip


def mlp(grouped, group, values):
    for layer, (weight, bias) in enumerate(zip(grouped.weights, grouped.biases, strict=True)):
        values = values.clamp_min(0) if layer else values
        values = values @ weight[group] + bias[group][0]
    return values


def by_hand(solver, panels, hidden, noise_codes, noise_axes, noise_kernel):
    """Of one problem: distributions of codes and axes, sampled codes, posterior mean, variance."""
    config, network = solver.config, solver.axes
    known = [p for p in range(9) if p not in hidden]
    codes = gaussian(solver.encoder(panels[known]))
    sampled = codes.mean + codes.stddev * noise_codes
    features = torch.zeros(9, config.axis_features, dtype=torch.float64)
    features[known] = network.panels(panels[known])
    size, concepts = config.axis_latent_size, config.num_concepts
    axes = torch.stack([f(features.flatten()).view(3, concepts, 2 * size) for f in network.latents])
    mean, log_std = axes[..., :size], axes[..., size:]
    latents = mean.transpose(1, 2) + log_std.exp().transpose(1, 2) * noise_axes
    moments = []
    for c in range(concepts):
        rows = mlp(network.representations, c, latents[0, c])
        columns = mlp(network.representations, concepts + c, latents[1, c])
        cells = torch.stack([torch.cat([rows[p // 3], columns[p % 3]]) for p in range(9)])
        inputs = mlp(network.kernel_inputs, c, cells).tanh() * (1 + 0.05 * noise_kernel[c])
        kernel = torch.exp(-(torch.cdist(inputs, inputs) ** 2) / 2)
        matrix = kernel[known][:, known] + config.jitter * torch.eye(len(known))
        weights = torch.linalg.solve(matrix, kernel[known][:, hidden]).T
        variance = 1 - (weights * kernel[hidden][:, known]).sum(1)
        moments.append(torch.stack([weights @ sampled[:, c], variance.clamp_min(1e-5)]))
    predicted, variance = torch.stack(moments, -1)
    return codes, Normal(mean, log_std.exp()), sampled, predicted, variance


@pytest.mark.parametrize("number", [1, 2, 3])
def test_predictions_equal_those_by_hand(number, batch):
    solver, panels = build(), batch(3).panels
    places = torch.rand(3, 9, generator=torch.Generator().manual_seed(number)).argsort(1)
    places = places[:, :number].sort(1).values.tolist()
    prediction = predict(solver, panels, missing_of(places), seed=4)
    codes, axes, kernel, _ = draws(solver, 3, 9 - number, seed=4)
    with torch.no_grad():
        for b, hidden in enumerate(places):
            noise = codes[b], axes[:, :, b], kernel[:, b]
            *_, wanted, _ = by_hand(solver, panels[b], hidden, *noise)
            torch.testing.assert_close(prediction.latents[b], wanted)
            torch.testing.assert_close(prediction.images[b], solver.decoder(wanted).sigmoid())


def test_loss_is_that_by_hand(batch):
    """With the normalisation of evaluation, so that panels do not depend on one another."""
    solver, problems = build(target_positions="bottom_right", beta=3.0).eval(), batch(2)
    loss = solver.loss(problems, torch.Generator().manual_seed(4))
    codes, axes, kernel, generator = draws(solver, 2, 8, seed=4)
    target_noise = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    standard = Normal(torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64))
    error = concepts = latents = 0
    for b in range(2):
        noise = codes[b], axes[:, :, b], kernel[:, b]
        own, axis, sampled, mean, variance = by_hand(solver, problems.panels[b], [8], *noise)
        target = mean + variance * target_noise[b]  # the variance, as in the authors' code
        images = solver.decoder(torch.cat([sampled, target])).sigmoid()
        error = error + (images - problems.panels[b]).square().sum()
        concepts = concepts + kl_divergence(own, standard).sum()
        concepts = concepts + kl_divergence(Normal(mean, variance.sqrt()), standard).sum()
        latents = latents + kl_divergence(axis, standard).sum()
    wanted = {
        "reconstruction": error / 18 / (2 * math.exp(-2) ** 2),
        "concepts": concepts / 18,
        "axes": latents / 2,
    }
    for name, value in wanted.items():
        torch.testing.assert_close(loss.terms[name], value.detach())
    total = 10.24 * wanted["reconstruction"] + 3 * (wanted["concepts"] + wanted["axes"])
    torch.testing.assert_close(loss.total, total)
    parameters = [*solver.parameters()]
    found, right = (torch.autograd.grad(value, parameters) for value in (loss.total, total))
    for ours, theirs in zip(found, right, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)


def test_scores_are_negative_squared_distances_over_all_missing_panels(batch):
    solver, panels = build(), batch(2).panels
    candidates = batch(6, seed=9).panels[:, :2].reshape(2, 3, 2, 1, SIZE, SIZE)
    prediction = predict(solver, panels, missing_of([[2, 6], [2, 6]]))
    with torch.no_grad():
        latent, pixel = (solver.score(prediction, candidates, s) for s in ("latent", "pixel"))
        for b in range(2):
            for n in range(3):
                codes = solver.encoder(candidates[b, n])[:, :5]
                distance = (codes - prediction.latents[b]).square().sum()
                torch.testing.assert_close(latent[b, n], -distance)
                difference = (candidates[b, n] - prediction.images[b]).square().sum()
                torch.testing.assert_close(pixel[b, n], -difference)
    with pytest.raises(UnsupportedProtocol, match="sound"):
        solver.score(prediction, candidates, "sound")


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"target_positions": "bottom_right"}, {(8,)}),
        ({"max_missing": 1}, {(p,) for p in range(9)}),
        (
            {"max_missing": 2},
            {(p,) for p in range(9)} | {(p, q) for p in range(9) for q in range(p + 1, 9)},
        ),
    ],
)
def test_training_hides_the_declared_panels(changes, wanted):
    solver, generator = build(**changes), torch.Generator().manual_seed(0)
    drawn = {
        tuple(solver._draw_missing(generator)[0].nonzero()[:, 0].tolist()) for _ in range(1000)
    }
    assert drawn == wanted


def test_gradients_are_scaled_down_to_the_declared_norm(batch):
    solver = build(gradient_norm=0.25)
    (optimizer,) = solver.optimizers().values()
    step(solver, optimizer, solver.loss(batch(3), torch.Generator().manual_seed(0)), 0, 10)
    norm = torch.stack([p.grad.norm() for p in solver.parameters()]).norm()
    assert float(norm) == pytest.approx(0.25, rel=1e-4)


def test_wild_encoders_give_finite_losses(batch):
    """Standard deviations are bounded, so that their divergence is."""
    solver = build()
    with torch.no_grad():
        solver.encoder.codes.weight.mul_(1e6)
    loss = solver.loss(batch(3, dtype=torch.float64), torch.Generator().manual_seed(0))
    assert torch.isfinite(loss.total)
    loss.total.backward()
    assert all(torch.isfinite(p.grad).all() for p in solver.parameters())


def test_losses_and_predictions_are_in_full_precision_under_autocast(batch):
    torch.manual_seed(0)
    solver, problems = Lgpp(tiny(), SIZE), batch(4, dtype=torch.float32)
    exact = solver.loss(problems, torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        loss = solver.loss(problems, torch.Generator().manual_seed(0))
        prediction = predict(solver, problems.panels, missing_of([[8]] * 4))
    assert loss.total.dtype == torch.float32
    assert {value.dtype for value in loss.terms.values()} == {torch.float32}
    torch.testing.assert_close(loss.total, exact.total, rtol=1e-2, atol=0)
    assert prediction.latents.dtype == prediction.images.dtype == torch.float32


@pytest.mark.parametrize(
    ("configuration", "number"), [("center", 1_656_779), ("grid_3x3", 1_997_589)]
)
def test_paper_size_has_the_expected_number_of_parameters(configuration, number):
    config = named.paper(configuration)
    assert config.num_concepts == (5 if configuration == "center" else 10)
    assert sum(p.numel() for p in Lgpp(config, 64).parameters()) == number


@pytest.mark.parametrize("name", SIZES)
def test_named_settings_train_and_predict_at_their_image_size(name, batch):
    config = getattr(named, name)("out_in_grid")
    assert named.LgppConfig(
        **{k: tuple(v) if isinstance(v, list) else v for k, v in config_to_json(config).items()}
    ) == config  # fmt: skip
    size = SIZES[name]
    torch.manual_seed(0)
    solver = Lgpp(config, size)
    problems = batch(2, size=size, dtype=torch.float32)
    loss = solver.loss(problems, torch.Generator().manual_seed(0))
    assert torch.isfinite(loss.total)
    prediction = predict(solver, problems.panels, missing_of([[8]] * 2))
    assert prediction.images.shape == (2, 1, 1, size, size)
    assert prediction.latents.shape == (2, 1, config.num_concepts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_missing": 9}, "max_missing must lie in 1 to 8, not 9"),
        ({"jitter": 0.0}, "jitter must be above 0, not 0.0"),
        ({"axis_channels": (3,)}, "2 convolutions need 2 numbers of channels, not 1"),
        ({"encoder_strides": (2, 5), "encoder_kernels": (4, 5)}, "image size 12 is no multiple"),
    ],
)
def test_impossible_settings_are_refused_with_one_line(changes, message):
    with pytest.raises(UserError, match=message):
        Lgpp(tiny(**changes), SIZE)


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
        GOLDEN.write_text(json.dumps({"revision": Lgpp.revision, **numbers}, indent=1) + "\n")
    golden = json.loads(GOLDEN.read_text())
    assert golden.pop("revision") == Lgpp.revision
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


def relative_error(images, panels):
    """Squared error as a share of that of the best constant image."""
    constant = panels.mean(0, keepdim=True)
    return float(F.mse_loss(images, panels) / (constant - panels).square().mean())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sixteen_problems_are_reconstructed():
    """Panels drawn from their own codes come fourfold nearer than any constant image."""
    torch.manual_seed(0)
    problems = FewProblems(16)
    solver = Lgpp(named.demo("center"), 20)
    train(solver, problems, 800, torch.Generator().manual_seed(0))
    panels = problems.panels.flatten(0, 1)
    with torch.no_grad():
        images = solver.eval()._decode(solver._encode(panels).mean)
    assert relative_error(images, panels) < 0.25


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_two_thousand_steps_stay_finite(configuration, batches):
    """At the paper's rate and weights, with as many concepts as each configuration has."""
    concepts = named.paper(configuration).num_concepts
    torch.manual_seed(0)
    solver = Lgpp(tiny(num_concepts=concepts, learning_rate_warmup=0.0, learning_rate=5e-4), SIZE)
    totals = train(solver, batches(), 2000, torch.Generator().manual_seed(0))
    assert np.isfinite(totals).all()
    assert all(torch.isfinite(p).all() for p in solver.parameters())
