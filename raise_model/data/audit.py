"""Which problems of a data set another one has seen.

Two problems are the same to a solver that generates answers if their nine panels (the eight
of the context and the right answer) are equal to the pixel, whatever the candidates.
Published RAVEN and I-RAVEN were drawn from one seed, so that many test problems of one are
training problems of the other; by chance alone a few problems of the small configurations
repeat too.
"""

import hashlib
import os
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from raise_model.data import schema
from raise_model.data.schema import Manifest
from raise_model.errors import UserError
from raise_model.matrix import NUM_PANELS
from raise_model.store import Store

CHANCE_SHARE = 0.01
"""Share of seen problems that chance alone never reaches in any configuration."""


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Problems of one data set whose nine panels are in another."""

    problems: int
    """Problems looked at."""
    seen: Mapping[int, int]
    """Index of each of them that is in the other, and its index there."""

    @property
    def share(self) -> float:
        return len(self.seen) / self.problems


def context_digests(
    store: Store, manifest: Manifest, cache: Path | None = None
) -> dict[int, bytes]:
    """SHA-256 of the nine panels (8 of the context, then the answer) of each problem, by index.

    In order of index.  Hashing ten thousand problems takes some seconds.

    :param cache: folder of this machine where they are kept for the next time.
    :raises UserError: if the data set cannot be read.
    """
    path = cache / f"{manifest.digest[:32]}-contexts.npz" if cache else None
    if path is not None and (kept := _kept(path)) is not None:
        return kept
    digests: dict[int, bytes] = {}
    for chunk in schema.read_chunks(store, manifest, ["index", "panels", "target"]):
        columns = (chunk.column(name).to_pylist() for name in ("index", "target"))
        for index, target, panels in zip(*columns, schema.panels_of(chunk), strict=True):
            sha = hashlib.sha256(panels[: NUM_PANELS - 1].data)
            sha.update(panels[NUM_PANELS - 1 + target].data)
            digests[index] = sha.digest()
    if path is not None:
        _keep(path, digests)
    return digests


def _kept(path: Path) -> dict[int, bytes] | None:
    """Digests kept by :func:`_keep`; None if there are none, or the file is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(zip(file["index"].tolist(), map(bytes, file["digest"]), strict=True))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _keep(path: Path, digests: Mapping[int, bytes]) -> None:
    index = np.fromiter(digests, np.int32, len(digests))
    raw = np.frombuffer(b"".join(digests.values()), np.uint8).reshape(-1, 32)
    temporary = path.with_name(f".hashing-{uuid.uuid4().hex}.npz")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(temporary, index=index, digest=raw)
        os.replace(temporary, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"cannot write the cache {path.parent}: {reason}; free space or choose another "
            "folder (RAISE_HOME)"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def overlap(
    store: Store,
    first: Sequence[Manifest],
    second: Sequence[Manifest],
    cache: Path | None = None,
) -> Overlap:
    """Problems of the splits ``second`` that are in the splits ``first``.

    :raises UserError: if a data set cannot be read.
    """
    known: dict[bytes, int] = {}
    for manifest in first:
        for index, digest in context_digests(store, manifest, cache).items():
            known.setdefault(digest, index)
    problems, seen = 0, {}
    for manifest in second:
        digests = context_digests(store, manifest, cache)
        problems += len(digests)
        seen |= {index: known[d] for index, d in digests.items() if d in known}
    return Overlap(problems=problems, seen=seen)


def seen_rows(
    store: Store, train: Manifest, test: Manifest, cache: Path | None = None
) -> Bool[np.ndarray, " problems"]:
    """Which problems of a split, in its order, have nine panels that training shows."""
    known = set(context_digests(store, train, cache).values())
    return np.array([d in known for d in context_digests(store, test, cache).values()])
