"""The compared attentive neural process: forward pass and loss by hand, settings, golden numbers.

What every solver must do is in ``test_solver_contract.py``.  A change of the golden numbers is
a change of every trial: raise ``Anp.revision``, then write the file anew with
``RAISE_WRITE_GOLDEN=1 pytest tests/raise_model/models/test_anp.py``.
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
from raise_model.data.loader import resize_panels
from raise_model.errors import UserError
from raise_model.models import anp as named
from raise_model.models.anp import Anp
from raise_model.models.common.masking import draw_masks
from raise_model.models.solver import UnsupportedProtocol
from raise_model.presets import LABEL_RATIOS
from raise_model.problem import Batch

GOLDEN = Path(__file__).parent.parent / "golden" / "anp.json"
SIZE = 5


def tiny(**changes):
    small = dataclasses.replace(
        named.smoke(), decoder_layers=2, test_latent="mean", learning_rate=1e-3
    )
    return dataclasses.replace(small, **changes)


def build(seed=0, **changes):
    torch.manual_seed(seed)
    return Anp(tiny(**changes), SIZE).double()


def train(solver, batches, steps, generator):
    """Total loss of every step."""
    solver.train()
    (optimizer,) = solver.optimizers().values()
    totals = []
    while len(totals) < steps:
        rates = solver.set_step(len(totals), steps)
        (loss,) = solver.training_steps(batches, generator)
        for group in optimizer.param_groups:
            group["lr"] = rates[loss.optimizer]
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


def cell(position):
    return torch.tensor([position // 3 - 1.0, position % 3 - 1.0], dtype=torch.float64)


def points_of(panels, positions):
    """(points, 2 + pixels) of one problem's panels."""
    rows = [torch.cat([cell(p), panels[p].flatten() - 1]) for p in positions]
    return torch.stack(rows)


def encoded(encoder, points):
    tokens = encoder.points(points)
    for block in encoder.blocks:
        tokens = block(tokens[None], torch.Generator())[0]
    return tokens


def latent_of(solver, points):
    """Mean and standard deviation of the global latent."""
    mean, spread = solver.latent_head(encoded(solver.latent_points, points).mean(0)).chunk(2)
    return mean, 0.1 + 0.9 / (1 + (-spread).exp())


def panel_of(solver, points, position, latent):
    """Mean and standard deviation of one panel's pixels; the cross-attention head by head."""
    values = encoded(solver.deterministic, points)
    keys = torch.stack([solver.cell_features(point[:2]) for point in points])
    query = solver.cell_features(cell(position))[None]
    attention, heads = solver.cross_attention, solver.config.heads
    weights, biases = attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3)
    projected = [
        F.linear(x, w, b).unflatten(1, (heads, -1)).transpose(0, 1)
        for x, w, b in zip((query, keys, values), weights, biases, strict=True)
    ]
    seen = F.scaled_dot_product_attention(*projected).transpose(0, 1).flatten()
    output = solver.decoder(torch.cat([cell(position), attention.out_proj(seen), latent]))
    mean, spread = output.chunk(2)
    return mean, 0.1 + 0.9 * (1 + spread.exp()).log()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_predictions_equal_those_by_hand(number, batch):
    solver, panels = build(), batch(3, size=SIZE).panels
    places = torch.rand(3, 9, generator=torch.Generator().manual_seed(number)).argsort(1)
    places = places[:, :number].sort(1).values
    prediction = predict(solver, panels, missing_of(places.tolist()))
    assert prediction.latents is None
    with torch.no_grad():
        for b, hidden in enumerate(places.tolist()):
            points = points_of(panels[b], [p for p in range(9) if p not in hidden])
            latent, _ = latent_of(solver, points)
            for t, p in enumerate(hidden):
                mean, _ = panel_of(solver, points, p, latent)
                wanted = (mean + 1).clamp(0, 1).view(1, SIZE, SIZE)
                torch.testing.assert_close(prediction.images[b, t], wanted)


