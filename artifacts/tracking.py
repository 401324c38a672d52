"""MLflow, a projection of the store with one writer: the driver of a sweep.

One run a trial, found again by its tag ``raise.trial``; a parent run a study, found again by
the fingerprint of what it contains; summary runs with the means over seeds.  So a flow that
is repeated, or goes on after a crash, adds to the runs that are there.

:class:`Tracker` never makes its caller wait for the server: what is to be written goes into a
queue that a thread works off in order.  While the server is away the queue grows and the
thread tries again; every point has its time stamp from the start, so that a batch written
twice is the same batch.  Rows that a trial reports while its last ones wait go with them.
Errors that waiting does not mend are raised by :meth:`Tracker.flush` and
:meth:`Tracker.close`.
"""

import contextlib
import functools
import io
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from mlflow.exceptions import MlflowException

from artifacts.mlflow_runs import (
    DATA_EXPERIMENT,
    PARENT_TAG,
    TRIAL_TAG,
    Experiment,
    is_away,
    is_deleted,
)
from artifacts.run_fields import evaluation_metrics, provenance_tags, summary_metrics
from raise_model.errors import UserError
from raise_model.specs import TrialSpec, fingerprint
from raise_model.store import Store, TrialFolder

Status = Literal["FINISHED", "FAILED", "KILLED"]

STUDY_TAG = "raise.study"
SUMMARY_TAG = "raise.summary"
DATA_TAG = "raise.data"

RETRY_SECONDS = 2.0
CLOSE_SECONDS = 180.0
"""How long :meth:`Tracker.close` waits for a server that is away."""
KILLED_SECONDS = 8.0
"""The same where the flow was cancelled: Prefect kills it half a minute later."""


def _now() -> int:
    return int(time.time() * 1000)


