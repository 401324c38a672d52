"""The fast RAISE against a slow one: loops over problems, concepts, rules, cells and kernel taps.

The reference reads the parameters of the solver under test and follows the formulas of the
paper (sections 3.1 to 3.3, appendix A), and nothing else of the package.
"""

import itertools

import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import nn

from raise_model.models.common.channels_last import (
    Convolution,
    Normalization,
    TransposedConvolution,
)


def run_layers(layers, x, training):
    """An encoder's or decoder's layers on images in (batch, channels, height, width) order."""
    for layer in layers:
        if isinstance(layer, Convolution):
            conv = layer.layer
            x = F.conv2d(x, conv.weight, conv.bias, conv.stride, conv.padding)
        elif isinstance(layer, TransposedConvolution):
            conv = layer.layer
            x = F.conv_transpose2d(x, conv.weight, conv.bias, conv.stride, conv.padding)
        elif isinstance(layer, Normalization):
            norm = layer.layer
            mean, var = norm.running_mean.clone(), norm.running_var.clone()
            x = F.batch_norm(x, mean, var, norm.weight, norm.bias, training)
        elif isinstance(layer, nn.LeakyReLU):
            x = torch.where(x > 0, x, layer.negative_slope * x)
        else:
            assert isinstance(layer, nn.ReLU)
            x = x.clamp_min(0)
    return x


def encode(solver, panels, training):
    """Means of one batch of panels: (n, concepts, dims)."""
    networks, config = solver.networks, solver.config
    features = run_layers(networks.encoder.layers, panels, training).flatten(1)
    codes = features @ networks.encoder.codes.weight.T + networks.encoder.codes.bias
    return codes.view(len(panels), config.num_concepts, config.concept_size)


def decode(solver, codes, training):
    """Panels of (n, concepts, dims)."""
    images = run_layers(
        solver.networks.decoder.layers, codes.flatten(1)[:, :, None, None], training
    )
    return 1 / (1 + (-images).exp())


def mlp(net, x):
    for layer in net:
        x = x.clamp_min(0) if isinstance(layer, nn.ReLU) else layer.weight @ x + layer.bias
    return x


def prior_logits(solver, cells, missing):
    """f_row, f_col, f_ind on the nine cells of one concept."""
    net = solver.networks.rule_net
    shown = [net.target[i] if i in missing else cells[i] for i in range(9)]
    rows = [mlp(net.row, torch.cat([shown[3 * i + j] for j in range(3)])) for i in range(3)]
    columns = [mlp(net.column, torch.cat([shown[3 * j + i] for j in range(3)])) for i in range(3)]
    return mlp(net.head, torch.cat([sum(rows) / 3, sum(columns) / 3]))


def convolve(layer, rule, cells, places=range(9)):
    """A padded 3x3 convolution on nine cells: its output at some places."""
    outputs = {}
    for row, column in (divmod(place, 3) for place in places):
        value = layer.bias[rule]
        for down, right in itertools.product((-1, 0, 1), (-1, 0, 1)):
            if 0 <= row + down < 3 and 0 <= column + right < 3:
                tap = 3 * (down + 1) + right + 1
                cell = cells[3 * (row + down) + column + right]
                value = value + layer.weight[rule, :, :, tap] @ cell
        outputs[3 * row + column] = value
    return outputs


def execute(solver, rule, cells, missing):
    """h(Z; psi_rule): the missing cells after three convolutions, zero before."""
    executors = solver.networks.executors
    values = [torch.zeros_like(cells[i]) if i in missing else cells[i] for i in range(9)]
    values = [value.clamp_min(0) for value in convolve(executors.first, rule, values).values()]
    values = [value.clamp_min(0) for value in convolve(executors.second, rule, values).values()]
    return convolve(executors.last, rule, values, missing)


def label_value(form, prior, posterior):
    return {
        "code": (prior.exp() + posterior.exp()) / 2,
        "paper": (prior.exp() + posterior.exp()).log() / 2,
        "mean_log": (prior + posterior) / 2,
        "log_mean": ((prior.exp() + posterior.exp()) / 2).log(),
    }[form]


