"""The sweep: an explicit list of trainings, each once, on whatever the cluster has.

The truth is the store.  Finished trials are never submitted; a trial held by a living owner
elsewhere is waited for; Tune gets the rest and runs them first in first out.  Where trials may
be given up, ASHA decides on the way (:mod:`tune_spaces.halving`).  Tune is asked for nothing
else: its folder is temporary, its checkpoints are not used, its state is never restored.  A
driver that was killed is started again and finds what is done.

``reuse_actors`` keeps the *slots*; every trial is trained in a process of its own (see
:mod:`tune_spaces.trial_process`), which an actor start of several seconds would not make
any fresher.
"""

import contextlib
import contextvars
import json
import logging
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.search import BasicVariantGenerator

from raise_model.specs import TrialSpec
from raise_model.store import Store
from tune_spaces.cluster import Resources, alone_request, default_cache, resolve_resources
from tune_spaces.halving import Halving, Row, ended_curve, is_pruned, trial_name, write_pruned
from tune_spaces.home import SWEEP_FOLDERS
from tune_spaces.trainable import trainable
from tune_spaces.trial_process import SIGKILLED
from tune_spaces.waiting import until_ended

MAX_FAILURES = 2
"""Restarts of one trial whose process died or whose failure may pass."""
HELD_POLL_SECONDS = 2.0
LOOK_SECONDS = 20.0
"""How often claims of trials that wait are looked at while others train."""

OnReport = Callable[[str, dict[str, float]], None]
OnNode = Callable[[str, str], None]
"""Called with a trial's name and the host name of the node that trains it."""
OnState = Callable[[str, str, str], None]
"""Called with a trial's name, its new state and one line of detail.

States: ``done`` (found, made here, or made elsewhere), ``running``, ``retrying`` (its process
died), ``waiting`` (held by another run, or out of memory until it can run alone), ``pruned``
(given up), ``failed``.
"""


@dataclass(frozen=True, kw_only=True)
class SweepOutcome:
    """What became of every trial."""

    done: Sequence[str]
    failed: Mapping[str, str]
    """Reason in one line, and where the log is."""


class _Interrupted(Exception):
    """The sweep is to stop: lets Tune clean up, which it does for exceptions only."""


def sweep(
    store: Store,
    specs: Sequence[TrialSpec],
    *,
    resources: Resources,
    on_report: OnReport,
    on_state: OnState,
    on_node: OnNode = lambda name, node: None,
    cache: Path | None = None,
    prunable: Collection[str] = (),
) -> SweepOutcome:
    """Train every spec that is not finished; needs a connection to a cluster.

    Callbacks run in a thread of the driver between two events of Tune and should return at
    once; an exception of theirs stops the sweep and is raised.  Where the handler of a signal
    raises, the trials are stopped before its exception goes on.

    :param cache: folder for derived arrays on every node; default ``RAISE_HOME/cache``.
    :param prunable: names of trials that are given up when they fall behind
        (:mod:`tune_spaces.halving`).
    """
    resources = resolve_resources(resources)
    progress = _Progress(store, specs, on_report, on_state, on_node, prunable)
    request = {
        "store": store.root,
        "device": resources.device,
        "threads": resources.threads,
        "cache": str(cache or default_cache()),
    }
    while unfinished := progress.unfinished():
        free = []
        for spec in unfinished:
            if store.trial(spec).holder() is None:
                free.append(spec)
            else:
                progress.set_state(spec.name, "waiting", "another run trains it")
        # A trial's process sees its claim for the first time.
        request["abandoned"] = json.dumps(store.claim_watch.abandoned())
        sharing = [spec for spec in free if spec.name not in progress.crowded]
        if sharing:
            _run_tuner(sharing, request, resources.request, resources, progress)
        elif free:
            # All others are through: whoever ran out of memory has a device to itself.
            progress.alone |= {spec.name for spec in free}
            _run_tuner(free, request, alone_request(resources), resources, progress)
        else:
            time.sleep(HELD_POLL_SECONDS)
    return progress.outcome()


_ENDED = ("done", "pruned", "failed")


