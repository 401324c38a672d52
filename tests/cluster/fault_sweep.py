"""Sweeps that meet faults in the middle, are resumed, and are compared with an undisturbed one."""

import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.cluster.cluster import ENDED, Cluster
from tests.cluster.faults import REQUEST, TRIALS, Fault
from tests.cluster.hosts import HostError, wait_for
from tests.cluster.parts import BUCKET

SWEEP_SECONDS = 1500.0
SILENT_SECONDS = 60.0
"""A run without a driver process for so long has lost it."""
MAX_RUNS = 8


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a sweep left behind."""

    trials: Mapping[str, Any]
    runs: Sequence[Mapping[str, str]]
    table: str
    states: Sequence[str]
    """How each run of the flow ended."""
    seconds: float
    before: Mapping[str, Mapping[str, str]]
    """By fault: digest of ``done.json`` of every trial that was finished when it came."""


class Sweep:
    """One sweep over twelve trials, and as many runs of the deployment as it takes to end it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self.root = f"s3://{BUCKET}/{re.sub('[^a-z0-9]+', '-', name.lower())}"
        self.states: list[str] = []
        self._run = ""
        self._silent = 0.0

    def go_on(self) -> bool:
        """Start the next run where the last one ended; False once one is completed.

        :raises HostError: after :data:`MAX_RUNS` runs.
        """
        if self._run:
            state = self._ended()
            if not state:
                return True
            self.states.append(state)
            if state == "COMPLETED":
                return False
            say(f"    {state}: {self._cluster.message(self._run)[:300]}")
            if len(self.states) == MAX_RUNS:
                raise HostError(f"not completed: {self._cluster.logs(self._run)[-3000:]}")
        self._run = self._cluster.submit("faults", **REQUEST, store=self.root)
        self._silent = time.monotonic()
        return True

    def _ended(self) -> str:
        """Type of the state in which the run ended, "" while it goes on.

        LOST where its process is gone and nobody says so.
        """
        state = self._cluster.state(self._run)
        if state in ENDED:
            return state
        if state != "RUNNING" or self._cluster.drivers():
            self._silent = time.monotonic()
        return "LOST" if time.monotonic() - self._silent > SILENT_SECONDS else ""

    def go_on_until(self, number: int) -> dict[str, str]:
        """Digests of the finished trials as soon as there are so many.

        :raises HostError: if the sweep was completed before that was seen.
        """
        deadline = time.monotonic() + SWEEP_SECONDS
        while len(self._cluster.ask("done", self.root)) < number:
            if not self.go_on() or time.monotonic() > deadline:
                raise HostError(f"{number} finished trials were not seen")
            time.sleep(2)
        trials = self._cluster.ask("trials", self.root)
        return {name: trial["done"] for name, trial in trials.items() if trial["done"]}

    def finish(self) -> None:
        deadline = time.monotonic() + SWEEP_SECONDS
        while self.go_on():
            if time.monotonic() > deadline:
                raise HostError(f"the run goes on: {self._cluster.logs(self._run)[-3000:]}")
            time.sleep(3)


def _is_training(cluster: Cluster, root: str, host: str) -> bool:
    claims = cluster.ask("claims", root).values()
    return any(not host or cluster.hosts[host].owns(c["process"]["machine"]) for c in claims)


def sweep(cluster: Cluster, name: str, faults: Sequence[Fault]) -> Result:
    """One sweep, disturbed by every one of ``faults`` in turn."""
    one = Sweep(cluster, name)
    cluster.ask("forget_runs")
    if not cluster.ask("has_data", one.root):
        cluster.ask("copy_data", f"s3://{BUCKET}/calm", one.root)
    for chosen in faults:
        chosen.prepare(cluster)
    started = time.monotonic()
    one.go_on()
    before = {}
    for place, chosen in enumerate(faults, start=1):
        before[chosen.name] = one.go_on_until(TRIALS * place // (len(faults) + 1))
        wait_for(
            "no trial runs", partial(_is_training, cluster, one.root, chosen.host), 300, every=0.2
        )
        seconds = time.monotonic() - started
        say(f"    after {seconds:.0f} s, {len(before[chosen.name])} done: {chosen.name}")
        chosen.inject(cluster, one.root)
    one.finish()
    # Other runs of this sweep end by themselves.
    wait_for("a run goes on", lambda: not cluster.drivers(), SWEEP_SECONDS)
    for chosen in faults:
        chosen.clear(cluster)
    tables = {study["table"] for study in cluster.ask("studies")}
    return Result(
        trials=cluster.ask("trials", one.root),
        runs=cluster.ask("runs"),
        table="; ".join(sorted(tables)),
        states=one.states,
        seconds=time.monotonic() - started,
        before=before,
    )


def verdict(result: Result, calm: Result) -> tuple[list[str], list[str]]:
    """Cells of the row, and what is wrong in words."""
    trials = result.trials
    lost = sorted(
        {
            name
            for finished in result.before.values()
            for name, digest in finished.items()
            if trials[name]["done"] != digest
        }
    )
    again = [n for n, trial in trials.items() if trial["finishes"] > 1 or trial["after_done"]]
    count = Counter(run["trial"] for run in result.runs)
    doubled = [name for name, number in count.items() if number > 1]
    steady = ("value", "curve", "evaluations")
    differing = [
        name
        for name, trial in calm.trials.items()
        if any(trials.get(name, {}).get(key) != trial[key] for key in steady)
    ]
    same = result.table == calm.table and result.table != ""
    wrong = [
        *(f"lost: {name}" for name in lost),
        *(f"trained again: {name}" for name in again),
        *(f"two MLflow runs: {name}" for name in doubled),
        *(f"differs from the undisturbed sweep: {name}" for name in differing),
        *(f"no MLflow run: {name}" for name in calm.trials if name not in count),
        *(f"MLflow says {r['status']}: {r['trial']}" for r in result.runs
          if r["status"] != "FINISHED"),
    ]  # fmt: skip
    if not same:
        wrong.append("the table differs")
    if len(trials) != len(calm.trials):
        wrong.append(f"{len(trials)} trials")
    restarts = sum(len(trial["starts"]) - 1 for trial in trials.values())
    cells = [
        ", ".join(state.lower() for state in result.states),
        str(restarts),
        str(len(lost)),
        str(len(again)),
        str(len(doubled)),
        "equal" if same and not differing else "DIFFERS",
        f"{result.seconds:.0f}",
    ]
    return cells, wrong
