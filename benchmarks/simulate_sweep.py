"""What a sweep of thousands of trials costs its driver and the MLflow server.

    python benchmarks/simulate_sweep.py [--trials 10000] [--slots 8] [--rows 3] [--json]

The training stage is the real one: Tuner, watcher, store on disk, MLflow server on SQLite; only
the trials are not: each claims its folder, sleeps a moment, reports rows and writes
``done.json``.  Processor time of the driver is split into tenths of the sweep: a cost that
grows with the number of trials shows as a last tenth that is dearer than the first.  Then the
same sweep again, with nothing left to do.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import ray
import requests
from surroundings import surroundings

from artifacts.tracking import Tracker
from flows import processes
from flows.board import Board
from flows.service_commands import COMMANDS, addresses, clean_environment
from flows.services import answers
from flows.sweep import train
from raise_model.presets import trial_spec
from raise_model.specs import TrialSpec
from raise_model.store import Store
from tune_spaces import cluster
from tune_spaces import sweep as sweep_module
from tune_spaces.cluster import Resources
from tune_spaces.trial_process import spec_of

SERVER_SECONDS = 600.0
METRICS = ("validation_accuracy", "validation_rule_accuracy", "loss", "label_loss", "seconds")


def simulated(config: dict[str, Any]) -> None:
    """Stands for :func:`tune_spaces.trainable.trainable`: a trial that sleeps."""
    from ray import tune

    spec = spec_of(config)
    folder = Store(config["store"]).trial(spec)
    rows = int(os.environ["SIMULATED_ROWS"])
    folder.put_spec(spec)
    with folder.claim():
        for row in range(1, rows + 1):
            time.sleep(float(os.environ["SIMULATED_SECONDS"]) / rows)
            values = dict.fromkeys(METRICS, row / rows)
            tune.report({"row": {"step": float(row), "steps": float(rows), **values}})
        folder.store.create_json(
            folder.file("done.json"),
            {"step": rows, "validation_accuracy": 1.0, "seconds": 0.0, "provenance": {}},
        )
    tune.report({"outcome": "done", "reason": ""})


class NoProgress:
    """Stands for the flow's progress, which asks for an update every few seconds at most."""

    def update(self, stage: str, fraction: float, text: str, *, now: bool = False) -> None:
        """Nothing."""

    def warn(self, text: str) -> None:
        print(text, file=sys.stderr)


class Requests:
    """Counts what this process sends, and how long the answers take."""

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0
        self._send = requests.Session.send

    def __enter__(self) -> "Requests":
        counter = self

        def send(session: requests.Session, *arguments: Any, **options: Any) -> requests.Response:
            began = time.perf_counter()
            try:
                return counter._send(session, *arguments, **options)
            finally:
                counter.count += 1
                counter.seconds += time.perf_counter() - began

        requests.Session.send = send  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        requests.Session.send = self._send  # type: ignore[method-assign]


