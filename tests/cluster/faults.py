"""The faults of the matrix: what breaks in the middle of a sweep, and is mended again."""

import glob
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.cluster.cluster import Cluster
from tests.cluster.hosts import HostError, wait_for

REQUEST: Mapping[str, Any] = {
    "preset": "smoke", "trials": 3, "studies": ["main_table"], "device": "cpu",
}  # fmt: skip
TRIALS = 12
"""Of that request."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    name: str
    inject: Callable[[Cluster, str], None]
    """Called with the store's root in the middle of the sweep; mends what it broke."""
    host: str = ""
    """On which a trial is being trained at that moment; anywhere."""
    prepare: Callable[[Cluster], None] = lambda cluster: None
    clear: Callable[[Cluster], None] = lambda cluster: None


FAULTS: dict[str, Fault] = {}


def fault(name: str, **options: Any) -> Callable[..., Any]:
    def register(inject: Callable[[Cluster, str], None]) -> Callable[[Cluster, str], None]:
        FAULTS[name] = Fault(name=name, inject=inject, **options)
        return inject

    return register


def _driver(cluster: Cluster) -> psutil.Process:
    """The process of the flow run: of those with its mark, the one that the others descend from."""
    marked = cluster.drivers()
    pids = {process.pid for process in marked}
    tops = [process for process in marked if process.ppid() not in pids]
    if len(tops) != 1:
        raise HostError(f"not one driver: {[p.cmdline() for p in marked]}")
    return tops[0]


# Group 1: processes that belong to one run


@fault("a trial killed (SIGKILL)")
def kill_trial(cluster: Cluster, root: str) -> None:
    held: dict[str, Any] = {}
    wait_for("no trial runs", lambda: bool(held.update(cluster.ask("claims", root)) or held), 300)
    process = next(iter(held.values()))["process"]
    (host,) = [host for host in cluster.hosts.values() if host.owns(process["machine"])]
    host.run("kill", "-KILL", str(process["pid"]))


@fault("the driver killed (SIGKILL)")
def kill_driver(cluster: Cluster, root: str) -> None:
    _driver(cluster).kill()


@fault("SIGTERM to the driver")
def terminate_driver(cluster: Cluster, root: str) -> None:
    _driver(cluster).terminate()


@fault("the Prefect run cancelled")
def cancel(cluster: Cluster, root: str) -> None:
    for run in cluster.prefect("POST", "/flow_runs/filter", _running()):
        cluster.prefect(
            "POST", f"/flow_runs/{run['id']}/set_state",
            {"state": {"type": "CANCELLING"}, "force": False},
        )  # fmt: skip


def _running() -> Mapping[str, Any]:
    return {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING", "SCHEDULED"]}}}}


# Group 2: servers


@fault("the Prefect worker killed (SIGKILL)")
def kill_worker(cluster: Cluster, root: str) -> None:
    cluster.parts["prefect-worker"].kill(family=False)
    cluster.start_worker()
    cluster.wait_for("prefect-worker")


@fault("the Prefect server killed (SIGKILL) for 30 s")
def kill_prefect(cluster: Cluster, root: str) -> None:
    cluster.parts["prefect"].kill()
    time.sleep(30)
    cluster.start_prefect()
    cluster.wait_for("prefect")


@fault("the MLflow server killed (SIGKILL) for 120 s")
def kill_mlflow(cluster: Cluster, root: str) -> None:
    cluster.parts["mlflow"].kill()
    time.sleep(120)
    cluster.start_mlflow()
    cluster.wait_for("mlflow")


@fault("PostgreSQL restarted")
def restart_postgres(cluster: Cluster, root: str) -> None:
    cluster.parts["postgres"].signal(signal.SIGINT)
    cluster.parts["postgres"].entered.wait(timeout=120)
    cluster.start_postgres()


# Group 3: Ray and its machines


@fault("the raylet of a node killed (SIGKILL)", host="node")
def kill_raylet(cluster: Cluster, root: str) -> None:
    for process in cluster.hosts["node"].processes():
        if process.name() == "raylet":
            process.kill()
    cluster.parts["node"].entered.wait(timeout=120)
    cluster.join_ray("node")


@fault("a node without power, back after 60 s", host="node")
def power_off(cluster: Cluster, root: str) -> None:
    cluster.hosts["node"].kill()
    time.sleep(60)
    cluster.replace("node")
    cluster.join_ray("node")


@fault("the Ray head killed (SIGKILL)")
def kill_head(cluster: Cluster, root: str) -> None:
    cluster.parts["head"].kill()
    cluster.join_ray("head", "node", "worker")


@fault("the network of a node cut for 60 s", host="node")
def cut_network(cluster: Cluster, root: str) -> None:
    cluster.pull_cable("node", cut=True)
    time.sleep(60)
    cluster.pull_cable("node", cut=False)
    _rejoin(cluster)


def _rejoin(cluster: Cluster) -> None:
    """A node that Ray has given up ends its Ray; systemd would start it again."""
    time.sleep(15)
    if not cluster.parts["node"].is_alive:
        cluster.join_ray("node")


# Group 4: disks, store, clocks


@fault("the store answers 500 for 60 s")
def store_in_trouble(cluster: Cluster, root: str) -> None:
    cluster.s3_trouble.touch()
    time.sleep(60)
    cluster.s3_trouble.unlink()


@fault("the driver's disk full for 60 s")
def full_driver(cluster: Cluster, root: str) -> None:
    _fill(cluster, "worker")


@fault("a node's disk full for 60 s", host="node")
def full_node(cluster: Cluster, root: str) -> None:
    _fill(cluster, "node")


def _fill(cluster: Cluster, name: str) -> None:
    cluster.hosts[name].fill_disk()
    time.sleep(60)
    cluster.hosts[name].free_disk()


def _skew(cluster: Cluster) -> None:
    found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1") or [
        os.environ.get("RAISE_LIBFAKETIME", "")
    ]
    if not Path(found[0]).is_file():
        raise HostError("clock skew needs libfaketime (or its path in RAISE_LIBFAKETIME)")
    sleep = cluster.folder / "clock_nanosleep.so"
    source = Path(__file__).with_name("clock_nanosleep.c")
    cluster.hosts["node"].run("cc", "-shared", "-fPIC", "-o", str(sleep), str(source))
    environment = {
        "LD_PRELOAD": f"{sleep}:{found[0]}",
        "FAKETIME": "+1h",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    cluster.join_ray("node", environment=environment)


@fault(
    "the clock of a node an hour ahead",
    host="node",
    prepare=_skew,
    clear=lambda cluster: cluster.join_ray("node"),
)
def skewed(cluster: Cluster, root: str) -> None:
    """Skewed from before the first trial on."""


@fault("two identical deployments at once")
def twice(cluster: Cluster, root: str) -> None:
    cluster.submit("faults", **REQUEST, store=root)


GROUPS: Mapping[int, Sequence[str]] = {
    number + 1: tuple(list(FAULTS)[4 * number : 4 * number + 4])
    for number in range(-(-len(FAULTS) // 4))
}
