"""Tiny RAISE settings and synthetic batches, sizes odd so that axes cannot be confused."""

import dataclasses

import pytest
import torch

from raise_model.models.raise_net.config import smoke
from raise_model.models.raise_net.model import Raise
from raise_model.problem import UNLABELLED, Batch

SIZE = 12
ATTRIBUTES = 3


def tiny_config(**changes):
    """5 concepts of 3 numbers, 4 rules, two convolutions on 12 x 12 panels."""
    small = dataclasses.replace(
        smoke(),
        num_concepts=5, concept_size=3, num_rules=4,
        encoder_channels=(3, 7), encoder_kernels=(4, 3), encoder_strides=(2, 3),
        encoder_paddings=(1, 0), encoder_hidden=11, decoder_hidden=13, decoder_channels=(7, 5),
        rule_net_hidden=8, rule_net_features=6, rule_head_hidden=9, executor_channels=5,
        labelled_batch=2, unlabelled_batch=3, test_rule="sample", always_bottom_right=False,
    )  # fmt: skip
    return dataclasses.replace(small, **changes)


def synthetic_batch(problems, *, size=SIZE, labelled=None, seed=0, dtype=torch.float64):
    """Random panels; the first ``labelled`` problems (default all) carry labels."""
    generator = torch.Generator().manual_seed(seed)
    panels = torch.rand(problems, 9, 1, size, size, generator=generator, dtype=dtype)
    labels = torch.randint(4, (problems, ATTRIBUTES), generator=generator)
    labels[problems if labelled is None else labelled :] = UNLABELLED
    return Batch(index=torch.arange(problems), panels=panels, rule_labels=labels)


class SyntheticBatches:
    """An endless stream of random problems; ``labelled`` of the 600 carry labels."""

    def __init__(self, *, size=SIZE, labelled=30, every=600, seed=0, dtype=torch.float32):
        self.size, self.dtype, self.seed = size, dtype, seed
        self.numbers = {"labelled": labelled, "all": every}
        self.drawn = []

    def draw(self, pool, size, *, partial=False):
        self.drawn.append((pool, size, partial))
        self.seed += 1
        labelled = size if pool == "labelled" else 0
        return synthetic_batch(
            size, size=self.size, labelled=labelled, seed=self.seed, dtype=self.dtype
        )

    def num_problems(self, pool):
        return self.numbers[pool]


@pytest.fixture
def config():
    return tiny_config


@pytest.fixture
def batch():
    return synthetic_batch


@pytest.fixture
def batches():
    return SyntheticBatches


@pytest.fixture
def build():
    """A tiny float64 solver with random BatchNorm parameters and rule-net target cells."""

    def make(seed=0, dtype=torch.float64, **changes):
        torch.manual_seed(seed)
        solver = Raise(tiny_config(**changes), SIZE).to(dtype)
        with torch.no_grad():
            for module in solver.networks.modules():
                if isinstance(module, torch.nn.BatchNorm1d):
                    module.weight.uniform_(0.5, 1.5)
                    module.bias.uniform_(-0.5, 0.5)
                    module.running_mean.uniform_(-0.5, 0.5)
                    module.running_var.uniform_(0.5, 1.5)
            if isinstance(solver.networks.rule_net.target, torch.nn.Parameter):
                solver.networks.rule_net.target.uniform_(-1, 1)
        return solver

    return make
