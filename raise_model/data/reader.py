"""One problem of a stored data set, by its name."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raise_model.data import schema
from raise_model.data.schema import Manifest, Problem
from raise_model.data.splits import SPLITS
from raise_model.errors import UserError
from raise_model.store import Store


def read_problem(store: Store, problem_id: str) -> tuple[Manifest, Problem]:
    """A problem and the split that it is in.

    :param problem_id: ``dataset/configuration/index``, e.g. ``raven/center/17``.
    :raises UserError: if the store has no such problem; it says what there is.
    """
    parts = problem_id.strip("/").split("/")
    if len(parts) != 3 or not parts[2].isdigit():
        raise UserError(
            f"{problem_id!r} names no problem; write data set, configuration and index, e.g. "
            "raven/center/17"
        )
    dataset, configuration, index = parts[0], parts[1], int(parts[2])
    manifests = [schema.find_manifest(store, dataset, configuration, split) for split in SPLITS]
    found = [manifest for manifest in manifests if manifest is not None]
    if not found:
        # Which of the three is asked for does not matter: none is there.
        schema.open_manifest(store, dataset, configuration, "test")
    for manifest in found:
        problem = _find(store, manifest, index)
        if problem is not None:
            return manifest, problem
    counts = ", ".join(f"{manifest.split} {manifest.problems}" for manifest in found)
    raise UserError(
        f"{dataset}/{configuration} has no problem {index}; it has {counts} problems in "
        f"{store.root}, of which indices end in 0-5 (train), 6-7 (val) and 8-9 (test)"
    )


def _find(store: Store, manifest: Manifest, index: int) -> Problem | None:
    """Reads the index column, then one row group."""
    for name in manifest.files:
        path = store.path(f"{manifest.folder}/{name}")
        try:
            with store.filesystem.open(path, "rb") as source:
                file = pq.ParquetFile(source)
                for group in range(file.num_row_groups):
                    indices = file.read_row_group(group, columns=["index"]).column("index")
                    row = pc.index(indices, index).as_py()
                    if row >= 0:
                        rows = file.read_row_group(group).slice(row, 1)
                        (chunk,) = rows.combine_chunks().to_batches()
                        return schema.problems_of(chunk)[0]
        except (OSError, pa.ArrowInvalid) as error:
            reason = str(error).splitlines()[0]
            raise UserError(
                f"{path} cannot be read ({reason}); delete its folder and make it again"
            ) from error
    return None
