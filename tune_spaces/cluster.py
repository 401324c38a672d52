"""The connection to a Ray cluster, and what to check before a long sweep.

Ray's own defaults would join any cluster that once ran on the machine, keep a token under the
home folder, replace the SIGTERM handler of the process and wait for ever for resources that
no node has.  Here an address is given or there is a cluster of our own; the token is under
``RAISE_HOME``; the handler is put back; and a trial that can never start is one line.
"""

import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import _raylet
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raise_model.errors import UserError
from raise_model.specs import TrialSpec
from raise_model.store import Store
from raise_model.training.device import DeviceChoice
from tune_spaces.cluster_access import check_token, check_token_file
from tune_spaces.home import OBJECT_STORE_BYTES, default_cache, raise_home, ray_environment
from tune_spaces.waiting import until_ended

FREE_BYTES_PER_TRIAL = 64 * 1024**2
"""Checkpoints of a trial at paper size, twice, while one replaces the other."""
FREE_BYTES_CACHE = 1024**3
"""Derived arrays of the data sets of a sweep."""
PROBE_SECONDS = 60.0

_dashboard_url = ""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a trial gets, and how many run at once; nothing of it changes a number."""

    device: DeviceChoice = "auto"
    cpus_per_trial: int = 1
    """Also the number of torch's threads."""
    gpus_per_trial: float = 0.0
    """Share of a GPU; 0 on ``cuda`` means a whole one."""
    max_concurrent: int = 0
    """Trials at once; 0: as many as fit."""

    def __post_init__(self) -> None:
        if self.cpus_per_trial < 1:
            raise UserError(f"cpus_per_trial must be at least 1, not {self.cpus_per_trial}")
        if self.gpus_per_trial < 0:
            raise UserError(f"gpus_per_trial must not be negative, not {self.gpus_per_trial}")
        if self.gpus_per_trial > 1 and self.gpus_per_trial % 1:
            raise UserError(
                f"gpus_per_trial above 1 must be a whole number, not {self.gpus_per_trial}"
            )
        if self.gpus_per_trial and self.device == "cpu":
            raise UserError(
                f"gpus_per_trial={self.gpus_per_trial:g}, but device=cpu uses none; leave one out"
            )
        if self.max_concurrent < 0:
            raise UserError(f"max_concurrent must not be negative, not {self.max_concurrent}")

    @property
    def threads(self) -> int:
        return self.cpus_per_trial

    @property
    def request(self) -> dict[str, float]:
        """As Ray takes it."""
        return {"cpu": self.cpus_per_trial, "gpu": self.gpus_per_trial}


def connect(
    address: str | None = None, *, home: Path | None = None, num_cpus: int | None = None,
    dashboard: bool = True,
) -> str:  # fmt: skip
    """Attach this process to a cluster; returns the address of its dashboard, "" without one.

    ``address``, else ``RAY_ADDRESS``, else a new cluster of this process on 127.0.0.1.
    A process that is connected already stays as it is.

    :raises UserError: if no cluster answers there, or it refuses the token.
    """
    global _dashboard_url
    if ray.is_initialized():
        return _dashboard_url
    _adopt(ray_environment(home or raise_home()))
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        options |= {
            "num_cpus": num_cpus,
            "include_dashboard": dashboard,
            "dashboard_host": "127.0.0.1",
            "object_store_memory": OBJECT_STORE_BYTES,
        }
        _adopt(ray_environment(home or raise_home()))
    else:
        check_address(address, home=home)
    with _sigterm_kept():
        try:
            url = ray.init(address, **options).dashboard_url
        except (ConnectionError, RayError) as error:
            raise UserError(
                f"Ray at {address} refuses this process ({' '.join(str(error).split())}); is "
                f"{os.environ.get('RAY_AUTH_TOKEN_PATH')} that cluster's token?"
            ) from error
    _dashboard_url = f"http://{url}" if url else ""
    return _dashboard_url


def check_address(address: str, *, home: Path | None = None) -> None:
    """:raises UserError: if no cluster answers at ``host:port``, or it refuses our token."""
    check_answers(address)
    _adopt(ray_environment(home or raise_home()))
    check_token(address)


