"""Whole problems back from the Parquet form, by their names."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raise_model.data import schema
from raise_model.data.schema import SCHEMA, Manifest, Problem
from raise_model.data.splits import SPLITS, split_of
from raise_model.errors import UserError
from raise_model.store import Store

_ROWS = 16
"""Problems decoded at once; their panels take 6.5 MB."""


def find_manifests(store: Store, dataset: str, configuration: str) -> Sequence[Manifest]:
    """The complete splits of a data set, in the order train, val, test.

    :raises UserError: if there is none; it says how to make the data set.
    """
    found = [schema.find_manifest(store, dataset, configuration, split) for split in SPLITS]
    complete = [manifest for manifest in found if manifest is not None]
    if not complete:
        schema.open_manifest(store, dataset, configuration, SPLITS[0])
    return complete


def read_problem(store: Store, problem_id: str) -> tuple[Manifest, Problem]:
    """One problem and the manifest of its split.

    :param problem_id: ``dataset/configuration/index``.
    :raises UserError: if it is not written so, or there is no such problem; it says which
        indices there are, or how to make the data set.
    """
    dataset, configuration, index = _parts(problem_id)
    manifests = find_manifests(store, dataset, configuration)
    # Where the split follows from the index, the right one comes first.
    likely = split_of(index)
    for manifest in sorted(manifests, key=lambda m: m.split != likely):
        problem = _read_row(store, manifest, index)
        if problem is not None:
            return manifest, problem
    raise UserError(_absent(store, manifests, index))


def names_from(
    store: Store, dataset: str, configuration: str, first: int, number: int
) -> list[str]:
    """Names of the first problems, at most ``number``, whose index is ``first`` or higher.

    :raises UserError: if the data set has none.
    """
    manifests = find_manifests(store, dataset, configuration)
    indices = sorted(index for manifest in manifests for index in _indices(store, manifest))
    found = [f"{dataset}/{configuration}/{index}" for index in indices if index >= first]
    if not found:
        raise UserError(_absent(store, manifests, first))
    return found[:number]


def _indices(store: Store, manifest: Manifest) -> Sequence[int]:
    chunks = schema.read_chunks(store, manifest, ["index"], rows=4096)
    return [index for chunk in chunks for index in chunk.column("index").to_pylist()]


def _parts(problem_id: str) -> tuple[str, str, int]:
    parts = problem_id.strip("/").split("/")
    if len(parts) != 3 or not parts[2].isdecimal() or len(parts[2]) > 9:
        raise UserError(
            f"{problem_id!r} is no problem id; write it as dataset/configuration/index, e.g. "
            "raven/center/8"
        )
    return parts[0], parts[1], int(parts[2])


def _read_row(store: Store, manifest: Manifest, index: int) -> Problem | None:
    """The problem with an index, None if the split lacks it."""
    for name in manifest.files:
        with schema.open_part(store, manifest, name) as file:
            indices = file.read(["index"]).column("index").to_numpy()
            (rows,) = np.nonzero(indices == index)
            if len(rows):
                return _row(file, int(rows[0]))
    return None


def _row(file: pq.ParquetFile, row: int) -> Problem:
    """One row of a file; only its row group is read."""
    group = 0
    while row >= (rows := file.metadata.row_group(group).num_rows):
        row -= rows
        group += 1
    for chunk in file.iter_batches(_ROWS, row_groups=[group], columns=SCHEMA.names):
        if row < len(chunk):
            return schema.problems_of(chunk.slice(row, 1))[0]
        row -= len(chunk)
    raise pa.ArrowInvalid("a row group is shorter than its metadata says")


def _absent(store: Store, manifests: Sequence[Manifest], index: int) -> str:
    """What to say of an index that no complete split has."""
    place = f"{manifests[0].dataset}/{manifests[0].configuration}"
    spans = []
    for manifest in manifests:
        indices = _indices(store, manifest)
        spans.append(
            f"{manifest.split} has {len(indices)} problems, {min(indices)} to {max(indices)}"
        )
    missing = [split for split in SPLITS if split not in {m.split for m in manifests}]
    if missing:
        spans.append(f"{', '.join(missing)} not made")
    return f"no problem {index} in {place} under {store.root}: {'; '.join(spans)}"