class Samples:
    """Processor time and memory of this process whenever another tenth of the trials is done."""

    def __init__(self, trials: int) -> None:
        self._each = max(1, trials // 10)
        self._done = 0
        self._process = psutil.Process()
        self._writer = next(
            (t.native_id for t in threading.enumerate() if t.name == "mlflow-writer"), None
        )
        self.rows: list[dict[str, float]] = []
        self._note()

    def _note(self) -> None:
        threads = {t.id: t.user_time + t.system_time for t in self._process.threads()}
        total = sum(self._process.cpu_times()[:2])
        writer = threads.get(self._writer or 0, 0.0)
        memory = self._process.memory_info().rss / 1e6
        now = time.monotonic()
        self.rows.append(
            {"done": self._done, "wall": now, "driver": total - writer, "writer": writer,
             "memory_mb": memory}
        )  # fmt: skip

    def done(self) -> None:
        self._done += 1
        if self._done % self._each == 0:
            self._note()

    def tenths(self) -> list[dict[str, float]]:
        """Seconds a trial in each tenth."""
        found = []
        for before, after in zip(self.rows, self.rows[1:], strict=False):
            trials = after["done"] - before["done"]
            per = {k: (after[k] - before[k]) / trials for k in ("wall", "driver", "writer")}
            found.append({"done": after["done"], **per, "memory_mb": after["memory_mb"]})
        return found


def _specs(trials: int) -> list[TrialSpec]:
    return [
        trial_spec(
            model="raise", preset="smoke", dataset="raven", configuration="center",
            train_digest="0" * 64, validation_digest="1" * 64, seed=seed,
        )
        for seed in range(trials)
    ]  # fmt: skip


@contextmanager
def _mlflow(home: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """The embedded MLflow server of a home; its address and process."""
    port = processes.free_port()
    url = f"http://127.0.0.1:{port}"
    with (home / "mlflow.log").open("wb") as log:
        server = subprocess.Popen(
            COMMANDS["mlflow"](home, port), stdout=log, stderr=subprocess.STDOUT,
            env=clean_environment() | addresses(home, {}), start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + SERVER_SECONDS
        while not answers(f"{url}/health"):
            if server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"error: MLflow: {processes.last_line(home / 'mlflow.log')}")
            time.sleep(0.3)
        yield url, server
    finally:
        family = _family(server)
        for process in family:
            process.terminate()
        _, alive = psutil.wait_procs(family, timeout=10)
        for process in alive:
            process.kill()
        server.wait()


def _family(process: subprocess.Popen) -> Sequence[psutil.Process]:
    leader = psutil.Process(process.pid)
    return [leader, *leader.children(recursive=True)]


def _cpu(family: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in family)


def _run(home: Path, uri: str, specs: Sequence[TrialSpec], slots: int) -> dict[str, Any]:
    """One training stage; its figures."""
    store = Store(str(home / "store"))
    resources = Resources(device="cpu", max_concurrent=slots)
    began = time.monotonic()
    with Requests() as sent:
        tracker = Tracker(uri)
        samples = Samples(len(specs))
        end = tracker.end
        # The stage tells the tracker of each trial that ends.
        tracker.end = lambda *arguments, **options: (end(*arguments, **options), samples.done())  # type: ignore[method-assign,assignment]
        tracker.start_study("smoke", specs, {"preset": "smoke"})
        tracker.reconcile(store)
        outcome = train.fn(store, specs, resources, tracker, NoProgress(), Board(specs))  # type: ignore[arg-type]
        trained = time.monotonic()
        if not tracker.flush(seconds=3600):
            raise SystemExit("error: MLflow does not take what there is")
        flushed = time.monotonic()
        tracker.close()
    if len(outcome.done) != len(specs):
        raise SystemExit(f"error: {len(outcome.failed)} trials failed: {outcome.failed}")
    return {
        "wall_seconds": round(trained - began, 1),
        "mlflow_behind_seconds": round(flushed - trained, 1),
        "mlflow_requests_per_trial": round(sent.count / len(specs), 2),
        "mlflow_seconds_per_request": round(sent.seconds / max(1, sent.count), 4),
        "tenths": [{k: round(v, 5) for k, v in row.items()} for row in samples.tenths()],
    }


def _print(title: str, figures: dict[str, Any], trials: int) -> None:
    wall = figures["wall_seconds"]
    print(
        f"{title}: {wall:.0f} s, {1000 * wall / trials:.1f} ms a trial; MLflow "
        f"{figures['mlflow_requests_per_trial']} requests a trial, "
        f"{1000 * figures['mlflow_seconds_per_request']:.1f} ms each, done "
        f"{figures['mlflow_behind_seconds']:.0f} s later"
    )
    if figures["tenths"]:
        print(f"{'trials':>8}{'wall ms':>10}{'driver ms':>11}{'writer ms':>11}{'memory MB':>11}")
    for row in figures["tenths"]:
        print(
            f"{row['done']:8.0f}{1000 * row['wall']:10.1f}{1000 * row['driver']:11.1f}"
            f"{1000 * row['writer']:11.1f}{row['memory_mb']:11.0f}"
        )


def main() -> None:
    """Print both sweeps, and with ``--json`` one JSON object last."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--rows", type=int, default=3, help="reported by each trial")
    parser.add_argument("--seconds", type=float, default=0.05, help="that a trial sleeps")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ["SIMULATED_ROWS"] = str(arguments.rows)
    os.environ["SIMULATED_SECONDS"] = str(arguments.seconds)
    sweep_module.trainable = simulated
    specs = _specs(arguments.trials)
    with tempfile.TemporaryDirectory(prefix="raise-simulated-") as folder:
        home = Path(folder)
        cluster.connect("local", home=home / "home", num_cpus=arguments.slots, dashboard=False)
        with _mlflow(home) as (uri, server):
            idle = _cpu(_family(server))
            first = _run(home, uri, specs, arguments.slots)
            family = _family(server)
            busy, memory = _cpu(family), sum(p.memory_info().rss for p in family)
            second = _run(home, uri, specs, arguments.slots)
        ray.shutdown()
        database = (home / "mlflow" / "mlflow.db").stat().st_size
    result = {
        "benchmark": "simulate_sweep",
        "trials": arguments.trials,
        "slots": arguments.slots,
        "rows_per_trial": arguments.rows,
        "sweep": first,
        "again_with_nothing_to_do": second,
        "driver_peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
        "mlflow_cpu_ms_per_trial": round(1000 * (busy - idle) / arguments.trials, 2),
        "mlflow_memory_mb": round(memory / 1e6),
        "mlflow_database_kb_per_trial": round(database / 1e3 / arguments.trials, 2),
        **surroundings(),
    }
    _print(f"{arguments.trials} trials on {arguments.slots} slots", first, arguments.trials)
    _print("again, nothing to do", second, arguments.trials)
    print(
        f"driver peak {result['driver_peak_memory_mb']} MB; MLflow server "
        f"{result['mlflow_cpu_ms_per_trial']} ms CPU a trial, {result['mlflow_memory_mb']} MB, "
        f"database {result['mlflow_database_kb_per_trial']} kB a trial; {result['hardware']}, "
        f"load {result['load']}"
    )
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
