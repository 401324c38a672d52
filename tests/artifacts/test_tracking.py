"""MLflow as a projection of the store: on a database file, and on a server that goes away."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from requests import HTTPError

from artifacts.aggregate import results, summarise
from artifacts.mlflow_runs import is_away
from artifacts.run_fields import curve_metrics
from artifacts.tracking import Tracker, log_data_card
from raise_model.errors import StoreAway, UserError

# MLflow's dependencies: old SQLAlchemy and pydantic idioms.
pytestmark = [pytest.mark.filterwarnings("default::DeprecationWarning")]


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory):
    """A database with MLflow's tables, which take seconds to make."""
    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(empty_database, tmp_path, monkeypatch):
    # Artifacts of a database without a server go to ./mlruns.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlflow.db").write_bytes(empty_database.read_bytes())
    return f"sqlite:///{tmp_path}/mlflow.db"


def runs(uri, condition=""):
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("raise")
    return client.search_runs([experiment.experiment_id], condition)


def trial_run(uri, spec):
    (run,) = runs(uri, f"tags.`raise.trial` = '{spec.name}'")
    return run


def steps(uri, spec, key="validation_accuracy"):
    run_id = trial_run(uri, spec).info.run_id
    history = MlflowClient(tracking_uri=uri).get_metric_history(run_id, key)
    return sorted((metric.step, metric.value) for metric in history)


def row(step, accuracy=0.5):
    return {"step": float(step), "steps": 1000.0, "validation_accuracy": accuracy, "loss": 1.0}


@pytest.mark.parametrize("uri", ["nonsense", "ftp://host", "http:/host:5000", "localhost:5000"])
def test_a_tracker_names_an_address_that_is_none(uri):
    with pytest.raises(UserError, match=f"MLFLOW_TRACKING_URI={uri} is no address of a server"):
        Tracker(uri)


def test_trial_run_shows_parameters_curve_evaluation_and_parent(
    uri, store, make_spec, make_evaluation, evaluated
):
    spec = make_spec(3)
    with Tracker(uri) as tracker:
        tracker.start_study("demo", [spec], {"preset": "demo"})
        tracker.place(spec, "gpu-1")
        tracker.report(spec, row(500, 0.25))
        tracker.place(spec, "gpu-2")
        tracker.report(spec, row(1000, 0.5))
        evaluated(spec, make_evaluation("raven"), [0.3, 0.5])
        evaluated(spec, make_evaluation("iraven", space="pixel"), [0.6])
        tracker.end(spec, "FINISHED")
        tracker.sync(store, [spec])
        tracker.upload("results.md", "the table")
    run = trial_run(uri, spec)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "raise center 5% seed 3"
    assert run.data.tags["raise.fingerprint"] == spec.fingerprint
    assert run.data.tags["raise.node"] == "gpu-2", "where it ended"
    assert run.data.tags["raise.commit"] == "abc123"
    assert run.data.tags["raise.device"] == "H100"
    assert run.data.params["seed"] == "3"
    assert run.data.params["config.num_concepts"] == "8"
    assert run.data.params["label_ratio"] == "0.05"
    assert run.data.metrics["raven.accuracy"] == pytest.approx(0.4)
    assert run.data.metrics["raven.rule_accuracy"] == pytest.approx(0.75)
    assert run.data.metrics["iraven.pixel.accuracy"] == pytest.approx(0.6)
    assert steps(uri, spec) == [(500, 0.25), (1000, 0.5)]
    client = MlflowClient(tracking_uri=uri)
    parent = client.get_run(run.data.tags["mlflow.parentRunId"])
    assert parent.info.status == "FINISHED"
    assert parent.data.params["preset"] == "demo"
    assert [file.path for file in client.list_artifacts(parent.info.run_id)] == ["results.md"]


