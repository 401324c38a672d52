"""Parts that studies are made of: trainings of a request, and evaluations of a training."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.presets import DATASETS
from flows.request import Request
from raise_model.errors import UserError
from raise_model.evaluation import evaluate
from raise_model.models import registry
from raise_model.presets import trial_spec
from raise_model.specs import EvaluationSpec, TrialSpec
from raise_model.store import Store

Split = tuple[str, str, str]
"""Data set, configuration and split, e.g. ``("raven", "center", "train")``."""
Digest = Callable[[str, str, str], str]
"""Digest of a split."""
Pair = tuple[str, EvaluationSpec]
"""A trial's name and an evaluation of it."""


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """Trainings, and evaluations of them by trial name; each once."""

    trials: Sequence[TrialSpec]
    evaluations: Sequence[Pair]
    prunable: frozenset[str] = frozenset()
    """Names of trials that may be given up on the way."""


Study = Callable[[Request, Digest], Lowered]


def union(parts: Iterable[Lowered], cost: Callable[[TrialSpec], float]) -> Lowered:
    """Everything of every part, each spec once, in the order to be run.

    First seeds come first, so that every cell of a table has one before any has a second.  Among
    them the parts come in order, and of each part the cheap trainings (:func:`_cheap_first`): at
    any time as many cells as possible can be reported.

    :param cost: of a training, in whatever unit.
    """
    parts = list(parts)
    named = [
        (part, {trial.name: trial for trial in _cheap_first(part.trials, cost)}) for part in parts
    ]
    trials = {name: trial for _, found in named for name, trial in found.items()}
    wanted = {name for part, found in named for name in found.keys() - part.prunable}
    evaluations = {
        (name, spec.fingerprint): (name, spec) for part in parts for name, spec in part.evaluations
    }
    return Lowered(
        trials=tuple(sorted(trials.values(), key=lambda trial: trial.seed)),
        evaluations=tuple(evaluations.values()),
        # What another part wants in full is trained in full.
        prunable=frozenset(trials) - wanted,
    )


def waves(store: Store, trials: Sequence[TrialSpec], slots: int) -> Sequence[Sequence[TrialSpec]]:
    """Trainings in one or two parts: first seeds, which give a table of every cell, and the
    others.  One part where the others have nothing left to train, or the first too little to
    fill the slots: they would stand idle.

    :param slots: trainings at once.
    """
    first = min((trial.seed for trial in trials), default=0)
    parts = [
        [trial for trial in trials if (trial.seed == first) == is_first]
        for is_first in (True, False)
    ]
    left, left_after = (sum(not store.trial(trial).is_done for trial in part) for part in parts)
    return parts if left_after and left >= slots else [list(trials)]


def _cheap_first(
    trials: Sequence[TrialSpec], cost: Callable[[TrialSpec], float]
) -> Sequence[TrialSpec]:
    """By cost in steps of a factor of two, which is as well as costs are known; else in order."""
    costs = [cost(trial) for trial in trials]
    ranks = [int(math.log2(each / min(costs))) for each in costs]
    return [trial for _, trial in sorted(zip(ranks, trials, strict=True), key=lambda r: r[0])]


def reads_labels(model: str) -> bool:
    """Whether a solver is trained with rule labels where there are any."""
    return registry.solver_class(model).needs.labels


def supports(model: str, *names: str) -> bool:
    """Whether a solver supports protocols and answer spaces."""
    return registry.solver_class(model).supports.issuperset(names)


def own_space(model: str) -> str:
    """Where a solver compares candidates: as latents, or as pixels if it has none."""
    return "latent" if supports(model, "latent") else "pixel"


def tests_of(request: Request) -> Sequence[str]:
    """Data sets of the tests."""
    return DATASETS[request.data][1]


def trainings(
    request: Request,
    digest: Digest,
    *,
    models: Sequence[str] | None = None,
    configurations: Sequence[str] | None = None,
    dataset: str | None = None,
    label_ratio: float | None = None,
    equal_exposure: bool = False,
) -> list[TrialSpec]:
    """Every model on every configuration; all cells get their first seed before any a second.

    Options default to what the request has.
    """
    dataset = dataset or DATASETS[request.data][0]
    ratio = None if request.label_ratio < 0 else request.label_ratio
    scale = request.scale
    return [
        trial_spec(
            model=model,
            preset=request.preset,
            dataset=dataset,
            configuration=configuration,
            train_digest=digest(dataset, configuration, "train"),
            validation_digest=digest(dataset, configuration, "val"),
            seed=seed,
            label_ratio=ratio if label_ratio is None else label_ratio,
            equal_exposure=equal_exposure,
        )
        for seed in range(scale.seeds)
        for configuration in (scale.configurations if configurations is None else configurations)
        for model in (scale.models if models is None else models)
    ]


def evaluations(
    request: Request,
    digest: Digest,
    trials: Iterable[TrialSpec],
    protocol: str,
    options: Callable[[TrialSpec], Iterable[Mapping[str, Any]]] = lambda trial: [{}],
    *,
    datasets: Sequence[str] | None = None,
    split: str = "test",
) -> list[Pair]:
    """A protocol on every training whose solver supports it.

    :param options: the protocol's options for a training, one evaluation each.
    :param datasets: those of the tests by default.
    :raises UserError: if there is no such protocol.
    """
    found = evaluate.PROTOCOLS.get(protocol)
    if found is None:
        raise UserError(
            f"unknown protocol {protocol!r}; known protocols: {', '.join(evaluate.PROTOCOLS)}"
        )
    scale, tests = request.scale, tests_of(request) if datasets is None else datasets
    named = [(trial.name, trial) for trial in trials if supports(trial.model, protocol)]
    return [
        (
            name,
            EvaluationSpec(
                protocol=protocol,
                options=choice,
                dataset=dataset,
                configuration=trial.data.configuration,
                split=split,
                digest=digest(dataset, trial.data.configuration, split),
                rounds=scale.rounds,
                seed=0,
                revision=found.revision,
            ),
        )
        for name, trial in named
        for choice in options(trial)
        for dataset in tests
    ]


def selected(
    request: Request,
    digest: Digest,
    trials: Sequence[TrialSpec],
    *,
    datasets: Sequence[str] | None = None,
) -> Lowered:
    """Trainings, and selection of the bottom-right panel in each solver's own space."""
    pairs = evaluations(
        request,
        digest,
        trials,
        "bottom_right",
        lambda trial: [{"space": own_space(trial.model)}],
        datasets=datasets,
    )
    return Lowered(trials=trials, evaluations=pairs)
