"""What a request would do and cost, before anything runs."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flows.board import duration
from flows.presets import (
    PROBLEM_BYTES,
    TRIAL_BYTES,
    TRIAL_SECONDS,
    seconds_per_step,
)
from flows.studies import Lowered, Request, lower, needed_splits, split_problems
from raise_model.data.schema import find_manifest
from raise_model.errors import UserError
from raise_model.presets import presets_of
from raise_model.store import Store
from tune_spaces.halving import is_pruned

_UNKNOWN_DIGEST = "0" * 64
SMALLER_PRESETS = ("lite", "demo")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Counts of a run; hours are estimates from a table of step costs."""

    preset: str
    data: str
    trials: int
    trials_done: int
    evaluations: int
    evaluations_done: int
    steps: int
    """Of all trials still to run."""
    splits: int
    splits_missing: int
    device: str
    slots: int
    """Trials at once."""
    hours: float
    disk_gb: float
    store: str

    @property
    def has_work(self) -> bool:
        """Whether anything is to be trained or evaluated."""
        return self.trials_done < self.trials or self.evaluations_done < self.evaluations

    def line(self) -> str:
        """For the log."""
        return (
            f"plan: preset {self.preset}: {self.trials} trials ({self.trials_done} done), "
            f"{self.evaluations} evaluations ({self.evaluations_done} done), "
            f"{self.steps} steps to go, {self.splits_missing} of {self.splits} splits to make, "
            f"about {duration(3600 * self.hours)} on {self.slots} {self.device} slots, "
            f"{self.disk_gb:.1f} GB in {self.store}"
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _digests(request: Request, store: Store) -> tuple[Mapping[tuple[str, ...], str], int]:
    """Digests of the splits that are there, and how many are missing."""
    digests = {}
    for split in needed_splits(request):
        manifest = find_manifest(store, *split)
        # Not there yet: the flow makes it.  What depends on it cannot be done.
        digests[split] = manifest.digest if manifest else _UNKNOWN_DIGEST
    return digests, sum(digest == _UNKNOWN_DIGEST for digest in digests.values())


def make_plan(request: Request, store: Store, *, device: str, slots: int) -> Plan:
    """:raises UserError: if the request names what is not known."""
    digests, missing = _digests(request, store)
    lowered = lower(request, lambda *split: digests[split])
    done = {
        trial.name
        for trial in lowered.trials
        if store.trial(trial).is_done
        or (trial.name in lowered.prunable and is_pruned(store.trial(trial)))
    }
    evaluated = sum(store.trial(name).evaluation(e).is_done for name, e in lowered.evaluations)
    to_run = [trial for trial in lowered.trials if trial.name not in done]
    seconds = sum(
        trial.steps * seconds_per_step(request.preset, trial.model, device) + TRIAL_SECONDS
        for trial in to_run
    )
    return Plan(
        preset=request.preset,
        data=request.data,
        trials=len(lowered.trials),
        trials_done=len(done),
        evaluations=len(lowered.evaluations),
        evaluations_done=evaluated,
        steps=sum(trial.steps for trial in to_run),
        splits=len(digests),
        splits_missing=missing,
        device=device,
        slots=slots,
        hours=_wall_seconds(seconds, to_run, slots) / 3600,
        disk_gb=_disk_bytes(request, lowered) / 1e9,
        store=store.root,
    )


def _wall_seconds(seconds: float, to_run: Any, slots: int) -> float:
    """The last trials may leave slots idle: whole rounds of trials of mean length."""
    if not to_run:
        return 0.0
    return math.ceil(len(to_run) / slots) * seconds / len(to_run)


def _disk_bytes(request: Request, lowered: Lowered) -> float:
    problems = sum(
        split_problems(request.scale.problems, split) for _, _, split in needed_splits(request)
    )
    return problems * PROBLEM_BYTES + len(lowered.trials) * TRIAL_BYTES[request.preset]


def check_hours(plan: Plan, request: Request, store: Store, max_hours: float) -> None:
    """:raises UserError: if the plan needs more than ``max_hours``; names a preset that fits."""
    if plan.hours <= max_hours:
        return
    fitting = [
        preset
        for preset in SMALLER_PRESETS
        if preset != request.preset
        and all(preset in presets_of(model) for model in request.models)
        and make_plan(
            dataclasses.replace(request, preset=preset),
            store,
            device=plan.device,
            slots=plan.slots,
        ).hours
        <= max_hours
    ]
    less = "ask for less (studies, models, configurations, trials)"
    advice = f"use preset={fitting[0]}, {less}" if fitting else less
    raise UserError(
        f"preset={plan.preset} would take about {duration(3600 * plan.hours)} on {plan.slots} "
        f"{plan.device} slots, more than max_hours={max_hours:g}; {advice}, or raise max_hours"
    )
