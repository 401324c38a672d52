"""RAISE's objective written out: loops over targets, problems, concepts, rules and cells.

Straight from the paper's formulas and the authors' reading of them, with no batching; it
shares only parameters with the fast implementation.
"""

import math

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment


def execute(solver, rule, cells):
    """h with the parameters of one rule: three padded 3x3 convolutions on a (9, d) matrix."""
    executors = solver.executors
    image = cells.T.reshape(1, -1, 3, 3)
    for layer, last in ((executors.first, False), (executors.second, False), (executors.last, True)):
        weight = layer.weight[rule].unflatten(-1, (3, 3))
        image = F.conv2d(image, weight, layer.bias[rule], padding=1)
        if not last:
            image = image.relu()
    return image.reshape(-1, 9).T


def prior_logits(solver, cells, missing):
    """f_row over the rows, f_col over the columns, their means, f_ind."""
    net = solver.rule_net
    shown = [net.target[i] if missing[i] else cells[i] for i in range(9)]
    rows = [net.row(torch.cat([shown[3 * i + j] for j in range(3)])) for i in range(3)]
    columns = [net.column(torch.cat([shown[3 * i + j] for i in range(3)])) for j in range(3)]
    p, q = sum(rows) / 3, sum(columns) / 3
    return net.head(torch.cat([p, q]))


def rules_of(solver, codes, target, missing):
    """Log prior (C, K) and every rule's prediction (C, K, d) of one problem's target cell."""
    concepts, rules = solver.config.num_concepts, solver.config.num_rules
    priors, predictions = [], []
    for c in range(concepts):
        cells = codes[:, c]
        priors.append(prior_logits(solver, cells, missing).log_softmax(-1))
        blank = torch.stack(
            [torch.zeros_like(cells[i]) if missing[i] else cells[i] for i in range(9)]
        )
        predictions.append(torch.stack([execute(solver, k, blank)[target] for k in range(rules)]))
    return torch.stack(priors), torch.stack(predictions)


def loss(solver, panels, labels, noise, targets, uniform):
    """Total to be minimised, and its terms.

    :param noise: standard normal draws like the codes.
    :param targets: list of positions for each problem.
    :param uniform: uniform draws of the Gumbel noise, (T, B, C, K).
    """
    config = solver.config
    batch = len(panels)
    means = solver.encode(panels)
    codes = means + config.sigma_z * noise
    number = len(targets[0])
    prediction = rule = torch.zeros((), dtype=panels.dtype)
    prior_all, posterior_all = {}, {}
    for b in range(batch):
        for t, target in enumerate(targets[b]):
            missing = [i == target for i in range(9)]
            prior, predicted = rules_of(solver, codes[b], target, missing)
            for c in range(config.num_concepts):
                unnormalised = [
                    prior[c, k]
                    - (codes[b, target, c] - predicted[c, k]).square().sum()
                    / (2 * config.sigma_z**2)
                    for k in range(config.num_rules)
                ]
                posterior = torch.stack(unnormalised).log_softmax(-1)
                gumbel = -torch.log(-torch.log(uniform[t, b, c]))
                weights = ((posterior + gumbel) / solver.tau).softmax(-1)
                if config.rule_sample == "hard":
                    hard = F.one_hot(weights.argmax(), config.num_rules).to(weights)
                    weights = hard + weights - weights.detach()
                mixture = sum(weights[k] * predicted[c, k] for k in range(config.num_rules))
                gap = (means[b, target, c] - mixture).square().sum()
                prediction = prediction + gap / (2 * config.sigma_z**2)
                for k in range(config.num_rules):
                    p = posterior[k].exp()
                    rule = rule + p * (posterior[k] - prior[c, k])
                prior_all[t, b, c], posterior_all[t, b, c] = prior[c], posterior
    prediction, rule = prediction / (batch * number), rule / (batch * number)
    label = supervision(config, labels, prior_all, posterior_all, number)
    reconstruction = rebuild(solver, panels, codes, targets)
    total = (
        config.reconstruction_weight * reconstruction
        + config.beta_prediction * prediction
        + config.beta_rule * rule
        - config.beta_label * label
    )
    return total, {
        "reconstruction": reconstruction,
        "prediction": prediction,
        "rule": rule,
        "label": label,
    }


def supervision(config, labels, prior, posterior, number):
    """The label term under the assignment of greatest gain."""
    batch, attributes = labels.shape
    gain = [[torch.zeros(()).double()] * config.num_concepts for _ in range(attributes)]
    labelled = sum(bool((labels[b] >= 0).any()) for b in range(batch))
    for a in range(attributes):
        for c in range(config.num_concepts):
            for b in range(batch):
                v = int(labels[b, a])
                if v < 0:
                    continue
                for t in range(number):
                    before, after = prior[t, b, c][v].exp(), posterior[t, b, c][v].exp()
                    if config.label_loss == "code":
                        value = (before + after) / 2
                    elif config.label_loss == "mean_log":
                        value = (before.log() + after.log()) / 2
                    else:
                        value = (before + after).log() / 2 / max(labelled, 1)
                    gain[a][c] = gain[a][c] + value / number
    matrix = torch.stack([torch.stack(row) for row in gain])
    rows, columns = linear_sum_assignment(matrix.detach().numpy(), maximize=True)
    return sum(matrix[a, c] for a, c in zip(rows, columns, strict=True))


def rebuild(solver, panels, codes, targets):
    """Squared error of the decoded panels over 2 sigma_x^2; one decoder (BatchNorm) batch."""
    batch = len(panels)
    if solver.config.decoded == "all":
        chosen = [(b, i) for b in range(batch) for i in range(9)]
    else:
        chosen = [(b, targets[b][t]) for t in range(len(targets[0])) for b in range(batch)]
    images = solver.decoder(torch.stack([codes[b, i].flatten() for b, i in chosen]))
    errors = [
        (image - panels[b, i]).square().sum() / (2 * solver.config.sigma_x**2)
        for image, (b, i) in zip(images, chosen, strict=True)
    ]
    return sum(errors) / len(errors)


def encoder(solver, panels):
    """Encoder in torch's own (N, C, H, W) layers, with the solver's parameters."""
    images = panels
    for module in solver.encoder.layers:
        images = _literal(module, images)
    return solver.encoder.codes(images.flatten(1))


def decoder(solver, codes):
    """Decoder in torch's own (N, C, H, W) layers."""
    images = codes[:, :, None, None]
    for module in solver.decoder.layers:
        images = _literal(module, images)
    return images.sigmoid()


def _literal(module, images):
    layer = getattr(module, "layer", module)
    if isinstance(layer, torch.nn.BatchNorm1d):
        return F.batch_norm(
            images, layer.running_mean.clone(), layer.running_var.clone(), layer.weight,
            layer.bias, layer.training, layer.momentum, layer.eps,
        )  # fmt: skip
    return layer(images)


def log_normal(x, mean, sigma):
    """Log density of a Gaussian, summed over all entries."""
    return (
        -((x - mean) ** 2) / (2 * sigma**2) - math.log(sigma) - 0.5 * math.log(2 * math.pi)
    ).sum()
