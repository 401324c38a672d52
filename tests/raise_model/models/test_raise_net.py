"""RAISE against its literal reference, and what its training and prediction must keep."""

import dataclasses
import importlib.util
import json
import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from raise_model.errors import UserError
from raise_model.models.raise_net import config as configs
from raise_model.models.raise_net import loss as objective
from raise_model.models.raise_net.model import Raise
from raise_model.problem import UNLABELLED, Batch

_spec = importlib.util.spec_from_file_location(
    "reference_raise", Path(__file__).with_name("reference_raise.py")
)
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)

GOLDEN = Path(__file__).parent.parent / "golden" / "raise.json"
SIZE, BATCH = 12, 3

TINY = dataclasses.replace(
    configs.smoke(), num_concepts=5, concept_size=3, num_rules=4, encoder_channels=(4, 6),
    encoder_kernels=(4, 2), encoder_strides=(2, 2), encoder_paddings=(1, 0), encoder_hidden=7,
    decoder_hidden=6, decoder_channels=(5, 4), rule_net_hidden=6, rule_net_features=5,
    executor_channels=4, beta_label=7.0, beta_rule=3.0,
)  # fmt: skip


def build(**changes):
    torch.manual_seed(0)
    solver = Raise(dataclasses.replace(TINY, **changes), SIZE).double()
    for parameter in solver.parameters():  # zero-initialised parameters would hide errors
        parameter.data += 0.1 * torch.randn_like(parameter)
    return solver


def make_batch(seed=0, size=BATCH):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([[0, 3, 1], [2, -1, 1], [-1, -1, -1]])[:size]
    return Batch(
        index=torch.arange(size),
        panels=torch.rand(size, 9, 1, SIZE, SIZE, generator=generator, dtype=torch.float64),
        rule_labels=labels,
    )


def draws(solver, batch, seed):
    """What the solver draws from a generator with this seed, in its order."""
    config = solver.config
    generator = torch.Generator().manual_seed(seed)
    shape = (len(batch), 9, config.num_concepts, config.concept_size)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    rows = 1 if config.target_positions == "batch" else len(batch)
    targets = solver._draw_targets(rows, generator).expand(len(batch), -1).tolist()
    number = config.targets_per_problem
    uniform = torch.rand(
        (number, len(batch), config.num_concepts, config.num_rules),
        generator=generator, dtype=torch.float64,
    )  # fmt: skip
    return noise, targets, uniform


