"""Perceptrons of equal shape but own weights, one for each concept, in one batched product."""

import math
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn


class GroupedMLP(nn.Module):
    """``groups`` multilayer perceptrons side by side, ReLU between their layers.

    Every layer starts as a ``torch.nn.Linear`` of its own would.

    :param sizes: inputs, hidden widths and outputs of each perceptron.
    """

    def __init__(self, groups: int, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for inputs, outputs in pairwise(sizes):
            bound = 1 / math.sqrt(inputs)
            self.weights.append(torch.empty(groups, inputs, outputs).uniform_(-bound, bound))
            self.biases.append(torch.empty(groups, 1, outputs).uniform_(-bound, bound))

    def forward(self, values: Float[Tensor, "groups n inputs"]) -> Float[Tensor, "groups n out"]:
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = torch.baddbmm(bias, values.relu() if layer else values, weight)
        return values
