"""Claims: one process at a time may write into a trial's folder.

A claim is a file ``<attempt>.json`` in the trial's folder ``claims`` of the store.  Its owner
raises a counter in it; whoever wants the trial waits until the owner releases it, has ended (a
process of the same machine), or has let the counter stand still for :data:`STALE_SECONDS`.
"""

import contextlib
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raise_model.errors import UserError

if TYPE_CHECKING:
    from raise_model.store import Store

HEARTBEAT_SECONDS = 20.0
POLL_SECONDS = 2.0
STALE_SECONDS = 300.0
"""A claim whose counter stood still for so long on the observer's clock may be taken over."""


class Held(Exception):
    """A living owner has the claim."""


class ClaimLost(Exception):
    """Another attempt took the claim over; nothing more may be written under it."""


@dataclass(frozen=True)
class Process:
    """A process that can be recognised again, on the machine where it runs."""

    machine: str
    """Boot and process namespace: within one, process ids mean the same."""
    pid: int
    started: int
    """Start in clock ticks since boot; compared for equality only."""

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """A living process of this machine, None if there is none."""
        started = _start_ticks(pid)
        return None if started is None else cls(machine=_machine(), pid=pid, started=started)

    @classmethod
    def current(cls) -> "Process":
        return cls(machine=_machine(), pid=os.getpid(), started=_start_ticks(os.getpid()) or 0)

    def is_gone(self) -> bool:
        """True only if that process certainly ended; False on another machine."""
        if self.machine != _machine():
            return False
        started = _start_ticks(self.pid)
        return started != self.started and not (started is None and _is_hidden(self.pid))


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        # Without /proc nothing can be said of other processes: a name that no one shares.
        return uuid.uuid4().hex


def _start_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None if it ended (or is a zombie)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    state, started = fields[0], int(fields[19])
    return None if state in "ZX" else started


def _is_hidden(pid: int) -> bool:
    """Whether it is of another user, whose processes ``/proc`` may keep to itself (hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        return False
    return False


class ClaimWatch:
    """How long each claim has stood still, on this process's monotonic clock."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Any, float]] = {}

    def still_for(self, path: str, state: Any) -> float:
        """Seconds for which ``state`` has been the same at ``path``, 0 when first seen."""
        now = time.monotonic()
        seen, since = self._seen.get(path, (None, now))
        if seen != state:
            since = now
        self._seen[path] = (state, since)
        return now - since

    def abandoned(self) -> dict[str, Any]:
        """States of the claims, by path, that stood still until nobody can own them any more."""
        long_ago = time.monotonic() - STALE_SECONDS
        seen = list(self._seen.items())  # MLflow's writer looks at claims meanwhile
        return {path: state for path, (state, since) in seen if since <= long_ago}

    def trust(self, abandoned: Mapping[str, Any]) -> None:
        """Take over what another watch found abandoned, so as not to wait as long again."""
        long_ago = time.monotonic() - STALE_SECONDS
        for path, state in abandoned.items():
            self._seen[path] = (state, long_ago)


class Claim:
    """The right to write into a trial's folder.

    Attempts are numbered; ``claims/<attempt>.json`` is made by exclusive create, so of all
    that want to take over only one can.  The highest attempt owns the trial.  The owner
    raises the counter in its own file; observers compare counters, never time stamps.
    """

    def __init__(self, store: "Store", folder: str, attempt: int) -> None:
        self._store = store
        self._folder = folder
        self._path = f"{folder}/{attempt:04d}.json"
        self.attempt = attempt
        self._value: dict[str, Any] = {
            "owner": uuid.uuid4().hex,
            "attempt": attempt,
            "counter": 0,
            "released": False,
            "process": vars(Process.current()),
        }
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="claim-heartbeat")

    def take(self) -> None:
        """:raises Held: if another process created the attempt first."""
        try:
            self._store.create_json(self._path, self._value)
        except FileExistsError as error:
            raise Held(self._path) from error
        self._thread.start()

    def confirm(self) -> None:
        """To be called before every write that counts.

        :raises ClaimLost: if another attempt has taken over.
        """
        newest = _names(self._store, self._folder)[-1:]
        if newest != [f"{self.attempt:04d}.json"]:
            raise ClaimLost(f"{self._path}: attempt {newest} has taken over")

    def release(self) -> None:
        """Let others take over at once."""
        self._stop.set()
        self._thread.join()
        self._value["released"] = True
        # Not being able to say so (full disk, store away; S3 clients have errors of their own)
        # costs others a wait, no more; the error that ended the work is the one to be seen.
        with contextlib.suppress(Exception):
            self._store.write_json(self._path, self._value)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            self._value["counter"] += 1
            # A store that is away for a moment must not end the training: if it stays away,
            # the next checkpoint fails loudly; if it returns, the counter goes on.
            with contextlib.suppress(Exception):
                self._store.write_json(self._path, self._value, durable=False)