class _Progress:
    """State of every trial of one sweep; passes changes on to the caller."""

    def __init__(
        self,
        store: Store,
        specs: Sequence[TrialSpec],
        on_report: OnReport,
        on_state: OnState,
        on_node: OnNode,
        prunable: Collection[str],
    ) -> None:
        self._store = store
        self._specs = {spec.name: spec for spec in specs}
        self._prunable = set(prunable)
        self._curves: dict[str, dict[float, Row]] = defaultdict(dict)
        """By step: an attempt that goes on reports the rows of earlier ones again."""
        self._states: dict[str, str] = {}
        self._failed: dict[str, str] = {}
        self._nodes: dict[str, str] = {}
        self._restarts: Counter[str] = Counter()
        self._looked = time.monotonic()
        self._on_state = on_state
        self._on_report = on_report
        self._on_node = on_node
        self.crowded: set[str] = set()
        """Trials that ran out of memory beside others."""
        self.alone: set[str] = set()
        """Those of them that got a device to themselves."""

    def unfinished(self) -> list[TrialSpec]:
        """Trials that have not ended, in the order given; notes those that ended elsewhere."""
        for name in self._specs:
            if self._states.get(name) in _ENDED:
                continue
            folder = self._store.trial(name)
            by = "by another run" if self._states.get(name) == "waiting" else "before"
            if folder.is_done:
                self.set_state(name, "done", f"finished {by}")
            elif name in self._prunable and is_pruned(folder):
                self.set_state(name, "pruned", f"given up {by}")
        return [s for name, s in self._specs.items() if self._states.get(name) not in _ENDED]

    def scheduler(self) -> Halving:
        """Knows the curves of all prunable trials that have ended."""
        scheduler = Halving(list(self._specs.values()), self._prunable)
        for name in self._prunable & self._specs.keys():
            scheduler.know(name, ended_curve(self._store.trial(name)))
        return scheduler

    def report(self, name: str, row: dict[str, float]) -> None:
        if name in self._prunable:
            kept = {"step": row["step"], "validation_accuracy": row["validation_accuracy"]}
            self._curves[name][row["step"]] = kept
        self._on_report(name, row)

    def place(self, name: str, node: str) -> None:
        """A trial runs on a node; the caller hears of it where that is news."""
        if self._nodes.get(name) != node:
            self._nodes[name] = node
            self._on_node(name, node)

    def prune(self, name: str) -> None:
        """A trial was given up."""
        curve = [row for _, row in sorted(self._curves[name].items())]
        write_pruned(self._store.trial(name), curve)
        self.set_state(name, "pruned", f"given up at step {curve[-1]['step']:.0f}")

    def look_at_claims(self) -> None:
        """See how long the claims of waiting trials stand still, also while others train."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        for name in [name for name, state in self._states.items() if state == "waiting"]:
            self._store.trial(name).holder()

    def restart(self, name: str, reason: str) -> None:
        """A trial's process was lost, and Tune starts it again."""
        self._restarts[name] += 1
        self.set_state(name, "retrying", reason)

    def held(self, name: str, reason: str) -> None:
        """A living owner has a trial, or one whose machine went down with it.

        Of the second kind Tune counts no failure, and such a trial may take every machine down.
        """
        if self._restarts[name] > MAX_FAILURES:
            self.fail(name, f"its worker or machine was lost {self._restarts[name]} times")
        else:
            self.set_state(name, "waiting", reason)

    def set_state(self, name: str, state: str, detail: str = "") -> None:
        if self._states.get(name) != state:
            self._states[name] = state
            self._on_state(name, state, detail)

    def fail(self, name: str, reason: str) -> None:
        log = self._store.trial(name).file("log.txt")
        where = f"; log: {self._store.path(log)}" if self._store.exists(log) else ""
        self._failed[name] = f"{reason}{where}"
        self.set_state(name, "failed", self._failed[name])

    def out_of_memory(self, name: str, reason: str) -> None:
        """A trial ran out of memory: it is tried once more, alone, after all others."""
        if name in self.alone:
            self.fail(name, f"{reason}; alone on its device too")
            return
        self.crowded.add(name)
        self.set_state(name, "waiting", f"{reason}; tried once more alone, after the others")

    def outcome(self) -> SweepOutcome:
        done = [name for name in self._specs if self._states.get(name) == "done"]
        return SweepOutcome(done=done, failed=dict(self._failed))


