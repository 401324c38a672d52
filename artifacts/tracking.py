"""MLflow, a projection of the store with one writer: the driver of a sweep.

One run a trial, found again by its tag ``raise.trial``; a parent run a study, found again by
the fingerprint of what it contains; summary runs with the means over seeds.  So a flow that
is repeated, or goes on after a crash, adds to the runs that are there.

:class:`Tracker` never makes its caller wait for the server: what is to be written goes into a
queue that a thread works off in order.  While the server is away the queue grows and the
thread tries again; every point has its time stamp from the start, so that a batch written
twice is the same batch.  Errors that waiting does not mend are raised by :meth:`Tracker.flush`
and :meth:`Tracker.close`.
"""

import contextlib
import functools
import io
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

# Read by MLflow itself; what the user has set wins.  Its own retries (up to minutes, unseen)
# are replaced by those of Tracker.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
# A run that ends would print its address, tens of times in a sweep.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")

from mlflow.entities import Metric, Param, Run, ViewType
from mlflow.exceptions import MlflowException, RestException
from mlflow.tracking import MlflowClient

from artifacts.run_fields import (
    curve_metrics,
    evaluation_metrics,
    parameters,
    readable_name,
    summary_metrics,
)
from raise_model.errors import UserError
from raise_model.specs import TrialSpec, fingerprint
from raise_model.store import Store

Status = Literal["FINISHED", "FAILED", "KILLED"]

EXPERIMENT = "raise"
DATA_EXPERIMENT = "raise-data"
TRIAL_TAG = "raise.trial"
FINGERPRINT_TAG = "raise.fingerprint"
NODE_TAG = "raise.node"
"""Host name of the node that trained a trial; after a restart elsewhere, of the last one."""
STUDY_TAG = "raise.study"
SUMMARY_TAG = "raise.summary"
DATA_TAG = "raise.data"
PARENT_TAG = "mlflow.parentRunId"
KIND_TAG = "mlflow.experimentKind"

RETRY_SECONDS = 2.0
REQUEST_SECONDS = 20
CLOSE_SECONDS = 60.0
"""How long :meth:`Tracker.close` waits for a server that is away."""


def _is_refused(error: Exception) -> bool:
    """Whether the server wants other credentials; its 401 is no JSON, and no RestException."""
    if isinstance(error, RestException):
        return int(error.get_http_status_code()) in (401, 403)
    return "failed with error code 401" in str(error)


def _is_away(error: Exception) -> bool:
    """Whether trying again later may help: no answer, or one of a server in trouble."""
    if isinstance(error, RestException):
        return int(error.get_http_status_code()) in (429, 500, 502, 503, 504)
    # What requests raises and answers that are no JSON come in MLflow's base class.
    return isinstance(error, OSError) or (
        isinstance(error, MlflowException)
        and "API request to" in str(error)
        and not _is_refused(error)
    )


def _refusal(uri: str) -> UserError:
    names = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    given = os.environ.get("MLFLOW_TRACKING_PASSWORD")
    what = f"refuses {names}" if given else f"asks for a password; set {names}"
    return UserError(
        f"the MLflow server at {uri} {what} (in RAISE_HOME/cluster.env or the environment)"
    )