def holder(store: "Store", folder: str, watch: ClaimWatch) -> dict[str, Any] | None:
    """The newest claim of a folder if its owner lives, else None."""
    names = _names(store, folder)
    return _living(store, f"{folder}/{names[-1]}", watch) if names else None


def _living(store: "Store", path: str, watch: ClaimWatch) -> dict[str, Any] | None:
    """A claim if its owner lives, else None."""
    claim = _read(store, path)
    if claim["released"]:
        return None
    state = [claim["owner"], claim["counter"]]
    if Process(**claim["process"]).is_gone():
        # On another machine this cannot be seen.
        watch.trust({path: state})
        return None
    return None if watch.still_for(path, state) >= STALE_SECONDS else claim


def _read(store: "Store", path: str) -> dict[str, Any]:
    """:raises UserError: if the claim is damaged."""
    try:
        claim = dict(store.read_json(path))
        Process(**claim["process"])
        is_whole = {"owner", "attempt", "counter", "released"} <= claim.keys()
    except (ValueError, TypeError, KeyError):
        claim, is_whole = {}, False
    if not is_whole:
        raise UserError(
            f"{store.path(path)} is damaged; if nobody trains that trial, remove the file, and "
            "run the same command again"
        )
    return claim


def outwait(store: "Store", folder: str, watch: ClaimWatch, on_wait: Callable[[str], None]) -> None:
    """Return once a claim's owner is known to live or not to: at once, if it is on this machine
    or nobody is; else as soon as its counter is raised, or was not for :data:`STALE_SECONDS`.

    :param on_wait: is told once what is waited for.
    """
    first = None
    while (claim := holder(store, folder, watch)) is not None:
        if claim["process"]["machine"] == _machine() or (first and claim != first):
            return
        if first is None:
            first = claim
            on_wait(
                f"attempt {claim['attempt']} of another machine has not ended; waiting up to "
                f"{STALE_SECONDS:.0f} s for a sign of life"
            )
        time.sleep(POLL_SECONDS)


def give_back(store: "Store", folder: str, pid: int) -> None:
    """Release the newest claim of a folder for its process, if that is ``pid`` of this machine
    and was killed.
    """
    names = _names(store, folder)
    if not names:
        return
    path = f"{folder}/{names[-1]}"
    claim = _read(store, path)
    process = Process(**claim["process"])
    if process.pid == pid and process.is_gone():
        store.write_json(path, claim | {"released": True})


@contextlib.contextmanager
def owned(store: "Store", folder: str, watch: ClaimWatch, what: str) -> Iterator[Claim]:
    """A claim on a folder for the time of the block.

    :param what: is claimed, for messages.
    :raises Held: if a living owner has it.
    """
    # One listing for both: a claim that is made after it has the number that this one wants.
    names = _names(store, folder)
    living = _living(store, f"{folder}/{names[-1]}", watch) if names else None
    if living is not None:
        raise Held(
            f"{what}: attempt {living['attempt']} is running (process "
            f"{living['process']['pid']} of its machine); wait for its end, or stop it first"
        )
    attempt = int(names[-1].removesuffix(".json")) + 1 if names else 1
    claim = Claim(store, folder, attempt)
    claim.take()
    try:
        yield claim
    finally:
        claim.release()


def _names(store: "Store", folder: str) -> Sequence[str]:
    """Names of the claims in a folder, the newest last."""
    return [name for name in store.list(folder) if re.fullmatch(r"\d{4,}\.json", name)]
