"""The compared Transformer: its forward pass and loss by hand, masks, settings, golden numbers.

What every solver must do is in ``test_solver_contract.py``.  A change of the golden numbers is
a change of every trial: raise ``Transformer.revision``, then write the file anew with
``RAISE_WRITE_GOLDEN=1 pytest tests/raise_model/models/test_transformer.py``.
"""

import dataclasses
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from raise_model.data.generate import make_problem
from raise_model.data.loader import resize_panels
from raise_model.errors import UserError
from raise_model.models import transformer as named
from raise_model.models.common.attention import AttentionBlock
from raise_model.models.common.masking import draw_masks
from raise_model.models.common.schedule import warm_cosine
from raise_model.models.solver import UnsupportedProtocol
from raise_model.models.transformer import Transformer
from raise_model.problem import Batch

GOLDEN = Path(__file__).parent.parent / "golden" / "transformer.json"
SIZE = 12
SETTINGS = {
    "paper": (named.paper, 64), "lite": (partial(named.lite, "left_right"), 32),
    "demo": (named.demo, 20), "smoke": (named.smoke, 20),
}  # fmt: skip


def tiny(**changes):
    small = dataclasses.replace(
        named.smoke(),
        encoder_channels=(3, 7), encoder_kernels=(4, 3), encoder_strides=(2, 3),
        encoder_paddings=(1, 0), encoder_hidden=11, decoder_hidden=13, decoder_channels=(7, 5),
        representation_size=6, heads=3, blocks=2, feed_forward=10, dropout=0.0, batch_size=4,
        masks_per_problem=2, max_missing=2, learning_rate=1e-3,
    )  # fmt: skip
    return dataclasses.replace(small, **changes)


def build(seed=0, **changes):
    torch.manual_seed(seed)
    return Transformer(tiny(**changes), SIZE).double()


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


def codes_of(solver, panels):
    codes = solver.encoder(panels)
    centred = codes - codes.mean(1, keepdim=True)
    return centred / ((centred**2).mean(1, keepdim=True) + 1e-5).sqrt()


