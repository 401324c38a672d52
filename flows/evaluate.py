"""Stage 3: every evaluation that the store lacks, as Ray tasks."""

from collections import Counter
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
    ended: Counter[str],
    total: int,
) -> EvaluationOutcome:
    """A failed evaluation is in the outcome; it stops no other one.

    :param ended: evaluations of the run so far, by state; these are added.
    :param total: evaluations of the run, of which these may be a part.
    """

    def show(*, now: bool = False) -> None:
        text = f"evaluations {ended['done']}/{total} done, {ended['failed']} failed"
        fraction = ended.total() / total if total else 1.0
        progress.update("evaluate", fraction, text, now=now)

    def on_state(trial: str, spec: EvaluationSpec, state: str, detail: str) -> None:
        ended[state] += 1
        if state == "failed":
            progress.warn(f"evaluation {spec.name} of {trial} failed: {detail}")
        show()

    outcome = evaluate_on_cluster(store, pairs, resources=resources, on_state=on_state)
    show(now=True)
    return outcome
