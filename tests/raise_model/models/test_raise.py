"""RAISE piece by piece: settings, schedules, rounds, label term, target cells, tau, averages."""

import dataclasses
import itertools
from functools import partial

import pytest
import torch

from raise_model.errors import UserError
from raise_model.models import registry
from raise_model.models.raise_net import config as named
from raise_model.models.raise_net import loss as terms
from raise_model.models.raise_net.model import Raise
from raise_model.models.solver import config_to_json

SETTINGS = {
    "paper": (named.paper, 64), "reading_text": (named.reading_text, 64),
    "lite": (partial(named.lite, "grid_2x2"), 32), "demo": (named.demo, 20),
    "smoke": (named.smoke, 20),
}  # fmt: skip


def leave_one_out(solver, maps, targets):
    networks = solver.networks
    return networks.rule_net.leave_one_out(maps, targets), networks.executors.leave_one_out(
        maps, targets
    )


def test_paper_size_has_the_published_number_of_parameters():
    solver = registry.build("raise", config_to_json(named.paper()), 64, seed=0)
    parts = {
        name: sum(p.numel() for p in part.parameters())
        for name, part in solver.networks.named_children()
    }
    assert parts == {
        "encoder": 6_985_088, "decoder": 722_945, "executors": 4 * 166_152, "rule_net": 629_324,
    }  # fmt: skip
    assert sum(p.numel() for p in solver.parameters()) == 9_001_965


@pytest.mark.parametrize("name", ["lite", "demo", "smoke"])
def test_named_settings_train_and_predict_at_their_image_size(name, batch):
    config, size = SETTINGS[name]
    solver = registry.build("raise", config_to_json(config()), size, seed=0)
    problems = batch(3, size=size, dtype=torch.float32)
    loss = solver.loss(problems, torch.Generator().manual_seed(0))
    assert torch.isfinite(loss.total)
    missing = torch.zeros(3, 9, dtype=torch.bool)
    missing[:, 8] = True
    prediction = solver.eval().predict(problems.panels, missing, torch.Generator())
    assert prediction.images.shape == (3, 1, 1, size, size)
    assert 0 < prediction.images.min() < prediction.images.max() < 1


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_survive_json(name):
    config = SETTINGS[name][0]()
    assert registry.config_from_json("raise", config_to_json(config)) == config


def test_reading_text_differs_from_the_code_in_three_fields():
    code, text = dataclasses.asdict(named.paper()), dataclasses.asdict(named.reading_text())
    assert {k: text[k] for k in text if text[k] != code[k]} == {
        "rule_net_target": "zero", "rule_sample": "hard", "label_loss": "paper",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "size", "message"),
    [
        ({"targets_per_problem": 10}, 12, "targets_per_problem must lie in 1 to 9, not 10"),
        ({"decoded_panels": 0}, 12, "decoded_panels must lie in 1 to 9, not 0"),
        ({"ema_decay": 1.0}, 12, r"ema_decay must lie in \[0, 1\), not 1.0"),
        ({"spare_dropout": 1.1}, 12, r"spare_dropout must lie in \[0, 1\], not 1.1"),
        ({"tau_fraction": 0.0}, 12, "tau_fraction must be above 0, not 0.0"),
        ({"encoder_kernels": (4,)}, 12, "same number of entries"),
        ({}, 13, "image size 13 is no multiple"),
        ({"encoder_paddings": (0, 0)}, 12, "kernel of 4 with stride 2 needs padding 1, not 0"),
    ],
)
def test_impossible_settings_are_refused_with_one_line(config, changes, size, message):
    with pytest.raises(UserError, match=message):
        Raise(config(**changes), size)


