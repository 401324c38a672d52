"""Size and arithmetic of a solver: parameters, floating-point operations of a problem."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import unwrap

import torch
from torch.utils import flop_counter
from torch.utils.flop_counter import FlopCounterMode

from raise_model.models.solver import Pool, Solver
from raise_model.problem import BOTTOM_RIGHT, NUM_CANDIDATES, NUM_PANELS, UNLABELLED, Batch

PROBLEMS = 3
"""Fewest problems in a batch: two, which BatchNorm needs, are labelled, and one is not.  The cost
of a problem is that of one more."""

_aten = torch.ops.aten
# What PyTorch's table lacks: operations in place, and attention on a CPU.  Its formulas take
# shapes; the counter wraps those that it is given by itself.
_FORMULAS = {
    operation: unwrap(formula)
    for operation, formula in (
        (_aten.addmm_, flop_counter.addmm_flop),
        (_aten.baddbmm_, flop_counter.baddbmm_flop),
        (_aten._scaled_dot_product_flash_attention_for_cpu, flop_counter.sdpa_flop),
        (
            _aten._scaled_dot_product_flash_attention_for_cpu_backward,
            flop_counter.sdpa_backward_flop,
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one problem; a multiplication and an addition are two operations.

    Matrix products, convolutions and attention are counted, as they are nearly all there is.
    """

    parameters: int
    training: float
    """Operations of a step, forwards and backwards, for each problem of its batch."""
    prediction: float
    """Operations of filling the last panel from the other eight, its picture included."""


class RandomBatches:
    """Random problems, the same ones whenever as many of a pool are asked for."""

    def __init__(self, image_size: int, attributes: int, *, problems: int, labelled: int) -> None:
        self._size, self._attributes = image_size, attributes
        self._pools: dict[Pool, int] = {"all": problems, "labelled": labelled}
        self._made: dict[tuple[Pool, int], Batch] = {}
        self.drawn = 0
        """Problems handed out so far."""

    def draw(self, pool: Pool, size: int, *, partial: bool = False) -> Batch:
        """See :meth:`raise_model.models.solver.Batches.draw`; ``partial`` never shortens."""
        problems = min(size, self.num_problems(pool))
        self.drawn += problems
        key = (pool, problems)
        if key not in self._made:
            self._made[key] = self._make(pool, problems)
        return self._made[key]

    def _make(self, pool: Pool, problems: int) -> Batch:
        generator = torch.Generator().manual_seed(problems)
        panels, candidates = (
            torch.rand(problems, number, 1, self._size, self._size, generator=generator)
            for number in (NUM_PANELS, NUM_CANDIDATES)
        )
        labels = torch.zeros(problems, self._attributes, dtype=torch.int64)
        return Batch(
            index=torch.arange(problems),
            panels=panels,
            candidates=candidates,
            answer=torch.zeros(problems, dtype=torch.int64),
            rule_labels=labels if pool == "labelled" else torch.full_like(labels, UNLABELLED),
        )

    def num_problems(self, pool: Pool) -> int:
        return self._pools[pool]


def measure(solver: Solver, image_size: int, attributes: int) -> Cost:
    """Cost of a solver, from rounds of training and predictions on a few random problems.

    The solver's parameters stay; its buffers (e.g. of BatchNorm) change, and so does its mode.

    :param attributes: labels of a problem.
    """

    def train(problems: int) -> int:
        labelled = PROBLEMS - 1 if solver.needs.labels else 0
        batches = RandomBatches(image_size, attributes, problems=problems, labelled=labelled)
        solver.train()
        solver.set_step(0, 100)
        # The same seed for all: the same target positions.
        for loss in solver.training_steps(batches, torch.Generator().manual_seed(0)):
            loss.total.backward()
        solver.zero_grad()
        return batches.drawn

    def predict(problems: int) -> int:
        # With gradients: without them PyTorch may take a path whose operations are not known.
        batches = RandomBatches(image_size, attributes, problems=problems, labelled=0)
        missing = torch.zeros(problems, NUM_PANELS, dtype=torch.bool)
        missing[:, BOTTOM_RIGHT] = True
        solver.eval()
        panels = batches.draw("all", problems).panels
        solver.predict(panels, missing, torch.Generator().manual_seed(0))
        return batches.drawn

    return Cost(
        parameters=sum(p.numel() for p in solver.parameters()),
        training=_operations_of_one(train),
        prediction=_operations_of_one(predict),
    )


def _operations_of_one(work: Callable[[int], int]) -> float:
    """Operations of a problem, without those that a batch costs however large it is.

    :param work: takes so many problems; returns how many it has worked on.
    """
    counted = []
    for problems in (PROBLEMS, PROBLEMS + 1):
        with FlopCounterMode(display=False, custom_mapping=_FORMULAS) as counter:
            drawn = work(problems)
        counted.append((drawn, counter.get_total_flops()))
    (fewer, less), (more, most) = counted
    return (most - less) / (more - fewer)
