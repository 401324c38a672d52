"""The nursery without Ray: claims of killed trials are given back, for other machines to see."""

import contextlib
import json
import os
import signal
import time

import pytest

from tune_spaces.trial_process import Nursery, TrialDied


@pytest.fixture(scope="module")
def nurseries():
    """The nursery in use, if any: to start one takes seconds."""
    started = []
    yield started
    for nursery in started:
        nursery._process.kill()
        nursery._process.wait()
        nursery._connection.close()


@pytest.fixture
def nursery(nurseries):
    """A living one; a test may kill it."""
    if not nurseries or nurseries[-1]._connection.closed or not nurseries[-1].is_alive:
        nurseries.append(Nursery())
    return nurseries[-1]


def newest_claim(store, spec):
    folder = store.trial(spec).file("claims")
    return store.read_json(f"{folder}/{store.list(folder)[-1]}")


def wait_until_given_back(store, spec):
    deadline = time.monotonic() + 60
    while not newest_claim(store, spec)["released"]:
        assert time.monotonic() < deadline, "the claim is not given back"
        time.sleep(0.2)


@pytest.fixture
def running(nursery, store, data, make_spec):
    """A trial in the middle of its training."""
    spec = make_spec(steps=100_000)
    request = {
        "store": store.root, "abandoned": "{}", "spec": json.dumps(spec.to_json()),
        "device": "cpu", "threads": 1, "cache": str(data[0] / "cache"),
    }  # fmt: skip
    rows = nursery.run(request)
    next(rows)
    yield rows, spec
    with contextlib.suppress(OSError):  # the connection is closed already
        rows.close()


def test_of_a_killed_trial(running, store):
    rows, spec = running
    os.kill(newest_claim(store, spec)["process"]["pid"], signal.SIGKILL)
    with pytest.raises(TrialDied, match="SIGKILL"):
        list(rows)
    wait_until_given_back(store, spec)


def test_of_a_trial_that_was_given_up(running, store):
    rows, spec = running
    rows.close()
    wait_until_given_back(store, spec)


def test_of_a_trial_whose_nursery_was_killed(running, nursery, store):
    _rows, spec = running
    nursery._process.kill()
    wait_until_given_back(store, spec)


def test_of_a_trial_whose_actor_is_gone(running, nursery, store):
    _rows, spec = running
    nursery._connection.close()
    wait_until_given_back(store, spec)


def test_what_kills_the_group_of_the_actor_leaves_time_to_give_back(nursery):
    assert os.getsid(nursery._process.pid) == nursery._process.pid


def test_a_living_process_keeps_its_claim(running, store):
    _rows, spec = running
    store.trial(spec).give_back(newest_claim(store, spec)["process"]["pid"])
    assert not newest_claim(store, spec)["released"]


def test_the_claim_of_another_process_stays(running, store):
    _rows, spec = running
    store.trial(spec).give_back(os.getpid())
    assert not newest_claim(store, spec)["released"]
