"""Asynchronous successive halving (ASHA): trainings that fall behind their like are given up.

The truth is the store here too.  A training that was given up has ``pruned.json`` with its
curve so far, and never ``done.json``; a search that is started again takes the curves of those
that ended before into account.  A sweep that wants the same training in full goes on with it.
"""

import contextlib
import io
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler

from raise_model.specs import TrialSpec, fingerprint
from raise_model.store import TrialFolder
from tune_spaces.trial_process import spec_of

REDUCTION = 3
"""At each rung one training in so many goes on; rungs are so many times further apart."""
FIRST_RUNG = 9
"""The first rung is at the run's length over this, or at the first validation if that is later."""
_STEP, _ACCURACY = "row/step", "row/validation_accuracy"

Row = Mapping[str, float]


def is_pruned(folder: TrialFolder) -> bool:
    return folder.store.exists(folder.file("pruned.json"))


def write_pruned(folder: TrialFolder, curve: Sequence[Row]) -> None:
    """Note that a training was given up after the last row of its curve."""
    with contextlib.suppress(FileExistsError):
        folder.store.create_json(
            folder.file("pruned.json"), {"step": curve[-1]["step"], "curve": list(curve)}
        )


def ended_curve(folder: TrialFolder) -> Sequence[Row]:
    """Rows of a training that is done or was given up; none of one that still runs."""
    if is_pruned(folder):
        return folder.store.read_json(folder.file("pruned.json"))["curve"]
    if folder.is_done:
        data = folder.store.read(folder.file("curve.parquet"))
        return pq.read_table(io.BytesIO(data), columns=["step", "validation_accuracy"]).to_pylist()
    return []


class Halving(FIFOScheduler):
    """ASHA within each group of trainings that differ in nothing but their Config.

    Trainings that may not be given up are left alone.  Tune knows trials by their specs.
    """

    def __init__(self, specs: Sequence[TrialSpec], prunable: Collection[str]) -> None:
        super().__init__()
        self._specs = {spec.name: spec for spec in specs if spec.name in prunable}
        groups = {name: _group(spec) for name, spec in self._specs.items()}
        made = {groups[name]: _scheduler(spec) for name, spec in self._specs.items()}
        self._schedulers = {name: made[group] for name, group in groups.items()}

    def know(self, name: str, curve: Sequence[Row]) -> None:
        """Take the curve of a training that ended before into account."""
        ended = SimpleNamespace(trial_id=name)
        scheduler: Any = self._schedulers[name]
        scheduler.on_trial_add(None, ended)
        for row in curve:
            values = {_STEP: row["step"], _ACCURACY: row["validation_accuracy"]}
            scheduler.on_trial_result(None, ended, values)

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        if (scheduler := self._schedulers.get(trial_name(trial))) is not None:
            scheduler.on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Go on or stop; who has come to the end is never stopped."""
        name = trial_name(trial)
        if name not in self._schedulers or _STEP not in result:
            return TrialScheduler.CONTINUE
        decision = self._schedulers[name].on_trial_result(tune_controller, trial, result)
        finished = result[_STEP] >= self._specs[name].steps
        return TrialScheduler.CONTINUE if finished else decision


def trial_name(trial: Any) -> str:
    """By the configuration alone: Tune pickles this with what it refers to, for every trial."""
    return spec_of(trial.config).name


def _group(spec: TrialSpec) -> str:
    return fingerprint("group", spec.to_json() | {"config": None, "seed": None})


def _scheduler(spec: TrialSpec) -> AsyncHyperBandScheduler:
    return AsyncHyperBandScheduler(
        time_attr=_STEP,
        metric=_ACCURACY,
        mode="max",
        max_t=spec.steps,
        grace_period=max(spec.validate_every, spec.steps // FIRST_RUNG),
        reduction_factor=REDUCTION,
        stop_last_trials=False,
    )
