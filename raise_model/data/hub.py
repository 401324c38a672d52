"""Parquet files of the public dataset hub.

One row a problem: ``panels`` and ``choices`` (lists of PNG images, as bytes or as a struct with
``bytes``), ``target``, ``id`` (the index of the published files) and ``metadata`` (the XML).
The folder says the configuration, the file or its folder the split.  Nothing but ``id`` tells
the index, so files without that column are refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from raise_model.data import grammar
from raise_model.data.published import Images
from raise_model.errors import UserError

_SPLITS = {"train": "train", "validation": "val", "val": "val", "test": "test"}
_COLUMNS = ("panels", "choices", "target", "metadata")
_BATCH = 32
"""Rows of some 60 kB that are in memory at a time, beside those that are wanted."""


@dataclass(frozen=True, kw_only=True)
class Place:
    configuration: str
    split: str
    root: str


def place(path: str) -> Place | None:
    """What the path of a file says; None if it is not laid out as the hub's files are."""
    folder, _, name = path.removesuffix(".parquet").rpartition("/")
    split = _SPLITS.get(name.partition("-")[0])
    if split is None:
        folder, _, name = folder.rpartition("/")
        split = _SPLITS.get(name)
    root, _, published = folder.rpartition("/")
    configuration = grammar.by_folder(published)
    if split is None or configuration is None:
        return None
    return Place(configuration=configuration, split=split, root=root)


def read_ids(path: str) -> Sequence[int]:
    """The index of the problem in each row.

    :raises UserError: if the file is damaged or lacks a column.
    """
    with _opened(path) as file:
        names = set(file.schema_arrow.names)
        if missing := [name for name in ("id", *_COLUMNS) if name not in names]:
            raise UserError(
                f"{path} has no column {missing[0]}; the hub's files have "
                f"{', '.join(('id', *_COLUMNS))}"
            )
        return [-1 if index is None else int(index) for index in _ids(file)]


def _ids(file: pq.ParquetFile) -> Iterator[int | None]:
    for batch in file.iter_batches(columns=["id"]):
        yield from batch.column("id").to_pylist()


def read_rows(path: str, rows: Sequence[int]) -> dict[int, Images]:
    """Some rows, by number.

    :raises UserError: if the file is damaged.
    """
    wanted = set(rows)
    read: dict[int, Images] = {}
    with _opened(path) as file:
        start = 0
        for group in range(file.num_row_groups):
            end = start + file.metadata.row_group(group).num_rows
            if not wanted.isdisjoint(range(start, end)):
                row = start
                for batch in file.iter_batches(_BATCH, row_groups=[group], columns=_COLUMNS):
                    for place in range(len(batch)):
                        if row + place in wanted:
                            read[row + place] = _images(batch, place)
                    row += len(batch)
            start = end
    return read


def _images(batch: pa.RecordBatch, row: int) -> Images:
    values = {name: batch.column(name)[row].as_py() for name in _COLUMNS}
    target, xml = values["target"], values["metadata"]
    return Images(
        pngs=[_png(image) for name in ("panels", "choices") for image in values[name] or ()],
        target=target if isinstance(target, int) else None,
        xml=xml.encode() if isinstance(xml, str) else xml or b"",
    )


def _png(image: Mapping[str, bytes | None] | bytes | None) -> bytes:
    return (image.get("bytes") if isinstance(image, Mapping) else image) or b""


@contextmanager
def _opened(path: str) -> Iterator[pq.ParquetFile]:
    """:raises UserError: if the file is damaged."""
    try:
        with fsspec.open(path, "rb") as source, pq.ParquetFile(source) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or ["unknown"])[0]
        raise UserError(f"{path} cannot be read ({reason}); fetch it again") from error
