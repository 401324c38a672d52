"""Stage 2: every training that the store lacks, on the Ray cluster."""

from collections.abc import Collection, Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from artifacts.tracking import Tracker
from flows.board import Board
from flows.progress import Progress
from raise_model.specs import TrialSpec
from raise_model.store import Store
from tune_spaces.cluster import Resources
from tune_spaces.sweep import SweepOutcome, sweep


class _Listener:
    """Passes what the sweep says on to the board, to MLflow and to the flow's progress."""

    def __init__(
        self, trials: Sequence[TrialSpec], tracker: Tracker, progress: Progress, board: Board
    ) -> None:
        self._specs = {spec.name: spec for spec in trials}
        self._tracker = tracker
        self._progress = progress
        self.board = board

    def on_report(self, name: str, row: dict[str, float]) -> None:
        self.board.report(name, row)
        self._tracker.report(self._specs[name], row)
        self.show()

    def on_node(self, name: str, node: str) -> None:
        self._tracker.place(self._specs[name], node)

    def on_state(self, name: str, state: str, detail: str) -> None:
        self.board.set_state(name, state)
        if state == "done":
            self._tracker.end(self._specs[name], "FINISHED")
        elif state == "pruned":
            self._tracker.end(self._specs[name], "KILLED", reason=detail)
        elif state == "failed":
            self._tracker.end(self._specs[name], "FAILED", reason=detail)
            self._progress.warn(f"trial {name} failed: {detail}")
        elif state == "waiting":
            self._tracker.leave(self._specs[name])
        elif state == "retrying":
            self._progress.warn(f"trial {name} starts again: {detail}")
        self.show()

    def show(self, *, now: bool = False) -> None:
        self._progress.update("train", self.board.fraction, self.board.line(), now=now)


@task(name="train", cache_policy=NO_CACHE, description="Train every trial that is not done.")
def train(
    store: Store,
    trials: Sequence[TrialSpec],
    resources: Resources,
    tracker: Tracker,
    progress: Progress,
    board: Board,
    prunable: Collection[str] = (),
) -> SweepOutcome:
    """A failed trial is in the outcome; it stops no other one.

    :param board: of these trials and of all others of the run.
    :param prunable: names of trials that are given up when they fall behind.
    """
    listener = _Listener(trials, tracker, progress, board)
    with board.training():
        outcome = sweep(
            store,
            trials,
            resources=resources,
            on_report=listener.on_report,
            on_state=listener.on_state,
            on_node=listener.on_node,
            prunable=prunable,
        )
    listener.show(now=True)
    return outcome
