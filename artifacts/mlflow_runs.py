"""Runs of an MLflow experiment, found again by their tags; every call waits for the server.

A server's work grows with the requests, and a sweep has thousands of runs.  So what the
server said of a run is kept, and what it has already is not sent again.
"""

import math
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Read by MLflow itself; what the user has set wins.  Its own retries (up to minutes, unseen)
# are replaced by those of artifacts.tracking.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
# A run that ends would print its address, tens of times in a sweep.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")

from mlflow.entities import Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import InvalidUrlException, MlflowException, RestException
from mlflow.tracking import MlflowClient
from mlflow.tracking.registry import UnsupportedModelRegistryStoreURIException
from requests import HTTPError

from artifacts.run_fields import curve_metrics, parameters, readable_name
from raise_model.errors import UserError
from raise_model.specs import TrialSpec

EXPERIMENT = "raise"
DATA_EXPERIMENT = "raise-data"
TRIAL_TAG = "raise.trial"
FINGERPRINT_TAG = "raise.fingerprint"
NODE_TAG = "raise.node"
"""Host name of the node that trained a trial; after a restart elsewhere, of the last one."""
PARENT_TAG = "mlflow.parentRunId"
KIND_TAG = "mlflow.experimentKind"


_TROUBLE = (429, 500, 502, 503, 504)
"""HTTP status of a server that may be well later."""
_NO_ADDRESS = (InvalidUrlException, UnsupportedModelRegistryStoreURIException)
PAGE = 200
"""Runs asked for at once: their server has to answer in MLFLOW_HTTP_REQUEST_TIMEOUT."""


def is_refused(error: Exception) -> bool:
    """Whether the server wants other credentials; its 401 is no JSON, and no RestException."""
    if isinstance(error, RestException):
        return int(error.get_http_status_code()) in (401, 403)
    return "failed with error code 401" in str(error)


def is_away(error: Exception) -> bool:
    """Whether trying again later may help: no answer, or one of a server in trouble."""
    if isinstance(error, RestException):
        return int(error.get_http_status_code()) in _TROUBLE
    if isinstance(error, HTTPError):
        return error.response is None or error.response.status_code in _TROUBLE
    if isinstance(error, MlflowException):
        # No answer, and answers that are no JSON.
        said = re.search(r"API request to .* failed with (?:error code (\d+))?", str(error))
        return said is not None and (said[1] is None or int(said[1]) in _TROUBLE)
    return isinstance(error, OSError) and not isinstance(
        error, (FileNotFoundError, PermissionError, NotADirectoryError)
    )


def is_deleted(error: Exception) -> bool:
    """Whether a run was deleted that is to be written."""
    return isinstance(error, MlflowException) and "must be in the 'active' state" in str(error)


def _refusal(uri: str) -> UserError:
    names = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    given = os.environ.get("MLFLOW_TRACKING_PASSWORD")
    what = f"refuses {names}" if given else f"asks for a password; set {names}"
    return UserError(
        f"the MLflow server at {uri} {what} (in RAISE_HOME/cluster.env or the environment)"
    )


@dataclass
class _Known:
    """What a run has, as far as this process has seen or written it."""

    run_id: str
    status: str
    params: set[str] = field(default_factory=set)
    metrics: dict[str, float] = field(default_factory=dict)
    """Newest value of each."""
    node: str = ""
    last_step: int | None = None
    """Step of the newest training row, -1 without one; None if it is not known."""

    @classmethod
    def of(cls, run: Run) -> "_Known":
        return cls(
            run_id=run.info.run_id, status=run.info.status, params=set(run.data.params),
            metrics=dict(run.data.metrics), node=run.data.tags.get(NODE_TAG, ""),
        )  # fmt: skip


