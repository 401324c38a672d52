"""What the trials of a sweep are doing: counts, best accuracy, time left."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from raise_model.specs import TrialSpec

Clock = Callable[[], float]
_ENDED = ("done", "pruned", "failed")


def duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3.5 h`` or ``12 days``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} days"


@dataclass
class _Trial:
    steps: int
    state: str = "queued"
    begun_at: int = 0
    """Step at which this run of the flow found the trial."""
    step: int = 0
    accuracy: float | None = None


class Board:
    """What the trials of a sweep are doing, as their reports tell."""

    def __init__(self, specs: Sequence[TrialSpec], clock: Clock = time.monotonic) -> None:
        self._interval = {spec.name: spec.validate_every for spec in specs}
        self._trials = {spec.name: _Trial(steps=spec.steps) for spec in specs}
        self._clock = clock
        self._started = clock()

    def report(self, name: str, row: Mapping[str, float]) -> None:
        """A row of a trial's curve."""
        trial = self._trials[name]
        if trial.step == 0:
            # A resumed trial first reports one interval after its checkpoint.
            trial.begun_at = max(0, int(row["step"]) - self._interval[name])
        trial.step = int(row["step"])
        if "validation_accuracy" in row:
            trial.accuracy = max(trial.accuracy or 0.0, row["validation_accuracy"])

    def set_state(self, name: str, state: str) -> None:
        trial = self._trials[name]
        trial.state = state
        if state == "done" and trial.step == 0:
            # Found finished: no work of this run.
            trial.begun_at = trial.step = trial.steps

    @property
    def counts(self) -> Counter[str]:
        return Counter(trial.state for trial in self._trials.values())

    @property
    def fraction(self) -> float:
        """Share of all steps taken, failed and given up trials counted as finished."""
        total = sum(trial.steps for trial in self._trials.values())
        taken = sum(
            trial.steps if trial.state in _ENDED else trial.step for trial in self._trials.values()
        )
        return taken / total if total else 1.0

    @property
    def seconds_left(self) -> float | None:
        """At the mean speed so far; None before there is one."""
        taken = sum(trial.step - trial.begun_at for trial in self._trials.values())
        left = sum(
            trial.steps - trial.step for trial in self._trials.values() if trial.state not in _ENDED
        )
        elapsed = self._clock() - self._started
        return left * elapsed / taken if taken and elapsed else None

    def line(self) -> str:
        """``trials 3/14 done, 2 running, 0 failed; best accuracy .412; 12 min left``."""
        counts = self.counts
        states = [f"{counts['done']}/{len(self._trials)} done", f"{counts['running']} running"]
        states += [
            f"{counts[state]} {state}"
            for state in ("retrying", "waiting", "pruned")
            if counts[state]
        ]
        states.append(f"{counts['failed']} failed")
        parts = ["trials " + ", ".join(states)]
        accuracies = [trial.accuracy for trial in self._trials.values() if trial.accuracy]
        if accuracies:
            parts.append(
                f"best validation accuracy {max(accuracies):.3f} "
                f"(median {statistics.median(accuracies):.3f})"
            )
        if self.seconds_left is not None and self.fraction < 1:
            parts.append(f"about {duration(self.seconds_left)} left")
        return "; ".join(parts)