def test_latents_are_drawn_from_the_prior_with_the_generator(batch):
    solver, panels = build(test_latent="sample"), batch(2, size=SIZE).panels
    missing = missing_of([[8], [8]])
    first, again, other = (predict(solver, panels, missing, s).images for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    noise = torch.randn(2, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        for b in range(2):
            points = points_of(panels[b], range(8))
            mean, spread = latent_of(solver, points)
            wanted, _ = panel_of(solver, points, 8, mean + spread * noise[b])
            wanted = (wanted + 1).clamp(0, 1).view(1, SIZE, SIZE)
            torch.testing.assert_close(first[b, 0], wanted)


def test_loss_is_that_by_hand(batch):
    solver, problems = build(), batch(3, size=SIZE)
    loss = solver.loss(problems, torch.Generator().manual_seed(4))
    generator = torch.Generator().manual_seed(4)
    (mask,) = draw_masks(1, solver.config.max_missing, generator)
    noise = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    known, likelihood, divergence = (~mask).nonzero()[:, 0].tolist(), [], []
    for b in range(3):
        points = points_of(problems.panels[b], known)
        (m0, s0), (m1, s1) = (
            latent_of(solver, x) for x in (points, points_of(problems.panels[b], range(9)))
        )
        divergence.append(kl_divergence(Normal(m1, s1), Normal(m0, s0)).sum())
        closed = (s0 / s1).log() + (s1**2 + (m1 - m0) ** 2) / (2 * s0**2) - 0.5
        torch.testing.assert_close(divergence[b], closed.sum())
        for p in range(9):
            mean, spread = panel_of(solver, points, p, m1 + s1 * noise[b])
            error = (problems.panels[b, p].flatten() - 1 - mean) / spread
            density = -(error**2) / 2 - spread.log() - math.log(2 * math.pi) / 2
            likelihood.append(-density.sum())
    wanted = {"likelihood": sum(likelihood) / 27, "divergence": sum(divergence) / 27}
    for name, value in wanted.items():
        torch.testing.assert_close(loss.terms[name], value.detach())
    total = wanted["likelihood"] + wanted["divergence"]
    torch.testing.assert_close(loss.total, total)
    grads = torch.autograd.grad(loss.total, [*solver.parameters()])
    for ours, theirs in zip(grads, torch.autograd.grad(total, [*solver.parameters()]), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)


def test_order_of_the_context_is_of_no_account(batch):
    solver, panels = build(), batch(1, size=SIZE).panels
    points = points_of(panels[0], range(8))
    with torch.no_grad():
        latent, _ = latent_of(solver, points)
        mean, _ = panel_of(solver, points, 8, latent)
        turned_latent, _ = latent_of(solver, points.flip(0))
        turned, _ = panel_of(solver, points.flip(0), 8, latent)
    torch.testing.assert_close(latent, turned_latent)
    torch.testing.assert_close(mean, turned)


def test_scores_are_negative_squared_pixel_distances(batch):
    solver, panels = build(), batch(2, size=SIZE).panels
    candidates = batch(6, size=SIZE, seed=9).panels[:, :2].reshape(2, 3, 2, 1, SIZE, SIZE)
    prediction = predict(solver, panels, missing_of([[2, 6], [2, 6]]))
    scores = solver.score(prediction, candidates, "pixel")
    for b in range(2):
        for n in range(3):
            difference = ((candidates[b, n] - prediction.images[b]) ** 2).sum()
            torch.testing.assert_close(scores[b, n], -difference)
    with pytest.raises(UnsupportedProtocol, match="latent"):
        solver.score(prediction, candidates, "latent")


def test_paper_has_seven_learning_rates():
    rates = {name: named.paper(name).learning_rate for name in LABEL_RATIOS}
    assert rates == {
        "center": 5e-5, "left_right": 1e-5, "up_down": 1e-5, "out_in_center": 5e-6,
        "out_in_grid": 5e-6, "grid_2x2": 3e-5, "grid_3x3": 3e-5,
        "out_in_grid_uni": 5e-6, "grid_2x2_uni": 3e-5, "grid_3x3_uni": 3e-5,
    }  # fmt: skip
    assert {(c.latent_size, c.batch_size) for c in map(named.paper, rates)} == {(1024, 512)}
    with pytest.raises(UserError, match="no learning rate for configuration 'ring'"):
        named.paper("ring")


def test_paper_size_has_the_expected_number_of_parameters():
    solver = Anp(named.paper("center"), 64)
    parts = {
        name: sum(p.numel() for p in part.parameters()) for name, part in solver.named_children()
    }
    square = 128 * 129
    encoder = 4098 * 128 + 128 + 2 * square + 2 * (6 * square + 4 * 128)
    assert parts == {
        "deterministic": encoder, "latent_points": encoder, "cross_attention": 4 * square,
        "cell_features": 3 * 128 + square, "latent_head": 129 * 576 + 577 * 2048,
        "decoder": (2 + 128 + 1024 + 1) * 128 + 3 * square + 129 * 2 * 4096,
    }  # fmt: skip
    assert sum(p.numel() for p in solver.parameters()) == 4_106_816


@pytest.mark.parametrize(("config", "size"), [(named.lite, 32), (named.demo, 20)])
def test_named_settings_train_and_predict_at_their_image_size(config, size, batch):
    torch.manual_seed(0)
    solver = Anp(config(), size)
    problems = batch(3, size=size, dtype=torch.float32)
    loss = solver.loss(problems, torch.Generator().manual_seed(0))
    assert torch.isfinite(loss.total)
    prediction = predict(solver, problems.panels, missing_of([[0, 8]] * 3))
    assert prediction.images.shape == (3, 2, 1, size, size)
    assert 0 <= prediction.images.min() < prediction.images.max() <= 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 5}, "5 heads do not divide 12 features"),
        ({"encoder_layers": 0}, "encoder_layers must be at least 1, not 0"),
        ({"max_missing": 0}, "max_missing must lie in 1 to 8, not 0"),
    ],
)
def test_impossible_settings_are_refused_with_one_line(changes, message):
    with pytest.raises(UserError, match=message):
        tiny(**changes)