CASES = {
    "code": {"label_loss": "code", "rule_net_target": "learnable", "targets_per_problem": 1},
    "paper": {"label_loss": "paper", "rule_sample": "hard", "targets_per_problem": 1},
    "mean_log": {"label_loss": "mean_log", "targets_per_problem": 1},
    "several targets": {"label_loss": "code", "targets_per_problem": 3, "decoded": "targets"},
    "all targets": {
        "label_loss": "mean_log", "targets_per_problem": 9, "rule_net_target": "learnable",
    },
    "positions of each problem": {
        "label_loss": "code", "targets_per_problem": 2, "target_positions": "problem",
        "rule_net_target": "learnable", "decoded": "targets",
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_equal_the_literal_ones(case):
    solver, batch = build(**CASES[case]), make_batch()
    fast = solver.loss(batch, torch.Generator().manual_seed(5))
    fast.total.backward()
    gradients = {n: p.grad.clone() for n, p in solver.named_parameters()}
    solver.zero_grad()
    total, terms = reference.loss(
        solver, batch.panels, batch.rule_labels, *draws(solver, batch, 5)
    )
    total.backward()
    for name, value in terms.items():
        torch.testing.assert_close(fast.terms[name], value.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fast.total, total, rtol=1e-9, atol=1e-9)
    for name, parameter in solver.named_parameters():
        torch.testing.assert_close(
            gradients[name], parameter.grad, rtol=1e-7, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("preset", ["tiny", "demo", "lite"])
def test_encoder_and_decoder_equal_torchs_own_layers(preset, training):
    config, size = {
        "tiny": (TINY, SIZE), "demo": (configs.demo(), 20), "lite": (configs.lite(), 32),
    }[preset]  # fmt: skip
    torch.manual_seed(0)
    solver = Raise(config, size).double().train(training)
    panels = torch.rand(5, 1, size, size, dtype=torch.float64)
    literal = reference.encoder(solver, panels)
    torch.testing.assert_close(solver.encoder(panels), literal, rtol=1e-9, atol=1e-9)
    codes = torch.randn(5, config.num_concepts * config.concept_size, dtype=torch.float64)
    literal = reference.decoder(solver, codes)
    torch.testing.assert_close(solver.decoder(codes), literal, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("missing", [[8], [0], [2, 6], [1, 4, 8]])
def test_prediction_equals_the_literal_one(missing):
    solver = build(rule_net_target="learnable").eval()
    batch = make_batch()
    hidden = torch.zeros(BATCH, 9, dtype=torch.bool)
    hidden[:, missing] = True
    prediction = solver.predict(batch.panels, hidden, torch.Generator())
    codes = solver.encode(batch.panels)
    for b in range(BATCH):
        for t, target in enumerate(missing):
            prior, predicted = reference.rules_of(solver, codes[b], target, hidden[b].tolist())
            best = [predicted[c, int(prior[c].argmax())] for c in range(len(prior))]
            torch.testing.assert_close(prediction.latents[b, t], torch.cat(best))
            torch.testing.assert_close(prediction.rules[b], prior.exp())


def test_missing_positions_may_differ_between_problems():
    solver = build().eval()
    batch = make_batch()
    hidden = torch.zeros(BATCH, 9, dtype=torch.bool)
    for row, cells in enumerate([[0, 5], [3, 8], [1, 2]]):
        hidden[row, cells] = True
    together = solver.predict(batch.panels, hidden, torch.Generator()).latents
    for row in range(BATCH):
        alone = solver.predict(
            batch.panels[row : row + 1], hidden[row : row + 1], torch.Generator()
        ).latents
        torch.testing.assert_close(together[row : row + 1], alone)


def test_executors_never_see_the_target_code():
    solver, batch = build(targets_per_problem=4), make_batch()
    codes = torch.randn(BATCH, 9, 5, 3, dtype=torch.float64)
    maps = codes.transpose(1, 2).flatten(0, 1)
    for target in range(9):
        changed = maps.clone()
        changed[:, target] = 100.0
        for part in (solver.executors, solver.rule_net):
            before = part.leave_one_out(maps, [target])
            assert torch.equal(before, part.leave_one_out(changed, [target]))
    assert len(batch) == BATCH


def test_label_terms_scale_with_the_batch_as_each_reading_says():
    torch.manual_seed(0)
    prior = torch.randn(2, 4, 5, 3, dtype=torch.float64).log_softmax(-1)
    posterior = torch.randn(2, 4, 5, 3, dtype=torch.float64).log_softmax(-1)
    labels = torch.randint(0, 3, (4, 2))
    once = {f: objective.label_gain(prior, posterior, labels, f) for f in ("code", "paper", "mean_log")}
    twice = {
        form: objective.label_gain(
            torch.cat([prior, prior], 1), torch.cat([posterior, posterior], 1),
            torch.cat([labels, labels]), form,
        )
        for form in once
    }  # fmt: skip
    torch.testing.assert_close(twice["code"], 2 * once["code"])
    torch.testing.assert_close(twice["mean_log"], 2 * once["mean_log"])
    torch.testing.assert_close(twice["paper"], once["paper"])


def test_unlabelled_problems_add_nothing_to_the_label_term():
    solver = build(label_loss="code")
    batch = make_batch()
    nothing = dataclasses.replace(
        batch, rule_labels=torch.full_like(batch.rule_labels, UNLABELLED)
    )
    assert float(solver.loss(nothing, torch.Generator()).terms["label"]) == 0.0
    no_column = dataclasses.replace(batch, rule_labels=torch.empty(BATCH, 0, dtype=torch.int64))
    assert float(solver.loss(no_column, torch.Generator()).terms["label"]) == 0.0


def test_paper_size_has_the_published_networks():
    solver = Raise(configs.paper(), 64)
    count = {
        name: sum(p.numel() for p in part.parameters()) for name, part in solver.named_children()
    }
    assert count == {
        "encoder": 6_985_088, "decoder": 722_945, "rule_net": 629_324, "executors": 4 * 166_152,
    }  # fmt: skip
    assert sum(count.values()) == 9_001_965


def test_temperature_and_rate_follow_the_step():
    solver = Raise(
        dataclasses.replace(
            TINY, tau_start=1.0, tau_end=0.1, tau_fraction=0.4, learning_rate=0.5,
            learning_rate_schedule="linear", learning_rate_knee=0.7, learning_rate_end=0.1,
        ),
        SIZE,
    )  # fmt: skip
    rates, taus = [], []
    for step in (0, 20, 40, 70, 85, 100):
        rates.append(solver.set_step(step, 100)["all"])
        taus.append(float(solver.tau))
    assert taus == pytest.approx([1.0, 0.55, 0.1, 0.1, 0.1, 0.1])
    assert rates == pytest.approx([0.5, 0.5, 0.5, 0.5, 0.275, 0.05])
    cosine = Raise(
        dataclasses.replace(
            TINY, learning_rate=1.0, learning_rate_schedule="cosine", learning_rate_end=0.2
        ),
        SIZE,
    )
    assert [cosine.set_step(step, 4)["all"] for step in range(5)] == pytest.approx(
        [1.0, 0.8828427, 0.6, 0.3171573, 0.2]
    )


def test_temperature_is_part_of_the_state_and_changes_sampled_predictions():
    solver = build(test_rule="sample").eval()
    batch = make_batch()
    hidden = torch.zeros(BATCH, 9, dtype=torch.bool)
    hidden[:, 8] = True

    def predict(model):
        return model.predict(batch.panels, hidden, torch.Generator().manual_seed(3)).latents

    solver.set_step(90, 100)
    restored = build(test_rule="sample").eval()
    restored.load_state_dict(solver.state_dict())
    assert float(restored.tau) == pytest.approx(0.1)
    assert torch.equal(predict(restored), predict(solver))
    restored.tau.fill_(1.0)
    assert not torch.allclose(predict(restored), predict(solver))


class Stream:
    """Counts what is drawn."""

    def __init__(self, labelled, every):
        self.sizes = {"labelled": labelled, "all": every}
        self.drawn = []

    def num_problems(self, pool):
        return self.sizes[pool]

    def draw(self, pool, size, *, partial=False):
        self.drawn.append((pool, size, partial))
        return make_batch()


@pytest.mark.parametrize(
    ("labelled", "drawn"),
    [
        (3, [("labelled", 4, True)] * 4 + [("all", 5, True)]),
        (60, [("labelled", 4, True)] * 4),
        (0, [("all", 5, True)]),
    ],
)
def test_separate_rounds_are_four_labelled_steps_and_one_unlabelled(labelled, drawn):
    solver = build(batches="separate", labelled_steps=4, labelled_batch=4, unlabelled_batch=5)
    stream = Stream(labelled, 60)
    assert len(list(solver.training_steps(stream, torch.Generator()))) == len(drawn)
    assert stream.drawn == drawn


def test_joint_rounds_hold_both_kinds_in_one_step():
    solver = build(batches="joint", labelled_batch=4, unlabelled_batch=5)
    for labelled, drawn in (
        (3, [("labelled", 4, False), ("all", 5, False)]),
        (0, [("all", 9, False)]),
    ):
        stream = Stream(labelled, 60)
        assert len(list(solver.training_steps(stream, torch.Generator()))) == 1
        assert stream.drawn == drawn


def test_image_that_does_not_fit_the_strides_is_refused():
    with pytest.raises(UserError, match="multiple"):
        Raise(TINY, 13)


def test_every_preset_builds_and_trains_a_step():
    sizes = {"paper": 64, "paper_text": 64, "lite": 32, "demo": 20, "smoke": 20}
    for name, size in sizes.items():
        config = getattr(configs, name)()
        torch.manual_seed(0)
        solver = Raise(config, size)
        batch = Batch(
            index=torch.arange(2), panels=torch.rand(2, 9, 1, size, size),
            rule_labels=torch.tensor([[0, 1, 2], [-1, -1, -1]]),
        )  # fmt: skip
        loss = solver.loss(batch, torch.Generator().manual_seed(0))
        loss.total.backward()
        assert torch.isfinite(loss.total)
        assert all(p.grad is not None for p in solver.parameters())


def test_posterior_is_the_normalised_product_of_prior_and_likelihood():
    torch.manual_seed(1)
    prior = torch.randn(1, 2, 3, 4, dtype=torch.float64).log_softmax(-1)
    target = torch.randn(1, 2, 3, 5, dtype=torch.float64)
    predicted = target[..., None, :] + 0.2 * torch.randn(1, 2, 3, 4, 5, dtype=torch.float64)
    found = objective.posterior_logits(prior, target, predicted, 0.3).exp()
    joint = torch.stack(
        [
            torch.stack(
                [
                    prior[0, b, c, k].exp()
                    * reference.log_normal(target[0, b, c], predicted[0, b, c, k], 0.3).exp()
                    for k in range(4)
                ]
            )
            for b in range(2)
            for c in range(3)
        ]
    ).view(1, 2, 3, 4)
    torch.testing.assert_close(found, joint / joint.sum(-1, keepdim=True))


def test_divergences_equal_torchs_distributions():
    torch.manual_seed(2)
    a, b = torch.randn(2, 3, 4, 5, dtype=torch.float64), torch.randn(2, 3, 4, 5, dtype=torch.float64)
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(normal(a, 0.3), normal(b, 0.3)).sum((2, 3)).mean()
    torch.testing.assert_close(objective.prediction_divergence(a, b, 0.3), expected)
    p, q = a.log_softmax(-1), b.log_softmax(-1)
    categorical = torch.distributions.Categorical
    expected = torch.distributions.kl_divergence(categorical(logits=p), categorical(logits=q))
    torch.testing.assert_close(objective.rule_divergence(p, q), expected.sum(2).mean())


def test_golden_losses():
    """Twenty steps of a tiny float64 model; a change of the numbers raises the revision."""
    solver = build(targets_per_problem=2, label_loss="code", optimizer="rmsprop")
    batches = [make_batch(seed) for seed in range(4)]
    optimizer = solver.optimizers()["all"]
    generator = torch.Generator().manual_seed(11)
    losses = []
    for step in range(20):
        rate = solver.set_step(step, 20)["all"]
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = solver.loss(batches[step % 4], generator)
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
        losses.append(float(loss.total.detach()))
    if os.environ.get("RAISE_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps({"revision": Raise.revision, "losses": losses}, indent=1))
    golden = json.loads(GOLDEN.read_text())
    assert golden["revision"] == Raise.revision, "raise the revision together with the file"
    assert losses == pytest.approx(golden["losses"], rel=1e-6)


def test_reconstruction_is_a_mean_over_panels():
    images, panels = torch.zeros(4, 1, 3, 3), torch.ones(4, 1, 3, 3)
    assert float(objective.reconstruction(images, panels, 0.1)) == pytest.approx(9 / 0.02)
    assert F.mse_loss(images, panels) == 1