class Experiment:
    """Runs of one experiment on one server."""

    def __init__(self, uri: str, name: str = EXPERIMENT) -> None:
        """:raises UserError: if no server answers at ``uri``, or it refuses."""
        self.uri = uri
        try:
            self.client = MlflowClient(tracking_uri=uri)
            experiment = self.client.get_experiment_by_name(name)
            if experiment is None:
                self._create_experiment(name)
                experiment = self.client.get_experiment_by_name(name)
        except (MlflowException, OSError) as error:
            if is_refused(error):
                raise _refusal(uri) from error
            if "://" not in uri or isinstance(error, _NO_ADDRESS):
                raise UserError(
                    f"MLFLOW_TRACKING_URI={uri} is no address of a server, as http://HOST:5000 is"
                ) from error
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
        self.id = experiment.experiment_id
        self._runs: dict[tuple[str, str], _Known] = {}
        self._by_id: dict[str, _Known] = {}
        self._all_of: set[str] = set()
        self._begun: set[tuple[str, str]] = set()

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
                [self.id], condition, ViewType.ACTIVE_ONLY, max_results=PAGE, page_token=token,
                order_by=["attributes.start_time ASC"],
            )  # fmt: skip
            found += page
            token = page.token
            if not token:
                break
        for run in found:
            if known := self._by_id.get(run.info.run_id):
                known.status = run.info.status
        return sorted(found, key=lambda run: (run.info.start_time, run.info.run_id))

    def read_all(self, tag: str) -> None:
        """Learn of all runs with a tag at once, instead of asking for each."""
        found: dict[str, list[Run]] = defaultdict(list)
        for run in self.search(f"tags.`{tag}` LIKE '%'"):
            found[run.data.tags[tag]].append(run)
        for value, runs in found.items():
            self._remember((tag, value), self._oldest(runs))
        self._all_of.add(tag)

    def _oldest(self, runs: Sequence[Run]) -> Run:
        """The one that stays, where two drivers made one each and neither saw the other's."""
        for younger in runs[1:]:
            self.client.delete_run(younger.info.run_id)
        return runs[0]

    def _remember(self, key: tuple[str, str], run: Run) -> _Known:
        known = self._by_id.setdefault(run.info.run_id, _Known.of(run))
        self._runs[key] = known
        return known

    def _seen(self, run_id: str) -> _Known:
        if run_id not in self._by_id:
            self._by_id[run_id] = _Known.of(self.client.get_run(run_id))
        return self._by_id[run_id]

    def run(self, tag: str, value: str, *, name: str, tags: Mapping[str, str]) -> str:
        """Id of the run with a tag; made if there is none."""
        key = (tag, value)
        if key in self._runs:
            return self._runs[key].run_id
        condition = f"tags.`{tag}` = '{value}'"
        # One whose making was not answered may be there nevertheless.
        asks = tag not in self._all_of or key in self._begun
        found = self.search(condition) if asks else []
        if not found:
            self._begun.add(key)
            made = self.client.create_run(
                self.id, run_name=name, tags={tag: value, **tags}
            ).info.run_id
            # Two drivers may have made one each: the older stays.
            found = self.search(condition)
            if found[0].info.run_id == made:
                self._remember(key, found[0]).last_step = -1
        return self._remember(key, self._oldest(found)).run_id

    def forget(self) -> None:
        """Ask the server anew: somebody else has deleted runs."""
        self._runs.clear()
        self._by_id.clear()
        self._all_of.clear()

    def trial_run(self, spec: TrialSpec, parent: str | None, *, node: str = "") -> str:
        """Id of a trial's run; made if there is none.

        :param node: that trains it, if that is to be recorded.
        """
        tags = {FINGERPRINT_TAG: spec.fingerprint} | ({PARENT_TAG: parent} if parent else {})
        run_id = self.run(TRIAL_TAG, spec.name, name=readable_name(spec), tags=tags)
        moved = [RunTag(NODE_TAG, node)] if node and self._by_id[run_id].node != node else []
        self.log_params(run_id, parameters(spec), moved)
        if moved:
            self._by_id[run_id].node = node
        return run_id

    def log_params(
        self, run_id: str, params: Mapping[str, str], tags: Sequence[RunTag] = ()
    ) -> None:
        """Tags, and parameters that the run does not have; those it has are immutable."""
        known = self._seen(run_id)
        new = [Param(key, value) for key, value in params.items() if key not in known.params]
        if new or tags:
            self.client.log_batch(run_id, params=new, tags=tags)
            known.params.update(params)

    def _last_step(self, run_id: str) -> int:
        """Step of the newest training row, -1 without one; every row has this metric."""
        known = self._seen(run_id)
        if known.last_step is None:
            history = self.client.get_metric_history(run_id, "validation_accuracy")
            known.last_step = max((metric.step for metric in history), default=-1)
        return known.last_step

    def log_rows(
        self, spec: TrialSpec, parent: str | None, rows: Sequence[tuple[int, dict[str, float]]]
    ) -> None:
        """Rows of a training curve with time stamps (ms); those logged before are left out."""
        run_id = self.trial_run(spec, parent)
        last = self._last_step(run_id)
        new = [(stamp, row) for stamp, row in rows if row["step"] > last]
        # Of at most twenty metrics each; a batch has at most a thousand.
        for start in range(0, len(new), 50):
            some = new[start : start + 50]
            metrics = [
                Metric(key, value, stamp, int(row["step"]))
                for stamp, row in some
                for key, value in curve_metrics(row)
            ]
            self.client.log_batch(run_id, metrics=metrics)
            self._by_id[run_id].last_step = max(int(row["step"]) for _, row in some)

    def set_status(self, run_id: str, status: str) -> None:
        """Set a run's status if it differs."""
        known = self._seen(run_id)
        if known.status == status:
            return
        if status == "RUNNING":
            self.client.update_run(run_id, status=status)
        else:
            self.client.set_terminated(run_id, status)
        known.status = status

    def has(self, run_id: str, values: Mapping[str, float]) -> bool:
        """Whether these are the newest values of the run, as far as is known."""
        known = self._seen(run_id).metrics
        return all(known.get(k) == v for k, v in values.items() if math.isfinite(v))

    def log_values(
        self,
        run_id: str,
        values: Mapping[str, float],
        stamp: int,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Single values, where they are not there already; tags along with the first of them."""
        if self.has(run_id, values):
            return
        known = self._by_id[run_id].metrics
        # Another driver may have written them meanwhile.
        known.update(self.client.get_run(run_id).data.metrics)
        new = {k: v for k, v in values.items() if math.isfinite(v) and known.get(k) != v}
        if new:
            metrics = [Metric(key, value, stamp, 0) for key, value in new.items()]
            texts = [RunTag(key, value) for key, value in (tags or {}).items()]
            self.client.log_batch(run_id, metrics=metrics, tags=texts)
            known.update(new)
