"""Stage 3: every evaluation that the store lacks, as Ray tasks."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from flows.progress import Progress
from raise_model.specs import EvaluationSpec
from raise_model.store import Store
from tune_spaces.cluster import Resources
from tune_spaces.evaluation import EvaluationOutcome
from tune_spaces.evaluation import evaluate as evaluate_on_cluster


@task(name="evaluate", cache_policy=NO_CACHE, description="Run every missing evaluation.")
def evaluate(
    store: Store,
    pairs: Sequence[tuple[str, EvaluationSpec]],
    resources: Resources,
    progress: Progress,
) -> EvaluationOutcome:
    """A failed evaluation is in the outcome; it stops no other one."""
    ended = {"done": 0, "failed": 0}

    def on_state(trial: str, spec: EvaluationSpec, state: str, detail: str) -> None:
        ended[state] += 1
        if state == "failed":
            progress.warn(f"evaluation {spec.name} of {trial} failed: {detail}")
        done = f"evaluations {ended['done']}/{len(pairs)} done, {ended['failed']} failed"
        progress.update("evaluate", sum(ended.values()) / len(pairs), done)

    outcome = evaluate_on_cluster(store, pairs, resources=resources, on_state=on_state)
    done = f"evaluations {len(outcome.done)}/{len(pairs)} done, {len(outcome.failed)} failed"
    progress.update("evaluate", 1.0, done, now=True)
    return outcome
