"""Checkpoints: tensors in one file, what describes them in a JSON file written after it.

``<kind>-<step>.pt`` (torch, loads with ``weights_only``) and ``<kind>-<step>.json`` with the
SHA-256 of the tensors.  A pair without its JSON, or whose bytes do not match, does not
exist: a process killed in the middle leaves the checkpoint before.  Older pairs are
deleted only once a newer one is complete.
"""

import hashlib
import io
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from raise_model.errors import UserError
from raise_model.models.solver import Solver
from raise_model.store import TrialFolder

Kind = Literal["last", "best"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One complete pair."""

    step: int
    tensors: dict[str, Any]
    meta: dict[str, Any]

    @property
    def rounded_to(self) -> str | None:
        """Precision that imported weights were rounded to; None for those of the training."""
        return self.meta.get("rounded_to")


def save(
    folder: TrialFolder, kind: Kind, step: int, tensors: Mapping[str, Any], meta: Mapping[str, Any]
) -> None:
    """Write one checkpoint; older ones of its kind stay until :func:`prune`."""
    buffer = io.BytesIO()
    torch.save(dict(tensors), buffer)
    data = buffer.getvalue()
    name = f"{kind}-{step:08d}"
    folder.store.write(folder.file(f"{name}.pt"), data)
    description = {"step": step, "sha256": hashlib.sha256(data).hexdigest(), "meta": dict(meta)}
    folder.store.write_json(folder.file(f"{name}.json"), description)


def prune(folder: TrialFolder, kind: Kind, keep: int) -> None:
    """Delete every checkpoint of a kind but that of step ``keep``."""
    for name in folder.store.list(folder.path):
        if name.startswith(f"{kind}-") and not name.startswith(f"{kind}-{keep:08d}."):
            folder.store.delete(folder.file(name))


def load(folder: TrialFolder, kind: Kind, *, step: int | None = None) -> Checkpoint | None:
    """The newest complete checkpoint of a kind (or that of ``step``), None without one.

    A damaged one is passed over with a warning in the log.
    """
    names = [
        name.removesuffix(".json")
        for name in folder.store.list(folder.path)
        if name.startswith(f"{kind}-") and name.endswith(".json")
    ]
    for name in reversed(names):
        if step is not None and name != f"{kind}-{step:08d}":
            continue
        if (found := _load_pair(folder, name)) is not None:
            return found
        _log.warning("%s is damaged and passed over", folder.store.path(folder.file(name)))
    return None


def _load_pair(folder: TrialFolder, name: str) -> Checkpoint | None:
    """A pair, None if it is not whole."""
    store = folder.store
    try:
        description = store.read_json(folder.file(f"{name}.json"))
        data = store.read(folder.file(f"{name}.pt"))
        if hashlib.sha256(data).hexdigest() != description["sha256"]:
            return None
        step, meta = description["step"], description["meta"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    tensors = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return Checkpoint(step=step, tensors=tensors, meta=meta)


def load_best(folder: TrialFolder, solver: Solver) -> Checkpoint:
    """Load the best weights (all parameters and buffers) of a finished trial into a solver;
    return what was loaded.

    :raises UserError: if the trial is unfinished or its weights are missing or damaged.
    """
    where = folder.store.path(folder.path)
    if not folder.is_done:
        raise UserError(f"{where}: the training is not finished; run it first")
    step = folder.done()["best_step"]
    checkpoint = load(folder, "best", step=step)
    if checkpoint is None:
        raise UserError(
            f"{where}: best-{step:08d}.pt is missing or damaged; restore it, "
            "or delete the trial's folder to train it again"
        )
    solver.load_state_dict(checkpoint.tensors["solver"])
    return checkpoint