def test_learning_rate_warms_up_stays_and_falls(build):
    solver = build(
        learning_rate=0.5, learning_rate_warmup=0.1, learning_rate_knee=0.6,
        learning_rate_fall="linear", learning_rate_end=0.2,
    )  # fmt: skip
    rates = [solver.set_step(step, 100)["all"] for step in range(101)]
    assert rates[0] == pytest.approx(0.05)
    assert rates[4] == pytest.approx(0.25)
    assert rates[9:61] == pytest.approx([0.5] * 52)
    assert rates[80] == pytest.approx(0.5 * 0.6)
    assert rates[100] == pytest.approx(0.1)
    cosine = build(
        learning_rate=1.0, learning_rate_warmup=0.0, learning_rate_knee=0.0,
        learning_rate_fall="cosine", learning_rate_end=0.0,
    )  # fmt: skip
    found = [cosine.set_step(step, 4)["all"] for step in range(5)]
    assert found == pytest.approx([1, 0.853553, 0.5, 0.146447, 0], abs=1e-6)


def test_paper_rate_is_constant(build):
    solver = build(learning_rate_warmup=0.0, learning_rate_knee=1.0, learning_rate=3e-4)
    assert {solver.set_step(step, 50)["all"] for step in range(50)} == {3e-4}


def test_tau_falls_linearly_then_stays(build):
    solver = build(tau_start=1.0, tau_end=0.1, tau_fraction=0.4)
    taus = []
    for step in (0, 10, 20, 40, 99):
        solver.set_step(step, 100)
        taus.append(float(solver.tau))
    assert taus == pytest.approx([1, 0.775, 0.55, 0.1, 0.1])


def test_tau_comes_back_with_the_state(build, batch):
    """Rules are sampled at the checkpoint's tau; at the tau of a new solver they differ."""
    solver = build(test_rule="sample").eval()
    solver.set_step(99, 100)
    restored = build(seed=1, test_rule="sample").eval()
    restored.load_state_dict(solver.state_dict())
    assert float(restored.tau) == pytest.approx(0.1)
    panels, missing = batch(4).panels, torch.zeros(4, 9, dtype=torch.bool)
    missing[:, 8] = True

    def latents(model):
        with torch.no_grad():
            return model.predict(panels, missing, torch.Generator().manual_seed(0)).latents

    found = latents(restored)
    assert torch.equal(found, latents(solver))
    restored.tau.fill_(1.0)
    assert not torch.allclose(found, latents(restored))


@pytest.mark.parametrize(
    ("changes", "labelled", "wanted"),
    [
        (
            {"batches": "separate", "labelled_steps": 4}, 30,
            [("labelled", 2, True)] * 4 + [("all", 3, True)],
        ),
        ({"batches": "separate", "labelled_steps": 4}, 600, [("labelled", 2, True)]),
        ({"batches": "separate", "labelled_steps": 4}, 0, [("all", 3, True)]),
        ({"batches": "joint"}, 30, [("labelled", 2, False), ("all", 3, False)]),
        ({"batches": "joint"}, 0, [("all", 5, False)]),
    ],
)  # fmt: skip
def test_a_round_draws_labelled_and_unlabelled_problems(build, batches, changes, labelled, wanted):
    source = batches(labelled=labelled)
    solver = build(dtype=torch.float32, **changes)
    losses = list(solver.training_steps(source, torch.Generator().manual_seed(0)))
    assert source.drawn == wanted
    assert len(losses) == (1 if changes["batches"] == "joint" else len(wanted))


def test_unlabelled_problems_carry_no_label_term(build, batch):
    loss = build().loss(batch(3, labelled=0), torch.Generator().manual_seed(0))
    assert loss.terms["label"] == 0


def _two_alike(form):
    """label_gain of one labelled problem, of it twice, and of it beside an unlabelled one."""
    generator = torch.Generator().manual_seed(0)
    prior, posterior = torch.rand(2, 3, 1, 5, 4, generator=generator).log_softmax(-1)
    labels = torch.tensor([[0, 3]])
    one = terms.label_gain(prior, posterior, labels, form)
    twice = terms.label_gain(
        prior.repeat(1, 2, 1, 1), posterior.repeat(1, 2, 1, 1), labels.repeat(2, 1), form
    )
    beside = terms.label_gain(
        prior.repeat(1, 2, 1, 1), posterior.repeat(1, 2, 1, 1),
        torch.cat([labels, torch.full_like(labels, -1)]), form,
    )  # fmt: skip
    return one, twice, beside


@pytest.mark.parametrize("form", ["code", "mean_log", "log_mean"])
def test_label_term_is_summed_over_the_batch(form):
    one, twice, beside = _two_alike(form)
    torch.testing.assert_close(twice, 2 * one)
    torch.testing.assert_close(beside, one)


