"""Rule abstraction (f_row, f_col, f_ind) and rule execution (h) of RAISE (paper, section 3.1).

Both work on one concept at a time: its nine values on the 3x3 matrix, with the missing cells
replaced.  The same networks serve every concept.

Two forms of the same computation:

* *leave one out* (training): from codes of complete matrices, for each of some target cells
  that are the same in all matrices, the matrix with that one cell missing.  The row and column
  networks run once on what the targets share, the executors only where the target sees.
* *masked* (prediction): any cells missing in each matrix, the whole map.

The executors are 3x3 convolutions on a 3x3 map with zero padding; here each is written as one
matrix over all input and output cells, so that all concepts and rules are a few batched matrix
products.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from raise_model.models.raise_net.config import RaiseConfig
from raise_model.models.raise_net.leave_one_out import LeaveOneOut


def _tap_selection() -> Float[Tensor, "taps outputs inputs"]:
    """1 where kernel tap ``t`` of a padded 3x3 convolution joins an output and an input cell."""
    selection = torch.zeros(9, 9, 9)
    for output in range(9):
        for cell in range(9):
            down, right = cell // 3 - output // 3 + 1, cell % 3 - output % 3 + 1
            if 0 <= down < 3 and 0 <= right < 3:
                selection[3 * down + right, output, cell] = 1
    return selection


class MapConvolution(nn.Module):
    """K separate 3x3 convolutions on 3x3 maps, as dense matrices between cells."""

    selection: Tensor

    def __init__(self, num_rules: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(9 * inputs)  # the initial distribution of torch's Conv2d
        self.weight = nn.Parameter(
            torch.empty(num_rules, outputs, inputs, 9).uniform_(-bound, bound)
        )
        self.bias = nn.Parameter(torch.empty(num_rules, outputs).uniform_(-bound, bound))
        self.register_buffer("selection", _tap_selection(), persistent=False)

    def matrix(self) -> Float[Tensor, "rules cells_inputs cells_outputs"]:
        """The convolution from all cells to all cells, cell-major."""
        rules, outputs, inputs, _ = self.weight.shape
        dense = torch.matmul(self.weight, self.selection.flatten(1))
        dense = dense.view(rules, outputs, inputs, 9, 9)
        return dense.permute(0, 4, 2, 3, 1).reshape(rules, 9 * inputs, 9 * outputs)

    def forward(
        self, maps: Float[Tensor, "rules n cells_inputs"]
    ) -> Float[Tensor, "rules n cells_outputs"]:
        return torch.baddbmm(self.bias.repeat(1, 9)[:, None], maps, self.matrix())


class RuleExecutors(nn.Module):
    """h with the K parameter sets psi: three convolutions with ReLU between."""

    def __init__(self, config: RaiseConfig) -> None:
        super().__init__()
        rules, size, width = config.num_rules, config.concept_size, config.executor_channels
        self.num_rules = rules
        self.first = MapConvolution(rules, size, width)
        self.second = MapConvolution(rules, width, width)
        self.last = MapConvolution(rules, width, size)

    def leave_one_out(
        self, maps: Float[Tensor, "n 9 dims"], targets: Sequence[int]
    ) -> Float[Tensor, "targets rules n dims"]:
        """What each rule predicts at a target cell from the other eight cells."""
        rules, width, dims = self.num_rules, self.second.weight.shape[2], maps.shape[2]
        tensors = (
            maps,
            self.first.matrix().transpose(0, 1).flatten(1),
            self.first.bias.repeat(1, 9).flatten(),
            self.second.matrix(),
            self.second.bias,
            self.last.matrix().view(rules, 9, width, 9, dims),
            self.last.bias,
        )
        kind = maps.device.type
        if torch.is_autocast_enabled(kind):
            tensors = tuple(tensor.to(torch.get_autocast_dtype(kind)) for tensor in tensors)
        with torch.autocast(kind, enabled=False):
            return cast(Tensor, LeaveOneOut.apply(*tensors, targets))

    def masked(
        self, maps: Float[Tensor, "n 9 dims"], missing: Bool[Tensor, "n 9"]
    ) -> Float[Tensor, "rules n 9 dims"]:
        """What each rule predicts at every cell, the missing ones starting from zero."""
        shown = torch.where(missing[..., None], 0, maps)
        values = shown.flatten(1).expand(self.num_rules, -1, -1)
        values = self.first(values).relu_()
        values = self.second(values).relu_()
        values = self.last(values)
        return values.view(self.num_rules, len(maps), 9, -1)


def _mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class RuleNet(nn.Module):
    """f_row, f_col and f_ind: logits of the prior over rules from a concept's context."""

    target: Tensor
    """What stands in a missing cell, for each position."""

    def __init__(self, config: RaiseConfig) -> None:
        super().__init__()
        size, hidden, features = (
            config.concept_size,
            config.rule_net_hidden,
            config.rule_net_features,
        )
        self.features = features
        self.row = _mlp(3 * size, hidden, hidden, features)
        self.column = _mlp(3 * size, hidden, hidden, features)
        head = config.rule_head_hidden
        self.head = _mlp(2 * features, head, head, config.num_rules)
        if config.rule_net_target == "learnable":
            self.target = nn.Parameter(torch.zeros(9, size))
        else:
            self.register_buffer("target", torch.zeros(9, size), persistent=False)

    def leave_one_out(
        self, maps: Float[Tensor, "n 9 dims"], targets: Sequence[int]
    ) -> Float[Tensor, "targets n rules"]:
        """Logits with one target cell missing, for each target.

        Each line network sees the three complete lines, and for each target the line that
        holds it once more with the cell replaced; the mean over lines exchanges one for the
        other.
        """
        grid = maps.unflatten(1, (3, 3))
        target = self.target.to(maps.dtype)
        features = []
        for net, lines, axis in (
            (self.row, grid, 0),
            (self.column, grid.transpose(1, 2), 1),
        ):
            changed, numbers = [], []
            for cell in targets:
                number, place = (cell // 3, cell % 3) if axis == 0 else (cell % 3, cell // 3)
                line = lines[:, number].clone()
                line[:, place] = target[cell]
                changed.append(line)
                numbers.append(number)
            every = torch.cat([lines, torch.stack(changed, 1)], 1).flatten(2)
            outputs = net(every)
            whole, replaced = outputs[:, :3], outputs[:, 3:]
            total = whole.sum(1, keepdim=True) - whole[:, numbers] + replaced
            features.append(total / 3)
        return self.head(torch.cat(features, -1)).transpose(0, 1)

    def masked(
        self, maps: Float[Tensor, "n 9 dims"], missing: Bool[Tensor, "n 9"]
    ) -> Float[Tensor, "n rules"]:
        """Logits with any cells missing in each matrix."""
        shown = torch.where(missing[..., None], self.target.to(maps.dtype), maps)
        grid = shown.unflatten(1, (3, 3))
        rows = self.row(grid.flatten(2)).mean(1)
        columns = self.column(grid.transpose(1, 2).flatten(2)).mean(1)
        return self.head(torch.cat([rows, columns], -1))
