"""Connecting to a cluster, and the checks before a sweep."""

import dataclasses
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from raise_model.errors import UserError
from raise_model.store import Store
from tune_spaces import cluster
from tune_spaces.cluster import Resources, preflight, resolve_resources
from tune_spaces.home import ray_environment

pytestmark = [
    pytest.mark.filterwarnings("default::DeprecationWarning"),
    pytest.mark.filterwarnings("default::FutureWarning"),
    pytest.mark.filterwarnings("default::ResourceWarning"),
    pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning"),
]

CPU = Resources(device="cpu")


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def test_connecting_keeps_the_handler_of_sigterm(ray_cluster):
    assert ray_cluster["sigterm_kept"]


def test_token_is_under_raise_home_and_nothing_under_the_home_folder(ray_cluster):
    token = ray_cluster["home"] / "raise" / "ray_token"
    assert token.stat().st_mode & 0o777 == 0o600
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(token)
    assert not (ray_cluster["home"] / ".ray").exists()


def test_token_is_made_once(tmp_path):
    first = ray_environment(tmp_path)
    token = (tmp_path / "ray_token").read_text()
    assert len(token) == 64
    assert ray_environment(tmp_path) == first
    assert (tmp_path / "ray_token").read_text() == token


def test_preflight_passes_on_a_cluster_that_fits(ray_cluster, store, make_spec, cache):
    preflight(CPU, store, [make_spec()], cache=cache)
    assert store.list("") == ["datasets"], "the probes left nothing"


def test_auto_is_the_cpu_on_a_cluster_without_gpus(ray_cluster):
    assert resolve_resources(Resources()) == Resources(device="cpu", gpus_per_trial=0.0)
    with pytest.raises(UserError, match=r"gpus_per_trial=0.5, but there is no GPU; leave it out"):
        resolve_resources(Resources(gpus_per_trial=0.5))


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (Resources(device="cuda"), r"device=cuda, but no node .* has a GPU; use device=cpu"),
        (
            Resources(device="cpu", cpus_per_trial=3),
            r"cpus_per_trial=3, but the largest node .* has 2 CPUs; use cpus_per_trial=2 or less",
        ),
    ],
)
def test_trial_that_fits_nowhere_is_one_line(
    ray_cluster, store, make_spec, cache, resources, message
):
    with pytest.raises(UserError, match=message):
        preflight(resources, store, [make_spec()], cache=cache)


@pytest.mark.parametrize(
    ("resources", "nodes", "message"),
    [
        (
            Resources(device="cuda", gpus_per_trial=4),
            [{"CPU": 8, "GPU": 2}],
            "gpus_per_trial=4, but the largest node of the Ray cluster has 2 GPUs",
        ),
        (
            Resources(device="cuda", cpus_per_trial=16),
            [{"CPU": 32}, {"CPU": 8, "GPU": 1}],
            "no single node of the Ray cluster has 16 CPUs and 1 GPUs",
        ),
    ],
)
def test_what_is_missing_on_gpu_clusters(
    monkeypatch, store, make_spec, cache, resources, nodes, message
):
    described = [{"Alive": True, "Resources": node} for node in nodes]
    monkeypatch.setattr(cluster, "ray", SimpleNamespace(nodes=lambda: described))
    with pytest.raises(UserError, match=message):
        preflight(resources, store, [make_spec()], cache=cache)


def test_precision_that_a_node_lacks_names_the_node(
    ray_cluster, store, make_spec, cache, monkeypatch
):
    # The probe runs in a worker: what it finds there depends on the processor.
    spec = dataclasses.replace(make_spec(), precision="bf16")
    flags = Path("/proc/cpuinfo").read_text()
    if any(flag in flags for flag in ("avx512_bf16", "amx_bf16", " bf16")):
        preflight(CPU, store, [spec], cache=cache)
    else:
        with pytest.raises(UserError, match=f"node {socket.gethostname()}: precision bf16"):
            preflight(CPU, store, [spec], cache=cache)


def test_store_that_cannot_be_written_is_one_line(ray_cluster, tmp_path, make_spec, cache):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UserError, match="file/store cannot be written") as caught:
        preflight(CPU, Store(str(tmp_path / "file" / "store")), [make_spec()], cache=cache)
    assert "\n" not in str(caught.value)


def test_store_that_is_another_folder_on_a_node_names_the_node(
    ray_cluster, store, make_spec, cache, monkeypatch
):
    # One machine has one file system: the driver's marker is made to be missing.
    monkeypatch.setattr(store, "create", lambda path, data: None, raising=True)
    monkeypatch.setattr(store, "probe", lambda: None)
    with pytest.raises(UserError, match=f"node {socket.gethostname()}: store .* another folder"):
        preflight(CPU, store, [make_spec()], cache=cache)


def test_too_little_disk_names_node_and_folder(ray_cluster, store, make_spec, cache):
    free = shutil.disk_usage(store.root).free
    specs = [make_spec()] * (free // cluster.FREE_BYTES_PER_TRIAL + 2)
    with pytest.raises(
        UserError, match=f"node {socket.gethostname()}: {store.root} has .* GB free"
    ):
        preflight(CPU, store, specs, cache=cache)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cpus_per_trial": 0}, "cpus_per_trial must be at least 1"),
        ({"gpus_per_trial": -1}, "gpus_per_trial must not be negative"),
        ({"gpus_per_trial": 1.5}, "gpus_per_trial above 1 must be a whole number"),
        ({"max_concurrent": -1}, "max_concurrent must not be negative"),
    ],
)
def test_impossible_requests_are_refused(values, message):
    with pytest.raises(UserError, match=message):
        Resources(**values)


def connect_elsewhere(address, home):
    """What a new process says that connects to ``address``."""
    code = (
        "import sys\n"
        "from raise_model.errors import UserError\n"
        "from tune_spaces import cluster\n"
        "try:\n"
        "    cluster.connect(sys.argv[1])\n"
        "    print('connected')\n"
        "except UserError as error:\n"
        "    print(error)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "RAISE_HOME": str(home)}
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        environment.pop(name, None)
    process = subprocess.run(
        [sys.executable, "-c", code, address], env=environment, capture_output=True, text=True
    )
    return process.stdout


def test_no_cluster_at_the_address_is_one_line(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    said = connect_elsewhere(f"127.0.0.1:{port}", tmp_path)
    assert said.startswith(f"no Ray cluster answers at 127.0.0.1:{port}")
    assert "raise-rpm up" in said
    assert said.count("\n") == 1


@pytest.mark.slow
def test_cluster_started_apart_takes_its_own_token_and_no_other(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ray = os.path.join(os.path.dirname(sys.executable), "ray")
    command = [ray, "start", "--head", "--node-ip-address=127.0.0.1", f"--port={port}"]
    command += ["--num-cpus=1", "--include-dashboard=false", "--block"]
    head = subprocess.Popen(
        command,
        env=os.environ | ray_environment(tmp_path / "right"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        said = ""
        deadline = time.monotonic() + 90
        while said != "connected\n" and time.monotonic() < deadline:
            said = connect_elsewhere(f"127.0.0.1:{port}", tmp_path / "right")
        assert said == "connected\n"
        said = connect_elsewhere(f"127.0.0.1:{port}", tmp_path / "wrong")
        assert said.startswith(f"the Ray cluster at 127.0.0.1:{port} refuses the token in ")
        assert str(tmp_path / "wrong" / "ray_token") in said
        assert said.count("\n") == 1
    finally:
        head.terminate()
        head.wait(60)