class _Watcher(tune.Callback):
    """Turns Tune's events into the states and rows of a sweep."""

    def __init__(self, progress: _Progress, stopped: threading.Event) -> None:
        self._progress = progress
        self._stopped = stopped
        self._names: dict[str, str] = {}
        self._outcomes: dict[str, tuple[str, str]] = {}
        self._error: Exception | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune pickles its callbacks for a restore that never comes, and the caller's
        may hold what cannot be pickled (loggers, clients).
        """
        return {}

    def _name(self, trial: Any) -> str:
        if trial.trial_id not in self._names:
            self._names[trial.trial_id] = trial_name(trial)
        return self._names[trial.trial_id]

    def on_step_begin(self, iteration: int, trials: Any, **info: Any) -> None:
        if self._stopped.is_set():
            raise _Interrupted
        self.raise_kept()
        self._progress.look_at_claims()

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self._outcomes.pop(trial.trial_id, None)
        with self._kept():
            self._progress.set_state(self._name(trial), "running")

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if "outcome" in result:
            self._outcomes[trial.trial_id] = (result["outcome"], result["reason"])
            return
        with self._kept():
            self._progress.place(self._name(trial), result["hostname"])
            self._progress.report(self._name(trial), result["row"])

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        name = self._name(trial)
        with self._kept():
            if trial.trial_id not in self._outcomes:
                # The scheduler stopped it before it could say how it ended.
                self._progress.prune(name)
                return
            outcome, reason = self._outcomes[trial.trial_id]
            if outcome == "held":
                self._progress.held(name, reason)
            elif outcome == "refused":
                self._progress.fail(name, reason)
            elif outcome == "memory":
                self._progress.out_of_memory(name, reason)
            else:
                self._progress.set_state(name, "done")

    def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        with self._kept():
            self._progress.restart(self._name(trial), self._reason(trial))

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        name, reason = self._name(trial), self._reason(trial)
        with self._kept():
            if SIGKILLED in reason:
                # At every attempt: the system may have been short of memory each time.
                self._progress.out_of_memory(name, reason)
            else:
                self._progress.fail(name, reason)

    def raise_kept(self) -> None:
        if self._error is not None:
            raise self._error

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """Raised at Tune's next step: here Tune would take it for the trial's own failure."""
        try:
            yield
        except Exception as error:
            self._error = self._error or error

    def _reason(self, trial: Any) -> str:
        lost = ("failed", "the trial's worker or its machine was lost")
        return self._outcomes.pop(trial.trial_id, lost)[1]


def _run_tuner(
    specs: Sequence[TrialSpec],
    request: Mapping[str, Any],
    share: Mapping[str, float],
    resources: Resources,
    progress: _Progress,
) -> None:
    """One Tuner over ``specs``; what became of them is in ``progress`` and in the store.

    :param share: what Ray reserves for each.
    """
    stopped = threading.Event()
    watcher = _Watcher(progress, stopped)
    with (
        _quiet_tune(),
        tempfile.TemporaryDirectory(prefix=SWEEP_FOLDERS, ignore_cleanup_errors=True) as folder,
    ):
        tuner = tune.Tuner(
            tune.with_resources(trainable, dict(share)),
            param_space={**request, "spec": ""},
            tune_config=tune.TuneConfig(
                # Of a grid Tune copies all choices for every trial: hours at 10,000 trials.
                search_alg=BasicVariantGenerator(
                    points_to_evaluate=[{"spec": json.dumps(spec.to_json())} for spec in specs],
                    max_concurrent=resources.max_concurrent,
                ),
                num_samples=len(specs),
                scheduler=progress.scheduler(),
                reuse_actors=True,
                trial_name_creator=trial_name,
                trial_dirname_creator=trial_name,
            ),
            run_config=tune.RunConfig(
                name="sweep",
                storage_path=folder,
                verbose=0,
                callbacks=[watcher],
                failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
            ),
        )
        _in_a_thread(tuner.fit, stopped)
    watcher.raise_kept()  # of the last trial, after which Tune takes no step


def _in_a_thread(work: Callable[[], object], stopped: threading.Event) -> None:
    """Do ``work`` in another thread; an exception here, as of a signal, sets ``stopped`` first.

    A handler that raises must not do so in the middle of Tune.  It must stay in place, too:
    Prefect tells a run that is cancelled from one that crashed only while its own is there.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="sweep") as pool:
        try:
            # Prefect knows the run by a context variable.
            running = pool.submit(contextvars.copy_context().run, work)
            until_ended([running])
        finally:
            stopped.set()
    running.result()


@contextlib.contextmanager
def _quiet_tune() -> Iterator[None]:
    """Failures reach the caller through the states; Tune's account of them goes nowhere."""
    logger = logging.getLogger("ray.tune")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
