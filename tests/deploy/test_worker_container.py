"""The script of the Prefect worker's container: it and its Ray node live and end together."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"

LASTING = """#!/bin/bash
trap 'echo {name} ends >>"$LOG"; exit 0' TERM
echo {name} "$@" >>"$LOG"
if [[ -n ${{{name}_dies:-}} ]]; then
    until grep -q {other} "$LOG"; do sleep 0.05; done
    exit 1
fi
while :; do sleep 0.05; done
"""
PREFECT = """#!/bin/bash
[[ $1 == worker ]] || { echo prefect "$@" >>"$LOG"; exit; }
exec worker "$@"
"""


def _kuberay():
    _, deployment = yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "args" not in container
    return container["command"]


def _compose():
    worker = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["worker"]
    assert "command" not in worker
    return worker["entrypoint"]


def _here(words):
    """The command with the script of the repository in place of the image's copy of it."""
    copied = "COPY prefect.yaml deploy/worker.sh /opt/raise/"
    assert copied in (DEPLOY.parent / "Dockerfile").read_text().splitlines()
    assert words == ["bash", "/opt/raise/worker.sh"]
    return ["bash", str(DEPLOY / "worker.sh")]


@pytest.fixture(params=[_kuberay, _compose], ids=["kuberay", "compose"])
def started(request, tmp_path):
    """Starts the script with stand-ins for its programs; a process, and a file that they log to."""
    stand_ins = {
        "prefect": PREFECT,
        "worker": LASTING.format(name="worker", other="ray"),
        "ray": LASTING.format(name="ray", other="worker"),
        "raise-rpm": '#!/bin/sh\necho raise-rpm "$@" >>"$LOG"\n',
    }
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    log = tmp_path / "log"
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log), "RAY_ADDRESS": "head:6379",
    }  # fmt: skip

    def start(**changes):
        process = subprocess.Popen(
            _here(request.param()), env=environment | changes, start_new_session=True
        )
        request.addfinalizer(process.wait)
        request.addfinalizer(lambda: _kill_all(process.pid))
        return process, log

    return start


def _kill_all(group):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _wait_for(log, text):
    deadline = time.monotonic() + 60
    while not log.exists() or text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text() if log.exists() else "no log"
        time.sleep(0.05)


def test_the_worker_ends_before_its_ray_node(started):
    process, log = started()
    _wait_for(log, "ray start --block")
    _wait_for(log, "worker worker start --pool raise-pool --limit 1")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    lines = log.read_text().splitlines()
    assert lines[-2:] == ["worker ends", "ray ends"]
    # Everything is made before the worker asks for runs.
    assert [line.split()[0] for line in lines[:3]] == ["prefect", "prefect", "raise-rpm"]


@pytest.mark.parametrize(("lost", "other"), [("ray", "worker"), ("worker", "ray")])
def test_without_one_the_other_ends_too(started, lost, other):
    process, log = started(**{f"{lost}_dies": "yes"})
    assert process.wait(timeout=60) == 1
    assert f"{other} ends" in log.read_text()
