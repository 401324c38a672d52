"""Evaluations as Ray tasks: a protocol over a finished training, once, into the store."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from raise_model.specs import EvaluationSpec
from raise_model.store import Store
from tune_spaces.cluster import Resources, default_cache, resolve_resources
from tune_spaces.waiting import until_ended

Pair = tuple[str, EvaluationSpec]
"""Name of a trial, and what to evaluate it with."""

OnEvaluation = Callable[[str, EvaluationSpec, str, str], None]
"""Called with trial, spec, state (``done`` or ``failed``) and one line of detail."""


@dataclass(frozen=True, kw_only=True)
class EvaluationOutcome:
    """What became of every pair."""

    done: Sequence[Pair]
    failed: Mapping[str, str]
    """Reason in one line by ``trial/evaluation``."""


def evaluate(
    store: Store,
    pairs: Sequence[Pair],
    *,
    resources: Resources,
    on_state: OnEvaluation,
    cache: Path | None = None,
) -> EvaluationOutcome:
    """Run every evaluation that has no result; needs a connection to a cluster.

    A failed one does not stop the others.  An exception in the driver (Ctrl-C, a cancelled
    flow) cancels what runs.
    """
    resources = resolve_resources(resources)
    done: list[Pair] = []
    failed: dict[str, str] = {}
    waiting: list[Pair] = []
    for pair in pairs:
        if store.trial(pair[0]).evaluation(pair[1]).is_done:
            done.append(pair)
            on_state(pair[0], pair[1], "done", "finished before")
        else:
            waiting.append(pair)
    for pair, reason in _results(store, waiting, resources, cache or default_cache()):
        if reason:
            failed[f"{pair[0]}/{pair[1].name}"] = reason
        else:
            done.append(pair)
        on_state(pair[0], pair[1], "failed" if reason else "done", reason)
    return EvaluationOutcome(done=done, failed=failed)


def _results(
    store: Store, pairs: Sequence[Pair], resources: Resources, cache: Path
) -> Iterator[tuple[Pair, str]]:
    """Pairs as they end, each with the reason of its failure, empty if it has a result."""
    task = _evaluate.options(
        num_cpus=resources.cpus_per_trial, num_gpus=resources.gpus_per_trial, max_retries=2
    )
    window = resources.max_concurrent or len(pairs)
    queue = list(pairs)
    running: dict[Future[None], tuple[ray.ObjectRef, Pair]] = {}
    try:
        while queue or running:
            while queue and len(running) < window:
                trial, spec = queue.pop(0)
                reference = task.remote(
                    store.root, trial, spec.to_json(), resources.device, resources.threads, cache
                )
                running[reference.future()] = (reference, (trial, spec))
            for ended in until_ended(running):
                _, pair = running.pop(ended)
                yield pair, _reason(ended.exception())
    finally:
        for reference, _ in running.values():
            ray.cancel(reference, force=True)


def _reason(error: BaseException | None) -> str:
    """One line on what an evaluation raised, empty if it raised nothing."""
    if error is None:
        return ""
    if isinstance(error, RayTaskError):
        cause = error.cause or error
        name = type(cause).__name__
        text = " ".join(str(cause).split())
        return text if name == "UserError" else f"{name}: {text}"
    if isinstance(error, RayError):
        return f"the evaluation's process was lost: {' '.join(str(error).split())[:300]}"
    raise error


@ray.remote
def _evaluate(
    root: str, trial: str, spec: Mapping[str, Any], device: Any, threads: int, cache: Path
) -> None:
    """On a node: evaluate one trial and write the result."""
    import torch

    from raise_model.evaluation.evaluate import evaluate

    torch.set_num_threads(threads)
    store = Store(root, patient=True)
    evaluation = EvaluationSpec.from_json(spec)
    folder = store.trial(trial).evaluation(evaluation)
    if not folder.is_done:
        result = evaluate(store, store.trial(trial), evaluation, device=device, cache=cache)
        folder.create_result(evaluation, result)
