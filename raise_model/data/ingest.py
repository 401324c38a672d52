"""Published RAVEN and I-RAVEN problems to Parquet, from any of the sources of :mod:`.sources`.

The same problems make the same tables and digests, whatever they are read from.  A damaged,
unpaired or repeated problem is left out and reported with its reason; a damaged archive or hub
file ends the work, and nothing of it stays.
"""

import re
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from raise_model.data import schema, sources
from raise_model.data.annotations import names_modified, read_annotations
from raise_model.data.bad_file import BadFile
from raise_model.data.columns import Columns
from raise_model.data.generate import SEEDS
from raise_model.data.processes import map_in_processes
from raise_model.data.schema import Manifest
from raise_model.data.sources import Found, Rejected
from raise_model.errors import UserError
from raise_model.store import Store
from raise_model.version import package_version

FILE_PROBLEMS = 512
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class IngestReport:
    manifests: Sequence[Manifest]
    rejected: Sequence[Rejected]


@dataclass(frozen=True, kw_only=True)
class _File:
    """One Parquet file to be written by a worker."""

    path: str
    prefix: str
    problems: tuple[Found, ...]


@dataclass(frozen=True, kw_only=True)
class _Written:
    file: _File
    digests: Sequence[bytes]
    rejected: Sequence[Rejected]


def _write(root: str, file: _File) -> _Written:
    rejected: list[Rejected] = []

    def chunks() -> Iterator[Columns]:
        columns = Columns(min(schema.ROW_GROUP, len(file.problems)))
        for found, source in sources.read(file.problems):
            try:
                if isinstance(source, BadFile):
                    raise source
                target = source.read_panels(columns.next_panels)
                annotations = read_annotations(source.xml, found.configuration)
            except BadFile as error:
                rejected.append(Rejected(path=found.name, reason=str(error)))
                continue
            columns.append(found.index, target, annotations)
            if columns.full:
                yield columns
                columns.clear()
        if len(columns):
            yield columns

    digests = schema.write_file(Store(root), file.path, chunks(), file.prefix)
    return _Written(file=file, digests=digests, rejected=rejected)


def _is_iraven(problems: Sequence[Found]) -> bool:
    """I-RAVEN's files name the modified attributes of each candidate."""
    for found in problems:
        try:
            return names_modified(sources.read_xml(found))
        except BadFile:
            continue
    return False


def ingest(
    store: Store,
    paths: Sequence[Path | str],
    *,
    dataset: str | None = None,
    strict: bool = False,
    workers: int = 1,
    progress: Progress | None = None,
) -> IngestReport:
    """Read every problem under ``paths`` into Parquet.

    :param paths: folders, archives or hub files, or fsspec URIs of such.  Configurations side
        by side in a folder are one data set, and their files say whether it is I-RAVEN's.
    :param dataset: name of the data set; None for ``raven_published`` or
        ``iraven_published``, as the files of each folder say.
    :param strict: fail, and leave nothing, if any file is rejected.
    :param workers: processes; with more than one, they must reach the paths too (not
        ``memory://``).
    :raises UserError: for paths that cannot be read or hold no problem, a data set of that name
        with other content, a store that cannot be written, or rejected files under ``strict``.
    """
    if dataset is not None:
        _check_name(dataset)
    with tempfile.TemporaryDirectory(prefix="raise-ingest-") as scratch:
        found, rejected = sources.find(paths, Path(scratch))
        roots: dict[str, list[Found]] = defaultdict(list)
        for problem in found:
            roots[problem.root].append(problem)
        groups: dict[tuple[str, str, str], list[Found]] = defaultdict(list)
        for problems in roots.values():
            name = dataset or ("iraven_published" if _is_iraven(problems) else "raven_published")
            for problem in problems:
                groups[name, problem.configuration, problem.split].append(problem)
        for key, problems in groups.items():
            groups[key], repeated = _without_repeated(problems)
            rejected += repeated
        return _ingest(store, groups, rejected, strict, workers, progress)


