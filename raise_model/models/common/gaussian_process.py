"""Exact Gaussian-process regression on small sets of points, batched, in float64.

Kernels of nearly equal points are singular to fp32: eight points that a new network maps close
together have a condition number far above 1e8.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def rbf_kernel(points: Float[Tensor, "*batch n dims"]) -> Float[Tensor, "*batch n n"]:
    """exp(-|x - y|^2 / 2) of every pair: length scale 1, variance 1.  Always float64."""
    points = points.double()
    difference = points[..., :, None, :] - points[..., None, :, :]
    return torch.exp(-0.5 * difference.square().sum(-1))


def posterior(
    known: Float[Tensor, "*batch n n"],
    cross: Float[Tensor, "*batch m n"],
    target: Float[Tensor, "*batch m m"],
    values: Float[Tensor, "*batch n"],
    jitter: float,
) -> tuple[Float[Tensor, "*batch m"], Float[Tensor, "*batch m m"]]:
    """Mean and covariance at m target points, given noise-free values at n known ones.

    :param known, cross, target: blocks of the kernel matrix, float64.
    :param jitter: added to the diagonal of ``known``.
    :returns: K_tn (K_nn + jitter I)^-1 z and K_tt - K_tn (K_nn + jitter I)^-1 K_nt, float64.
    """
    identity = torch.eye(known.shape[-1], dtype=known.dtype, device=known.device)
    factor = torch.linalg.cholesky(known + jitter * identity)
    # With K = L L^T: K_tn K^-1 = (L^-1 K_nt)^T L^-1.
    half = torch.linalg.solve_triangular(factor, cross.mT, upper=False)
    white = torch.linalg.solve_triangular(factor, values[..., None].double(), upper=False)
    return (half.mT @ white)[..., 0], target - half.mT @ half
