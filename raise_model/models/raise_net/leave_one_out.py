"""Rule execution at one missing cell after another, forwards and backwards by hand.

The three convolutions of an executor on a 3x3 map are matrices between cells (cell-major:
all channels of cell 0, then of cell 1, ...).  For a target cell

* the first layer runs on the whole map with the target's inputs zero, all rules in one product;
* the second only at the target and its neighbours, row by row of the map, since a row of cells
  sees a contiguous block of two or three rows;
* the last only at the target.

Autograd would fill a whole gradient for every slice of the matrices; here each product adds
to its own block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class NearRow:
    """The cells of one map row that the targets see, with the cells that they see."""

    seen: slice
    """Inputs, as cells of the map."""
    cells: slice
    """Outputs, as cells of the map."""
    place: slice
    """Outputs, as places in the targets' neighbourhood."""

    def times(self, width: int) -> tuple[slice, slice, slice]:
        """The same three ranges in numbers of a cell-major axis."""
        ranges = (self.seen, self.cells, self.place)
        seen, cells, place = (slice(r.start * width, r.stop * width) for r in ranges)
        return seen, cells, place


def rows_near(targets: Sequence[int]) -> list[NearRow]:
    """The neighbourhood of some cells (the cells and all beside them, corners included) by rows.

    Of a row it has all cells from the first to the last that a target sees.
    """
    rows, place = [], 0
    for r in range(3):
        columns = [target % 3 for target in targets if abs(target // 3 - r) <= 1]
        if not columns:
            continue
        left, right = max(min(columns) - 1, 0), min(max(columns) + 2, 3)
        seen = slice(3 * max(r - 1, 0), 3 * min(r + 2, 3))
        cells, places = slice(3 * r + left, 3 * r + right), slice(place, place + right - left)
        rows.append(NearRow(seen, cells, places))
        place = places.stop
    return rows


def _near(target: int) -> list[int]:
    return [cell for row in rows_near([target]) for cell in range(row.cells.start, row.cells.stop)]


class LeaveOneOut(torch.autograd.Function):
    """(maps, matrices and biases of three layers, targets) -> predictions at the targets."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Float[Tensor, "n 9 dims"],
        w1: Float[Tensor, "cells_dims rules_cells_width"],
        b1: Float[Tensor, " rules_cells_width"],
        w2: Float[Tensor, "rules cells_width cells_width"],
        b2: Float[Tensor, "rules width"],
        w3: Float[Tensor, "rules 9 width 9 dims"],
        b3: Float[Tensor, "rules dims"],
        targets: Sequence[int],
    ) -> Float[Tensor, "targets rules n dims"]:
        n, (rules, width) = len(maps), b2.shape
        firsts, seconds, outputs = [], [], []
        for target in targets:
            first = torch.addmm(b1, _without(maps, target), w1).relu_()
            by_rule = first.view(n, rules, -1).transpose(0, 1)
            near = _near(target)
            second = maps.new_empty(rules, n, len(near) * width)
            for row in rows_near([target]):
                seen, cells, place = row.times(width)
                torch.bmm(by_rule[:, :, seen], w2[:, seen, cells], out=second[:, :, place])
            second.add_(b2.repeat(1, len(near))[:, None]).relu_()
            last = w3[:, near, :, target].flatten(1, 2)
            outputs.append(torch.baddbmm(b3[:, None], second, last))
            firsts.append(first)
            seconds.append(second)
        ctx.targets = targets
        ctx.save_for_backward(maps, w1, w2, w3, *firsts, *seconds)
        return torch.stack(outputs)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]: torch's own decorator
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        (gradient,) = grad_outputs  # targets, rules, n, dims
        maps, w1, w2, w3, *hidden = ctx.saved_tensors
        firsts, seconds = hidden[: len(ctx.targets)], hidden[len(ctx.targets) :]
        n, rules, width = len(maps), w3.shape[0], w3.shape[2]
        # Sums over targets are kept in full precision.
        exact = torch.promote_types(maps.dtype, torch.float32)
        sums = [torch.zeros_like(x, dtype=exact) for x in (maps, w1, w1[0], w2, w3[:, 0, :, 0, 0])]
        g_maps, g_w1, g_b1, g_w2, g_b2 = sums
        g_w3 = torch.zeros_like(w3, dtype=exact)
        for g_out, target, first, second in zip(
            gradient, ctx.targets, firsts, seconds, strict=True
        ):
            near = _near(target)
            last = w3[:, near, :, target].flatten(1, 2)
            block = torch.bmm(second.transpose(1, 2), g_out)
            g_w3[:, near, :, target] += block.unflatten(1, (len(near), width))
            g_second = _through_relu(torch.bmm(g_out, last.transpose(1, 2)), second)
            g_b2 += g_second.sum(1).unflatten(1, (len(near), width)).sum(1)
            by_rule = first.view(n, rules, -1).transpose(0, 1)
            g_first = torch.zeros_like(first)
            g_by_rule = g_first.view(n, rules, -1).transpose(0, 1)
            for row in rows_near([target]):
                seen, cells, place = row.times(width)
                g_row = g_second[:, :, place]
                g_w2[:, seen, cells] += torch.bmm(by_rule[:, :, seen].transpose(1, 2), g_row)
                g_by_rule[:, :, seen].baddbmm_(g_row, w2[:, seen, cells].transpose(1, 2))
            g_first = _through_relu(g_first, first)
            g_w1 += _without(maps, target).T @ g_first
            g_b1 += g_first.sum(0)
            g_map = (g_first @ w1.T).view(maps.shape)
            g_map[:, target] = 0
            g_maps += g_map
        g_b3 = gradient.to(exact).sum((0, 2))
        found = (g_maps, g_w1, g_b1, g_w2, g_b2, g_w3, g_b3)
        return *(g.to(maps.dtype) for g in found), None


def _without(maps: Float[Tensor, "n 9 dims"], target: int) -> Float[Tensor, "n cells_dims"]:
    """The maps with zeros at one cell, whose values are not read."""
    shown = maps.clone()
    shown[:, target] = 0
    return shown.flatten(1)


def _through_relu(gradient: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward(gradient, output, 0)
