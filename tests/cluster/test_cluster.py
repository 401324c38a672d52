"""The flow on a cluster of several hosts (network namespaces; needs root and PostgreSQL)."""

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.cluster.cluster import running_cluster
from tests.cluster.hosts import PYTHON
from tests.cluster.parts import BUCKET, MLFLOW_URI, POSTGRES_BIN, S3

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
    pytest.mark.skipif(not POSTGRES_BIN.is_dir(), reason=f"no PostgreSQL in {POSTGRES_BIN}"),
    pytest.mark.skipif(shutil.which("nsenter") is None, reason="needs util-linux"),
]

PRESET = os.environ.get("RAISE_CLUSTER_PRESET", "demo")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    logs = Path(os.environ.get("RAISE_CLUSTER_LOGS") or tmp_path_factory.mktemp("logs"))
    with running_cluster(keep_logs=logs) as cluster:
        yield cluster


def deployment_run(cluster, deployment="full-repro", **parameters):
    """Output of ``prefect deployment run raise/<deployment> ... --watch``; as users type it."""
    options = [f"--param={name}={value}" for name, value in parameters.items()]
    # Prefect breaks lines at the terminal's width.
    environment = cluster.settings() | {"COLUMNS": "1000"}
    return cluster.hosts["worker"].run(
        PYTHON, "-m", "prefect", "deployment", "run", f"raise/{deployment}", *options, "--watch",
        environment=environment, timeout=3000, check=False,
    )  # fmt: skip


def test_only_one_of_many_creates_an_object(cluster):
    """If-None-Match is honoured, by the server and on the way to it."""
    script = (
        "import sys; from raise_model.store import Store; "
        f"s = Store('s3://{BUCKET}/race'); s.probe(); s.create('claim', b'first')\n"
        "try: s.create('claim', b'second')\n"
        "except FileExistsError: print(s.read('claim').decode(), 'stays')"
    )
    output = cluster.hosts["worker"].run(PYTHON, "-c", script, environment=cluster.settings())
    assert output.splitlines()[-1] == "first stays"


def test_a_node_without_the_store_is_named_before_anything_is_trained(cluster):
    cluster.hosts["node"].route(S3, cut=True)
    try:
        output = deployment_run(cluster, preset="smoke", store=f"s3://{BUCKET}/refused")
    finally:
        cluster.hosts["node"].route(S3, cut=False)
    (line,) = {line for line in re.findall(r"(?m)error: (Ray node .*)$", output)}
    assert line.startswith(f"Ray node node: store s3://{BUCKET}/refused cannot be written"), line
    assert "Traceback" not in output
    assert cluster.ask("trials", f"s3://{BUCKET}/refused") == {}


def test_full_repro_runs_on_both_nodes(cluster):
    root = f"s3://{BUCKET}/store"
    output = deployment_run(cluster, preset=PRESET, store=root)
    assert "Completed" in output, output[-3000:]
    trials = cluster.ask("trials", root)
    assert trials
    assert all(trial["starts"] == [0] and trial["evaluations"] for trial in trials.values())
    runs = cluster.ask("runs")
    assert sorted(run["trial"] for run in runs) == sorted(trials)
    assert {run["status"] for run in runs} == {"FINISHED"}
    assert {run["node"] for run in runs} == {"head", "node"}
    (study,) = [study for study in cluster.ask("studies") if study["table"]]
    assert study["status"] == "FINISHED"
    assert MLFLOW_URI in output