def reference_loss(solver, batch, seed):
    """Every term and the total of one training step, T target positions averaged."""
    config, generator = solver.config, torch.Generator().manual_seed(seed)
    problems, concepts = len(batch), config.num_concepts
    means = encode(solver, batch.panels.flatten(0, 1), True).unflatten(0, (problems, 9))
    noise = torch.randn(means.shape, generator=generator, dtype=means.dtype)
    codes = means + config.sigma_z * noise
    rows = problems if config.target_positions == "problem" else 1
    keys = torch.rand(rows, 9, generator=generator)
    if config.always_bottom_right:
        keys[:, 8] = -1
    orders = keys.argsort(1).expand(problems, -1).tolist()
    shape = (config.targets_per_problem, problems, concepts, config.num_rules)
    uniform = torch.rand(shape, generator=generator, dtype=means.dtype)

    count = config.targets_per_problem
    gain = torch.zeros(batch.rule_labels.shape[1], concepts, dtype=means.dtype)
    prediction = rule_term = torch.zeros((), dtype=means.dtype)
    for b, c, i in itertools.product(range(problems), range(concepts), range(count)):
        target = orders[b][i]
        cells = [codes[b, p, c] for p in range(9)]
        prior = prior_logits(solver, cells, {target}).log_softmax(0)
        executed = [execute(solver, k, cells, {target})[target] for k in range(config.num_rules)]
        logits = torch.stack([
            prior[k] - ((cells[target] - executed[k]) ** 2).sum() / (2 * config.sigma_z**2)
            for k in range(config.num_rules)
        ])  # fmt: skip
        posterior = logits.log_softmax(0)
        gumbel = -(-uniform[i, b, c].log()).log()
        weights = ((posterior + gumbel) / solver.tau).softmax(0)
        if config.rule_sample == "hard":
            one = torch.zeros_like(weights)
            one[weights.argmax()] = 1
            weights = weights + (one - weights).detach()
        mixture = sum(weights[k] * executed[k] for k in range(config.num_rules))
        distance = ((means[b, target, c] - mixture) ** 2).sum()
        prediction = prediction + distance / (2 * config.sigma_z**2) / problems / count
        divergence = (posterior.exp() * (posterior - prior)).sum()
        rule_term = rule_term + divergence / problems / count
        for a, label in enumerate(batch.rule_labels[b].tolist()):
            if label >= 0:
                value = label_value(config.label_loss, prior[label], posterior[label])
                cell = torch.zeros_like(gain)
                cell[a, c] = 1
                gain = gain + cell * value / count
    if config.label_loss == "paper":
        gain = gain / max(1, int((batch.rule_labels >= 0).any(1).sum()))
    matched = linear_sum_assignment(gain.detach().numpy(), maximize=True)
    label = sum(gain[a, c] for a, c in zip(*matched, strict=True))

    seen = codes
    if config.spare_dropout > 0:
        uniform = torch.rand(problems, generator=generator, dtype=torch.float32)
        seen = codes.clone()
        for b, c in itertools.product(range(problems), range(concepts)):
            if uniform[b] < config.spare_dropout and c not in matched[1]:
                seen[b, :, c] = 0
    shown = [(b, orders[b][i]) for b in range(problems) for i in range(config.decoded_panels)]
    images = decode(solver, torch.stack([seen[b, p] for b, p in shown]), True)
    truth = torch.stack([batch.panels[b, p] for b, p in shown])
    errors = [((images[n] - truth[n]) ** 2).sum() for n in range(len(shown))]
    reconstruction = sum(errors) / (2 * config.sigma_x**2) / len(shown)
    total = (
        config.reconstruction_weight * reconstruction
        + config.beta_prediction * prediction
        + config.beta_rule * rule_term
        - config.beta_label * label
    )
    terms = {
        "reconstruction": reconstruction, "prediction": prediction,
        "rule": rule_term, "label": label,
    }  # fmt: skip
    return total, terms


