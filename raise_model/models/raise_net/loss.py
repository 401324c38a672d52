"""The terms of RAISE's objective (paper, sections 3.2 and 3.3, appendix A).

Shapes: T target positions, B problems, C concepts, d_z dims, K rules.  Every term is computed
in the precision of its inputs, which the model keeps at fp32 or higher.
"""

import math
from functools import cache
from itertools import permutations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from raise_model.models.raise_net.config import LabelLoss
from raise_model.problem import UNLABELLED


def posterior_logits(
    prior_log: Float[Tensor, "targets batch concepts rules"],
    target: Float[Tensor, "targets batch concepts dims"],
    predicted: Float[Tensor, "targets batch concepts rules dims"],
    sigma: float,
) -> Float[Tensor, "targets batch concepts rules"]:
    """log q(r | z_S, z_T), normalised: Gaussian likelihood of the target code under each rule
    times the prior (appendix A.1).
    """
    distance = (target[..., None, :] - predicted).square().sum(-1)
    return (prior_log - distance / (2 * sigma**2)).log_softmax(-1)


def gumbel_softmax(
    logits: Float[Tensor, "*axes rules"], tau: Tensor, generator: torch.Generator
) -> Float[Tensor, "*axes rules"]:
    """Soft sample of a categorical distribution at temperature ``tau``."""
    uniform = torch.rand(
        logits.shape, generator=generator, device=logits.device, dtype=logits.dtype
    )
    tiny = torch.finfo(logits.dtype).tiny
    gumbel = -(-(uniform.clamp_min(tiny).log())).clamp_min(tiny).log()
    return ((logits + gumbel) / tau).softmax(-1)


def reconstruction(
    images: Float[Tensor, "n 1 size size"], panels: Float[Tensor, "n 1 size size"], sigma: float
) -> Float[Tensor, ""]:
    """-L_rec without its constant: squared error over 2 sigma_x^2, mean over panels."""
    return F.mse_loss(images, panels, reduction="sum") / (len(images) * 2 * sigma**2)


def prediction_divergence(
    target_mean: Float[Tensor, "targets batch concepts dims"],
    predicted_mean: Float[Tensor, "targets batch concepts dims"],
    sigma: float,
) -> Float[Tensor, ""]:
    """R_pred: KL of two Gaussians of equal variance, summed over concepts, mean over the rest."""
    distance = (target_mean - predicted_mean).square().sum((-1, -2))
    return distance.mean() / (2 * sigma**2)


def rule_divergence(
    posterior_log: Float[Tensor, "targets batch concepts rules"],
    prior_log: Float[Tensor, "targets batch concepts rules"],
) -> Float[Tensor, ""]:
    """R_rule: KL of posterior from prior, summed over concepts, mean over the rest."""
    return (posterior_log.exp() * (posterior_log - prior_log)).sum((-1, -2)).mean()


def label_gain(
    prior_log: Float[Tensor, "targets batch concepts rules"],
    posterior_log: Float[Tensor, "targets batch concepts rules"],
    labels: Int[Tensor, "batch attributes"],
    form: LabelLoss,
) -> Float[Tensor, "attributes concepts"]:
    """L_sup of pairing each attribute with each concept, unlabelled entries left out.

    ``paper`` is a mean over the labelled problems, the other forms are sums over the batch:
    an average over the batch would weigh hundreds of times less.  All are means over targets.
    """
    if form == "code":
        value = (prior_log.exp() + posterior_log.exp()) / 2
    elif form == "mean_log":
        value = (prior_log + posterior_log) / 2
    elif form == "log_mean":
        value = torch.logaddexp(prior_log, posterior_log) - math.log(2)
    else:
        value = torch.logaddexp(prior_log, posterior_log) / 2
    known = labels != UNLABELLED
    wanted = F.one_hot(labels.clamp_min(0), value.shape[-1]) * known[..., None]
    gain = torch.einsum("tbck,bak->ac", value, wanted.to(value.dtype)) / len(value)
    if form == "paper":
        gain = gain / known.any(1).sum().clamp_min(1)
    return gain


def assign(
    gain: Float[Tensor, "attributes concepts"],
) -> tuple[Int[Tensor, " attributes"], Int[Tensor, " attributes"]]:
    """M (paper, equation of the assignment): attributes and their concepts, of greatest gain.

    On a GPU nothing waits for the host: :func:`assign_by_search` runs there.
    """
    if gain.is_cuda:
        return assign_by_search(gain.detach())
    values = gain.detach()
    if not values.isfinite().all():
        # SciPy refuses it; whichever way is taken the loss is not finite, and refused by name.
        return torch.arange(len(values)), torch.arange(len(values))
    attributes, concepts = linear_sum_assignment(values.numpy(), maximize=True)
    return torch.from_numpy(attributes), torch.from_numpy(concepts)


def assign_by_search(
    gain: Float[Tensor, "attributes concepts"],
) -> tuple[Int[Tensor, " attributes"], Int[Tensor, " attributes"]]:
    """The same assignment on the gain's own device, as the best of all: 40,320 at most for
    eight concepts.  There must not be more attributes than concepts.
    """
    attributes = torch.arange(len(gain), device=gain.device)
    ways = _injections(*gain.shape, gain.device)
    best = gain[attributes, ways].sum(1).argmax(keepdim=True)
    return attributes, ways[best][0]


@cache
def _injections(
    attributes: int, concepts: int, device: torch.device
) -> Int[Tensor, "ways attributes"]:
    """Every choice of a concept of its own for each attribute."""
    ways = [*permutations(range(concepts), attributes)]
    return torch.tensor(ways, device=device).view(-1, attributes)


def supervision(
    gain: Float[Tensor, "attributes concepts"],
    assignment: tuple[Int[Tensor, " attributes"], Int[Tensor, " attributes"]],
) -> Float[Tensor, ""]:
    """L_sup under an assignment, which is solved afresh for every batch."""
    return gain[assignment].sum()