def test_the_same_flow_again_adds_nothing(uri, store, make_spec, make_evaluation, evaluated):
    specs = [make_spec(0), make_spec(1)]
    for spec in specs:
        evaluated(spec, make_evaluation("raven"), [0.3])
    for _ in range(2):
        with Tracker(uri) as tracker:
            tracker.start_study("demo", specs, {"preset": "demo"})
            tracker.sync(store, specs)
            tracker.summarise(summarise(results(store)))
    assert len(runs(uri)) == 4  # two trials, their parent, the mean of the two
    assert {run.info.status for run in runs(uri)} == {"FINISHED"}
    for spec in specs:
        assert steps(uri, spec) == [(500, 0.25), (1000, 0.5)]
        assert len(steps(uri, spec, "raven.accuracy")) == 1
    (mean,) = runs(uri, "tags.`raise.summary` LIKE '%'")
    assert mean.data.metrics["raven.accuracy"] == pytest.approx(0.3)
    assert mean.data.metrics["raven.std"] == pytest.approx(0.0, abs=1e-12)
    assert mean.data.params["seeds"] == "2"


class Counted:
    """A client that counts what is asked of it."""

    def __init__(self, tracker):
        self._client = tracker._experiment.client
        self.calls = Counter()
        tracker._experiment.client = self

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls[name] += 1
            return getattr(self._client, name)(*arguments, **options)

        return call


def train_all(uri, store, specs):
    """Requests of a flow that trains these trials, then of one that finds them finished."""
    for is_first in (True, False):
        with Tracker(uri) as tracker:
            asked = Counted(tracker)
            tracker.start_study("demo", specs, {})
            tracker.reconcile(store)
            for spec in specs:
                if is_first:
                    tracker.place(spec, "gpu-1")
                    for step in (500, 1000):
                        tracker.report(spec, row(step))
                    tracker.end(spec, "FINISHED")
            tracker.sync(store, specs)
        yield asked.calls


def test_requests_of_a_trial_and_of_a_repeated_flow(
    uri, store, make_spec, make_evaluation, evaluated
):
    """A server's work grows with the requests: ten a trial, none where nothing is new."""
    few, many = [make_spec(0)], [make_spec(seed) for seed in range(1, 6)]
    for spec in few + many:
        evaluated(spec, make_evaluation("raven"), [0.3])
    first, again = train_all(uri, store, few)
    assert first["create_run"] == 2
    client = MlflowClient(tracking_uri=uri)
    for run in runs(uri):
        client.delete_run(run.info.run_id)
    more, again_more = train_all(uri, store, many)
    assert more.total() - first.total() <= 4 * 10
    assert again_more == again
    for spec in many:
        assert [step for step, _ in steps(uri, spec)] == [500, 1000]
        assert trial_run(uri, spec).data.tags["raise.node"] == "gpu-1"


def test_rows_that_wait_go_together(uri, make_spec):
    spec = make_spec()
    held, go_on = threading.Event(), threading.Event()
    with Tracker(uri) as tracker:
        asked = Counted(tracker)
        tracker.report(spec, row(100))
        assert tracker.flush()
        tracker._submit(lambda: (held.set(), go_on.wait(30)))
        assert held.wait(30)
        before = asked.calls["log_batch"]
        for step in range(200, 2200, 100):
            tracker.report(spec, row(step))
        go_on.set()
        assert tracker.flush()
        assert asked.calls["log_batch"] == before + 1
        tracker.end(spec, "FINISHED")
    assert [step for step, _ in steps(uri, spec)] == list(range(100, 2200, 100))


def test_state_that_another_driver_set_is_seen_by_reconcile(uri, store, make_spec):
    spec = make_spec()
    first = Tracker(uri)
    first.report(spec, row(250))
    first.end(spec, "KILLED")
    assert first.flush()
    run_id = trial_run(uri, spec).info.run_id
    MlflowClient(tracking_uri=uri).update_run(run_id, status="RUNNING")  # and was killed
    first.reconcile(store)
    first.close()
    assert trial_run(uri, spec).info.status == "KILLED"


