"""Whole drivers with clusters of their own: killed in the middle, and two at once."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

pytestmark = pytest.mark.slow

DRIVER = """
import json, sys
from pathlib import Path
from raise_model.specs import TrialSpec
from raise_model.store import Store
from tune_spaces import cluster
from tune_spaces.cluster import Resources
from tune_spaces.sweep import sweep

root, cache, specs = sys.argv[1:]
cluster.connect("local", num_cpus=1, dashboard=False)
outcome = sweep(
    Store(root),
    [TrialSpec.from_json(spec) for spec in json.loads(specs)],
    resources=Resources(device="cpu"),
    cache=Path(cache),
    on_report=lambda trial, row: print("report", trial, flush=True),
    on_state=lambda trial, state, detail: print(state, trial, flush=True),
)
print(json.dumps({"done": list(outcome.done), "failed": dict(outcome.failed)}))
"""


@pytest.fixture
def start_driver(store, data, tmp_path):
    """Start a driver in a session of its own; whatever is left of it is killed at the end."""
    drivers = []

    def start(specs, name):
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "RAISE_HOME": str(tmp_path / name),
            "OMP_NUM_THREADS": "1",
        }
        for variable in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
            environment.pop(variable, None)
        texts = json.dumps([spec.to_json() for spec in specs])
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, store.root, str(data[0] / "cache"), texts],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        drivers.append(driver)
        return driver

    yield start
    for driver in drivers:
        with contextlib.suppress(ProcessLookupError):
            # Ray's own agents may stay a while after a driver that was killed.
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()


def outcome_of(driver):
    output, _ = driver.communicate(timeout=150)
    assert driver.returncode == 0
    return json.loads(output.splitlines()[-1])


def test_killed_driver_leaves_no_trial_and_loses_nothing_finished(start_driver, store, make_spec):
    first, second = make_spec(0), make_spec(1, steps=3000)
    driver = start_driver([first, second], "home")
    for line in driver.stdout:
        if line == f"report {second.name}\n":
            break
    trial = psutil.Process(store.trial(second).holder()["process"]["pid"])
    nursery = trial.parent()
    os.kill(driver.pid, signal.SIGKILL)
    _gone, alive = psutil.wait_procs([trial, nursery, nursery.parent()], timeout=30)
    assert not alive
    finished = store.trial(first).done()
    third = make_spec(2)
    outcome = outcome_of(start_driver([first, third], "home"))
    assert outcome == {"done": [first.name, third.name], "failed": {}}
    assert store.trial(first).done() == finished
    assert store.trial(second).holder() is None, "its claim does not outlive it"


def test_two_drivers_at_once_train_no_trial_twice(start_driver, store, make_spec):
    specs = [make_spec(seed, steps=30) for seed in range(4)]
    drivers = [start_driver(specs, name) for name in ("one", "two")]
    started = time.monotonic()
    for driver in drivers:
        outcome = outcome_of(driver)
        assert sorted(outcome["done"]) == sorted(spec.name for spec in specs)
    assert time.monotonic() - started < 170
    for spec in specs:
        assert store.trial(spec).done()["attempts"] == 1
