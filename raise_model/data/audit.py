"""Which problems of a data set another one has seen.

Two problems are the same to a solver that generates answers if their nine panels (the eight
of the context and the right answer) are equal to the pixel, whatever the candidates.
Published RAVEN and I-RAVEN were drawn from one seed, so that many test problems of one are
training problems of the other; by chance alone a few problems of the small configurations
repeat too.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raise_model.data import schema
from raise_model.data.schema import Manifest
from raise_model.problem import NUM_PANELS
from raise_model.store import Store


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


def context_digests(store: Store, manifest: Manifest) -> dict[int, bytes]:
    """SHA-256 of the nine panels (8 of the context, then the answer) of each problem, by index.

    :raises UserError: if the data set cannot be read.
    """
    digests: dict[int, bytes] = {}
    for chunk in schema.read_chunks(store, manifest, ["index", "panels", "target"]):
        columns = (chunk.column(name).to_pylist() for name in ("index", "target"))
        for index, target, panels in zip(*columns, schema.panels_of(chunk), strict=True):
            sha = hashlib.sha256(panels[: NUM_PANELS - 1].data)
            sha.update(panels[NUM_PANELS - 1 + target].data)
            digests[index] = sha.digest()
    return digests


def overlap(store: Store, first: Sequence[Manifest], second: Sequence[Manifest]) -> Overlap:
    """Problems of the splits ``second`` that are in the splits ``first``.

    :raises UserError: if a data set cannot be read.
    """
    known: dict[bytes, int] = {}
    for manifest in first:
        for index, digest in context_digests(store, manifest).items():
            known.setdefault(digest, index)
    problems, seen = 0, {}
    for manifest in second:
        digests = context_digests(store, manifest)
        problems += len(digests)
        seen |= {index: known[d] for index, d in digests.items() if d in known}
    return Overlap(problems=problems, seen=seen)
