"""What a long-lived store and home keep that nobody needs any more.

Never on the list: anything of a trial that is held or unfinished (its newest checkpoint is
where the next run goes on), and of a finished trial everything but what only a resumed training
would read.
"""

import math
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flows.trial_states import StoredFile, stored_files
from raise_model.atomic_write import TEMPORARY
from raise_model.errors import UserError
from raise_model.store import Store, check_exists
from tune_spaces.home import SWEEP_FOLDERS

Kind = Literal["checkpoint", "half-written", "cache", "log"]
DAYS = 7.0
"""Half-written files, arrays and logs that have not changed for so long are listed."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something to delete: a file of the store, or a file or folder of this machine."""

    kind: Kind
    path: str
    """Relative to the store for ``checkpoint`` and ``half-written``, else absolute."""
    size: int
    """Bytes."""
    why: str

    @property
    def is_stored(self) -> bool:
        return self.kind in ("checkpoint", "half-written")


def find_items(
    store: Store, home: Path, *, days: float = DAYS, services: Collection[str] = ()
) -> list[Item]:
    """Everything that may go, of a store and of this machine; deletes nothing.

    :param services: names of services of the home that run: their logs stay.
    :raises UserError: if there is no such store (its arrays would seem to be of nobody), or
        ``days`` is no number above 0.
    """
    if not (math.isfinite(days) and days > 0):
        raise UserError(f"--days {days:g}: give a number of days above 0")
    check_exists(store)
    before = time.time() - 86400 * days
    files = stored_files(store, "")
    return [
        *_checkpoints(store, files),
        *_half_written(files, before),
        *_arrays(home / "cache", files, store, before),
        *_logs(home, services, before),
        *_folders(Path(tempfile.gettempdir()), before),
    ]


def _checkpoints(store: Store, files: Mapping[str, StoredFile]) -> Iterator[Item]:
    """Of finished trials, what only a resumed training would read."""
    trials: dict[str, list[str]] = {}
    for path in files:
        parts = path.split("/")
        if parts[0] == "trials" and len(parts) == 3 and parts[2].startswith("last-"):
            trials.setdefault(parts[1], []).append(path)
    for name, paths in trials.items():
        if f"trials/{name}/done.json" in files and store.trial(name).holder() is None:
            # Without its description a checkpoint does not exist, so that goes first.
            for path in sorted(paths, key=lambda path: (path.endswith(".pt"), path)):
                why = "the training is finished"
                yield Item(kind="checkpoint", path=path, size=files[path].size, why=why)


def _half_written(files: Mapping[str, StoredFile], before: float) -> Iterator[Item]:
    for path, file in files.items():
        if path.rpartition("/")[2].startswith(TEMPORARY) and file.changed < before:
            why = "whoever wrote it was killed"
            yield Item(kind="half-written", path=path, size=file.size, why=why)


def _arrays(
    cache: Path, files: Mapping[str, StoredFile], store: Store, before: float
) -> Iterator[Item]:
    """Derived arrays of data sets that the store does not have."""
    manifests = [path for path in files if path.endswith("/_manifest.json")]
    digests = {store.read_json(path)["digest"][:32] for path in manifests}
    for path in _old(cache.glob("*"), before):
        if path.name.partition("-")[0] not in digests:
            why = f"not of a data set in {store.root}; made again when needed"
            yield Item(kind="cache", path=str(path), size=_size(path), why=why)


def _logs(home: Path, services: Collection[str], before: float) -> Iterator[Item]:
    for path in _old((home / "logs").glob("*.log"), before):
        if path.stem not in services:
            yield Item(kind="log", path=str(path), size=_size(path), why="its service is down")
    if "ray" not in services:
        for path in _old((home / "ray").glob("session_2*"), before):
            yield Item(kind="log", path=str(path), size=_size(path), why="of an ended Ray session")


def _folders(folder: Path, before: float) -> Iterator[Item]:
    for path in _old(folder.glob(f"{SWEEP_FOLDERS}*"), before):
        if path.owner() == Path.home().owner():
            yield Item(kind="log", path=str(path), size=_size(path), why="its sweep was killed")


def _old(paths: Iterable[Path], before: float) -> Iterator[Path]:
    """Those in which nothing has changed lately."""
    for path in sorted(paths):
        if max(p.lstat().st_mtime for p in (path, *path.rglob("*"))) < before:
            yield path


def _size(path: Path) -> int:
    return sum(p.lstat().st_size for p in (path, *path.rglob("*")) if not p.is_dir())


def delete(store: Store, items: Sequence[Item]) -> None:
    """Delete what :func:`find_items` has found; what is gone already is no error."""
    for item in items:
        if item.is_stored:
            store.delete(item.path)
        elif Path(item.path).is_dir():
            shutil.rmtree(item.path)
        else:
            Path(item.path).unlink(missing_ok=True)