def by_hand(solver, codes, hidden):
    """Predicted codes (9, size) of one problem; attention from the packed weights."""
    tokens = codes.clone()
    tokens[list(hidden)] = solver.hidden_panel
    tokens = tokens + torch.stack(
        [solver.rows[p // 3, 0] + solver.columns[0, p % 3] for p in range(9)]
    )
    size, heads = tokens.shape[1], solver.config.heads
    for block in solver.blocks:
        weight, bias = block.attention.in_proj_weight, block.attention.in_proj_bias
        packed = F.linear(block.norms[0](tokens), weight, bias)
        q, k, v = packed.view(9, 3, heads, size // heads).permute(1, 2, 0, 3)
        seen = F.scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(9, size)
        tokens = tokens + block.attention.out_proj(seen)
        inner = block.feed_forward[0](block.norms[1](tokens)).clamp_min(0)
        tokens = tokens + block.feed_forward[2](inner)
    return solver.head(solver.norm(tokens))


def test_block_is_torchs_encoder_layer():
    torch.manual_seed(0)
    block = AttentionBlock(12, 3, 7, dropout=0.5).double().eval()
    layer = torch.nn.TransformerEncoderLayer(
        12, 3, 7, batch_first=True, norm_first=True, dtype=torch.float64
    )
    state = {name.replace("attention", "self_attn"): v for name, v in block.state_dict().items()}
    for ours, theirs in (
        ("feed_forward.0", "linear1"), ("feed_forward.2", "linear2"),
        ("norms.0", "norm1"), ("norms.1", "norm2"),
    ):  # fmt: skip
        state = {name.replace(ours, theirs): v for name, v in state.items()}
    layer.load_state_dict(state)
    tokens = torch.randn(4, 9, 12, dtype=torch.float64)
    torch.testing.assert_close(block(tokens, torch.Generator()), layer.eval()(tokens))


def test_dropout_is_drawn_from_the_generator_and_keeps_the_mean():
    block = AttentionBlock(12, 3, 7, dropout=0.25).train()
    values = torch.ones(400, 50)
    first = block._drop(values, torch.Generator().manual_seed(1))
    torch.manual_seed(5)
    again = block._drop(values, torch.Generator().manual_seed(1))
    other = block._drop(values, torch.Generator().manual_seed(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert first.mean() == pytest.approx(1.0, abs=0.02)
    assert torch.equal(block.eval()._drop(values, torch.Generator()), values)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_predictions_equal_those_by_hand(number, batch):
    solver, panels = build(), batch(3).panels
    places = torch.rand(3, 9, generator=torch.Generator().manual_seed(number)).argsort(1)
    places = places[:, :number].sort(1).values
    prediction = predict(solver, panels, missing_of(places.tolist()))
    with torch.no_grad():
        for b, hidden in enumerate(places.tolist()):
            codes = codes_of(solver, panels[b])
            wanted = by_hand(solver, codes, hidden)[hidden]
            torch.testing.assert_close(prediction.latents[b], wanted)
            images = solver.decoder(wanted).sigmoid()
            torch.testing.assert_close(prediction.images[b], images)


def test_loss_is_that_by_hand(batch):
    """With the normalisation of evaluation, so that panels do not depend on one another."""
    solver, problems = build(max_missing=3, masks_per_problem=3).eval(), batch(2)
    loss = solver.loss(problems, torch.Generator().manual_seed(4))
    masks = draw_masks(3, 3, torch.Generator().manual_seed(4))
    predicted, own, code, panels = [], {}, [], problems.panels
    for mask in masks:
        hidden = mask.nonzero()[:, 0].tolist()
        for b in range(2):
            codes = codes_of(solver, panels[b])
            guess = by_hand(solver, codes, hidden)
            for p in hidden:
                drawn = solver.decoder(guess[p : p + 1]).sigmoid()[0]
                predicted.append(((drawn - panels[b, p]) ** 2).sum() / 0.02)
                rebuilt = solver.decoder(codes[p : p + 1]).sigmoid()[0]
                own[b, p] = ((rebuilt - panels[b, p]) ** 2).sum() / 0.02
                code.append(((guess[p] - codes[p].detach()) ** 2).sum())
    wanted = [sum(x) / len(x) for x in (predicted, list(own.values()), code)]
    names = ("prediction", "reconstruction", "code")
    for name, value in zip(names, wanted, strict=True):
        torch.testing.assert_close(loss.terms[name], value.detach())
    total = wanted[0] + wanted[1] + solver.config.code_weight * wanted[2]
    torch.testing.assert_close(loss.total, total)
    grads = torch.autograd.grad(loss.total, [*solver.parameters()])
    for ours, theirs in zip(grads, torch.autograd.grad(total, [*solver.parameters()]), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)


def test_scores_are_negative_squared_distances_over_all_missing_panels(batch):
    solver, panels = build(), batch(2).panels
    candidates = batch(6, seed=9).panels[:, :2].reshape(2, 3, 2, 1, SIZE, SIZE)
    prediction = predict(solver, panels, missing_of([[2, 6], [2, 6]]))
    with torch.no_grad():
        latent, pixel = (solver.score(prediction, candidates, s) for s in ("latent", "pixel"))
        for b in range(2):
            for n in range(3):
                codes = codes_of(solver, candidates[b, n])
                distance = ((codes - prediction.latents[b]) ** 2).sum()
                torch.testing.assert_close(latent[b, n], -distance)
                difference = ((candidates[b, n] - prediction.images[b]) ** 2).sum()
                torch.testing.assert_close(pixel[b, n], -difference)
    with pytest.raises(UnsupportedProtocol, match="sound"):
        solver.score(prediction, candidates, "sound")


def test_masks_hide_one_to_three_panels_and_first_panels_differ():
    counts, hidden = np.zeros(4, int), np.zeros(9, int)
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        masks = draw_masks(9, 3, generator)
        counts += np.bincount(masks.sum(1), minlength=4)
        hidden += masks.sum(0).numpy()
    assert counts[0] == 0
    assert counts[1:] == pytest.approx(np.full(3, 900), rel=0.1)
    assert hidden == pytest.approx(np.full(9, 600), rel=0.1)
    single = draw_masks(9, 1, generator)
    assert sorted(single.nonzero()[:, 1].tolist()) == list(range(9))


def test_rate_is_constant_in_the_paper_and_warms_up_and_falls_in_lite():
    rates = [warm_cosine(step, 50, warmup=0.0, end=1.0) for step in range(50)]
    assert rates == pytest.approx([1.0] * 50)
    rising = [warm_cosine(step, 100, warmup=0.1, end=0.2) for step in (0, 4, 9, 50, 100)]
    assert rising == pytest.approx([0.1, 0.498, 0.984, 0.6, 0.2], abs=2e-3)


def test_paper_size_has_the_expected_number_of_parameters():
    solver = Transformer(named.paper(), 64)
    parts = {
        name: sum(p.numel() for p in part.parameters()) for name, part in solver.named_children()
    }
    assert parts == {
        # RAISE's, with 256 codes instead of 64
        "encoder": 6_985_088 + 192 * 513, "decoder": 722_945 + 192 * 256,
        "blocks": 4 * (4 * 256 * 257 + 1024 * 257 + 256 * 1025 + 4 * 256), "norm": 2 * 256,
        "head": 256 * 257,
    }  # fmt: skip
    assert sum(p.numel() for p in solver.parameters()) == 11_082_817


def test_grid_is_the_papers():
    grid = named.paper_grid()
    assert len({json.dumps(dataclasses.asdict(config)) for config in grid}) == 27
    assert named.paper() in grid
    assert {config.learning_rate for config in grid} == {5e-4, 1e-4, 5e-5}


@pytest.mark.parametrize("name", ["lite", "demo", "smoke"])
def test_named_settings_train_and_predict_at_their_image_size(name, batch):
    config, size = SETTINGS[name]
    torch.manual_seed(0)
    solver = Transformer(config(), size)
    problems = batch(3, size=size, dtype=torch.float32)
    loss = solver.loss(problems, torch.Generator().manual_seed(0))
    assert torch.isfinite(loss.total)
    prediction = predict(solver, problems.panels, missing_of([[8]] * 3))
    assert prediction.images.shape == (3, 1, 1, size, size)
    assert prediction.latents.shape == (3, 1, config().representation_size)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 4}, "4 heads do not divide a representation of 6"),
        ({"masks_per_problem": 0}, "masks_per_problem must lie in 1 to 9, not 0"),
        ({"max_missing": 9}, "max_missing must lie in 1 to 8, not 9"),
        ({"encoder_channels": (3,)}, "2 convolutions need 2 numbers of channels, not 1"),
        ({"decoder_channels": (7, 5, 3)}, "2 convolutions need 2 numbers of channels, not 3"),
        ({"encoder_strides": (2,)}, "same number of entries"),
        ({"encoder_paddings": (0, 0)}, "kernel of 4 with stride 2 needs padding 1, not 0"),
        ({"encoder_strides": (2, 5), "encoder_kernels": (4, 5)}, "image size 12 is no multiple"),
    ],
)
def test_impossible_settings_are_refused_with_one_line(changes, message):
    with pytest.raises(UserError, match=message):
        Transformer(tiny(**changes), SIZE)


def test_twenty_steps_give_the_committed_numbers(batches):
    solver, generator = build(dropout=0.1), torch.Generator().manual_seed(11)
    stream = batches(dtype=torch.float64)
    totals = train(solver, stream, 20, generator)
    prediction = predict(solver, stream.draw("all", 2).panels, missing_of([[2, 8], [2, 8]]))
    images = prediction.images[:, :, 0, ::5, ::5].flatten().tolist()
    latents = prediction.latents.flatten().tolist()
    numbers = {"totals": totals, "latents": latents, "images": images}
    if os.environ.get("RAISE_WRITE_GOLDEN"):
        golden = {"revision": Transformer.revision, **numbers}
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
    golden = json.loads(GOLDEN.read_text())
    assert golden.pop("revision") == Transformer.revision
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
    solver = Transformer(named.demo(), 20)
    train(solver, problems, 600, torch.Generator().manual_seed(0))
    prediction = predict(solver, problems.panels, missing_of([[8]] * 16))
    wanted = problems.panels[:, 8:]
    error = (prediction.images - wanted).square().mean()
    constant = (wanted.mean(0, keepdim=True) - wanted).square().mean()
    assert error < 0.25 * constant