def test_label_term_of_the_paper_is_a_mean_over_the_labelled_problems():
    one, twice, beside = _two_alike("paper")
    torch.testing.assert_close(twice, one)
    torch.testing.assert_close(beside, one)


def test_label_gains_by_hand():
    prior = torch.tensor([0.5, 0.25, 0.125, 0.125]).log().view(1, 1, 1, 4)
    posterior = torch.tensor([0.25, 0.5, 0.125, 0.125]).log().view(1, 1, 1, 4)
    labels = torch.tensor([[1]])
    wanted = {
        "code": 0.375, "paper": 0.5 * -0.2876821, "mean_log": (-1.3862944 - 0.6931472) / 2,
        "log_mean": -0.9808293,
    }  # fmt: skip
    for form, value in wanted.items():
        assert float(terms.label_gain(prior, posterior, labels, form)) == pytest.approx(value)


def test_each_attribute_takes_its_own_concept_for_the_greatest_total():
    gain = torch.tensor([[9.0, 8.0, 1.0], [9.0, 1.0, 2.0]])
    attributes, concepts = terms.assign(gain)
    assert attributes.tolist() == [0, 1]
    # Both would like concept 0; giving it to the second loses least.
    assert concepts.tolist() == [1, 0]
    assert float(terms.supervision(gain, (attributes, concepts))) == 17


@pytest.mark.parametrize(("attributes", "concepts"), [(3, 8), (6, 8), (4, 4)])
def test_assignment_by_search_is_the_same(attributes, concepts):
    generator = torch.Generator().manual_seed(attributes)
    for _ in range(5):
        gain = torch.randn(attributes, concepts, generator=generator)
        found = terms.assign_by_search(gain)
        assert [part.tolist() for part in found] == [part.tolist() for part in terms.assign(gain)]


def test_posterior_is_the_normalised_product_of_prior_and_likelihood():
    generator = torch.Generator().manual_seed(1)
    prior = torch.randn(1, 2, 3, 4, generator=generator, dtype=torch.float64).log_softmax(-1)
    target = torch.randn(1, 2, 3, 5, generator=generator, dtype=torch.float64)
    noise = torch.randn(1, 2, 3, 4, 5, generator=generator, dtype=torch.float64)
    predicted = target[..., None, :] + 0.2 * noise
    likelihood = torch.distributions.Normal(predicted, 0.3).log_prob(target[..., None, :]).sum(-1)
    joint = prior.exp() * likelihood.exp()
    found = terms.posterior_logits(prior, target, predicted, 0.3).exp()
    torch.testing.assert_close(found, joint / joint.sum(-1, keepdim=True))


def test_divergences_are_those_of_the_distributions():
    generator = torch.Generator().manual_seed(2)
    a, b = torch.randn(2, 2, 3, 4, 5, generator=generator, dtype=torch.float64)
    normal, categorical = torch.distributions.Normal, torch.distributions.Categorical
    wanted = torch.distributions.kl_divergence(normal(a, 0.3), normal(b, 0.3)).sum((2, 3)).mean()
    torch.testing.assert_close(terms.prediction_divergence(a, b, 0.3), wanted)
    p, q = a.log_softmax(-1), b.log_softmax(-1)
    wanted = torch.distributions.kl_divergence(categorical(logits=p), categorical(logits=q))
    torch.testing.assert_close(terms.rule_divergence(p, q), wanted.sum(2).mean())


@pytest.mark.parametrize("target", range(9))
def test_rule_net_and_executors_never_see_the_target_cell(target, build):
    solver = build(rule_net_target="learnable")
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(7, 9, 3, generator=generator, dtype=torch.float64)
    spoiled = maps.clone()
    spoiled[:, target] = float("nan")
    missing = torch.zeros(7, 9, dtype=torch.bool)
    missing[:, target] = True
    executors, rule_net = solver.networks.executors, solver.networks.rule_net
    whole = executors.leave_one_out(maps, [target])
    assert torch.equal(executors.leave_one_out(spoiled, [target]), whole)
    torch.testing.assert_close(executors.masked(spoiled, missing)[:, :, target], whole[0])
    torch.testing.assert_close(
        rule_net.masked(spoiled, missing), rule_net.leave_one_out(maps, [target])[0]
    )