class Projection:
    """Runs of one experiment on one server; every method waits for the server."""

    def __init__(self, uri: str, name: str = EXPERIMENT) -> None:
        self.uri = uri
        self.client = MlflowClient(tracking_uri=uri)
        try:
            experiment = self.client.get_experiment_by_name(name)
            if experiment is None:
                self._create_experiment(name)
                experiment = self.client.get_experiment_by_name(name)
        except (MlflowException, OSError) as error:
            if _is_refused(error):
                raise _refusal(uri) from error
            reason = " ".join(str(error).split())[:200]
            if "HTTPConnectionPool" in reason:  # the client's words for it fill a screen
                reason = "no connection"
            raise UserError(
                f"no MLflow server answers at {uri} ({reason}); start one by: raise-rpm up"
            ) from error
        assert experiment is not None
        if experiment.lifecycle_stage != "active":
            raise UserError(
                f"the MLflow experiment {name} at {uri} is deleted; restore it by: "
                f"mlflow experiments restore -x {experiment.experiment_id}"
            )
        self.experiment = experiment.experiment_id
        self._runs: dict[tuple[str, str], str] = {}
        self._last_steps: dict[str, int] = {}

    def _create_experiment(self, name: str) -> None:
        try:
            # Without its kind the user interface shows an empty page about language models.
            self.client.create_experiment(name, tags={KIND_TAG: "custom_model_development"})
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def search(self, condition: str) -> list[Run]:
        """All active runs that meet a condition, oldest first."""
        found: list[Run] = []
        token = None
        while True:
            page = self.client.search_runs(
                [self.experiment], condition, ViewType.ACTIVE_ONLY, page_token=token,
                order_by=["attributes.start_time ASC"],
            )  # fmt: skip
            found += page
            token = page.token
            if not token:
                return sorted(found, key=lambda run: (run.info.start_time, run.info.run_id))

    def run(self, tag: str, value: str, *, name: str, tags: Mapping[str, str]) -> str:
        """Id of the run with a tag; made if there is none."""
        if (tag, value) in self._runs:
            return self._runs[tag, value]
        condition = f"tags.`{tag}` = '{value}'"
        found = self.search(condition)
        if not found:
            made = self.client.create_run(
                self.experiment, run_name=name, tags={tag: value, **tags}
            ).info.run_id
            # Two drivers may have made one each: the older stays.
            found = self.search(condition)
            if found[0].info.run_id != made:
                self.client.delete_run(made)
        self._runs[tag, value] = found[0].info.run_id
        return self._runs[tag, value]

    def trial_run(self, spec: TrialSpec, parent: str | None) -> str:
        """Id of a trial's run; made with its parameters if there is none."""
        known = (TRIAL_TAG, spec.name) in self._runs
        tags = {FINGERPRINT_TAG: spec.fingerprint} | ({PARENT_TAG: parent} if parent else {})
        run_id = self.run(TRIAL_TAG, spec.name, name=readable_name(spec), tags=tags)
        if not known:
            # Parameters are immutable: the same again is no change.
            params = [Param(key, value) for key, value in parameters(spec).items()]
            self.client.log_batch(run_id, params=params)
            self._last_steps[run_id] = self._last_step(self.client.get_run(run_id))
        return run_id

    def _last_step(self, run: Run) -> int:
        """Step of the newest training row, -1 without one; every row has this metric."""
        if "validation_accuracy" not in run.data.metrics:
            return -1
        history = self.client.get_metric_history(run.info.run_id, "validation_accuracy")
        return max(metric.step for metric in history)

    def log_rows(
        self, spec: TrialSpec, parent: str | None, rows: Sequence[tuple[int, dict[str, float]]]
    ) -> None:
        """Rows of a training curve with time stamps (ms); those logged before are left out."""
        run_id = self.trial_run(spec, parent)
        last = self._last_steps[run_id]
        metrics = [
            Metric(key, value, stamp, int(row["step"]))
            for stamp, row in rows
            if row["step"] > last
            for key, value in curve_metrics(row)
        ]
        for start in range(0, len(metrics), 1000):
            self.client.log_batch(run_id, metrics=metrics[start : start + 1000])
        if rows:
            self._last_steps[run_id] = max(last, *(int(row["step"]) for _, row in rows))

    def set_status(self, run_id: str, status: str) -> None:
        """Set a run's status if it differs."""
        if self.client.get_run(run_id).info.status == status:
            return
        if status == "RUNNING":
            self.client.update_run(run_id, status=status)
        else:
            self.client.set_terminated(run_id, status)

    def log_values(self, run_id: str, values: Mapping[str, float], stamp: int) -> None:
        """Single values, where they are not there already."""
        known = self.client.get_run(run_id).data.metrics
        new = {k: v for k, v in values.items() if math.isfinite(v) and known.get(k) != v}
        if new:
            metrics = [Metric(key, value, stamp, 0) for key, value in new.items()]
            self.client.log_batch(run_id, metrics=metrics)


def _now() -> int:
    return int(time.time() * 1000)