def test_resumed_trial_continues_its_run_without_double_points(uri, store, make_spec):
    spec = make_spec()

    def driver_that_fails():
        with Tracker(uri) as tracker:
            tracker.report(spec, row(250))
            tracker.report(spec, row(500))
            raise RuntimeError("the driver fails")

    with pytest.raises(RuntimeError, match="the driver fails"):
        driver_that_fails()
    assert trial_run(uri, spec).info.status == "KILLED"
    with Tracker(uri) as tracker:
        # A resumed trial reports the rows of earlier attempts again.
        for step in (250, 500, 750):
            tracker.report(spec, row(step))
        assert tracker.flush()
        assert trial_run(uri, spec).info.status == "RUNNING"
        tracker.end(spec, "FAILED", reason="out of memory")
    assert [step for step, _ in steps(uri, spec)] == [250, 500, 750]
    run = trial_run(uri, spec)
    assert run.info.status == "FAILED"
    assert run.data.tags["raise.reason"] == "out of memory"


def test_runs_of_a_killed_driver_are_ended(uri, store, make_spec, finish):
    lost, done, alive = make_spec(0), make_spec(1), make_spec(2)
    killed = Tracker(uri)
    killed.start_study("demo", [lost, done], {})
    for spec in (lost, done, alive):
        killed.report(spec, row(500))
    assert killed.flush()  # and is never closed
    finish(done)
    with store.trial(alive).claim(), Tracker(uri) as tracker:
        tracker.reconcile(store)
    assert trial_run(uri, lost).info.status == "KILLED"
    assert trial_run(uri, done).info.status == "FINISHED"
    assert trial_run(uri, alive).info.status == "RUNNING"
    killed.close()


def test_two_drivers_share_one_run(uri, make_spec):
    spec = make_spec()
    first, second = Tracker(uri), Tracker(uri)
    first.report(spec, row(250))
    assert first.flush()
    second.report(spec, row(500))
    second.close()
    first.close()
    assert [step for step, _ in steps(uri, spec)] == [250, 500]


def test_of_two_runs_of_one_trial_the_older_stays(uri, make_spec):
    """Two drivers that made theirs in the same moment may not have seen the other's."""
    client, spec = MlflowClient(tracking_uri=uri), make_spec(41)
    with Tracker(uri) as tracker:
        tracker.report(spec, row(500, 0.25))
    kept = trial_run(uri, spec)
    tags = {"raise.trial": spec.name}
    client.create_run(kept.info.experiment_id, tags=tags, start_time=kept.info.start_time + 1)
    with Tracker(uri) as tracker:
        tracker.report(spec, row(1000, 0.5))
    assert trial_run(uri, spec).info.run_id == kept.info.run_id
    assert steps(uri, spec) == [(500, 0.25), (1000, 0.5)]


def test_infinite_values_and_the_axis_are_left_out():
    values = dict(curve_metrics({**row(5), "kl": float("inf"), "nan": float("nan")}))
    assert values == {"validation_accuracy": 0.5, "loss": 1.0}


def test_at_most_twenty_metrics_a_row():
    assert len(curve_metrics({f"m{i}": float(i) for i in range(30)})) == 20


def test_no_server_is_one_line_that_names_it():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(UserError, match=rf"127\.0\.0\.1:{port}.*raise-rpm up") as caught:
        Tracker(f"http://127.0.0.1:{port}")
    assert "\n" not in str(caught.value)


def test_what_waiting_does_not_mend_is_raised(uri, make_spec, monkeypatch):
    tracker = Tracker(uri)

    def refuse(*arguments, **options):
        raise MlflowException("no such thing", error_code=4)

    monkeypatch.setattr(tracker._experiment, "log_rows", refuse)
    tracker.report(make_spec(), row(250))
    with pytest.raises(MlflowException, match="no such thing"):
        tracker.close()


