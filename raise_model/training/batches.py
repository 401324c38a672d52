"""The endless, resumable stream of training problems."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from raise_model.data.loader import ProblemSet
from raise_model.models.solver import Pool
from raise_model.problem import UNLABELLED, Batch


class _Pool:
    """Rows of one pool in shuffled order, each once an epoch."""

    def __init__(self, rows: Int[Tensor, " rows"], seed: int) -> None:
        self.rows = rows
        self._generator = torch.Generator().manual_seed(seed)
        self._order = torch.empty(0, dtype=torch.int64)
        self._position = 0

    def draw(self, size: int, partial: bool) -> Int[Tensor, " size"]:
        size = min(size, len(self.rows))
        taken: list[Tensor] = []
        missing = size
        while missing > 0:
            if self._position == len(self._order):
                self._order = torch.randperm(len(self.rows), generator=self._generator)
                self._position = 0
            part = self._order[self._position : self._position + missing]
            self._position += len(part)
            missing -= len(part)
            taken.append(part)
            if partial:
                break
        return self.rows[torch.cat(taken)]

    def state_dict(self) -> dict[str, Any]:
        return {
            "generator": self._generator.get_state(),
            "order": self._order,
            "position": self._position,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["generator"])
        self._order = state["order"]
        self._position = state["position"]


class ProblemStream:
    """Batches of a training split (:class:`raise_model.models.solver.Batches`).

    Labelled problems are in the pool ``all`` too, there without their labels.
    """

    def __init__(
        self,
        problems: ProblemSet,
        *,
        labels: Int[np.ndarray, "problems attributes"],
        labelled_rows: Int[np.ndarray, " labelled"],
        seed: int,
        device: torch.device,
        candidates: bool = False,
    ) -> None:
        self._problems = problems
        self._labels = torch.from_numpy(np.asarray(labels, dtype=np.int64))
        self._device = device
        self._candidates = candidates
        self._pools: dict[Pool, _Pool] = {
            "all": _Pool(torch.arange(problems.num_problems), 2 * seed),
            "labelled": _Pool(torch.from_numpy(np.asarray(labelled_rows, np.int64)), 2 * seed + 1),
        }

    def draw(self, pool: Pool, size: int, *, partial: bool = False) -> Batch:
        """See :meth:`raise_model.models.solver.Batches.draw`."""
        rows = self._pools[pool].draw(size, partial)
        labels = self._labels[rows]
        if pool == "all":
            labels = torch.full_like(labels, UNLABELLED)
        return self._problems.batch(rows, self._device, labels=labels, candidates=self._candidates)

    def num_problems(self, pool: Pool) -> int:
        return len(self._pools[pool].rows)

    def state_dict(self) -> dict[str, Any]:
        return {name: pool.state_dict() for name, pool in self._pools.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, pool in self._pools.items():
            pool.load_state_dict(state[name])
