"""The Parquet form of a data set, and its manifest.

One row a problem under ``datasets/dataset=<name>/configuration=<name>/split=<name>/``, in files
that the manifest lists; ``_manifest.json`` is created last, and what it does not list is not
read.  Panels are raw bytes of a fixed size: shape and dtype are in the field's metadata.

The digest of a split is the SHA-256 of its problems' SHA-256 digests, in order of index; a
problem's covers everything but its name.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec import AbstractFileSystem
from jaxtyping import UInt8

from raise_model.data.grammar import configuration as known_configuration
from raise_model.errors import UserError
from raise_model.store import Store

PANEL_SIZE = 160
PANELS_PER_PROBLEM = 16
ROW_GROUP = 256
_PAGE_ROWS = 64
"""The writer looks for the end of a page only after so many rows, and holds them until then."""
_PANEL_BYTES = PANELS_PER_PROBLEM * PANEL_SIZE * PANEL_SIZE

_RULE = pa.struct(
    [
        ("component", pa.int8()),
        ("attribute", pa.string()),
        ("rule", pa.string()),
        ("value", pa.int8()),
    ]
)
_LAYOUT = pa.struct(
    [
        ("component", pa.int8()),
        ("number", pa.int8()),
        ("position", pa.list_(pa.int8())),
        ("uniformity", pa.int8()),
    ]
)
_ENTITY = pa.struct(
    [(name, pa.int8()) for name in ("component", "slot", "type", "size", "color", "angle")]
)

SCHEMA = pa.schema(
    [
        pa.field("problem_id", pa.string()),
        pa.field("index", pa.int32()),
        pa.field(
            "panels",
            pa.binary(_PANEL_BYTES),
            metadata={
                "shape": json.dumps([PANELS_PER_PROBLEM, PANEL_SIZE, PANEL_SIZE]),
                "dtype": "uint8",
                "order": "C",
            },
        ),
        pa.field("target", pa.int8()),
        pa.field("rules", pa.list_(_RULE)),
        pa.field("layouts", pa.list_(pa.list_(_LAYOUT))),
        pa.field("entities", pa.list_(pa.list_(_ENTITY))),
        pa.field("modified", pa.list_(pa.list_(pa.string()))),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem in canonical form (see the column descriptions of the schema)."""

    index: int
    panels: UInt8[np.ndarray, "16 160 160"]
    """Eight context panels row by row, then the eight candidates; white = 255."""
    target: int
    """Which candidate is the answer, 0 to 7."""
    rules: Sequence[Mapping[str, Any]]
    """component, attribute, rule, value (step or sign; None where the source has none)."""
    layouts: Sequence[Sequence[Mapping[str, Any]]]
    """By panel: component, number (level: entities - 1), position (occupied slots), uniformity."""
    entities: Sequence[Sequence[Mapping[str, int]]]
    """By panel: component, slot and levels of type, size, color, angle."""
    modified: Sequence[Sequence[str]] | None
    """By candidate: what was changed in the answer; None where the source does not say."""

    def digest(self) -> bytes:
        annotations = {
            name: getattr(self, name)
            for name in ("index", "target", "rules", "layouts", "entities", "modified")
        }
        sha = hashlib.sha256(json.dumps(annotations, sort_keys=True).encode())
        sha.update(np.ascontiguousarray(self.panels).data)
        return sha.digest()


