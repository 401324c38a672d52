"""Run one evaluation of one finished training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from raise_model.data.audit import seen_rows
from raise_model.data.loader import load
from raise_model.data.schema import Manifest, find_manifest
from raise_model.errors import UserError
from raise_model.evaluation.protocols import PROTOCOLS, Task
from raise_model.models import registry
from raise_model.provenance import provenance
from raise_model.specs import EvaluationSpec, TrialSpec
from raise_model.store import Store, TrialFolder
from raise_model.training.checkpoint import load_best
from raise_model.training.device import DeviceChoice, resolve_device


def evaluate(
    store: Store,
    trial: TrialFolder,
    evaluation: EvaluationSpec,
    *,
    device: DeviceChoice,
    cache: Path,
) -> dict[str, Any]:
    """The result of ``evaluation`` on the best weights of a finished trial.

    :raises UserError: for an unknown protocol or revision, other data than the spec names, an
        unfinished trial or missing weights.
    """
    protocol = PROTOCOLS.get(evaluation.protocol)
    if protocol is None:
        known = ", ".join(PROTOCOLS)
        raise UserError(f"unknown protocol {evaluation.protocol!r}; known protocols: {known}")
    if protocol.revision != evaluation.revision:
        raise UserError(
            f"{evaluation.name} is of revision {evaluation.revision} of {evaluation.protocol}, "
            f"installed is {protocol.revision}; plan the evaluation again"
        )
    protocol.check(evaluation)
    spec = trial.spec()
    problems = load(
        store, evaluation.dataset, evaluation.configuration, evaluation.split,
        image_size=spec.data.image_size, resize=spec.data.resize, cache=cache,
    )  # fmt: skip
    if problems.digest != evaluation.digest:
        raise UserError(
            f"{evaluation.dataset}/{evaluation.configuration}/{evaluation.split} under "
            f"{store.root} has digest {problems.digest[:12]}, the evaluation wants "
            f"{evaluation.digest[:12]}; make that data set again"
        )
    target = resolve_device(device)
    solver = registry.build(spec.model, spec.config, spec.data.image_size, spec.seed).to(target)
    best = load_best(trial, solver)
    result = protocol.run(
        Task(
            solver=solver, problems=problems, trial=spec, evaluation=evaluation, device=target,
            store=store, cache=cache,
        )
    )  # fmt: skip
    result |= {"seen": _seen(store, spec, problems.manifest, result, cache)}
    if best.rounded_to:
        # Other numbers than those of the training's own weights are then no contradiction.
        result |= {"rounded_to": best.rounded_to}
    return result | {"best_step": best.step, "provenance": provenance(target)}


def _seen(
    store: Store, spec: TrialSpec, test: Manifest, result: Mapping[str, Any], cache: Path
) -> dict[str, Any] | None:
    """Number of problems whose nine panels training shows; where the protocol says which were
    answered correctly, accuracy on them and on the others, by round.

    None where the training problems are not in this store: then it cannot be known.
    """
    data = spec.data
    train = find_manifest(store, data.dataset, data.configuration, "train")
    if train is None or train.digest != data.train_digest:
        return None
    rows = seen_rows(store, train, test, cache)
    if "correct" not in result:
        return {"problems": int(rows.sum())}
    correct = np.array([[hit == "1" for hit in round_] for round_ in result["correct"]])
    return {
        "problems": int(rows.sum()),
        "accuracy": _shares(correct[:, rows]),
        "unseen_accuracy": _shares(correct[:, ~rows]),
    }


def _shares(correct: Bool[np.ndarray, "rounds problems"]) -> list[float] | None:
    return [float(share) for share in correct.mean(1)] if correct.shape[1] else None