class Tracker:
    """The one writer of a flow.  Use it as a context manager, or call :meth:`close`."""

    def __init__(self, uri: str) -> None:
        """:raises UserError: if no server answers at ``uri``; it names the URI."""
        self._projection = Projection(uri)
        self._parent: str | None = None
        self._open: dict[str, TrialSpec] = {}
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._pending = 0
        self._changed = threading.Condition()
        self._error: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="mlflow-writer")
        self._thread.start()

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
        return self._projection.uri

    @property
    def experiment_path(self) -> str:
        """Path of the experiment in the MLflow UI."""
        return f"#/experiments/{self._projection.experiment}/runs"

    def start_study(
        self, name: str, trials: Sequence[TrialSpec], params: Mapping[str, Any]
    ) -> None:
        """Open the parent run of these trials, the same one each time for the same trials."""
        key = fingerprint("study", {"trials": sorted(spec.name for spec in trials)})[:16]

        def work() -> None:
            projection = self._projection
            parent = projection.run(STUDY_TAG, key, name=f"{name} {key[:6]}", tags={})
            projection.set_status(parent, "RUNNING")
            known = projection.client.get_run(parent).data.params
            new = [Param(k, str(v)) for k, v in params.items() if k not in known]
            projection.client.log_batch(parent, params=new)
            self._parent = parent

        self._submit(work)

    def reconcile(self, store: Store) -> None:
        """End runs that say RUNNING though no process trains them (their driver was killed)."""

        def work() -> None:
            projection = self._projection
            running = projection.search("attributes.status = 'RUNNING'")
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
                    projection.set_status(run.info.run_id, status)
            for run in running:
                # A living driver sets its study's status again when it ends.
                is_study = STUDY_TAG in run.data.tags and run.info.run_id != self._parent
                if is_study and run.info.run_id not in alive:
                    projection.set_status(run.info.run_id, "KILLED")

        self._submit(work)

    def report(self, spec: TrialSpec, row: Mapping[str, float]) -> None:
        """A row of a trial's training curve; opens its run at the first one."""
        stamped = [(_now(), dict(row))]
        first = spec.name not in self._open
        self._open[spec.name] = spec

        def work() -> None:
            if first:
                run_id = self._projection.trial_run(spec, self._parent)
                self._projection.set_status(run_id, "RUNNING")
            self._projection.log_rows(spec, self._parent, stamped)

        self._submit(work)

    def place(self, spec: TrialSpec, node: str) -> None:
        """The node that trains a trial."""

        def work() -> None:
            run_id = self._projection.trial_run(spec, self._parent)
            self._projection.client.set_tag(run_id, NODE_TAG, node)

        self._submit(work)

    def end(self, spec: TrialSpec, status: Status, *, reason: str = "") -> None:
        """Terminal status of a trial."""
        self._open.pop(spec.name, None)

        def work() -> None:
            run_id = self._projection.trial_run(spec, self._parent)
            if reason:
                self._projection.client.set_tag(run_id, "raise.reason", reason)
            self._projection.set_status(run_id, status)

        self._submit(work)

    def sync(self, store: Store, trials: Sequence[TrialSpec] | None = None) -> None:
        """Bring the runs of finished trials (all, or these) up to what the store has.

        Curves, evaluations and states that MLflow has already are not written again.
        """
        if trials is None:
            trials = [folder.spec() for folder in store.trials() if folder.is_done]
        for spec in trials:
            if store.trial(spec).is_done:
                self._submit(functools.partial(self._sync_trial, store, spec))

    def _sync_trial(self, store: Store, spec: TrialSpec) -> None:
        folder = store.trial(spec)
        projection = self._projection
        run_id = projection.trial_run(spec, self._parent)
        done = folder.done()
        curve = pd.read_parquet(io.BytesIO(store.read(folder.file("curve.parquet"))))
        rows = [{str(k): float(v) for k, v in row.items()} for row in curve.to_dict("records")]
        stamp = _now()
        projection.log_rows(spec, self._parent, [(stamp, row) for row in rows])
        values = {"best_accuracy": float(done["validation_accuracy"])}
        values |= {"train_seconds": float(done["seconds"])}
        for evaluation in folder.evaluations():
            values |= evaluation_metrics(evaluation.spec(), evaluation.result())
        projection.log_values(run_id, values, stamp)
        projection.set_status(run_id, "FINISHED")

    def summarise(self, summary: pd.DataFrame) -> None:
        """One run for each training setting of :func:`artifacts.aggregate.summarise`."""
        for cell, group in summary.groupby("study_cell", sort=False):
            self._submit(functools.partial(self._summarise, str(cell), group))

    def _summarise(self, cell: str, group: pd.DataFrame) -> None:
        projection = self._projection
        first = group.iloc[0]
        key = f"{cell}-{int(first['seeds'])}"
        name = f"mean: {first['model']} {first['configuration']} {100 * first['label_ratio']:g}%"
        parent = {PARENT_TAG: self._parent} if self._parent else {}
        run_id = projection.run(SUMMARY_TAG, key, name=name, tags=parent)
        fields = ("model", "configuration", "label_ratio", "label_map", "image_size", "precision")
        params = [Param(field, str(first[field])) for field in (*fields, "steps", "seeds")]
        projection.client.log_batch(run_id, params=params)
        projection.log_values(run_id, summary_metrics(group), _now())
        projection.set_status(run_id, "FINISHED")

    def upload(self, name: str, text: str) -> None:
        """A text artifact of the parent run, e.g. ``results.md``."""

        def work() -> None:
            if self._parent is not None:
                self._projection.client.log_text(self._parent, text, name)

        self._submit(work)

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Wait until everything is written; False if the server was away for ``seconds``.

        :raises Exception: the first error that waiting does not mend.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._pending == 0 or self._error, timeout=seconds)
            if self._error is not None:
                raise self._error
            return self._pending == 0

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
                self._projection.set_status(self._parent, status)

        self._submit(work)
        try:
            written = self.flush(CLOSE_SECONDS)
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
        while not self._stop.is_set():
            try:
                work()
                return
            except Exception as error:
                if not _is_away(error):
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
    data = Projection(uri, DATA_EXPERIMENT)
    try:
        run = data.run(DATA_TAG, digest, name=name, tags={})
        data.log_values(run, values, _now())
        data.client.log_artifacts(run, str(folder))
        data.set_status(run, "FINISHED")
    except (MlflowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"MLflow at {uri} did not take {folder}: {reason}") from error
    return f"{uri}/#/experiments/{data.experiment}/runs/{run}"
