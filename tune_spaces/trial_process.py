"""A fresh process for every trial, forked from one that has torch imported already.

Starting a Ray worker and importing torch into it takes seconds of processor time for each
trial, taken from the trials that run beside it.  A Ray actor keeps its slot for many trials
instead, and owns one *nursery*: a process without Ray that imports :mod:`raise_model` once
and forks a child for each trial.  The child has nothing of an earlier trial: memory, GPU
context, random state and file handles are its own, and killing it harms no other trial.

The nursery is single-threaded and never touches a GPU, so that forking it is safe.  It ends
when the actor's end of the connection closes, and a child ends with its nursery, so that
nothing outlives a killed actor.  Only a small process stays a moment, to give the claim of a
killed child back: other machines could not tell that it is gone.
"""

import gc
import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import pyarrow

from raise_model.claims import Process
from raise_model.specs import TrialSpec
from raise_model.store import Store

GIVE_BACK_SECONDS = 120.0
"""For so long a killed process may take to be gone, and the store to answer."""
PRELOADED = (
    "raise_model.training.trial",
    "raise_model.models.raise_net.model",
    # Imported by torch at the first optimiser step or by the label loss, not before.
    "torch._dynamo",
    "scipy.optimize",
)
Outcome = Literal["done", "held", "refused", "memory", "failed"]
SIGKILLED = "SIGKILL; out of memory?"
STOP = "stop"
"""What an actor says to give the trial up that runs."""


class TrialDied(RuntimeError):
    """The process of a trial ended without a word: killed, or out of memory."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a trial's process ended."""

    outcome: Outcome
    reason: str = ""
    """One line; empty when done."""


def spec_of(request: Mapping[str, Any]) -> TrialSpec:
    """The training that is asked for: JSON as text, since Tune looks into everything else."""
    return TrialSpec.from_json(json.loads(request["spec"]))


