"""Total correlation of latent concepts, estimated on a minibatch.

TC(z) = KL(q(z) || prod_c q(z_c)), where q is the mixture of all panels' posteriors
N(mean, sigma^2): how far the concepts are from being independent (Chen et al. 2018).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK = 256
"""Samples compared with all panels at a time."""


def total_correlation(
    samples: Float[Tensor, "samples concepts dims"],
    means: Float[Tensor, "panels concepts dims"],
    sigma: float,
    *,
    chunk: int = CHUNK,
) -> Float[Tensor, ""]:
    """Mean over samples of log q(z) - sum_c log q(z_c), in nats.

    The densities of concepts are distances over 2 sigma^2; normalising constants cancel.

    Memory: a chunk needs four tensors of (concepts + 1) * ``chunk`` * panels numbers, forwards
    and backwards; with more samples than ``chunk`` the backward pass computes each chunk again,
    so the bound does not grow with their number (fp32, 2,304 panels, 10 concepts: 0.1 GB).

    :param sigma: standard deviation of every posterior.
    """
    concepts = means.shape[1]
    points = means.transpose(0, 1)
    parts = samples.transpose(0, 1).split(chunk, 1)
    if len(parts) == 1:
        ratios = [_log_ratio(parts[0], points, sigma)]
    else:
        ratios = [
            checkpoint(
                _log_ratio, part, points, sigma, use_reentrant=False, preserve_rng_state=False
            )
            for part in parts
        ]
    # A mixture density is the mean over panels, not the sum.
    return torch.stack(ratios).sum() / len(samples) + (concepts - 1) * math.log(len(means))


def _log_ratio(
    samples: Float[Tensor, "concepts samples dims"],
    means: Float[Tensor, "concepts panels dims"],
    sigma: float,
) -> Float[Tensor, ""]:
    """Sum over samples of log sum_n q(z | n) - sum_c log sum_n q(z_c | n)."""
    squares = samples.square().sum(2)[:, :, None] + means.square().sum(2)[:, None]
    distance = torch.baddbmm(squares, samples, means.mT, alpha=-2)
    log_density = distance * (-0.5 / sigma**2)
    joint = log_density.sum(0).logsumexp(-1)
    return (joint - log_density.logsumexp(-1).sum(0)).sum()
