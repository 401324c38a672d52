"""deploy/slurm.sbatch: its checks, and a whole job with stand-ins for Slurm's commands."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "slurm.sbatch"

SRUN = """#!/bin/bash
# Runs the command once, on this machine, whatever nodes are asked for.
while [[ $1 == --* ]]; do shift; done
set -m
"$@" &
# As Slurm does, to all processes of the step.
trap 'kill -TERM -- -$!' TERM
wait $!
status=$?
wait $! || true
exit $status
"""


@pytest.fixture
def job(tmp_path):
    """Variables of a job of two nodes, both this machine."""
    commands = tmp_path / "bin"
    commands.mkdir()
    stand_ins = {
        "srun": SRUN,
        "scontrol": "#!/bin/sh\necho localhost\n",
        "prefect": f'#!/bin/sh\nexec {sys.executable} -m prefect "$@"\n',
        "mlflow": f'#!/bin/sh\nexec {sys.executable} -m mlflow "$@"\n',
        "ray": f'#!/bin/sh\nexec {sys.executable} -m ray.scripts.scripts "$@"\n',
        "raise-rpm": f'#!/bin/sh\nexec {sys.executable} -m flows.cli "$@"\n',
        "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
    }
    for name, text in stand_ins.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    number = os.getpid() % 100000
    return {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[1]), os.environ.get("PYTHONPATH", "")]),
        "HOME": str(tmp_path),
        "SLURM_JOB_ID": str(number),
        "SLURM_JOB_NODELIST": "localhost,other",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_PER_TASK": "1",
        "OMP_NUM_THREADS": "1",
        "NO_PROXY": "*",
    }


def _run(job, folder, *arguments, timeout):
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments], env=job, cwd=folder, capture_output=True, text=True,
        timeout=timeout,
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing():
    found = subprocess.run(["shellcheck", str(SCRIPT)], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_bash_can_read_it():
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)


def test_a_folder_too_long_for_sockets_is_refused_at_once(job, tmp_path):
    found = _run(job | {"RAISE_TMP": "/tmp/" + 40 * "x"}, tmp_path, timeout=20)
    assert found.returncode == 2
    assert "too long for Ray's socket paths" in found.stderr
    assert not Path("/tmp/" + 40 * "x").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_runs_the_flow_and_leaves_nothing_but_store_and_logs(job, tmp_path):
    pytest.importorskip("flask_wtf", reason="MLflow asks for passwords only with Flask-WTF")
    temporary = Path(f"/tmp/r{job['SLURM_JOB_ID']}")
    chosen = ["-p", "preset=smoke", "-p", 'studies=["main_table"]', "-p", 'models=["raise"]']
    chosen += ["-p", 'configurations=["center"]', "-p", "trials=2", "-p", "device=cpu"]
    found = _run(job, tmp_path, *chosen, timeout=850)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    assert len(list((tmp_path / "raise-store" / "trials").glob("*/done.json"))) == 2
    assert not temporary.exists()
    logs = tmp_path / f"raise-logs-{job['SLURM_JOB_ID']}"
    assert {"ray-head.log", "mlflow.log", "prefect.log", "runner.log"} <= {
        log.name for log in logs.iterdir()
    }
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(temporary) in _words(p)]


def _words(process):
    return " ".join(process.info["cmdline"] or [])