def test_gradient_of_a_target_reaches_the_other_cells_only(build):
    solver = build()
    maps = torch.randn(4, 9, 3, dtype=torch.float64, requires_grad=True)
    for target in range(9):
        for value in leave_one_out(solver, maps, [target]):
            (gradient,) = torch.autograd.grad(value.square().sum(), maps)
            reached = gradient.abs().amax((0, 2)) > 1e-12
            assert not reached[target]
            assert reached.sum() == 8


def test_rows_and_columns_have_their_own_networks(build):
    """With the column network silenced, changing the order of rows alters nothing."""
    net = build(rule_net_target="zero").networks.rule_net
    torch.nn.init.zeros_(net.column[-1].weight)
    maps = torch.randn(3, 9, 3, dtype=torch.float64)
    grid = maps.unflatten(1, (3, 3))
    # The missing cell stays in place: 8 is in the last row and column.
    by_rows = grid[:, [1, 0, 2]].flatten(1, 2)
    by_columns = grid[:, :, [1, 0, 2]].flatten(1, 2)
    wanted = net.leave_one_out(maps, [8])
    torch.testing.assert_close(net.leave_one_out(by_rows, [8]), wanted)
    assert not torch.allclose(net.leave_one_out(by_columns, [8]), wanted)


def test_several_targets_are_the_mean_over_single_ones(build, batch):
    """The label term aside, whose assignment is shared."""
    solver, problems = build(targets_per_problem=9, rule_sample="hard"), batch(3, labelled=0)
    means = solver._encode(solver.networks, problems.panels)
    every = [solver._reason(means, torch.tensor([[target]])) for target in range(9)]
    together = solver._reason(means, torch.arange(9)[None])
    for i, part in enumerate(together):
        torch.testing.assert_close(part, torch.cat([single[i] for single in every]))


def test_positions_drawn_for_each_problem_are_used_for_it(build, batch):
    solver = build(target_positions="problem")
    means = solver._encode(solver.networks, batch(3).panels)
    positions = torch.tensor([[2, 5], [8, 0], [2, 7]])
    prior, predicted = solver._reason(means, positions)
    for b, i in itertools.product(range(3), range(2)):
        alone = solver._reason(means[b : b + 1], positions[b : b + 1, i : i + 1])
        torch.testing.assert_close(prior[i, b], alone[0][0, 0])
        torch.testing.assert_close(predicted[i, b], alone[1][0, 0])


def test_target_positions_are_uniform_and_bottom_right_can_be_kept(build):
    generator = torch.Generator().manual_seed(0)
    solver = build(target_positions="problem")
    first = solver._draw_positions(9_000, generator)[:, 0].bincount(minlength=9)
    assert (first - 1_000).abs().max() < 150
    kept = build(target_positions="problem", always_bottom_right=True)
    orders = kept._draw_positions(9_000, generator)
    assert (orders[:, 0] == 8).all()
    assert (orders[:, 1].bincount(minlength=8) - 9_000 / 8).abs().max() < 150


def test_context_panels_are_decoded_from_their_own_codes(build, batch):
    """With everything decoded, the reconstruction reaches every panel's code."""
    solver, problems = build(decoded_panels=9), batch(2)
    solver.eval()
    problems.panels.requires_grad_()
    codes = solver._encode(solver.networks, problems.panels)
    images = solver._decode(solver.networks, codes.flatten(2))
    (gradient,) = torch.autograd.grad(images[1, 4].sum(), problems.panels)
    reached = gradient.flatten(2).abs().amax(2) > 0
    assert reached.nonzero().tolist() == [[1, 4]]


def test_hidden_concepts_are_those_without_an_attribute(build, batch):
    solver, problems = build(num_concepts=5, spare_dropout=1.0), batch(4)
    gain = torch.tensor([[0.0, 3, 0, 0, 0], [0, 0, 0, 0, 2], [0, 0, 1, 0, 0]])
    _, assigned = terms.assign(gain)
    kept = solver._kept(problems, assigned, torch.Generator())
    assert kept.tolist() == [[False, True, True, False, True]] * 4
    without = solver._kept(batch(4, labelled=0), assigned, torch.Generator())
    assert without.all(), "without labels no concept is known to be spare"