def _adopt(environment: Mapping[str, str]) -> None:
    """Put variables into this process's environment, where the user has not set them.

    Ray's C++ half read them when it was imported; it reads them again, as ``ray.init`` makes
    it do when it turns tokens on by itself.
    """
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    check_token_file()
    raylet: Any = _raylet
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def check_answers(address: str) -> None:
    """:raises UserError: if nothing listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise UserError(f"Ray address {address!r} is not host:port (or local)")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise UserError(
            f"no Ray cluster answers at {address} ({error.strerror or error}); is RAY_ADDRESS "
            "right?  One of this machine is started by: raise-rpm up"
        ) from error


@contextlib.contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Put the SIGTERM handler back that ``ray.init`` replaces (Prefect's, for one)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def resolve_resources(resources: Resources, gpus_there: float | None = None) -> Resources:
    """``auto`` becomes the GPUs of the cluster if it has any, else the CPU.

    :param gpus_there: of the cluster; None: of the one that this process is connected to.
    :raises UserError: if trials are to have GPUs by themselves, and there are none.
    """
    device = resources.device
    if device == "auto":
        if gpus_there is None:
            gpus_there = ray.cluster_resources().get("GPU", 0)
        device = "cuda" if gpus_there else "cpu"
        if not gpus_there and resources.gpus_per_trial:
            raise UserError(
                f"gpus_per_trial={resources.gpus_per_trial:g}, but there is no GPU; leave it out"
            )
    gpus = (resources.gpus_per_trial or 1.0) if device == "cuda" else 0.0
    return dataclasses.replace(resources, device=device, gpus_per_trial=gpus)


def alone_request(resources: Resources) -> dict[str, float]:
    """What Ray reserves for a trial that shares its device with none; its threads stay.

    A whole GPU, or where there are none all CPUs of the largest node.
    """
    if resources.device == "cuda":
        return {"cpu": resources.cpus_per_trial, "gpu": max(1.0, resources.gpus_per_trial)}
    cpus = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
    return {"cpu": max([float(resources.cpus_per_trial), *cpus]), "gpu": 0.0}


def preflight(
    resources: Resources, store: Store, specs: Sequence[TrialSpec], *, cache: Path | None = None
) -> None:
    """Check what a sweep needs before it starts.

    :raises UserError: if a trial could never be placed, or some node cannot write the store,
        sees another store than the driver, lacks the precision, or is short of disk.
    """
    resources = resolve_resources(resources)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    check_placement(resources, [node["Resources"] for node in nodes])
    fitting = [node for node in nodes if _fits(node["Resources"], resources)]
    _probe_nodes(fitting, resources, store, specs, cache or default_cache())


def check_placement(
    resources: Resources, nodes: Sequence[Mapping[str, float]], place: str = "the Ray cluster"
) -> None:
    """Check that a trial fits on some node.

    :param resources: with ``cpu`` or ``cuda`` for the device.
    :param nodes: each one's ``CPU`` and ``GPU``, as Ray counts them.
    :param place: what the nodes are.
    :raises UserError: if it fits on none; it says what is missing and what would fit.
    """
    if not any(_fits(node, resources) for node in nodes):
        raise UserError(_what_is_missing(nodes, resources, place))


def _fits(node: Mapping[str, float], resources: Resources) -> bool:
    return (
        node.get("CPU", 0) >= resources.cpus_per_trial
        and node.get("GPU", 0) >= resources.gpus_per_trial
    )


def _what_is_missing(nodes: Sequence[Mapping[str, float]], resources: Resources, place: str) -> str:
    cpus, gpus = (max((node.get(kind, 0) for node in nodes), default=0) for kind in ("CPU", "GPU"))
    if resources.device == "cuda" and gpus == 0:
        return f"device=cuda, but no node of {place} has a GPU; use device=cpu"
    if resources.cpus_per_trial > cpus:
        return (
            f"cpus_per_trial={resources.cpus_per_trial}, but the largest node of {place} "
            f"has {cpus:g} CPUs; use cpus_per_trial={int(cpus)} or less"
        )
    if resources.gpus_per_trial > gpus:
        return (
            f"gpus_per_trial={resources.gpus_per_trial:g}, but the largest node of {place} "
            f"has {gpus:g} GPUs; use gpus_per_trial={gpus:g} or less"
        )
    return (
        f"no single node of {place} has {resources.cpus_per_trial} CPUs and "
        f"{resources.gpus_per_trial:g} GPUs; ask for fewer CPUs per trial"
    )


def _probe_nodes(
    nodes: Sequence[Mapping[str, Any]],
    resources: Resources,
    store: Store,
    specs: Sequence[TrialSpec],
    cache: Path,
) -> None:
    marker = f".preflight-{uuid.uuid4().hex}"
    store.probe()
    store.create(marker, b"preflight")
    try:
        pending = {}
        for node in nodes:
            affinity = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
            # Without a share of a GPU: another run may hold them all, and Ray hides none from it.
            reference = _probe.options(scheduling_strategy=affinity).remote(
                store.root, marker, resources.device, sorted({s.precision for s in specs}),
                len(specs), cache,
            )  # fmt: skip
            pending[reference.future()] = node["NodeManagerHostname"]
        answered = until_ended(pending, every=True, seconds=PROBE_SECONDS)
        problems = [f"{pending[each]}: {text}" for each in answered if (text := each.result())]
        problems += [
            f"{name}: no answer in {PROBE_SECONDS:.0f} s"
            for each, name in pending.items()
            if each not in answered
        ]
    finally:
        store.delete(marker)
    if problems:
        raise UserError("Ray node " + "; node ".join(sorted(problems)))


@ray.remote(num_cpus=0, max_retries=0)
def _probe(
    root: str, marker: str, device: str, precisions: Sequence[Any], num_trials: int, cache: Path
) -> str:
    """On a node: what is wrong with it, in one line; empty if nothing is."""
    from raise_model.training.device import check_precision, resolve_device

    store = Store(root)
    try:
        store.probe()
        if not store.exists(marker):
            return f"store {root} is another folder there; use one that all nodes share, or s3://"
        for precision in precisions:
            check_precision(precision, resolve_device(device))  # type: ignore[arg-type]
    except UserError as error:
        return str(error)
    cache.mkdir(parents=True, exist_ok=True)
    needs = [(str(cache), FREE_BYTES_CACHE)]
    if "://" not in root:
        needs.append((root, num_trials * FREE_BYTES_PER_TRIAL))
    for folder, needed in needs:
        free = shutil.disk_usage(folder).free
        if free < needed:
            return (
                f"{folder} has {free / 1e9:.1f} GB free, the sweep may need {needed / 1e9:.1f} GB; "
                "free space or move it"
            )
    return ""
