"""What the store says of its trials: done, running, failed, and how far.

One listing gives the files of every trial; only trials that are shown are looked into.  The
store knows no clocks, so a trial whose machine was lost reads ``running`` until its claim has
stood still for five minutes of the observer's clock; whoever goes on watching sees it silent.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from raise_model.claims import ClaimWatch
from raise_model.specs import TrialSpec
from raise_model.store import Store

State = Literal["done", "pruned", "running", "failed", "stopped"]
"""``stopped``: begun, and held by nobody; the next run goes on with it."""
READERS = 8
"""Requests to the store at once."""
_FAILED = " failed\n"


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file of the store."""

    size: int
    changed: float
    """Seconds since the epoch, on the clock of the store."""


@dataclass(frozen=True, kw_only=True)
class TrialState:
    """One trial as the store has it."""

    name: str
    state: State
    step: int
    """Of the newest checkpoint."""
    steps: int
    accuracy: float | None
    """Best on the validation problems so far."""
    attempt: int
    seconds: float
    """Of training so far."""
    silent_seconds: float = 0.0
    """For which this process has seen no sign of life of a running trial."""
    detail: str = ""
    """Last line of the log of a failed trial."""

    @property
    def seconds_left(self) -> float | None:
        """Of a running trial, at its mean speed; None before its first checkpoint."""
        if self.state != "running" or not self.step:
            return None
        return self.seconds / self.step * (self.steps - self.step)


def stored_files(store: Store, folder: str) -> dict[str, StoredFile]:
    """Every file below a folder, by path relative to the store; in one listing."""
    filesystem = store.filesystem
    root = filesystem._strip_protocol(store.path())
    found: Any = filesystem.find(store.path(folder), detail=True)
    return {
        path.removeprefix(f"{root}/"): StoredFile(size=info["size"] or 0, changed=_changed(info))
        for path, info in found.items()
    }


def _changed(info: Mapping[str, float | datetime]) -> float:
    value = info["mtime"] if "mtime" in info else info["LastModified"]
    return value.timestamp() if isinstance(value, datetime) else value


@dataclass
class Observer:
    """Looks at a store again and again; remembers which claims stood still."""

    store: Store
    _watch: ClaimWatch = field(default_factory=ClaimWatch)
    _known: dict[str, TrialState] = field(default_factory=dict)
    """Trials that have ended for good: what was read of them stays true."""

    def names(self) -> dict[str, set[str]]:
        """Names of the files of every trial, those of its subfolders included."""
        trials: dict[str, set[str]] = {}
        for path in stored_files(self.store, "trials"):
            _, name, rest = path.split("/", 2)
            trials.setdefault(name, set()).add(rest)
        return {name: files for name, files in trials.items() if "spec.json" in files}

    def counts(self) -> Counter[str]:
        """Trials by state."""
        trials = self.names()
        ended: dict[str, State | None] = {name: _ended(files) for name, files in trials.items()}
        counts: Counter[str] = Counter(state for state in ended.values() if state)
        counts.update(s.state for s in self.look(n for n, state in ended.items() if not state))
        return counts

    def look(self, names: Iterable[str] | None = None) -> list[TrialState]:
        """States of these trials, or of all, in order of name."""
        trials = self.names()
        chosen = sorted(trials if names is None else set(names) & trials.keys())
        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(lambda name: self._look(name, trials[name]), chosen))

    def _look(self, name: str, files: set[str]) -> TrialState:
        if name not in self._known:
            state = self._read(name, files)
            if state.state != "done":
                return state
            self._known[name] = state
        return self._known[name]

    def _read(self, name: str, files: set[str]) -> TrialState:
        folder = self.store.trial(name)
        spec = TrialSpec.from_json(self.store.read_json(folder.file("spec.json")))
        attempt = sum(file.startswith("claims/") for file in files)
        if "done.json" in files:
            done = folder.done()
            return TrialState(
                name=name, state="done", step=spec.steps, steps=spec.steps, attempt=attempt,
                accuracy=done["validation_accuracy"], seconds=done["seconds"],
            )  # fmt: skip
        state, detail, silent = _ended(files), "", 0.0
        if state is None and (claim := folder.holder()) is not None:
            state = "running"
            silent = self._watch.still_for(name, (claim["owner"], claim["counter"]))
        elif state is None:
            detail = self._failure(folder.file("log.txt"), attempt) if "log.txt" in files else ""
            state = "failed" if detail else "stopped"
        step, accuracy, seconds = self._newest(name, files)
        return TrialState(
            name=name, state=state, step=step, steps=spec.steps, accuracy=accuracy,
            attempt=attempt, seconds=seconds, silent_seconds=silent, detail=detail,
        )  # fmt: skip

    def _newest(self, name: str, files: set[str]) -> tuple[int, float | None, float]:
        """Step, best accuracy and seconds of the newest checkpoint."""
        saved = sorted(f for f in files if f.startswith("last-") and f.endswith(".json"))
        for file in reversed(saved):
            try:
                described = self.store.read_json(f"trials/{name}/{file}")
            except FileNotFoundError:  # a newer one came since the listing, and it went
                continue
            meta = described["meta"]
            return described["step"], meta["best_accuracy"], meta["seconds"]
        return 0, None, 0.0

    def _failure(self, log: str, attempt: int) -> str:
        """Last line of the traceback, if the newest attempt ended in one."""
        text = self.store.read(log).decode(errors="replace")
        _, found, trace = text.rpartition(f" attempt {attempt}{_FAILED}")
        return trace.strip().rpartition("\n")[2] if found else ""


def _ended(files: set[str]) -> State | None:
    """Whether a trial has ended for good, as the names of its files tell."""
    if "done.json" in files:
        return "done"
    return "pruned" if "pruned.json" in files else None
