"""Marks, pids that were given to someone else, and what stopping reaches."""

import os
import socket
import subprocess
import sys
import time

import psutil
import pytest

from flows import processes

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
PARENT = [
    sys.executable,
    "-c",
    "import subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], env={}, "
    "start_new_session=True)\n"
    "time.sleep(60)",
]


@pytest.fixture
def start(tmp_path):
    started = []

    def start(name, command=SLEEP, home=tmp_path):
        pid = processes.start(name, command, home, dict(os.environ), tmp_path / "log")
        started.append(psutil.Process(pid))
        return started[-1]

    yield start
    for process in started:
        if process.is_running():
            process.kill()
            process.wait(10)


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_service_is_known_by_its_mark_not_by_its_number(start, tmp_path):
    process = start("prefect")
    wait_until(lambda: processes.is_alive(process.pid, tmp_path, "prefect"))
    assert not processes.is_alive(process.pid, tmp_path, "mlflow")
    assert not processes.is_alive(process.pid, tmp_path / "other", "prefect")
    assert not processes.is_alive(os.getpid(), tmp_path, "prefect")


def test_a_dead_service_is_not_alive(start, tmp_path):
    process = start("prefect")
    process.kill()
    # Not waited for: a zombie.
    wait_until(lambda: not processes.is_alive(process.pid, tmp_path, "prefect"))


def test_stop_reaches_descendants_that_left_the_session_and_the_environment(start, tmp_path):
    process = start("ray", PARENT)
    wait_until(lambda: len(psutil.Process(process.pid).children()) == 1)
    (child,) = psutil.Process(process.pid).children()
    processes.stop(tmp_path, ["ray"], grace_seconds=0.5)
    assert not process.is_running()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_stop_leaves_other_homes_and_services_alone(start, tmp_path):
    ours, other, elsewhere = start("ray"), start("mlflow"), start("ray", home=tmp_path / "other")
    wait_until(lambda: len(processes.find(tmp_path)) == 2)
    processes.stop(tmp_path, ["ray"], grace_seconds=0.5)
    assert not ours.is_running()
    assert other.is_running()
    assert elsewhere.is_running()


def test_a_process_never_finds_itself(tmp_path):
    code = (
        "import sys; from pathlib import Path; from flows import processes; "
        "print(len(processes.find(Path(sys.argv[1]))))"
    )
    environment = os.environ | {processes.MARK: processes.mark_of(tmp_path, "runner")}
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=environment, capture_output=True, text=True
    )
    assert found.stdout.strip() == "0", found.stderr


def test_a_port_in_use_is_not_free():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert not processes.is_free(port)
        assert processes.free_port(port) != port
    assert processes.is_free(port)
    assert processes.free_port(port) == port


def test_the_last_line_of_a_log_says_something(tmp_path):
    log = tmp_path / "log"
    assert processes.last_line(log) == ""
    log.write_text("first\nValueError: \x1b[31mno\x1b[0m\n----\n\n")
    assert processes.last_line(log).startswith("ValueError")
    assert "\x1b" not in processes.last_line(log)