def _check_name(dataset: str) -> None:
    """:raises UserError: for a name that is no folder's, or that the generator's data have."""
    if not re.fullmatch(r"[a-z0-9_]+", dataset):
        raise UserError(
            f"{dataset!r} is no name of a data set; use small letters, digits and underscores"
        )
    if dataset.removesuffix("_held_out") in SEEDS:
        raise UserError(
            f"{dataset} is the name of generated data; choose another, e.g. my_{dataset}"
        )


def _ingest(
    store: Store,
    groups: Mapping[tuple[str, str, str], Sequence[Found]],
    rejected: list[Rejected],
    strict: bool,
    workers: int,
    progress: Progress | None,
) -> IngestReport:
    files = [file for key, problems in groups.items() for file in _files(key, problems)]
    written = _write_all(store, files, workers, progress)
    rejected += [bad for done in written for bad in done.rejected]
    if strict and rejected:
        _delete(store, files)
        first = rejected[0]
        raise UserError(
            f"{len(rejected)} files rejected, nothing ingested (--strict); first: "
            f"{first.path}: {first.reason}"
        )
    manifests: list[Manifest] = []
    try:
        for key in groups:
            own = [done for done in written if done.file.path.startswith(_folder(key))]
            manifests += _complete(store, key, own)
    except BaseException:
        complete = {f"{made.folder}/{name}" for made in manifests for name in made.files}
        _delete(store, [file for file in files if file.path not in complete])
        raise
    if not manifests:
        first = rejected[0]
        raise UserError(
            f"nothing could be read, {len(rejected)} files or problems rejected; first: "
            f"{first.path}: {first.reason}"
        )
    return IngestReport(manifests=manifests, rejected=rejected)


def _without_repeated(problems: Sequence[Found]) -> tuple[list[Found], list[Rejected]]:
    """The first problem of every index, and the others with the reason."""
    first: dict[int, Found] = {}
    rejected = []
    for problem in problems:
        if (kept := first.setdefault(problem.index, problem)).name != problem.name:
            reason = f"index {problem.index} is in {kept.name} too; ingest them as two data sets"
            rejected.append(Rejected(path=problem.name, reason=reason))
    return list(first.values()), rejected


def _folder(key: tuple[str, str, str]) -> str:
    return schema.folder(*key) + "/"


def _files(key: tuple[str, str, str], problems: Sequence[Found]) -> Iterator[_File]:
    token = uuid.uuid4().hex[:8]
    ordered = sorted(problems, key=lambda problem: problem.index)
    for start in range(0, len(ordered), FILE_PROBLEMS):
        yield _File(
            path=f"{_folder(key)}part-{token}-{start // FILE_PROBLEMS:05d}.parquet",
            prefix=f"{key[0]}/{key[1]}",
            problems=tuple(ordered[start : start + FILE_PROBLEMS]),
        )


def _write_all(
    store: Store, files: Sequence[_File], workers: int, progress: Progress | None
) -> Sequence[_Written]:
    """Write every file, in order; on any failure none of them stays."""
    total, done = sum(len(file.problems) for file in files), 0
    written: list[_Written] = []
    try:
        for result in map_in_processes(partial(_write, store.root), files, workers):
            written.append(result)
            done += len(result.file.problems)
            if progress is not None:
                progress(done, total)
    except BaseException:
        _delete(store, files)
        raise
    return written


def _delete(store: Store, files: Iterable[_File]) -> None:
    schema.discard(store, [file.path for file in files])


def _complete(
    store: Store, key: tuple[str, str, str], written: Sequence[_Written]
) -> Sequence[Manifest]:
    """The manifest of one split; none if every file of it was rejected."""
    problems = sum(len(result.digests) for result in written)
    if problems == 0:
        _delete(store, [result.file for result in written])
        return []
    recipe: Mapping[str, Any] = {"source": "published files", "problems": problems}
    manifest = Manifest(
        dataset=key[0],
        configuration=key[1],
        split=key[2],
        problems=problems,
        digest=schema.combine_digests(d for result in written for d in result.digests),
        files={result.file.path.rsplit("/", 1)[-1]: len(result.digests) for result in written},
        recipe=recipe,
        version=package_version(),
    )
    return [schema.create_manifest(store, manifest)]
