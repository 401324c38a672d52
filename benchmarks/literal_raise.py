"""RAISE written the plain way: what a first reading of the paper gives (appendix C.1).

Images are (batch, channels, height, width) in fp32; every concept goes through the rule
networks, and through every rule's convolutions, in Python loops.  The opponent of
``train_step.py``; the same function as the package's RAISE at ``preset=paper``, parameter for
parameter.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

CONCEPTS, SIZE, RULES, ATTRIBUTES = 8, 8, 4, 3
SIGMA, TAU = 0.1, 0.1


def _encoder() -> nn.Sequential:
    layers: list[nn.Module] = []
    inputs = 1
    for outputs in (64, 128, 256, 512):
        layers += [nn.Conv2d(inputs, outputs, 4, 2, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
        inputs = outputs
    layers += [nn.Conv2d(512, 512, 4), nn.BatchNorm2d(512), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(512, CONCEPTS * SIZE))


def _decoder() -> nn.Sequential:
    layers: list[nn.Module] = [nn.ConvTranspose2d(CONCEPTS * SIZE, 256, 1)]
    inputs = 256
    for outputs, kernel, stride, padding in (
        (128, 4, 1, 0), (64, 4, 2, 1), (32, 4, 2, 1), (32, 4, 2, 1), (1, 4, 2, 1),
    ):  # fmt: skip
        layers += [
            nn.BatchNorm2d(inputs),
            nn.LeakyReLU(0.02),
            nn.ConvTranspose2d(inputs, outputs, kernel, stride, padding),
        ]
        inputs = outputs
    return nn.Sequential(*layers, nn.Sigmoid())


def _mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _executor() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(SIZE, 128, 3, padding=1), nn.ReLU(),
        nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(),
        nn.Conv2d(128, SIZE, 3, padding=1),
    )  # fmt: skip


class LiteralRaise(nn.Module):
    """One target position a step, as the paper and its authors' code train."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = _encoder(), _decoder()
        self.row, self.column = _mlp(3 * SIZE, 512, 512, 64), _mlp(3 * SIZE, 512, 512, 64)
        self.head = _mlp(128, 64, 64, RULES)
        self.executors = nn.ModuleList(_executor() for _ in range(RULES))
        self.target = nn.Parameter(torch.zeros(9, SIZE))

    def _prior(self, cells: Tensor, position: int) -> Tensor:
        """Log prior over the rules from one concept's nine cells (batch, 9, size)."""
        shown = cells.clone()
        shown[:, position] = self.target[position]
        grid = shown.view(-1, 3, 3, SIZE)
        rows = torch.stack([self.row(grid[:, i].flatten(1)) for i in range(3)]).mean(0)
        columns = torch.stack([self.column(grid[:, :, i].flatten(1)) for i in range(3)]).mean(0)
        return self.head(torch.cat([rows, columns], 1)).log_softmax(1)

    def loss(self, panels: Tensor, labels: Tensor, position: int) -> Tensor:
        """Objective on panels (batch, 9, 1, 64, 64) and labels (batch, attributes)."""
        means = self.encoder(panels.flatten(0, 1)).view(-1, 9, CONCEPTS, SIZE)
        codes = means + SIGMA * torch.randn_like(means)
        gains, prediction, rule = [], torch.zeros(()), torch.zeros(())
        for concept in range(CONCEPTS):
            cells, target = codes[:, :, concept], codes[:, position, concept]
            prior = self._prior(cells, position)
            context = cells.clone()
            context[:, position] = 0
            maps = context.transpose(1, 2).reshape(-1, SIZE, 3, 3)
            predicted = torch.stack(
                [executor(maps).flatten(2)[:, :, position] for executor in self.executors], 1
            )
            distance = (target[:, None] - predicted).square().sum(2)
            posterior = (prior - distance / (2 * SIGMA**2)).log_softmax(1)
            weights = F.gumbel_softmax(posterior, TAU)
            mixture = (weights[:, :, None] * predicted).sum(1)
            error = (means[:, position, concept] - mixture).square().sum(1)
            prediction = prediction + error.mean() / (2 * SIGMA**2)
            rule = rule + (posterior.exp() * (posterior - prior)).sum(1).mean()
            right = (prior.exp() + posterior.exp()) / 2
            gains.append(torch.stack([right.gather(1, label[:, None]).sum() for label in labels.T]))
        gain = torch.stack(gains, 1)
        attributes, concepts = linear_sum_assignment(gain.detach().numpy(), maximize=True)
        image = self.decoder(codes[:, position].reshape(-1, CONCEPTS * SIZE, 1, 1))
        squared = (image - panels[:, position]).square().flatten(1).sum(1)
        label = gain[attributes, concepts].sum()
        return squared.mean() / (2 * SIGMA**2) + 5 * prediction + 20 * rule - 10 * label