def test_a_share_of_the_problems_has_concepts_hidden(build, batch):
    solver, assigned = build(num_concepts=5, spare_dropout=0.3), torch.arange(3)
    kept = solver._kept(batch(4_000), assigned, torch.Generator().manual_seed(0))
    assert kept[:, :3].all()
    assert torch.equal(kept[:, 3], kept[:, 4])
    assert abs((~kept[:, 3]).double().mean() - 0.3) < 0.03


def test_what_was_trained_before_a_field_was_added_keeps_its_identity():
    plain = config_to_json(named.paper())
    assert "spare_dropout" not in plain
    assert registry.config_from_json("raise", plain).spare_dropout == 0.0
    other = dataclasses.replace(named.paper(), spare_dropout=0.5)
    assert config_to_json(other) == plain | {"spare_dropout": 0.5}


def test_evaluation_uses_running_statistics(build, batch):
    """A problem's prediction does not depend on the problems beside it."""
    solver = build(test_rule="argmax").eval()
    panels, missing = batch(5).panels, torch.zeros(5, 9, dtype=torch.bool)
    missing[:, 8] = True
    before = {k: v.clone() for k, v in solver.state_dict().items()}
    with torch.no_grad():
        together = solver.predict(panels, missing, torch.Generator()).latents
        alone = solver.predict(panels[:1], missing[:1], torch.Generator()).latents
    torch.testing.assert_close(together[:1], alone)
    assert all(torch.equal(before[k], v) for k, v in solver.state_dict().items())


def test_predictions_use_the_averaged_weights(build, batch, batches):
    solver = build(dtype=torch.float32, ema_decay=0.2)
    optimizer = solver.optimizers()["all"]
    name, parameter = next(iter(solver.networks.named_parameters()))
    follower = parameter.detach().clone()
    for n in range(1, 4):
        steps = solver.training_steps(batches(), torch.Generator().manual_seed(n))
        for loss in steps:
            optimizer.zero_grad()
            loss.total.backward()
            optimizer.step()
        keep = min(0.2, (1 + n) / (10 + n))
        follower = keep * follower + (1 - keep) * parameter.detach()
    averages = dict(solver.average.module.named_buffers())
    torch.testing.assert_close(averages[name], follower)
    panels, missing = batch(2, dtype=torch.float32).panels, torch.zeros(2, 9, dtype=torch.bool)
    missing[:, 8] = True
    solver.eval()
    averaged = solver.predict(panels, missing, torch.Generator().manual_seed(0)).latents
    with torch.no_grad():
        for weights in solver.networks.parameters():
            weights.fill_(float("nan"))
    again = solver.predict(panels, missing, torch.Generator().manual_seed(0)).latents
    assert torch.equal(averaged, again)


def test_a_nan_shows_in_the_total_and_in_the_term_it_came_from(build, batch):
    solver, problems = build(), batch(3)
    with torch.no_grad():
        solver.networks.decoder.layers[0].layer.weight[0] = float("nan")
    loss = solver.loss(problems, torch.Generator().manual_seed(0))
    assert not torch.isfinite(loss.total)
    spoiled = {name for name, value in loss.terms.items() if not torch.isfinite(value)}
    assert spoiled == {"reconstruction"}


def test_losses_stay_in_full_precision_under_autocast(build, batch):
    solver, problems = build(dtype=torch.float32), batch(4, dtype=torch.float32)
    full = solver.loss(problems, torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        half = solver.loss(problems, torch.Generator().manual_seed(0))
    assert half.total.dtype == torch.float32
    assert {value.dtype for value in half.terms.values()} == {torch.float32}
    ours, exact = half.total.item(), full.total.item()
    assert ours == pytest.approx(exact, rel=0.05)
    assert ours != exact, "the networks ran in bf16"
    half.total.backward()
    assert all(torch.isfinite(p.grad).all() for p in solver.parameters())
