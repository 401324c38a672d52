"""deploy/slurm.sbatch: its checks, and a whole job with stand-ins for Slurm's commands."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "slurm.sbatch"

SRUN = """#!/bin/bash
# Runs the command once, on this machine, whatever nodes are asked for.
nodes=$SLURM_JOB_NUM_NODES tasks=$SLURM_NTASKS
while [[ $1 == --* ]]; do
    case $1 in
    --nodes=*) nodes=${1#*=} ;;
    --ntasks=*) tasks=${1#*=} ;;
    esac
    shift
done
if ((tasks != nodes)); then
    echo "srun: $tasks tasks on $nodes nodes" >&2
    exit 1
fi
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
        "SLURM_NTASKS": "2",
        "SLURM_CPUS_PER_TASK": "1",
        "OMP_NUM_THREADS": "1",
    }


def _run(job, folder, *arguments, timeout):
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments], env=job, cwd=folder, capture_output=True, text=True,
        timeout=timeout,
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing():
    scripts = [str(SCRIPT), str(SCRIPT.with_name("worker.sh"))]
    found = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_bash_can_read_it():
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)


def test_a_folder_too_long_for_sockets_is_refused_at_once(job, tmp_path):
    found = _run(job | {"RAISE_TMP": "/tmp/" + 40 * "x"}, tmp_path, timeout=20)
    assert found.returncode == 2
    assert "too long for Ray's socket paths" in found.stderr
    assert not Path("/tmp/" + 40 * "x").exists()


RECORDED = """
PREFECT_API_URL PREFECT_API_AUTH_STRING PREFECT_API_KEY PREFECT_PROFILE PREFECT_UI_API_URL
MLFLOW_TRACKING_URI MLFLOW_TRACKING_USERNAME MLFLOW_TRACKING_PASSWORD RAY_ADDRESS RAY_TMPDIR
NO_PROXY no_proxy
"""
RECORDER = f"""#!/bin/bash
# In place of `prefect`: a server that stays, or what the flow's run would have seen.
[[ $* != *"server start"* ]] || exec sleep 100
cd "$HOME"
for name in {" ".join(RECORDED.split())}; do echo "$name=${{!name-unset}}"; done >seen
cp -p "$RAISE_HOME/../login" login
"""


@pytest.fixture
def seen(job, tmp_path):
    """Runs a job whose programs do nothing; returns what its run saw, and its file ``login``."""
    stand_ins = {
        "prefect": RECORDER,
        "mlflow": "#!/bin/sh\nexec sleep 100\n",
        "ray": "#!/bin/sh\necho Ray runtime started\nexec sleep 100\n",
        "raise-rpm": '#!/bin/sh\n[ "$1" = serve ] || exit 0\necho >"$RAISE_HOME/runner.ready"\n'
        "exec sleep 100\n",
        "python": "#!/bin/sh\n",
    }
    for name, text in stand_ins.items():
        (tmp_path / "bin" / name).write_text(text)

    def run(**changes):
        temporary = f"/tmp/t{job['SLURM_JOB_ID']}"
        chosen = job | {"RAISE_TMP": temporary} | changes
        found = _run(chosen, tmp_path, timeout=100)
        assert found.returncode == 0, found.stdout + found.stderr
        assert not Path(temporary).exists()
        logs = tmp_path / f"raise-logs-{chosen['SLURM_JOB_ID']}"
        for part in ("ray-head", "ray-nodes"):
            assert "Ray runtime started" in (logs / f"{part}.log").read_text()
        login = tmp_path / "login"
        return tuple(
            dict(line.split("=", 1) for line in path.read_text().splitlines())
            for path in (tmp_path / "seen", login)
        )

    return run


def test_servers_of_the_submitting_shell_do_not_count(seen, tmp_path):
    stale = {
        "PREFECT_API_URL": "http://stale:4200/api",
        "PREFECT_API_KEY": "stale",
        "PREFECT_PROFILE": "stale",
        "MLFLOW_TRACKING_URI": "http://stale:5000",
        "RAY_TMPDIR": "/stale",
        "NO_PROXY": "mine.lab",
    }
    found, login = seen(**stale, SLURM_JOB_ID="123999")
    assert not [name for name, value in found.items() if "stale" in value]
    assert found["PREFECT_API_URL"] == "http://127.0.0.1:29993/api"
    assert found["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:29992"
    # Above are the ports that the system gives to outgoing connections.
    assert 29993 < 32768
    address, port = found["RAY_ADDRESS"].split(":")
    assert port == "29990"
    assert found["NO_PROXY"] == found["no_proxy"] == f"mine.lab,127.0.0.1,localhost,{address}"
    assert (tmp_path / "login").stat().st_mode & 0o777 == 0o600
    assert login == {name: found[name] for name in login}
    assert {"PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_PASSWORD"} <= login.keys()


def test_a_job_shares_mlflow_and_never_prefect(seen, tmp_path):
    shared = tmp_path / "cluster.env"
    shared.write_text(
        "PREFECT_API_URL=http://services.lab:4200/api\nPREFECT_API_AUTH_STRING=raise:theirs\n"
        "MLFLOW_TRACKING_URI=http://services.lab:5000\nMLFLOW_TRACKING_PASSWORD=theirs\n"
    )
    found, login = seen(RAISE_CLUSTER_ENV=str(shared))
    assert found["MLFLOW_TRACKING_URI"] == "http://services.lab:5000"
    assert found["MLFLOW_TRACKING_PASSWORD"] == login["MLFLOW_TRACKING_PASSWORD"] == "theirs"
    assert found["PREFECT_API_URL"].startswith("http://127.0.0.1:")
    assert found["PREFECT_API_AUTH_STRING"] != "raise:theirs"


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
    # Ray's processes end a moment after the one that started them.
    deadline = time.monotonic() + 30
    while (left := _processes_of(temporary)) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not left


def _processes_of(temporary):
    found = psutil.process_iter(["cmdline"])
    return [p for p in found if f"{temporary}/" in " ".join(p.info["cmdline"] or [])]
