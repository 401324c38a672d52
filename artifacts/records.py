"""Finished trials of a store with their evaluations, read once and checked.

What a report says rests on files that other processes wrote.  A damaged one is named in one
line and stops the report: a number that is left out unnoticed is worse than none.
"""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa

from artifacts.settings import matching_presets
from raise_model.errors import UserError
from raise_model.specs import EvaluationSpec, TrialSpec, fingerprint
from raise_model.store import EvaluationFolder, Store, TrialFolder

Read = TypeVar("Read")


@dataclass(frozen=True, kw_only=True)
class EvaluationRecord:
    """One finished evaluation."""

    spec: EvaluationSpec
    result: Mapping[str, Any]
    path: str
    """Of its result, relative to the store's root."""

    @cached_property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """One finished training."""

    spec: TrialSpec
    done: Mapping[str, Any]
    evaluations: Sequence[EvaluationRecord]

    @cached_property
    def name(self) -> str:
        return self.spec.name

    @cached_property
    def study_cell(self) -> str:
        """16 digits that trainings share which differ in nothing but the seed."""
        value = self.spec.to_json()
        del value["seed"]
        return fingerprint("study_cell", value)[:16]

    @cached_property
    def presets(self) -> tuple[str, ...]:
        """As of :func:`artifacts.settings.matching_presets`."""
        return matching_presets(self.spec)


def read_records(
    store: Store, pairs: Sequence[tuple[str, EvaluationSpec]] | None = None
) -> list[TrialRecord]:
    """Trials in order of name; those of ``pairs`` (trial, evaluation) alone if given.

    Trainings that have not finished are left out.

    :raises UserError: naming the file, if one is damaged.
    """
    if pairs is None:
        folders = [folder for folder in store.trials() if folder.is_done]
        return [_trial(folder, folder.evaluations()) for folder in folders]
    wanted: dict[str, list[EvaluationSpec]] = {}
    for name, spec in pairs:
        wanted.setdefault(name, []).append(spec)
    found = []
    for name, specs in wanted.items():
        folder = store.trial(name)
        evaluations = [folder.evaluation(spec) for spec in specs]
        if folder.is_done:
            found.append(_trial(folder, [each for each in evaluations if each.is_done]))
    return found


def read_curve(store: Store, trial: str) -> pd.DataFrame:
    """The training curve of a finished trial, one row a validation.

    :raises UserError: if it is damaged or gone.
    """
    path = store.trial(trial).file("curve.parquet")
    return _checked(store, path, lambda: _parse_curve(store.read(path)), "train that trial again")


def _parse_curve(data: bytes) -> pd.DataFrame:
    curve = pd.read_parquet(io.BytesIO(data))
    for column in ("step", "validation_accuracy"):
        curve[column] = curve[column].astype(float)
    return curve


def _trial(folder: TrialFolder, evaluations: Sequence[EvaluationFolder]) -> TrialRecord:
    store = folder.store

    def done() -> Mapping[str, Any]:
        value = dict(folder.done())
        return value | {
            "validation_accuracy": float(value["validation_accuracy"]),
            "best_step": int(value["best_step"]),
            "seconds": float(value["seconds"]),
        }

    spec = _checked(store, folder.file("spec.json"), folder.spec, "remove that trial's folder")
    return TrialRecord(
        spec=spec,
        done=_checked(store, folder.file("done.json"), done, "remove it; the training is resumed"),
        evaluations=[_evaluation(each) for each in evaluations],
    )


def _evaluation(folder: EvaluationFolder) -> EvaluationRecord:
    store = folder.trial.store
    place = folder.trial.file(f"evaluations/{folder.name}")
    cure = "remove that folder; the evaluation is then run again"
    spec = _checked(store, f"{place}/spec.json", folder.spec, cure)
    if spec.name != folder.name:
        raise UserError(f"{store.path(place)}/spec.json is the spec of {spec.name}; {cure}")

    def result() -> Mapping[str, Any]:
        value = dict(folder.result())
        check_result(spec, value)
        return value

    path = f"{place}/result.json"
    return EvaluationRecord(spec=spec, result=_checked(store, path, result, cure), path=path)


def check_result(spec: EvaluationSpec, result: Mapping[str, Any]) -> None:
    """:raises ValueError: if a number that tables are made of is missing or impossible."""
    problems = result["problems"]
    if not isinstance(problems, int) or problems < 1:
        raise ValueError(f"problems is {problems!r}")
    if spec.protocol == "bottom_right":
        _check_shares(result["accuracy"])
    if spec.protocol == "arbitrary_position":
        for setting in result["settings"]:
            _check_shares(setting["accuracy"])
            if min(int(setting[key]) for key in ("targets", "distractors", "problems")) < 1:
                raise ValueError(f"a setting is {setting!r}")


def _check_shares(accuracy: Any) -> None:
    if not accuracy or not all(0.0 <= value <= 1.0 and math.isfinite(value) for value in accuracy):
        raise ValueError(f"accuracy is {accuracy!r}")


def _checked(store: Store, path: str, read: Callable[[], Read], cure: str) -> Read:
    """What ``read`` returns.

    :raises UserError: one line, whatever is wrong with the content.
    """
    try:
        return read()
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        FileNotFoundError,
        pa.ArrowException,
    ) as e:
        reason = f"{e.args[0]} is missing" if isinstance(e, KeyError) else str(e)
        if isinstance(e, FileNotFoundError):
            reason = "it is missing"
        raise UserError(
            f"{store.path(path)} is damaged ({' '.join(reason.split())[:160]}); {cure}"
        ) from e
