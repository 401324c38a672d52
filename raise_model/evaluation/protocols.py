"""The evaluations by name: what each is run by, and the options that its spec must have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch

from raise_model.data.loader import ProblemSet
from raise_model.data.odd_panel import Odd
from raise_model.errors import UserError
from raise_model.evaluation.arbitrary_position import Duplicates, Masks, arbitrary_position
from raise_model.evaluation.concept_alignment import concept_alignment
from raise_model.evaluation.latent_traversal import latent_traversal
from raise_model.evaluation.multi_answer import multi_answer
from raise_model.evaluation.odd_one_out import odd_one_out
from raise_model.evaluation.rule_accuracy import rule_accuracy
from raise_model.evaluation.selection import bottom_right
from raise_model.models.solver import Solver, Space
from raise_model.specs import EvaluationSpec, TrialSpec
from raise_model.store import Store


@dataclass(frozen=True, kw_only=True)
class Task:
    """One evaluation of one trained solver."""

    solver: Solver
    problems: ProblemSet
    trial: TrialSpec
    evaluation: EvaluationSpec
    device: torch.device
    store: Store
    """Where scenes and other splits are read."""
    cache: Path


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How one kind of evaluation is run."""

    revision: int
    """Raised whenever the protocol's numbers change; part of an evaluation's identity."""
    run: Callable[[Task], dict[str, Any]]
    options: Mapping[str, Sequence[Any] | type[int] | type[float]]
    """Values of each option, the usual one first, or the kind of number (above 0; a float may
    be 0)."""

    def check(self, evaluation: EvaluationSpec) -> None:
        """:raises UserError: unless the spec has these options, with values that they take."""
        given = evaluation.options
        if set(given) != set(self.options):
            wanted = f"the options {', '.join(self.options)}" if self.options else "no options"
            raise UserError(
                f"{evaluation.protocol} takes {wanted}; given: {', '.join(given) or 'none'}"
            )
        for name, allowed in self.options.items():
            value = given[name]
            if isinstance(allowed, type):
                number = isinstance(value, int | float) and not isinstance(value, bool)
                whole = allowed is float or isinstance(value, int)
                taken = number and whole and (value > 0 or (allowed is float and value == 0))
                said = "a whole number above 0" if allowed is int else "a number of 0 or more"
            else:
                taken, said = value in allowed, f"one of {', '.join(map(str, allowed))}"
            if not taken:
                raise UserError(f"{evaluation.protocol}: {name} is {said}, not {value!r}")


def _bottom_right(task: Task) -> dict[str, Any]:
    return bottom_right(
        task.solver, task.problems, space=task.evaluation.options["space"],
        rounds=task.evaluation.rounds, seed=task.evaluation.seed, device=task.device,
        label_map=task.trial.data.label_map,
    )  # fmt: skip


def _arbitrary_position(task: Task) -> dict[str, Any]:
    options = task.evaluation.options
    return arbitrary_position(
        task.solver, task.problems, space=options["space"], masks=options["masks"],
        duplicates=options["duplicates"], rounds=task.evaluation.rounds,
        seed=task.evaluation.seed, device=task.device,
    )  # fmt: skip


def _odd_one_out(task: Task) -> dict[str, Any]:
    return odd_one_out(
        task.solver, task.problems, task.trial, task.evaluation, task.device,
        store=task.store, cache=task.cache,
    )  # fmt: skip


def _multi_answer(task: Task) -> dict[str, Any]:
    return multi_answer(
        task.solver, task.problems, task.trial, task.evaluation, task.device, store=task.store
    )


def _rule_accuracy(task: Task) -> dict[str, Any]:
    return rule_accuracy(task.solver, task.problems, task.trial, task.evaluation, task.device)


def _concept_alignment(task: Task) -> dict[str, Any]:
    return concept_alignment(
        task.solver, task.problems, task.trial, task.evaluation, task.device, store=task.store
    )


def _latent_traversal(task: Task) -> dict[str, Any]:
    return latent_traversal(task.solver, task.problems, task.trial, task.evaluation, task.device)


PROTOCOLS: Mapping[str, Protocol] = {
    "bottom_right": Protocol(revision=1, run=_bottom_right, options={"space": get_args(Space)}),
    "arbitrary_position": Protocol(
        revision=1,
        run=_arbitrary_position,
        options={
            "space": get_args(Space),
            "masks": get_args(Masks),
            "duplicates": get_args(Duplicates),
        },
    ),
    "odd_one_out": Protocol(revision=1, run=_odd_one_out, options={"odd": get_args(Odd)}),
    "rule_accuracy": Protocol(revision=1, run=_rule_accuracy, options={}),
    "concept_alignment": Protocol(revision=1, run=_concept_alignment, options={}),
    "latent_traversal": Protocol(revision=1, run=_latent_traversal, options={}),
    "multi_answer": Protocol(
        revision=1,
        run=_multi_answer,
        options={"targets": (1, 2), "samples": int, "noise": float},
    ),
}
