"""A small real Ray cluster for the whole session, and short trainings of real RAISE."""

import dataclasses
import os
import signal
import threading
import time

import pytest
import ray

from raise_model.data.generate import generate
from raise_model.presets import trial_spec
from raise_model.store import Store
from tune_spaces import cluster
from tune_spaces.sweep import Resources, sweep

CPU = Resources(device="cpu", cpus_per_trial=1)


def _handler_of_the_flow(number, frame):
    """Stands for the SIGTERM handler that Prefect installs."""


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory):
    """Two CPUs; the state of this process as it was right after connecting."""
    home = tmp_path_factory.mktemp("home")
    before = dict(os.environ)
    os.environ |= {"RAISE_HOME": str(home / "raise"), "HOME": str(home), "OMP_NUM_THREADS": "1"}
    os.environ.pop("RAY_ADDRESS", None)
    handler = signal.signal(signal.SIGTERM, _handler_of_the_flow)
    try:
        cluster.connect("local", num_cpus=2, dashboard=False)
        kept = signal.getsignal(signal.SIGTERM) is _handler_of_the_flow
        yield {"home": home, "sigterm_kept": kept}
    finally:
        signal.signal(signal.SIGTERM, handler)
        ray.shutdown()
        os.environ.clear()
        os.environ |= before


@pytest.fixture
def free_cpus(ray_cluster):
    """CPUs that nothing holds; what was just stopped gets a moment to let its own go."""

    def free_cpus():
        deadline = time.monotonic() + 20
        while ray.available_resources().get("CPU", 0) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        return ray.available_resources()["CPU"]

    return free_cpus


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A store with 120 problems of Center, and a folder for derived arrays."""
    folder = tmp_path_factory.mktemp("data")
    store = Store(str(folder / "store"))
    manifests = generate(store, dataset="raven", configuration="center", problems=120, workers=1)
    return folder, {split: manifest.digest for split, manifest in manifests.items()}


@pytest.fixture
def make_store(data, tmp_path):
    """An empty trial store over the same data set."""

    def make(name="store"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "datasets").symlink_to(data[0] / "store" / "datasets")
        return Store(str(tmp_path / name))

    return make


@pytest.fixture
def store(make_store):
    return make_store()


@pytest.fixture(scope="session")
def make_spec(data):
    def make(seed=0, steps=6, validate_every=3):
        spec = trial_spec(
            model="raise",
            preset="smoke",
            dataset="raven",
            configuration="center",
            train_digest=data[1]["train"],
            validation_digest=data[1]["val"],
            seed=seed,
            label_ratio=0.2,
        )
        return dataclasses.replace(
            spec, steps=steps, validate_every=validate_every, validation_problems=5
        )

    return make


class Events:
    """Records what a sweep reports; ``act`` is called with every row."""

    def __init__(self):
        self.unpicklable = threading.Lock()  # as loggers and clients of real callers
        self.states = []
        self.rows = []
        self.act = lambda trial, row: None

    def on_state(self, trial, state, detail):
        self.states.append((trial, state, detail))

    def on_report(self, trial, row):
        self.rows.append((trial, row))
        self.act(trial, row)

    def of(self, spec):
        """States of one trial, in order."""
        return [state for trial, state, _ in self.states if trial == spec.name]

    def steps(self, spec):
        return [int(row["step"]) for trial, row in self.rows if trial == spec.name]


@pytest.fixture
def events():
    return Events()


@pytest.fixture(scope="session")
def new_events():
    """For fixtures of a wider scope."""
    return Events


@pytest.fixture
def run(ray_cluster, data, events):
    """A sweep over the session's cluster whose events are recorded."""

    def run(store, specs, **options):
        options = {"resources": CPU, "cache": data[0] / "cache"} | options
        return sweep(store, specs, on_report=events.on_report, on_state=events.on_state, **options)

    return run