class Tracker:
    """The one writer of a flow.  Use it as a context manager, or call :meth:`close`."""

    def __init__(self, uri: str) -> None:
        """:raises UserError: if no server answers at ``uri``; it names the URI."""
        self._experiment = Experiment(uri)
        self._parent: str | None = None
        self._open: dict[str, TrialSpec] = {}
        self._rows: dict[str, list[tuple[int, dict[str, float]]]] = {}
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._pending = 0
        self._changed = threading.Condition()
        self._error: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="mlflow-writer")
        self._thread.start()
        self._submit(functools.partial(self._experiment.read_all, TRIAL_TAG))

    def __enter__(self) -> "Tracker":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        status: Status = "FINISHED"
        if kind is not None:
            status = "FAILED" if issubclass(kind, Exception) else "KILLED"
        # The error that ended the block is the one to be seen.
        with contextlib.suppress(Exception) if kind else contextlib.nullcontext():
            self.close(status)

    @property
    def uri(self) -> str:
        return self._experiment.uri

    @property
    def experiment_path(self) -> str:
        """Path of the experiment in the MLflow UI."""
        return f"#/experiments/{self._experiment.id}/runs"

    def start_study(
        self, name: str, trials: Sequence[TrialSpec], params: Mapping[str, Any]
    ) -> None:
        """Open the parent run of these trials, the same one each time for the same trials."""
        key = fingerprint("study", {"trials": sorted(spec.name for spec in trials)})[:16]

        def work() -> None:
            experiment = self._experiment
            parent = experiment.run(STUDY_TAG, key, name=f"{name} {key[:6]}", tags={})
            experiment.set_status(parent, "RUNNING")
            experiment.log_params(parent, {key: str(value) for key, value in params.items()})
            self._parent = parent

        self._submit(work)

    def reconcile(self, store: Store) -> None:
        """End runs that say RUNNING though no process trains them (their driver was killed)."""

        def work() -> None:
            experiment = self._experiment
            running = experiment.search("attributes.status = 'RUNNING'")
            alive = set()
            for run in running:
                name = run.data.tags.get(TRIAL_TAG)
                if name is None:
                    continue
                trial = store.trial(name)
                if name in self._open or (not trial.is_done and trial.holder() is not None):
                    alive.add(run.data.tags.get(PARENT_TAG))
                else:
                    status = "FINISHED" if trial.is_done else "KILLED"
                    experiment.set_status(run.info.run_id, status)
            for run in running:
                # A living driver sets its study's status again when it ends.
                is_study = STUDY_TAG in run.data.tags and run.info.run_id != self._parent
                if is_study and run.info.run_id not in alive:
                    experiment.set_status(run.info.run_id, "KILLED")

        self._submit(work)

    def report(self, spec: TrialSpec, row: Mapping[str, float]) -> None:
        """A row of a trial's training curve; opens its run at the first one."""
        first = spec.name not in self._open
        self._open[spec.name] = spec
        with self._changed:
            waiting = self._rows.setdefault(spec.name, [])
            waiting.append((_now(), dict(row)))
            if len(waiting) > 1 and not first:
                return
        taken: list[tuple[int, dict[str, float]]] = []

        def work() -> None:
            if first:
                run_id = self._experiment.trial_run(spec, self._parent)
                self._experiment.set_status(run_id, "RUNNING")
            with self._changed:
                taken.extend(self._rows.pop(spec.name, ()))
            self._experiment.log_rows(spec, self._parent, taken)

        self._submit(work)

    def place(self, spec: TrialSpec, node: str) -> None:
        """The node that trains a trial."""

        def work() -> None:
            self._experiment.trial_run(spec, self._parent, node=node)

        self._submit(work)

    def leave(self, spec: TrialSpec) -> None:
        """A trial that is not trained here any more, and may be elsewhere."""
        self._open.pop(spec.name, None)

    def end(self, spec: TrialSpec, status: Status, *, reason: str = "") -> None:
        """Terminal status of a trial."""
        self._open.pop(spec.name, None)

        def work() -> None:
            run_id = self._experiment.trial_run(spec, self._parent)
            if reason:
                self._experiment.client.set_tag(run_id, "raise.reason", reason)
            self._experiment.set_status(run_id, status)

        self._submit(work)

    def sync(self, store: Store, trials: Sequence[TrialSpec] | None = None) -> None:
        """Bring the runs of finished trials (all, or these) up to what the store has.

        Curves, evaluations and states that MLflow has already are not written again.
        """
        if trials is None:
            trials = [folder.spec() for folder in store.trials() if folder.is_done]
        stamp = _now()
        for spec in trials:
            if store.trial(spec).is_done:
                self._submit(functools.partial(self._sync_trial, store, spec, stamp))

    def _sync_trial(self, store: Store, spec: TrialSpec, stamp: int) -> None:
        folder = store.trial(spec)
        experiment = self._experiment
        run_id = experiment.trial_run(spec, self._parent)
        done = folder.done()
        values = {"train_seconds": float(done["seconds"])}
        for evaluation in folder.evaluations():
            values |= evaluation_metrics(evaluation.spec(), evaluation.result())
        # Written after the curve: where it is, the curve is.
        last = {"best_accuracy": float(done["validation_accuracy"])}
        if not experiment.has(run_id, last):
            self._sync_curve(folder, spec, stamp)
        experiment.log_values(run_id, values | last, stamp, provenance_tags(done["provenance"]))
        experiment.set_status(run_id, "FINISHED")

    def _sync_curve(self, folder: TrialFolder, spec: TrialSpec, stamp: int) -> None:
        store = folder.store
        curve = pd.read_parquet(io.BytesIO(store.read(folder.file("curve.parquet"))))
        rows = [{str(k): float(v) for k, v in row.items()} for row in curve.to_dict("records")]
        self._experiment.log_rows(spec, self._parent, [(stamp, row) for row in rows])

    def summarise(self, summary: pd.DataFrame) -> None:
        """One run for each training setting of :func:`artifacts.aggregate.summarise`."""
        for cell, group in summary.groupby("study_cell", sort=False):
            self._submit(functools.partial(self._summarise, str(cell), group))

    def _summarise(self, cell: str, group: pd.DataFrame) -> None:
        experiment = self._experiment
        first = group.iloc[0]
        key = f"{cell}-{int(first['seeds'])}"
        setting = f"{first['model']} {first['configuration']} {100 * first['label_ratio']:g}%"
        name = f"mean of {first['seeds']}: {setting}"
        parent = {PARENT_TAG: self._parent} if self._parent else {}
        run_id = experiment.run(SUMMARY_TAG, key, name=name, tags=parent)
        fields = ("model", "configuration", "label_ratio", "label_map", "image_size", "precision")
        params = {field: str(first[field]) for field in (*fields, "steps", "seeds")}
        experiment.log_params(run_id, params)
        experiment.log_values(run_id, summary_metrics(group), _now())
        experiment.set_status(run_id, "FINISHED")

    def upload(self, name: str, text: str) -> None:
        """A text artifact of the parent run, e.g. ``results.md``."""

        def work() -> None:
            if self._parent is not None:
                self._experiment.client.log_text(self._parent, text, name)

        self._submit(work)

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Wait until everything is written; False if nothing got on for ``seconds``.

        :raises Exception: the first error that waiting does not mend; the rest is written.
        """
        with self._changed:
            while self._pending:
                # Notified whenever something was written.
                if not self._changed.wait(timeout=seconds):
                    return False
            if self._error is not None:
                raise self._error
            return True

    def close(self, status: Status = "FINISHED") -> None:
        """End what is open (trials KILLED, the parent with ``status``), write, stop.

        :raises UserError: if the server stayed away; what it lacks can be written later by
            ``raise-rpm sync``.
        """
        if not self._thread.is_alive():
            return
        for spec in list(self._open.values()):
            self.end(spec, "KILLED")

        def work() -> None:
            if self._parent is not None:
                self._experiment.set_status(self._parent, status)

        self._submit(work)
        try:
            written = self.flush(KILLED_SECONDS if status == "KILLED" else CLOSE_SECONDS)
        finally:
            self._stop.set()
            self._work.put(None)
            self._thread.join()
        if not written:
            raise UserError(
                f"the MLflow server at {self.uri} went away; results are in the store; when it "
                "is back: raise-rpm sync"
            )

    def _submit(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._pending += 1
        self._work.put(work)

    def _run(self) -> None:
        while (work := self._work.get()) is not None and not self._stop.is_set():
            self._attempt(work)
            with self._changed:
                self._pending -= 1
                self._changed.notify_all()

    def _attempt(self, work: Callable[[], None]) -> None:
        """Do one piece of work, again and again while the server is away."""
        was_deleted = False
        while not self._stop.is_set():
            try:
                work()
                return
            except Exception as error:
                if is_deleted(error) and not was_deleted:
                    was_deleted = True
                    self._experiment.forget()
                    continue
                if not is_away(error):
                    with self._changed:
                        self._error = self._error or error
                    return
                self._stop.wait(RETRY_SECONDS)


def log_data_card(
    uri: str, name: str, digest: str, values: Mapping[str, float], folder: Path
) -> str:
    """A run of the experiment ``raise-data`` with a data card; the same data has one run.

    :param digest: of the data set.
    :return: address of the run in the user interface.
    :raises UserError: if no server answers.
    """
    data = Experiment(uri, DATA_EXPERIMENT)
    try:
        run = data.run(DATA_TAG, digest, name=name, tags={})
        data.log_values(run, values, _now())
        data.client.log_artifacts(run, str(folder))
        data.set_status(run, "FINISHED")
    except (MlflowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"MLflow at {uri} did not take {folder}: {reason}") from error
    return f"{uri}/#/experiments/{data.id}/runs/{run}"
