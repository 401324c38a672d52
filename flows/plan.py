"""What a request would do and cost, before anything runs."""

import dataclasses
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flows.board import duration
from flows.costs import CostRow, Costs, StepCost
from flows.presets import PROBLEM_BYTES, TRIAL_BYTES, TRIAL_SECONDS
from flows.studies import Lowered, Request, lower, needed_splits, split_problems
from raise_model.data.schema import find_manifest
from raise_model.errors import UserError
from raise_model.presets import presets_of
from raise_model.specs import TrialSpec
from raise_model.store import Store
from tune_spaces.halving import is_pruned

_UNKNOWN_DIGEST = "0" * 64
SMALLER_PRESETS = ("lite", "demo")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Counts of a run; hours are those of its trainings, from step costs (:mod:`flows.costs`).

    Making data sets, and evaluations, are not in them: minutes beside hours of training.
    """

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
    """Of wall time, trials started in order as slots become free."""
    device_hours: float
    """Of GPUs, counted by the share that a trial has of one; of CPUs where there are none."""
    disk_gb: float
    """In the store: data sets and trials."""
    cache_gb: float
    """On each node: derived arrays."""
    store: str
    costs: Sequence[CostRow]
    """What the trials still to run cost, and how that is known."""

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
            f"about {duration(3600 * self.hours)} of training on {self.slots} {self.device} slots, "
            f"{self.disk_gb:.1f} GB in {self.store}, {self.cache_gb:.1f} GB on each node"
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


def make_plan(
    request: Request,
    store: Store,
    *,
    device: str,
    slots: int,
    share: float = 1.0,
    gpu: str = "",
) -> Plan:
    """What is to do, and what it costs.

    :param share: of a device that a trial has, e.g. a quarter of a GPU.
    :param gpu: kind of the GPUs, one of :data:`flows.costs.GPUS`; for estimates.
    :raises UserError: if the request names what is not known.
    """
    digests, missing = _digests(request, store)
    lowered = lower(request, lambda *split: digests[split])
    begun = set(store.list("trials"))  # all others need no look into the store
    done = {
        trial.name: trial
        for trial in lowered.trials
        if trial.name in begun
        and (
            store.trial(trial).is_done
            or (trial.name in lowered.prunable and is_pruned(store.trial(trial)))
        )
    }
    evaluated = sum(
        store.trial(name).evaluation(e).is_done for name, e in lowered.evaluations if name in done
    )
    to_run = [trial for trial in lowered.trials if trial.name not in done]
    costs = Costs(store, request.preset, device, gpu=gpu)
    costs.learn(trial for trial in done.values() if store.trial(trial).is_done)
    priced = [(trial, costs.step(trial, share)) for trial in to_run]
    seconds = [trial.steps * cost.seconds + TRIAL_SECONDS for trial, cost in priced]
    problems = _problems(request)
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
        hours=_wall_seconds(seconds, slots) / 3600,
        device_hours=share * sum(seconds) / 3600,
        disk_gb=(problems * PROBLEM_BYTES + _trial_bytes(request, lowered)) / 1e9,
        cache_gb=problems * _array_bytes(lowered) / 1e9,
        store=store.root,
        costs=_rows(priced, share),
    )


def _wall_seconds(seconds: Iterable[float], slots: int) -> float:
    """Until the last trial ends, each started in order on the first free slot."""
    seconds = list(seconds)
    free = [0.0] * max(1, min(slots, len(seconds)))
    for duration_of_trial in seconds:
        heapq.heapreplace(free, free[0] + duration_of_trial)
    return max(free)


def _rows(priced: Sequence[tuple[TrialSpec, StepCost]], share: float) -> list[CostRow]:
    groups: dict[tuple[str, str], list[tuple[TrialSpec, StepCost]]] = {}
    for trial, cost in priced:
        groups.setdefault((trial.model, cost.source), []).append((trial, cost))
    rows = []
    for (model, source), group in groups.items():
        steps = sum(trial.steps for trial, _ in group)
        seconds = sum(trial.steps * cost.seconds for trial, cost in group)
        total = seconds + TRIAL_SECONDS * len(group)
        configurations = list(dict.fromkeys(trial.data.configuration for trial, _ in group))
        rows.append(
            CostRow(
                model=model, configurations=configurations, trials=len(group), steps=steps,
                seconds_per_step=seconds / steps, device_hours=share * total / 3600, source=source,
            )
        )  # fmt: skip
    return rows


def _problems(request: Request) -> int:
    return sum(
        split_problems(request.scale.problems, split) for _, _, split in needed_splits(request)
    )


def _trial_bytes(request: Request, lowered: Lowered) -> float:
    return len(lowered.trials) * TRIAL_BYTES[request.preset]


def _array_bytes(lowered: Lowered) -> float:
    """Of a problem: sixteen panels a size, one byte a pixel."""
    sizes = {trial.data.image_size for trial in lowered.trials}
    return sum(16 * size**2 for size in sizes)


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
        f"preset={plan.preset} would take about {duration(3600 * plan.hours)} of training "
        f"on {plan.slots} {plan.device} slots, more than max_hours={max_hours:g}; {advice}, or "
        "raise max_hours"
    )
