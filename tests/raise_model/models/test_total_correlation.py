"""The estimate of the total correlation against loops over samples, panels and entries."""

import math

import pytest
import torch
from torch.distributions import Normal

from raise_model.models.common.total_correlation import total_correlation


def random_codes(samples, panels, concepts=3, dims=2, spread=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (samples + panels, concepts, dims)
    codes = spread * torch.randn(shape, generator=generator, dtype=torch.float64)
    return codes[:samples], codes[samples:]


def double_loop(samples, means, sigma):
    """Mean of log q(z) - sum_c log q(z_c), with normalised densities of equal mixtures."""
    total = 0.0
    for z in samples:
        joint, marginals = 0.0, [0.0] * means.shape[1]
        for mean in means:
            parts = [
                math.exp(Normal(m, sigma).log_prob(v).sum()) for v, m in zip(z, mean, strict=True)
            ]
            joint += math.prod(parts) / len(means)
            marginals = [a + p / len(means) for a, p in zip(marginals, parts, strict=True)]
        total += math.log(joint) - sum(map(math.log, marginals))
    return total / len(samples)


@pytest.mark.parametrize("chunk", [2, 3, 7, 256])
def test_estimate_equals_a_double_loop(chunk):
    samples, means = random_codes(7, 11)
    found = total_correlation(samples, means, 0.7, chunk=chunk)
    assert float(found) == pytest.approx(double_loop(samples, means, 0.7), rel=1e-10)


def test_chunks_do_not_change_value_or_gradients():
    def gradients(chunk):
        samples, means = (part.requires_grad_() for part in random_codes(9, 12))
        value = total_correlation(samples, means, 0.3, chunk=chunk)
        return value, *torch.autograd.grad(value, [samples, means])

    for whole, parts in zip(gradients(9), gradients(4), strict=True):
        torch.testing.assert_close(parts, whole)


def test_single_concepts_and_independent_ones_have_none_and_copies_have_much():
    samples, means = random_codes(50, 50, concepts=1)
    assert float(total_correlation(samples, means, 0.5)) == pytest.approx(0.0, abs=1e-12)
    # Every pair of the values of two concepts is present.
    values = torch.linspace(-2, 2, 20, dtype=torch.float64)
    grid = torch.cartesian_prod(values, values)[:, :, None]
    assert float(total_correlation(grid, grid, 0.1)) == pytest.approx(0.0, abs=1e-6)
    copies = values[:, None, None].expand(20, 2, 1)
    assert float(total_correlation(copies, copies, 0.01)) == pytest.approx(math.log(20), rel=1e-3)


def test_densities_far_below_the_smallest_number_stay_finite():
    samples, means = (codes.float().requires_grad_() for codes in random_codes(5, 6, spread=100.0))
    value = total_correlation(samples, means, 0.1)
    assert torch.isfinite(value)
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(value, [samples, means]))


def test_memory_does_not_grow_with_the_number_of_samples():
    """Of everything kept for the backward pass, nothing is as large as samples x panels."""
    kept = []
    samples, means = (part.requires_grad_() for part in random_codes(40, 30))
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.append(t.numel()) or t, lambda t: t
    ):
        total_correlation(samples, means, 0.5, chunk=8)
    assert max(kept) <= 40 * 3 * 2