CASES = {
    "code": {"label_loss": "code", "targets_per_problem": 1, "decoded_panels": 1},
    "paper": {
        "label_loss": "paper", "targets_per_problem": 1, "decoded_panels": 1,
        "rule_sample": "hard", "rule_net_target": "zero",
    },
    "mean_log": {
        "label_loss": "mean_log", "targets_per_problem": 9, "decoded_panels": 9,
        "num_concepts": 4,
    },
    "log_mean": {
        "label_loss": "log_mean", "targets_per_problem": 3, "decoded_panels": 2,
        "target_positions": "problem", "always_bottom_right": True,
    },
    "spare concepts hidden": {
        "label_loss": "mean_log", "targets_per_problem": 2, "decoded_panels": 3,
        "num_concepts": 5, "spare_dropout": 0.5,
    },
    "code, several targets": {"label_loss": "code", "targets_per_problem": 2, "decoded_panels": 4},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_equal_the_literal_ones(case, build, batch):
    solver = build(**{"rule_net_target": "learnable", **CASES[case]})
    solver.set_step(30, 100)
    problems = batch(3, labelled=2)
    # One attribute of a labelled problem is unknown.
    problems.rule_labels[0, 1] = -1
    total, terms = reference_loss(solver, problems, seed=5)
    wanted = torch.autograd.grad(total, list(solver.parameters()))
    loss = solver.loss(problems, torch.Generator().manual_seed(5))
    for name, value in terms.items():
        torch.testing.assert_close(loss.terms[name], value.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(loss.total, total, rtol=1e-9, atol=1e-9)
    found = torch.autograd.grad(loss.total, list(solver.parameters()))
    scale = max(float(g.abs().max()) for g in wanted)
    for (name, _), ours, theirs in zip(solver.named_parameters(), found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-12 * scale, msg=name)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_predictions_equal_the_literal_ones(number, build, batch):
    solver = build(rule_net_target="learnable", test_rule="argmax").eval()
    config, panels = solver.config, batch(4).panels
    places = torch.rand(4, 9, generator=torch.Generator().manual_seed(number)).argsort(1)
    places = places[:, :number].sort(1).values
    missing = torch.zeros(4, 9, dtype=torch.bool).scatter(1, places, True)
    with torch.no_grad():
        prediction = solver.predict(panels, missing, torch.Generator())
        for b in range(4):
            hidden = set(places[b].tolist())
            means = encode(solver, panels[b], False)
            wanted = torch.zeros(9, config.num_concepts, config.concept_size, dtype=means.dtype)
            for c in range(config.num_concepts):
                cells = [means[p, c] for p in range(9)]
                prior = prior_logits(solver, cells, hidden).softmax(0)
                torch.testing.assert_close(prediction.rules[b, c], prior)
                executed = execute(solver, int(prior.argmax()), cells, hidden)
                for p in hidden:
                    wanted[p, c] = executed[p]
            at_places = wanted[places[b]]
            torch.testing.assert_close(prediction.latents[b], at_places.flatten(1))
            torch.testing.assert_close(prediction.images[b], decode(solver, at_places, False))


def test_sampled_rules_are_a_soft_mixture_at_the_solvers_tau(build, batch):
    solver = build(test_rule="sample").eval()
    solver.set_step(20, 100)
    panels, missing = batch(2).panels, torch.zeros(2, 9, dtype=torch.bool)
    missing[:, 8] = True
    with torch.no_grad():
        prediction = solver.predict(panels, missing, torch.Generator().manual_seed(3))
        uniform = torch.rand(
            2 * 5, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64
        ).view(2, 5, 4)
        for b, c in itertools.product(range(2), range(5)):
            cells = list(encode(solver, panels[b], False)[:, c])
            logits = prior_logits(solver, cells, {8}).log_softmax(0)
            gumbel = -(-uniform[b, c].log()).log()
            weights = ((logits + gumbel) / solver.tau).softmax(0)
            wanted = sum(weights[k] * execute(solver, k, cells, {8})[8] for k in range(4))
            found = prediction.latents[b, 0].view(5, 3)[c]
            torch.testing.assert_close(found, wanted)


def test_scores_are_negative_squared_distances_over_all_missing_panels(build, batch):
    solver = build(test_rule="argmax").eval()
    panels = batch(2).panels
    candidates = batch(6, seed=9).panels[:, :2].reshape(2, 3, 2, 1, 12, 12)
    missing = torch.zeros(2, 9, dtype=torch.bool)
    missing[:, [2, 6]] = True
    with torch.no_grad():
        prediction = solver.predict(panels, missing, torch.Generator())
        latent = solver.score(prediction, candidates, "latent")
        pixel = solver.score(prediction, candidates, "pixel")
        for b, n in itertools.product(range(2), range(3)):
            codes = encode(solver, candidates[b, n], False).flatten(1)
            distance = ((codes - prediction.latents[b]) ** 2).sum()
            torch.testing.assert_close(latent[b, n], -distance)
            difference = ((candidates[b, n] - prediction.images[b]) ** 2).sum()
            torch.testing.assert_close(pixel[b, n], -difference)