class Rows(Protocol):
    """Some problems that can be written."""

    @property
    def digests(self) -> Sequence[bytes]:
        """Of each problem, in order."""
        ...

    def table(self, prefix: str) -> pa.Table:
        """The rows; ``prefix`` is ``dataset/configuration``."""
        ...


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Problems as :class:`Rows`, their panels in one array."""

    problems: Sequence[Problem]
    panels: UInt8[np.ndarray, "problems 16 160 160"]
    """In C order; not copied, so that it may be filled anew once the chunk is written."""

    @classmethod
    def stack(cls, problems: Sequence[Problem]) -> "Chunk":
        """Copy the panels of problems that come from anywhere."""
        return cls(problems=problems, panels=np.stack([problem.panels for problem in problems]))

    @property
    def digests(self) -> Sequence[bytes]:
        return [problem.digest() for problem in self.problems]

    def table(self, prefix: str) -> pa.Table:
        columns: dict[str, Any] = {
            name: [getattr(problem, name) for problem in self.problems]
            for name in ("index", "target", "rules", "layouts", "entities", "modified")
        }
        columns["problem_id"] = [f"{prefix}/{problem.index}" for problem in self.problems]
        panels = pa.Array.from_buffers(
            pa.binary(_PANEL_BYTES), len(self.problems), [None, pa.py_buffer(self.panels)]
        )
        arrays = [
            panels if f.name == "panels" else pa.array(columns[f.name], f.type) for f in SCHEMA
        ]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)


def folder(dataset: str, configuration: str, split: str) -> str:
    """Path of a split below the store's root."""
    return f"datasets/dataset={dataset}/configuration={configuration}/split={split}"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What makes a split complete."""

    dataset: str
    configuration: str
    split: str
    problems: int
    digest: str
    files: Mapping[str, int]
    """Rows of each file, in order of index."""
    recipe: Mapping[str, Any]
    """What it was made from: the generator's seed and size, or the source of the files."""
    version: str
    """Version of raise-rpm that wrote it."""
    format: int = field(default=1)

    @property
    def folder(self) -> str:
        return folder(self.dataset, self.configuration, self.split)


def find_manifest(store: Store, dataset: str, configuration: str, split: str) -> Manifest | None:
    """The manifest of a complete split, else None.

    :raises UserError: if it is damaged.
    """
    place = folder(dataset, configuration, split)
    try:
        return Manifest(**store.read_json(f"{place}/_manifest.json"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{store.path(place)}/_manifest.json is damaged ({error}); delete that folder and make "
            "the data set again"
        ) from error


def open_manifest(store: Store, dataset: str, configuration: str, split: str) -> Manifest:
    """:raises UserError: if there is no such complete data set; it says how to make one."""
    manifest = find_manifest(store, dataset, configuration, split)
    if manifest is None:
        known_configuration(configuration)
        if dataset.endswith("_published"):
            advice = "read your files with: raise-rpm ingest PATH"
        else:
            source = dataset.removesuffix("_held_out")
            held_out = " --held-out" if source != dataset else ""
            advice = (
                f"make it with: raise-rpm (or python -m raise_model) generate --dataset {source} "
                f"--configuration {configuration}{held_out} --store {store.root}, or read your "
                f"own files with: raise-rpm ingest PATH --dataset {source}"
            )
        raise UserError(
            f"no data set {dataset}/{configuration}/{split} under {store.root}; {advice}"
        )
    return manifest


@contextlib.contextmanager
def open_part(store: Store, manifest: Manifest, name: str) -> Iterator[pq.ParquetFile]:
    """One file of a split; damaged pages are noticed as they are read.

    :raises UserError: if it is missing or damaged, also from reading it within the context.
    """
    path = store.path(f"{manifest.folder}/{name}")
    try:
        with store.filesystem.open(path, "rb") as source:
            yield pq.ParquetFile(source, page_checksum_verification=True)
    except (OSError, pa.ArrowInvalid) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{path} cannot be read ({reason}); delete its folder and make it again"
        ) from error


def check_files(store: Store, manifest: Manifest) -> None:
    """:raises UserError: if a file of a split is gone, cut short, or has other rows."""
    for name, rows in manifest.files.items():
        with open_part(store, manifest, name) as file:
            if file.metadata.num_rows != rows:
                raise pa.ArrowInvalid(f"it has {file.metadata.num_rows} problems, not {rows}")


