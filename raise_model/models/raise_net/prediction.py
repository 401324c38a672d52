"""Rules and their predictions where any panels are missing, for many masks of the same problems.

The same computation as the masked forms of :mod:`.rules`, without its repetitions:

* a problem under equal masks is one *pair* of a problem and a mask;
* a row or column of a matrix goes through its network once for each set of its cells that some
  mask hides;
* a rule is executed where its weight is not zero, and only as far as the missing cells see.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from raise_model.models.common.precision import full_precision
from raise_model.models.raise_net.leave_one_out import rows_near
from raise_model.models.raise_net.rules import RuleExecutors, RuleNet
from raise_model.problem import NUM_PANELS

PROBLEMS_AT_ONCE = 128
"""In the row and column networks, whose hidden layers then fit the processor's cache."""


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Distinct pairs of a problem and a mask, mask after mask."""

    masks: Bool[Tensor, "distinct 9"]
    """True = missing (CPU)."""
    sizes: tuple[int, ...]
    """Number of pairs of each mask."""
    problem: Int[Tensor, " pairs"]
    asked: Int[Tensor, "masks batch"]
    """The pair of each problem under each mask that was asked for."""


def distinct_pairs(missing: Bool[Tensor, "masks batch 9"]) -> Pairs:
    batch = missing.shape[1]
    bits = 2 ** torch.arange(NUM_PANELS, device=missing.device)
    problems = torch.arange(batch, device=missing.device)
    keys = (missing * bits).sum(2) * batch + problems
    pairs, asked = keys.unique(return_inverse=True)
    masks, sizes = (pairs // batch).unique_consecutive(return_counts=True)
    return Pairs(
        masks=(masks[:, None] & bits != 0).cpu(),
        sizes=tuple(sizes.tolist()),
        problem=pairs % batch,
        asked=asked,
    )


def prior_logits(
    net: RuleNet, codes: Float[Tensor, "batch 9 concepts dims"], pairs: Pairs
) -> Float[Tensor, "pairs concepts rules"]:
    """Logits over the rules of each concept, from the panels that a mask shows."""
    grid = codes.unflatten(1, (3, 3))
    cells = net.target.to(codes.dtype).unflatten(0, (3, 3))
    hidden = pairs.masks.unflatten(1, (3, 3))
    features = []
    for axis, network in ((1, net.row), (2, net.column)):
        total = codes.new_zeros(len(pairs.problem), codes.shape[2], net.features)
        for line in range(3):
            _add_features(
                total, network, grid.select(axis, line), cells.select(axis - 1, line),
                hidden.select(axis, line), pairs,
            )  # fmt: skip
        features.append(total / 3)
    return net.head(torch.cat(features, -1))


def _add_features(
    total: Float[Tensor, "pairs concepts features"],
    network: nn.Module,
    lines: Float[Tensor, "batch 3 concepts dims"],
    cells: Float[Tensor, "3 dims"],
    hidden: Bool[Tensor, "distinct 3"],
    pairs: Pairs,
) -> None:
    """Add what a network makes of one row (or column) of each pair, hidden cells replaced."""
    sets, of_mask = hidden.unique(dim=0, return_inverse=True)
    of_pair = of_mask.repeat_interleave(torch.tensor(pairs.sizes))
    for number, hides in enumerate(sets.to(lines.device)):
        rows = (of_pair == number).nonzero()[:, 0].to(lines.device)
        problems, place = pairs.problem[rows].unique(return_inverse=True)
        shown = torch.where(hides[:, None, None], cells[:, None], lines[problems])
        inputs = shown.transpose(1, 2).flatten(2)
        outputs = torch.cat([network(part) for part in inputs.split(PROBLEMS_AT_ONCE)])
        total.index_add_(0, rows, full_precision(outputs)[place])


def execute(
    executors: RuleExecutors,
    codes: Float[Tensor, "batch 9 concepts dims"],
    pairs: Pairs,
    needed: Bool[Tensor, "pairs concepts rules"],
) -> Float[Tensor, "pairs targets concepts rules dims"]:
    """What the needed rules predict at the missing cells, ascending; zero elsewhere.

    ``targets`` is the greatest number of missing cells of any mask.
    """
    dims, width = codes.shape[3], executors.second.weight.shape[2]
    first, second = executors.first.matrix(), executors.second.matrix()
    last = executors.last.matrix().view(-1, NUM_PANELS, width, NUM_PANELS, dims)
    results = codes.new_zeros(
        len(pairs.problem), int(pairs.masks.sum(1).max()), codes.shape[2], len(last), dims
    )
    start = 0
    for mask, size in zip(pairs.masks, pairs.sizes, strict=True):
        some = slice(start, start + size)
        start += size
        targets = mask.nonzero()[:, 0].tolist()
        rows = rows_near(targets)
        near = [cell for row in rows for cell in range(row.cells.start, row.cells.stop)]
        blocks = [row.times(width)[:2] for row in rows]
        maps = codes[pairs.problem[some]].masked_fill(mask.to(codes.device)[:, None, None], 0)
        maps = maps.transpose(1, 2).flatten(2)
        for rule in range(len(last)):
            pair, concept = needed[some, :, rule].nonzero(as_tuple=True)
            values = maps[pair, concept] @ first[rule] + executors.first.bias[rule].repeat(9)
            values = values.relu_()
            parts = [values[:, seen] @ second[rule, seen, cells] for seen, cells in blocks]
            values = torch.cat(parts, 1) + executors.second.bias[rule].repeat(len(near))
            matrix = last[rule][near][:, :, targets].flatten(2).flatten(0, 1)
            values = values.relu_() @ matrix + executors.last.bias[rule].repeat(len(targets))
            values = full_precision(values).unflatten(1, (len(targets), dims))
            results[some][pair, : len(targets), concept, rule] = values
    return results
