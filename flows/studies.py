"""The experiments as functions: a request becomes trainings and evaluations.

A study returns what to train and what to evaluate; nothing runs.  It asks for digests of
splits, so the splits that a request needs are those it asks for.  Studies share trainings:
the union of all holds each spec once.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from flows.presets import (
    CONFIGURATIONS,
    DATASETS,
    PRESETS,
    STUDIES,
    DataSource,
    Preset,
    Study,
)
from raise_model.errors import UserError
from raise_model.evaluation.evaluate import PROTOCOLS
from raise_model.models import registry
from raise_model.presets import trial_spec
from raise_model.specs import EvaluationSpec, TrialSpec

Split = tuple[str, str, str]
"""Data set, configuration and split, e.g. ``("raven", "center", "train")``."""
Digest = Callable[[str, str, str], str]
"""Digest of a split."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to reproduce; empty sequences and zeros mean what the preset has."""

    preset: str
    studies: Sequence[str] = ()
    models: Sequence[str] = ()
    configurations: Sequence[str] = ()
    trials: int = 0
    label_ratio: float = -1.0
    """-1: the paper's ratio of each configuration."""
    data: DataSource = "generated"

    def __post_init__(self) -> None:
        _check_known("preset", [self.preset], PRESETS)
        _check_known("study", self.studies, STUDIES)
        _check_known("configuration", self.configurations, CONFIGURATIONS)
        _check_known("model", self.models, registry.names())
        _check_known("data", [self.data], DATASETS)
        if self.trials < 0:
            raise UserError(f"trials must be 1 or more (0: the preset's), not {self.trials}")
        if self.label_ratio != -1.0 and not 0.0 <= self.label_ratio <= 1.0:
            raise UserError(
                f"label_ratio must lie in [0, 1] (-1: the paper's), not {self.label_ratio:g}"
            )

    @property
    def scale(self) -> Preset:
        """The preset with this request's own values."""
        given = {
            "studies": tuple(self.studies),
            "models": tuple(self.models),
            "configurations": tuple(self.configurations),
            "seeds": self.trials,
        }
        changes = {name: value for name, value in given.items() if value}
        return dataclasses.replace(PRESETS[self.preset], **changes)


def _check_known(what: str, values: Iterable[str], known: Iterable[str]) -> None:
    for value in values:
        if value not in known:
            raise UserError(f"unknown {what} {value!r}; known: {', '.join(known)}")


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """Trainings, and evaluations of them by trial name; each once."""

    trials: Sequence[TrialSpec]
    evaluations: Sequence[tuple[str, EvaluationSpec]]


def union(parts: Iterable[Lowered]) -> Lowered:
    """Everything of every part, each spec once, in order of first appearance."""
    parts = list(parts)
    trials = {trial.name: trial for part in parts for trial in part.trials}
    evaluations = {
        (name, spec.fingerprint): (name, spec) for part in parts for name, spec in part.evaluations
    }
    return Lowered(trials=tuple(trials.values()), evaluations=tuple(evaluations.values()))


def _trainings(request: Request, digest: Digest) -> list[TrialSpec]:
    """Every model on every configuration; all cells get their first seed before any a second."""
    dataset = DATASETS[request.data][0]
    return [
        trial_spec(
            model=model,
            preset=request.preset,
            dataset=dataset,
            configuration=configuration,
            train_digest=digest(dataset, configuration, "train"),
            validation_digest=digest(dataset, configuration, "val"),
            seed=seed,
            label_ratio=None if request.label_ratio < 0 else request.label_ratio,
        )
        for seed in range(request.scale.seeds)
        for configuration in request.scale.configurations
        for model in request.scale.models
    ]


def _bottom_right(
    request: Request, digest: Digest, trial: TrialSpec, space: str
) -> list[tuple[str, EvaluationSpec]]:
    """Selection of the bottom-right panel among the candidates of each test set."""
    configuration = trial.data.configuration
    return [
        (
            trial.name,
            EvaluationSpec(
                protocol="bottom_right",
                options={"space": space},
                dataset=dataset,
                configuration=configuration,
                split="test",
                digest=digest(dataset, configuration, "test"),
                rounds=request.scale.rounds,
                seed=0,
                revision=PROTOCOLS["bottom_right"].revision,
            ),
        )
        for dataset in DATASETS[request.data][1]
    ]


def main_table(request: Request, digest: Digest) -> Lowered:
    """Bottom-right selection of every model (table 1 of the paper)."""
    trials = _trainings(request, digest)
    return Lowered(
        trials=trials,
        evaluations=[
            pair
            for trial in trials
            for pair in _bottom_right(request, digest, trial, _own_space(trial.model))
        ],
    )


def _own_space(model: str) -> str:
    """Where a solver compares candidates: as latents, or as pixels if it has none."""
    return "latent" if "latent" in registry.solver_class(model).supports else "pixel"


def answer_selection(request: Request, digest: Digest) -> Lowered:
    """The main table's trainings, candidates compared as latents and as pixels."""
    trials = _trainings(request, digest)
    supported = {model: registry.solver_class(model).supports for model in request.scale.models}
    return Lowered(
        trials=trials,
        evaluations=[
            pair
            for trial in trials
            for space in ("latent", "pixel")
            if space in supported[trial.model]
            for pair in _bottom_right(request, digest, trial, space)
        ],
    )


_STUDIES: Mapping[Study, Callable[[Request, Digest], Lowered]] = {
    "main_table": main_table,
    "answer_selection": answer_selection,
}


def lower(request: Request, digest: Digest) -> Lowered:
    """The union of the request's studies."""
    return union(_STUDIES[study](request, digest) for study in request.scale.studies)


def needed_splits(request: Request) -> list[Split]:
    """Splits that the request reads, each once."""
    asked: dict[Split, None] = {}

    def note(*split: str) -> str:
        asked[split] = None  # type: ignore[index]
        return "0" * 64

    lower(request, note)
    return list(asked)


def split_problems(problems: int, split: str) -> int:
    """Problems of a split among so many of a configuration."""
    return problems * {"train": 6, "val": 2, "test": 2}[split] // 10
