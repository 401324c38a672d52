"""Processes that outlive the command that started them, found again by a mark.

Every service of a home is started in a session of its own with ``RAISE_SERVICE=<home>::<name>``
in its environment, which its children inherit.  A process id alone says nothing after a
reboot or once ids are reused; the mark does, and no clock is asked.  Programs that rewrite
their title (Ray's workers) may lose their environment; they are found by session and parent.
"""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

MARK = "RAISE_SERVICE"

_GONE = (psutil.NoSuchProcess, psutil.AccessDenied, OSError)


def mark_of(home: Path, name: str) -> str:
    """Value of the mark of one service of one home."""
    return f"{home}::{name}"


def start(
    name: str, command: Sequence[str], home: Path, environment: Mapping[str, str], log: Path
) -> int:
    """Start a detached, marked process whose output is appended to ``log``; its id."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env={**environment, MARK: mark_of(home, name)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # It outlives this process, which nobody needs to be warned of.
    process.returncode = 0
    return process.pid


def _mark(process: psutil.Process) -> str:
    with contextlib.suppress(*_GONE):
        return process.environ().get(MARK, "")
    return ""


def is_alive(pid: int, home: Path, name: str) -> bool:
    """Whether ``pid`` is the living process of that service, and no other with its number."""
    with contextlib.suppress(*_GONE):
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and _mark(process) == mark_of(home, name)
    return False


def _session(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return None


def _is_living(process: psutil.Process) -> bool:
    with contextlib.suppress(*_GONE):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def find(home: Path, name: str | None = None) -> list[psutil.Process]:
    """Every living process of a home, or of one service of it, with all their descendants.

    This process and those above it are never among them.
    """
    prefix = mark_of(home, name or "")
    everyone = list(psutil.process_iter())
    marked = [
        process
        for process in everyone
        if (_mark(process) == prefix if name else _mark(process).startswith(prefix))
    ]
    # Only sessions that a service leads: a marked process may share the session of a shell.
    sessions = {process.pid for process in marked if _session(process.pid) == process.pid}
    found = {process.pid: process for process in marked}
    for process in everyone:
        if _session(process.pid) in sessions:
            found[process.pid] = process
    for process in list(found.values()):
        with contextlib.suppress(*_GONE):
            found.update((child.pid, child) for child in process.children(recursive=True))
    here = psutil.Process()
    for own in (here, *here.parents()):
        found.pop(own.pid, None)
    return [process for process in found.values() if _is_living(process)]


def _signal(processes: Iterable[psutil.Process], *, kill: bool) -> None:
    for process in processes:
        with contextlib.suppress(*_GONE):
            process.kill() if kill else process.terminate()


def stop(home: Path, names: Sequence[str], grace_seconds: float = 20.0) -> list[str]:
    """End some services, at once, and everything that belongs to them.

    The processes that lead a session are asked first, so that they can end their own children
    in order; what is left after ``grace_seconds`` is killed.

    :returns: names of those that ran.
    """
    families = {name: find(home, name) for name in names}
    family = [process for found in families.values() for process in found]
    leaders = [process for process in family if _session(process.pid) == process.pid]
    _signal(leaders or family, kill=False)
    psutil.wait_procs(leaders or family, timeout=grace_seconds)
    # What was started meanwhile counts too.
    left = {process.pid: process for process in family if _is_living(process)}
    left |= {process.pid: process for name in names for process in find(home, name)}
    _signal(left.values(), kill=False)
    _, alive = psutil.wait_procs(list(left.values()), timeout=3.0)
    _signal(alive, kill=True)
    psutil.wait_procs(alive, timeout=5.0)
    return [name for name, found in families.items() if found]


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1 at that port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port(wanted: int = 0) -> int:
    """``wanted`` if it is free, else a port that the system picks."""
    if wanted and is_free(wanted):
        return wanted
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def last_line(log: Path) -> str:
    """Last line of a log that says something, without control characters; empty if none."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    spoken = [line.strip() for line in lines if any(letter.isalnum() for letter in line)]
    return "".join(letter for letter in spoken[-1] if letter.isprintable()) if spoken else ""
