"""The only training loop.

It executes a solver and knows no model: draw a round of losses, step the optimiser that
each names, validate and checkpoint at the end of the round in which a multiple of
``validate_every`` was reached.  Everything that the next step depends on is in
:class:`TrainingState`, so a run that was killed and resumed gives the same bits as one that
was not (CPU, one thread).
"""

import contextlib
import dataclasses
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from raise_model.errors import UserError
from raise_model.models.solver import Batches, Loss, Solver
from raise_model.specs import Precision


class NonFiniteLoss(UserError):
    """A loss became NaN or Inf; nothing that it touched was saved."""


class ResumableBatches(Batches, Protocol):
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(kw_only=True)
class TrainingState:
    """All that a training carries from one step to the next."""

    solver: Solver
    batches: ResumableBatches
    generator: torch.Generator
    step: int = 0
    best_step: int = 0
    best_accuracy: float = -math.inf
    curve: list[dict[str, float]] = field(default_factory=list)
    """One row a validation: step, mean loss terms since the last one, validation metrics."""
    seconds: float = 0.0
    """Time spent in training steps, over all attempts; recorded, not identity."""

    def __post_init__(self) -> None:
        self.optimizers = self.solver.optimizers()

    @property
    def device(self) -> torch.device:
        return self.generator.device

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def tensors(self) -> dict[str, Any]:
        return {
            "solver": self.solver.state_dict(),
            "optimizers": {name: opt.state_dict() for name, opt in self.optimizers.items()},
            "generator": self.generator.get_state(),
            # Layers such as dropout draw from torch's global generators.
            "global_generator": torch.get_rng_state(),
            "cuda_generator": torch.cuda.get_rng_state(self.device) if self.on_gpu else None,
            "batches": self.batches.state_dict(),
        }

    def meta(self) -> dict[str, Any]:
        return {
            "best_step": self.best_step,
            "best_accuracy": self.best_accuracy,
            "curve": self.curve,
            "seconds": self.seconds,
            "device": self.device.type,
        }

    def restore(self, step: int, tensors: dict[str, Any], meta: dict[str, Any]) -> None:
        """:raises UserError: if the checkpoint is from another kind of device, whose random
        generators have other states.
        """
        if meta["device"] != self.device.type:
            raise UserError(
                f"the checkpoint of step {step} was made on {meta['device']}, this attempt runs on "
                f"{self.device.type}; choose that device, or delete the trial's last-* files"
            )
        self.step = step
        self.solver.load_state_dict(tensors["solver"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(tensors["optimizers"][name])
        self.generator.set_state(tensors["generator"])
        torch.set_rng_state(tensors["global_generator"])
        if self.on_gpu:
            torch.cuda.set_rng_state(tensors["cuda_generator"], self.device)
        self.batches.load_state_dict(tensors["batches"])
        self.best_step = meta["best_step"]
        self.best_accuracy = meta["best_accuracy"]
        self.curve = meta["curve"]
        self.seconds = meta["seconds"]


def _autocast(precision: Precision, device: torch.device) -> contextlib.AbstractContextManager:
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def _losses(state: TrainingState, steps: int, precision: Precision) -> Iterator[Loss]:
    """One round, cut short at the budget; rates and schedules are set before each loss."""
    round_losses = state.solver.training_steps(state.batches, state.generator)
    while state.step < steps:
        rates = state.solver.set_step(state.step, steps)
        with _autocast(precision, state.device):
            loss = next(round_losses, None)
        if loss is None:
            return
        for group in state.optimizers[loss.optimizer].param_groups:
            group["lr"] = rates[loss.optimizer]
        yield loss


class FiniteCheck:
    """Refuses losses that are not finite: each before its step on the CPU; on a GPU, where
    every look waits for the device, all of them together at ``flush``.
    """

    def __init__(self, at_once: bool) -> None:
        self._at_once = at_once
        self._pending: list[tuple[int, Loss]] = []

    def add(self, step: int, loss: Loss) -> None:
        self._pending.append((step, dataclasses.replace(loss, total=loss.total.detach())))
        if self._at_once:
            self.flush()

    def flush(self) -> None:
        pending, self._pending = self._pending, []
        if not pending:
            return
        totals = torch.stack([loss.total for _, loss in pending])
        for finite, (step, loss) in zip(totals.isfinite().tolist(), pending, strict=True):
            if not finite:
                raise NonFiniteLoss(_describe(step, loss))


def _describe(step: int, loss: Loss) -> str:
    terms = ", ".join(f"{name}={float(value):g}" for name, value in loss.terms.items())
    rows = [] if loss.problems is None else loss.problems.tolist()
    batch = f" on training problems {', '.join(map(str, rows[:16]))}" if rows else ""
    return (
        f"step {step + 1}: the loss of optimiser {loss.optimizer} is {loss.total.item()} "
        f"({terms}){batch}{' ...' if len(rows) > 16 else ''}; lower the learning rate, or "
        "look at the data"
    )


def _train_round(
    state: TrainingState,
    steps: int,
    precision: Precision,
    sums: dict[str, list[torch.Tensor]],
    finite: FiniteCheck,
) -> None:
    """One optimiser step for each loss of a round."""
    before = state.step
    for loss in _losses(state, steps, precision):
        finite.add(state.step, loss)
        optimizer = state.optimizers[loss.optimizer]
        optimizer.zero_grad(set_to_none=True)
        loss.total.backward()
        optimizer.step()
        for name, value in loss.terms.items():
            sums[name].append(value.detach())
        state.step += 1
    if state.step == before:
        raise RuntimeError(f"{type(state.solver).__name__}.training_steps yielded no loss")


def fit(
    state: TrainingState,
    *,
    steps: int,
    validate_every: int,
    precision: Precision,
    validate: Callable[[Solver], dict[str, float]],
    save: Callable[[TrainingState, bool], None],
    report: Callable[[dict[str, float]], None],
    pause: Callable[[], bool],
) -> bool:
    """Train until ``steps``; True when they are done, False when ``pause`` asked to stop.

    :param validate: metrics of the solver on validation problems; ``validation_accuracy``
        decides which weights are best, the earliest of equal ones.
    :param save: called after every validation with whether the weights are the best so far.
    :param report: called after ``save`` with the new row of the curve.
    :param pause: asked after every validation.
    :raises NonFiniteLoss: before the optimiser is stepped with it; on a GPU before the next
        validation, so that no checkpoint has seen it.
    """
    state.solver.train()
    while state.step < steps:
        sums: dict[str, list[torch.Tensor]] = defaultdict(list)
        goal = min((state.step // validate_every + 1) * validate_every, steps)
        finite = FiniteCheck(at_once=not state.on_gpu)
        started = time.perf_counter()
        while state.step < goal:
            _train_round(state, steps, precision, sums, finite)
        finite.flush()
        state.seconds += time.perf_counter() - started
        state.solver.eval()
        metrics = validate(state.solver)
        state.solver.train()
        means = {name: float(torch.stack(values).double().mean()) for name, values in sums.items()}
        row = {"step": float(state.step), **means, **metrics}
        is_best = metrics["validation_accuracy"] > state.best_accuracy
        if is_best:
            state.best_step, state.best_accuracy = state.step, metrics["validation_accuracy"]
        state.curve.append(row)
        save(state, is_best)
        report(row)
        if state.step < steps and pause():
            return False
    return True