def test_twenty_steps_give_the_committed_numbers(batches):
    solver, generator = build(test_latent="sample"), torch.Generator().manual_seed(11)
    stream = batches(size=SIZE, dtype=torch.float64)
    totals = train(solver, stream, 20, generator)
    panels = stream.draw("all", 2).panels
    prediction = solver.eval().predict(panels, missing_of([[2, 8], [2, 8]]), generator)
    numbers = {"totals": totals, "images": prediction.images.flatten().tolist()}
    if os.environ.get("RAISE_WRITE_GOLDEN"):
        golden = {"revision": Anp.revision, **numbers}
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
    golden = json.loads(GOLDEN.read_text())
    assert golden.pop("revision") == Anp.revision
    assert golden.keys() == numbers.keys()
    for part, values in numbers.items():
        assert values == pytest.approx(golden[part], rel=1e-6), part


class FewProblems:
    """The same problems in every batch."""

    def __init__(self, number):
        panels = np.concatenate(
            [make_problem("raven", "center", 1, i).panels[:9] for i in range(number)]
        )
        small = resize_panels(panels, 20, "area").reshape(number, 9, 1, 20, 20)
        self.panels = torch.from_numpy(small).float() / 255

    def draw(self, pool, size, *, partial=False):
        number = len(self.panels)
        labels = torch.full((number, 3), -1)
        return Batch(index=torch.arange(number), panels=self.panels, rule_labels=labels)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sixteen_problems_are_learnt():
    """The predicted panels come nearer to the right ones than any constant image, fourfold."""
    torch.manual_seed(0)
    problems = FewProblems(16)
    solver = Anp(named.demo(), 20)
    train(solver, problems, 900, torch.Generator().manual_seed(0))
    prediction = predict(solver, problems.panels, missing_of([[8]] * 16))
    wanted = problems.panels[:, 8:]
    error = (prediction.images - wanted).square().mean()
    constant = (wanted.mean(0, keepdim=True) - wanted).square().mean()
    assert error < 0.25 * constant
