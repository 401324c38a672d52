"""Gaussian-process regression against a direct solve and against scikit-learn."""

import numpy as np
import pytest
import torch

from raise_model.models.common.gaussian_process import posterior, rbf_kernel

JITTER = 1e-4


@pytest.fixture
def sklearn():
    """scikit-learn's Gaussian processes; MLflow brings it, a bare GPU machine has none."""
    return pytest.importorskip("sklearn.gaussian_process")


def random_points(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def blocks(points, known):
    kernel = rbf_kernel(points)
    return kernel[..., :known, :known], kernel[..., known:, :known], kernel[..., known:, known:]


def test_kernel_is_that_of_scikit_learn(sklearn):
    points = random_points(9, 4)
    wanted = sklearn.kernels.RBF(1.0)(points.numpy())
    np.testing.assert_allclose(rbf_kernel(points).numpy(), wanted, rtol=1e-12)
    assert rbf_kernel(points.float()).dtype == torch.float64


@pytest.mark.parametrize("targets", [1, 2, 3])
def test_posterior_equals_a_direct_solve(targets):
    points, values = random_points(5, 2, 9, 4), random_points(5, 2, 9 - targets, seed=1)
    known, cross, target = blocks(points, 9 - targets)
    mean, covariance = posterior(known, cross, target, values, JITTER)
    matrix = known + JITTER * torch.eye(9 - targets, dtype=torch.float64)
    weights = torch.linalg.solve(matrix, cross.mT).mT
    torch.testing.assert_close(mean, torch.einsum("...mn,...n->...m", weights, values))
    torch.testing.assert_close(covariance, target - weights @ cross.mT)


@pytest.mark.parametrize("targets", [1, 3])
def test_posterior_equals_that_of_scikit_learn(sklearn, targets):
    points, values = random_points(9, 4, seed=2), random_points(9 - targets, seed=3)
    mean, covariance = posterior(*blocks(points, 9 - targets), values, JITTER)
    regressor = sklearn.GaussianProcessRegressor(
        sklearn.kernels.RBF(1.0, "fixed"), alpha=JITTER, optimizer=None
    )
    regressor.fit(points[: 9 - targets].numpy(), values.numpy())
    wanted = regressor.predict(points[9 - targets :].numpy(), return_cov=True)
    np.testing.assert_allclose(mean.numpy(), wanted[0], rtol=1e-9)
    np.testing.assert_allclose(covariance.numpy(), wanted[1], rtol=1e-9, atol=1e-12)


def test_equal_points_are_solved_with_finite_gradients():
    """A new network maps all cells to nearly the same point: the kernel has rank one."""
    points = (1e-9 * random_points(9, 4)).requires_grad_()
    values = random_points(8, seed=1)
    mean, covariance = posterior(*blocks(points, 8), values, JITTER)
    torch.testing.assert_close(mean, values.mean().expand(1), rtol=1e-3, atol=1e-3)
    (mean.sum() + covariance.sum()).backward()
    assert points.grad is not None
    assert torch.isfinite(points.grad).all()