def test_points_reported_while_the_server_is_away_arrive_later(uri, make_spec, monkeypatch):
    monkeypatch.setattr("artifacts.tracking.RETRY_SECONDS", 0.05)
    spec = make_spec()
    away = threading.Event()
    with Tracker(uri) as tracker:
        tracker.report(spec, row(250))
        assert tracker.flush()
        log_batch = tracker._experiment.client.log_batch

        def unreliable(*arguments, **options):
            if away.is_set():
                raise MlflowException("API request to http://x failed with exception refused")
            return log_batch(*arguments, **options)

        monkeypatch.setattr(tracker._experiment.client, "log_batch", unreliable)
        away.set()
        started = time.monotonic()
        for step in (500, 750, 1000):
            tracker.report(spec, row(step))
        assert time.monotonic() - started < 0.5, "reporting never waits for the server"
        assert not tracker.flush(seconds=0.3)
        away.clear()
        tracker.end(spec, "FINISHED")
    assert [step for step, _ in steps(uri, spec)] == [250, 500, 750, 1000]


def test_answers_that_are_lost_double_no_point(uri, store, make_spec, finish, monkeypatch):
    """A history that cannot be read, then a batch that is taken without an answer."""
    monkeypatch.setattr("artifacts.tracking.RETRY_SECONDS", 0.05)
    spec = make_spec()
    with Tracker(uri) as tracker:
        tracker.report(spec, row(500, 0.25))
    finish(spec)  # 500 and 1000
    with Tracker(uri) as tracker:
        client = tracker._experiment.client
        lost = {"get_metric_history": 1, "log_batch": 1}

        def unreliable(name, ask):
            def call(*arguments, **options):
                answer = ask(*arguments, **options)
                if lost[name]:
                    lost[name] -= 1
                    raise MlflowException("API request to http://x failed with exception lost")
                return answer

            return call

        for name in lost:
            monkeypatch.setattr(client, name, unreliable(name, getattr(client, name)))
        tracker.sync(store, [spec])
    assert not any(lost.values())
    assert [step for step, _ in steps(uri, spec)] == [500, 1000]


def test_rows_that_another_driver_logged_meanwhile_are_not_doubled(uri, make_spec):
    spec = make_spec()
    with Tracker(uri) as tracker:
        tracker.end(spec, "FAILED")
    second = Tracker(uri)
    assert second.flush()
    with Tracker(uri) as first:
        first.report(spec, row(250))
    for step in (250, 500):
        second.report(spec, row(step))
    second.close()
    assert [step for step, _ in steps(uri, spec)] == [250, 500]


def test_run_that_was_deleted_meanwhile_is_made_again(uri, make_spec):
    spec, other = make_spec(0), make_spec(1)
    with Tracker(uri) as tracker:
        tracker.report(spec, row(250))
        tracker.report(other, row(250))
        assert tracker.flush()
        run_id = trial_run(uri, spec).info.run_id
        MlflowClient(tracking_uri=uri).delete_run(run_id)
        tracker.report(spec, row(500))
        tracker.end(spec, "FINISHED")
        tracker.end(other, "FINISHED")
    assert trial_run(uri, spec).info.run_id != run_id
    assert {run.info.status for run in runs(uri)} == {"FINISHED"}


def test_what_comes_after_an_error_is_written(uri, make_spec, monkeypatch):
    spec, other = make_spec(0), make_spec(1)
    tracker = Tracker(uri)
    tracker.report(other, row(250))
    assert tracker.flush()

    def refuse(*arguments, **options):
        raise PermissionError("of a file, which waiting does not mend")

    with monkeypatch.context() as patch:
        patch.setattr(tracker._experiment, "log_rows", refuse)
        tracker.report(spec, row(250))
        with pytest.raises(PermissionError):
            tracker.flush()
    with pytest.raises(PermissionError):
        tracker.close()
    assert trial_run(uri, other).info.status == "KILLED"