def create_manifest(store: Store, manifest: Manifest) -> Manifest:
    """Make a split complete; the first of several writers wins.

    Files that the winning manifest does not list are leftovers, and are deleted.

    :raises UserError: if a complete split of other content is there.
    """
    path = f"{manifest.folder}/_manifest.json"
    own = [f"{manifest.folder}/{name}" for name in manifest.files]
    try:
        with _one_line_errors(store, path):
            store.create_json(path, asdict(manifest))
        winner = manifest
    except FileExistsError:
        winner = Manifest(**store.read_json(path))
        discard(store, own)
        if winner.digest != manifest.digest:
            raise UserError(
                f"{store.path(manifest.folder)} holds other problems (digest "
                f"{winner.digest[:12]}, not {manifest.digest[:12]}); choose another name with "
                "--dataset, or delete that folder"
            ) from None
    except BaseException:
        discard(store, own)
        raise
    for name in store.list(manifest.folder):
        if name.endswith(".parquet") and name not in winner.files:
            store.delete(f"{manifest.folder}/{name}")
    return winner


def discard(store: Store, paths: Iterable[str]) -> None:
    """Delete files that did not become part of a data set."""
    for path in paths:
        # The error that ended the work is the one to be seen; what stays is read by nobody.
        with contextlib.suppress(OSError):
            store.delete(path)


def combine_digests(digests: Iterable[bytes]) -> str:
    """Digest of a split from its problems' digests in order of index."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


@contextlib.contextmanager
def _one_line_errors(store: Store, path: str) -> Iterator[None]:
    """Turn what a full disk or a missing permission raises into a :class:`UserError`."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"cannot write {store.path(path)}: {reason}; free space or choose another store"
        ) from error


def _opened(filesystem: AbstractFileSystem, target: str) -> Any:
    filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
    return filesystem.open(target, "wb")


def write_file(store: Store, path: str, chunks: Iterable[Rows], prefix: str) -> list[bytes]:
    """Stream problems into one Parquet file; return their digests.

    The file counts only once a manifest lists it; it is deleted if writing fails.

    :raises UserError: if the store cannot be written.
    """
    digests: list[bytes] = []
    filesystem, target = store.filesystem, store.path(path)
    try:
        with (
            _one_line_errors(store, path),
            _opened(filesystem, target) as file,
            pq.ParquetWriter(
                file,
                SCHEMA,
                compression="zstd",
                compression_level=1,
                use_dictionary=False,
                write_batch_size=_PAGE_ROWS,
                write_page_checksum=True,
            ) as writer,
        ):
            for chunk in chunks:
                writer.write_table(chunk.table(prefix), row_group_size=ROW_GROUP)
                digests += chunk.digests
    except BaseException:
        discard(store, [path])
        raise
    return digests


def read_chunks(
    store: Store, manifest: Manifest, columns: Sequence[str], rows: int = 64
) -> Iterator[pa.RecordBatch]:
    """Some columns of a split in order of index, at most ``rows`` problems at a time.

    :raises UserError: if a file of the split is missing or damaged, or the problems are not as
        many as the manifest says.
    """
    problems = 0
    for name in manifest.files:
        with open_part(store, manifest, name) as file:
            for chunk in file.iter_batches(rows, columns=list(columns)):
                problems += len(chunk)
                yield chunk
    if problems != manifest.problems:
        raise UserError(
            f"{store.path(manifest.folder)} holds {problems} problems, not "
            f"{manifest.problems}; delete that folder and make it again"
        )


def panels_of(chunk: pa.RecordBatch) -> UInt8[np.ndarray, "problems 16 160 160"]:
    """The panels of some problems, without a copy."""
    column = chunk.column("panels")
    panels = np.frombuffer(column.buffers()[1], np.uint8)
    start = column.offset * _PANEL_BYTES
    return panels[start : start + len(column) * _PANEL_BYTES].reshape(
        -1, PANELS_PER_PROBLEM, PANEL_SIZE, PANEL_SIZE
    )


def problems_of(chunk: pa.RecordBatch) -> list[Problem]:
    """Rows with every column as problems; their panels are views of the chunk's memory."""
    names = ("index", "target", "rules", "layouts", "entities", "modified")
    columns = [chunk.column(name).to_pylist() for name in names]
    return [
        Problem(panels=panels, **dict(zip(names, values, strict=True)))
        for panels, *values in zip(panels_of(chunk), *columns, strict=True)
    ]
