"""deploy/slurm.sbatch on a Slurm of two nodes (network namespaces; needs root, Slurm, munge)."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.cluster.hosts import wait_for
from tests.cluster.slurm import NODES, running_slurm

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
    *(
        pytest.mark.skipif(shutil.which(command) is None, reason=f"{command} is not installed")
        for command in ("nsenter", "slurmctld", "slurmd", "munged")
    ),
]

SMALL = ("--cpus-per-task=1", "--mem=4G")
SMOKE = ("preset=smoke", "device=cpu")
JOB_SECONDS = 600.0
END_SECONDS = 60.0
LOGS = {"ray-head.log", "ray-nodes.log", "mlflow.log", "prefect.log", "runner.log"}


@pytest.fixture(scope="module")
def slurm():
    with running_slurm(cpus=4) as slurm:
        yield slurm


def trials(store: Path) -> list[Path]:
    return sorted(spec.parent for spec in store.glob("trials/*/spec.json"))


def done(store: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in store.glob("trials/*/done.json")}


def claims(trial: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(trial.glob("claims/*.json"))]


def assert_nothing_is_left(slurm, job):
    # Ray's processes end a moment after the one that started them.
    wait_for(f"left: {slurm.left()}", lambda: not slurm.left(), END_SECONDS)
    logs = slurm.work / f"raise-logs-{job}"
    assert {log.name for log in logs.iterdir()} >= LOGS


def test_a_job_trains_on_all_its_nodes_and_leaves_nothing_but_store_and_logs(slurm):
    job = slurm.submit(*SMOKE, options=SMALL, RAISE_COMMIT="abc123")
    login = slurm.temporary / "login"
    first = slurm.hosts[NODES[0]]
    wait_for(
        "no file login",
        lambda: first.run("find", str(login), check=False).strip() == str(login),
        JOB_SECONDS,
    )
    # What the documentation tells who wants to look at a running job.
    assert slurm.ask("squeue", "-h", "-j", job, "-o", "%B").strip() == first.name
    port = 20000 + int(job) % 1000 * 10
    addresses = first.run("cat", str(login))
    assert f"MLFLOW_TRACKING_URI=http://127.0.0.1:{port + 2}\n" in addresses
    assert f"PREFECT_API_URL=http://127.0.0.1:{port + 3}/api\n" in addresses

    assert slurm.wait(job, JOB_SECONDS) == "COMPLETED", slurm.output(job)[-3000:]
    store = slurm.work / "raise-store"
    finished = done(store)
    assert len(finished) == len(trials(store)) == 8
    assert {json.loads(text)["provenance"]["commit"] for text in finished.values()} == {"abc123"}
    machines = {c["process"]["machine"] for trial in trials(store) for c in claims(trial)}
    assert [name for name in NODES if any(map(slurm.hosts[name].owns, machines))] == list(NODES)
    assert_nothing_is_left(slurm, job)


def test_a_job_that_is_stopped_is_gone_on_with_by_the_same_command(slurm):
    store = slurm.work / "stopped"
    command = (*SMOKE, "trials=3")
    # As on a cluster that has no GPU.
    options = (*SMALL, "--gpus-per-node=0")
    job = slurm.submit(*command, options=options, RAISE_STORE=str(store))
    wait_for(
        "no trial is under way beside finished ones",
        lambda: len(done(store)) >= 2 and any(
            claims(trial) and trial.name not in done(store) for trial in trials(store)
        ),
        JOB_SECONDS, every=0.3,
    )  # fmt: skip
    # What Slurm does two minutes before the time limit.
    slurm.ask("scancel", "--batch", "--signal=TERM", job)
    assert slurm.wait(job, 120) == "FAILED"
    assert "stopped by a signal" in slurm.output(job)
    assert "Traceback" not in slurm.output(job)
    assert_nothing_is_left(slurm, job)
    before = done(store)
    assert len(before) < 12
    assert all(claim["released"] for trial in trials(store) for claim in claims(trial))

    job = slurm.submit(*command, options=options, RAISE_STORE=str(store))
    assert slurm.wait(job, JOB_SECONDS) == "COMPLETED", slurm.output(job)[-3000:]
    after = done(store)
    assert len(after) == 12
    assert {name: after[name] for name in before} == before
    assert_nothing_is_left(slurm, job)


def test_a_job_whose_flow_fails_fails_with_the_reason_in_one_line(slurm):
    job = slurm.submit(
        *SMOKE, "max_hours=0.0001", options=SMALL, RAISE_STORE=str(slurm.work / "refused")
    )
    assert slurm.wait(job, JOB_SECONDS) == "FAILED"
    assert re.search(r"(?m)error: preset=smoke would take .* raise max_hours$", slurm.output(job))
    assert_nothing_is_left(slurm, job)