class Nursery:
    """The actor's side: starts the nursery process, runs one trial at a time in a child."""

    def __init__(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        environment = os.environ | {
            # The actor's import path: Ray extends it beyond PYTHONPATH.
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            # Thread pools that importing starts would make forking unsafe; a trial sets the
            # number of torch's threads itself.
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        # A working directory that cannot vanish: Tune's own may.  A session of its own: Ray
        # kills the process group of a worker at once, and nobody could give the claim back.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tune_spaces.trial_process", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
        theirs.close()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def run(self, request: Mapping[str, Any]) -> Generator[dict[str, float] | Ended, None, None]:
        """Rows of the training curve as they come, then one :class:`Ended`.

        Closed before its end it kills the child; what the store has of the trial stays.

        :raises TrialDied: if the child or the nursery was killed.
        """
        message: Any = None
        try:
            self._connection.send(dict(request))
            while True:
                message = self._connection.recv()
                if isinstance(message, int):
                    raise TrialDied(_describe_exit(message))
                yield message
                if isinstance(message, Ended):
                    return
        except GeneratorExit:
            if not isinstance(message, Ended):
                self._give_up()
            raise
        except (EOFError, ConnectionError) as error:
            raise TrialDied("the trial's parent process was killed") from error

    def _give_up(self) -> None:
        """Have the child killed, and read on until the nursery has said so."""
        try:
            self._connection.send(STOP)
            while not isinstance(self._connection.recv(), (int, Ended)):
                pass
        except (EOFError, ConnectionError):
            self._process.kill()


def _describe_exit(code: int) -> str:
    if code == -signal.SIGKILL:
        return f"the trial's process was killed ({SIGKILLED})"
    if code < 0:
        return f"the trial's process was killed by signal {-code}"
    return f"the trial's process ended with status {code} before the training did"


class _NoPandas:
    """An import hook that finds no pandas."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used in trials", name=name)


def _preload() -> None:
    """Import what every trial needs, and nothing that none does."""
    # pyarrow imports pandas as soon as an array is made, a second in every trial, unless it
    # looked before and found none; it looks once.
    hook: Any = _NoPandas()
    sys.meta_path.insert(0, hook)
    try:
        pyarrow.array([0.0])
    finally:
        sys.meta_path.remove(hook)
    for module in PRELOADED:
        importlib.import_module(module)
    # The children's garbage collector would walk, and so copy, all that was just imported.
    gc.collect()
    gc.freeze()


def _serve(actor: Connection) -> None:
    """Fork a child for each request and pass its messages on, until the actor is gone."""
    _preload()
    fork = multiprocessing.get_context("fork")
    while True:
        try:
            request = actor.recv()
        except (EOFError, ConnectionError):
            return
        if request == STOP:  # of a trial that ended in the same moment
            continue
        ours, theirs = fork.Pipe(duplex=False)
        child = fork.Process(target=_train, args=(theirs, request), daemon=True)
        child.start()
        theirs.close()
        try:
            ended = _relay(ours, actor)
        except (EOFError, ConnectionError):
            _kill(child, request)
            return
        except _Stopped:
            _kill(child, request)
            ended = None
        else:
            if ended is None:
                _give_back_later(request, child.pid)
        # A child that has said how it ended gets a moment to leave; its work is done.
        child.join(timeout=5 if ended else None)
        if child.is_alive():
            child.kill()
            child.join()
        ours.close()
        actor.send(ended if ended else child.exitcode)


def _kill(child: BaseProcess, request: Mapping[str, Any]) -> None:
    """Kill a child; in this order, since Ray may kill this process at any moment.

    Then either the child notices and gives its claim back, or somebody waits for it already.
    """
    try:
        _give_back_later(request, child.pid)
    finally:
        child.kill()
        child.join()


class _Stopped(Exception):
    """The actor gives the trial up."""


def _relay(child: Connection, actor: Connection) -> Ended | None:
    """Pass the child's rows to the actor; its last word, or None if it ended without.

    :raises EOFError: if the actor is gone.
    :raises _Stopped: if it gives the trial up.
    """
    while True:
        if actor in wait([child, actor]):
            # The actor says nothing else during a trial.
            actor.recv()
            raise _Stopped
        try:
            message = child.recv()
        except (EOFError, OSError):
            return None
        if isinstance(message, Ended):
            return message
        actor.send(message)


def _give_back_later(request: Mapping[str, Any], pid: int | None) -> None:
    """Give the claim of a process back once it is gone, from a process that nobody waits for.

    Not from the nursery: S3 clients have threads.
    """
    trial = spec_of(request).name
    given_back = subprocess.Popen(
        [sys.executable, "-m", "tune_spaces.trial_process", "give-back", request["store"],
         trial, str(pid)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    # It ends by itself, which nobody needs to be warned of.
    given_back.returncode = 0


def _give_back(root: str, trial: str, pid: int) -> None:
    process = Process.of(pid)
    deadline = time.monotonic() + GIVE_BACK_SECONDS
    while process and not process.is_gone() and time.monotonic() < deadline:
        time.sleep(0.1)
    while True:
        try:
            Store(root).trial(trial).give_back(pid)
        except Exception:
            # What killed the trial may have taken the network along.  S3 clients have errors of
            # their own; if the store stays away, others wait until the claim has stood still.
            if time.monotonic() > deadline:
                raise
            time.sleep(5)
        else:
            return


def _end_with_parent(request: Mapping[str, Any]) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    try:
        _give_back_later(request, os.getpid())
    finally:
        os._exit(1)


def _train(connection: Connection, request: Mapping[str, Any]) -> None:
    """In the child."""
    threading.Thread(
        target=_end_with_parent, args=(request,), daemon=True, name="end-with-parent"
    ).start()
    _train_and_say(connection.send, request)


def _train_and_say(say: Callable[[Any], None], request: Mapping[str, Any]) -> None:
    """Train; say the rows, and last how it ended."""
    import torch

    from raise_model.claims import ClaimLost, Held
    from raise_model.errors import UserError
    from raise_model.training.trial import run_trial

    store = Store(request["store"], patient=True)
    store.claim_watch.trust(json.loads(request["abandoned"]))
    try:
        run_trial(
            store,
            spec_of(request),
            device=request["device"],
            threads=request["threads"],
            cache=Path(request["cache"]),
            report=say,
        )
        ended = Ended(outcome="done")
    except (Held, ClaimLost) as error:
        ended = Ended(outcome="held", reason=str(error))
    except UserError as error:
        # The same again at every attempt: not worth a second one.
        ended = Ended(outcome="refused", reason=_one_line(error))
    except (torch.OutOfMemoryError, MemoryError) as error:
        # At once again beside the same others would end the same way.
        ended = Ended(outcome="memory", reason=_one_line(error))
    except Exception as error:
        # The traceback is in the trial's log; the store or the memory may be back next time.
        ended = Ended(outcome="failed", reason=_one_line(error))
    say(ended)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or "no message"
    name = type(error).__name__
    return text if name == "UserError" else f"{name}: {text}"


if __name__ == "__main__":
    # Under its own name, so that what is sent can be read at the other end.
    from tune_spaces import trial_process

    if sys.argv[1] == "give-back":
        trial_process._give_back(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        trial_process._serve(Connection(int(sys.argv[1])))