def test_trial_that_went_elsewhere_is_not_killed_here(uri, make_spec):
    spec = make_spec()
    with Tracker(uri) as tracker:
        tracker.report(spec, row(250))
        tracker.leave(spec)
        assert tracker.flush()
        MlflowClient(tracking_uri=uri).set_terminated(trial_run(uri, spec).info.run_id, "FINISHED")
    assert trial_run(uri, spec).info.status == "FINISHED"


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (MlflowException("API request to endpoint /x failed with error code 503 != 200."), True),
        (MlflowException("API request to endpoint /x failed with error code 413 != 200."), False),
        (MlflowException("API request to http://x failed with exception timed out"), True),
        (ConnectionError("refused"), True),
        (StoreAway("S3"), True),
        (FileNotFoundError("done.json"), False),
        (HTTPError("403", response=SimpleNamespace(status_code=403)), False),
        (HTTPError("502", response=SimpleNamespace(status_code=502)), True),
        (ValueError("ours"), False),
    ],
)
def test_what_waiting_may_mend(error, away):
    assert is_away(error) is away


def test_server_that_stays_away_ends_in_one_line(uri, make_spec, monkeypatch):
    monkeypatch.setattr("artifacts.tracking.CLOSE_SECONDS", 0.3)
    tracker = Tracker(uri)

    def refuse(*arguments, **options):
        raise ConnectionError("refused")

    monkeypatch.setattr(tracker._experiment, "log_rows", refuse)
    tracker.report(make_spec(), row(250))
    with pytest.raises(UserError, match="raise-rpm sync"):
        tracker.close()


@contextlib.contextmanager
def mlflow_server(folder, port):
    log = (folder / "server.log").open("ab")
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--workers", "1"]
    command += ["--port", str(port), "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    process = subprocess.Popen(
        command, stdout=log, stderr=log, env=environment, start_new_session=True
    )
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
                break
            time.sleep(0.1)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        log.close()


@pytest.mark.slow
def test_real_server_killed_in_the_middle_loses_no_point(uri, tmp_path, make_spec):
    spec = make_spec()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with mlflow_server(tmp_path, port):
        tracker = Tracker(f"http://127.0.0.1:{port}")
        tracker.start_study("demo", [spec], {})
        for step in range(100, 300, 100):
            tracker.report(spec, row(step))
        assert tracker.flush()
    for step in range(100, 600, 100):
        tracker.report(spec, row(step))
    assert not tracker.flush(seconds=3)
    with mlflow_server(tmp_path, port):
        for step in range(600, 1100, 100):
            tracker.report(spec, row(step))
        tracker.end(spec, "FINISHED")
        tracker.upload("results.md", "the table")
        tracker.close()
    assert [step for step, _ in steps(uri, spec)] == list(range(100, 1100, 100))
    assert {run.info.status for run in runs(uri)} == {"FINISHED"}


def test_data_card_has_one_run_with_its_files(uri, tmp_path):
    folder = tmp_path / "card"
    folder.mkdir()
    (folder / "README.md").write_text("# card")
    addresses = {
        log_data_card(uri, "raven/center", "d" * 64, {"problems": float(number)}, folder)
        for number in (100, 100, 120)
    }
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("raise-data")
    (run,) = client.search_runs([experiment.experiment_id])
    assert addresses == {f"{uri}/#/experiments/{experiment.experiment_id}/runs/{run.info.run_id}"}
    assert run.info.status == "FINISHED"
    assert run.data.metrics["problems"] == 120
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["README.md"]
    log_data_card(uri, "iraven/center", "e" * 64, {}, folder)
    assert len(client.search_runs([experiment.experiment_id])) == 2


def test_data_card_without_a_server_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no MLflow server answers"):
        log_data_card("http://127.0.0.1:9", "raven/center", "d" * 64, {}, tmp_path)
