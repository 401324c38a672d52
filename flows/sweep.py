"""Stage 2: every training that the store lacks, on the Ray cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from artifacts.tracking import Tracker
from flows.board import Board
from flows.progress import Progress
from raise_model.specs import TrialSpec
from raise_model.store import Store
from tune_spaces.cluster import Resources
from tune_spaces.sweep import SweepOutcome, sweep


@task(name="train", cache_policy=NO_CACHE, description="Train every trial that is not done.")
def train(
    store: Store,
    trials: Sequence[TrialSpec],
    resources: Resources,
    tracker: Tracker,
    progress: Progress,
    params: Mapping[str, Any],
) -> SweepOutcome:
    """A failed trial is in the outcome; it stops no other one."""
    specs = {spec.name: spec for spec in trials}
    board = Board(trials)
    tracker.start_study(str(params["preset"]), trials, params)
    tracker.reconcile(store)

    def on_report(name: str, row: dict[str, float]) -> None:
        board.report(name, row)
        tracker.report(specs[name], row)
        progress.update("train", board.fraction, board.line())

    def on_state(name: str, state: str, detail: str) -> None:
        board.set_state(name, state)
        if state == "done":
            tracker.end(specs[name], "FINISHED")
        elif state == "failed":
            tracker.end(specs[name], "FAILED", reason=detail)
            progress.warn(f"trial {name} failed: {detail}")
        elif state == "retrying":
            progress.warn(f"trial {name} starts again: {detail}")
        progress.update("train", board.fraction, board.line())

    outcome = sweep(store, trials, resources=resources, on_report=on_report, on_state=on_state)
    progress.update("train", 1.0, board.line(), now=True)
    return outcome
