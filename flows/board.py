"""What the trials of a sweep are doing: counts, best accuracy, time left."""

import bisect
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    cost: int
    """Of a step, in microseconds: sums of whole numbers stay exact."""
    state: str = "queued"
    begun_at: int = 0
    """Step at which this run of the flow found the trial."""
    step: int = 0
    accuracy: float | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in _ENDED


def _microseconds(seconds: float) -> int:
    return max(1, round(1e6 * seconds))


class Board:
    """What the trials of a sweep are doing, as their reports tell.

    Sums are kept up to date: each report of a sweep of thousands of trials asks for all of them.
    Shares and times count a step by its cost: those of some models take ten times as long.
    """

    def __init__(
        self,
        specs: Sequence[TrialSpec],
        clock: Clock = time.monotonic,
        *,
        cost: Callable[[TrialSpec], float] = lambda spec: 1.0,
    ) -> None:
        """:param cost: seconds of a step of a training; only their ratios matter."""
        self._interval = {spec.name: spec.validate_every for spec in specs}
        self._trials = {
            spec.name: _Trial(steps=spec.steps, cost=_microseconds(cost(spec))) for spec in specs
        }
        self._clock = clock
        self._trained_for = 0.0
        """Seconds in which trials were running, but for those since :attr:`_resumed`."""
        self._resumed: float | None = None
        self._states: Counter[str] = Counter()
        self._whole = self._covered = self._taken = self._left = 0
        self._accuracies: list[float] = []
        """Best of each trial that has one, ascending."""
        for trial in self._trials.values():
            self._whole += trial.cost * trial.steps
            self._count(trial, 1)

    def _count(self, trial: _Trial, sign: int) -> None:
        """Add a trial to the sums, or with -1 take it out."""
        self._states[trial.state] += sign
        weight = sign * trial.cost
        self._covered += weight * (trial.steps if trial.has_ended else trial.step)
        self._taken += weight * (trial.step - trial.begun_at)
        self._left += weight * (0 if trial.has_ended else trial.steps - trial.step)
        if trial.accuracy and sign > 0:
            bisect.insort(self._accuracies, trial.accuracy)
        elif trial.accuracy:
            del self._accuracies[bisect.bisect_left(self._accuracies, trial.accuracy)]

    @contextlib.contextmanager
    def _changing(self, name: str) -> Iterator[_Trial]:
        trial = self._trials[name]
        self._count(trial, -1)
        try:
            yield trial
        finally:
            self._count(trial, 1)

    def report(self, name: str, row: Mapping[str, float]) -> None:
        """A row of a trial's curve."""
        with self._changing(name) as trial:
            if trial.step == 0:
                # A resumed trial first reports one interval after its checkpoint.
                trial.begun_at = max(0, int(row["step"]) - self._interval[name])
            trial.step = int(row["step"])
            if "validation_accuracy" in row:
                trial.accuracy = max(trial.accuracy or 0.0, row["validation_accuracy"])

    def set_state(self, name: str, state: str) -> None:
        with self._changing(name) as trial:
            trial.state = state
            if state == "done" and trial.step == 0:
                # Found finished: no work of this run.
                trial.begun_at = trial.step = trial.steps

    @property
    def counts(self) -> Counter[str]:
        return +self._states

    @property
    def fraction(self) -> float:
        """Share of the work done, failed and given up trials counted as finished."""
        return self._covered / self._whole if self._whole else 1.0

    @property
    def seconds_left(self) -> float | None:
        """Of training, at the mean speed so far; None before there is one."""
        running = 0.0 if self._resumed is None else self._clock() - self._resumed
        trained_for = self._trained_for + running
        return self._left * trained_for / self._taken if self._taken and trained_for else None

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """While trials run: only then does the clock count for :attr:`seconds_left`."""
        self._resumed = self._clock()
        try:
            yield
        finally:
            self._trained_for += self._clock() - self._resumed
            self._resumed = None

    def line(self) -> str:
        """As in ``trials 3/14 done, 2 running, 0 failed; ...; about 12 min of training left``."""
        counts = self.counts
        states = [f"{counts['done']}/{len(self._trials)} done", f"{counts['running']} running"]
        states += [
            f"{counts[state]} {state}"
            for state in ("retrying", "waiting", "pruned")
            if counts[state]
        ]
        states.append(f"{counts['failed']} failed")
        parts = ["trials " + ", ".join(states)]
        if found := self._accuracies:
            median = (found[(len(found) - 1) // 2] + found[len(found) // 2]) / 2
            parts.append(f"best validation accuracy {found[-1]:.3f} (median {median:.3f})")
        if self.seconds_left is not None and self.fraction < 1:
            parts.append(f"about {duration(self.seconds_left)} of training left")
        return "; ".join(parts)
