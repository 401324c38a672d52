"""Published RAVEN and I-RAVEN files to Parquet.

Expected are folders of pairs ``RAVEN_<i>_<train|val|test>.npz`` and ``.xml``, in a folder with
the published name of their configuration.  A damaged, unpaired or repeated problem is left out
and reported with its reason.
"""

import multiprocessing
import os
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from raise_model.data import grammar, schema
from raise_model.data.published import BadFile, parse_xml, read_modified, read_problem
from raise_model.data.schema import Manifest, Problem
from raise_model.data.splits import split_of
from raise_model.errors import UserError
from raise_model.store import Store
from raise_model.version import package_version

FILE_PROBLEMS = 512
_NAME = re.compile(r"RAVEN_(\d+)_(train|val|test)\.(npz|xml)")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Rejected:
    path: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class IngestReport:
    manifests: Sequence[Manifest]
    rejected: Sequence[Rejected]


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """The files of one problem."""

    configuration: str
    index: int
    split: str
    stem: str


def find_pairs(root: Path) -> tuple[list[_Pair], list[Rejected]]:
    """Problems below a folder, and files that belong to none."""
    seen: dict[str, set[str]] = defaultdict(set)
    rejected: list[Rejected] = []

    def unreadable(error: OSError) -> None:
        rejected.append(Rejected(path=str(error.filename), reason=f"{error.strerror}"))

    for folder, _, names in os.walk(root, onerror=unreadable):
        for name in sorted(names):
            stem, suffix = os.path.splitext(os.path.join(folder, name))
            if suffix not in (".npz", ".xml"):
                continue
            if _NAME.fullmatch(name):
                seen[stem].add(suffix)
            else:
                reason = "name is not RAVEN_<index>_<train|val|test>.npz or .xml"
                rejected.append(Rejected(path=stem + suffix, reason=reason))
    pairs: list[_Pair] = []
    for stem, suffixes in seen.items():
        pair = _pair(stem, suffixes)
        (pairs if isinstance(pair, _Pair) else rejected).append(pair)  # type: ignore[arg-type]
    return pairs, rejected


def _pair(stem: str, suffixes: set[str]) -> _Pair | Rejected:
    path = Path(stem)
    found = _NAME.fullmatch(path.name + ".npz")
    assert found is not None
    index, split = int(found[1]), found[2]
    configuration = grammar.by_folder(path.parent.name)
    if configuration is None:
        return Rejected(path=stem, reason=f"folder {path.parent.name} is no configuration's")
    if suffixes != {".npz", ".xml"}:
        (missing,) = {".npz", ".xml"} - suffixes
        (present,) = suffixes
        return Rejected(path=stem + present, reason=f"its {missing} is missing")
    if split_of(index) != split:
        return Rejected(
            path=stem, reason=f"index {index} belongs to {split_of(index)}, not {split}"
        )
    return _Pair(configuration=configuration, index=index, split=split, stem=stem)


@dataclass(frozen=True, kw_only=True)
class _File:
    """One Parquet file to be written by a worker."""

    path: str
    prefix: str
    pairs: tuple[_Pair, ...]


@dataclass(frozen=True, kw_only=True)
class _Written:
    file: _File
    digests: Sequence[bytes]
    rejected: Sequence[Rejected]


def _read(pair: _Pair) -> Problem:
    """:raises BadFile: naming what is wrong."""
    try:
        npz, xml = (Path(pair.stem + suffix).read_bytes() for suffix in (".npz", ".xml"))
    except OSError as error:
        raise BadFile(f"cannot be read: {error.strerror}") from None
    return read_problem(npz, xml, pair.configuration, pair.index)


def _write(root: str, file: _File) -> _Written:
    rejected: list[Rejected] = []

    def chunks() -> Iterator[schema.Chunk]:
        for start in range(0, len(file.pairs), schema.ROW_GROUP):
            chunk: list[Problem] = []
            for pair in file.pairs[start : start + schema.ROW_GROUP]:
                try:
                    chunk.append(_read(pair))
                except BadFile as error:
                    rejected.append(Rejected(path=pair.stem, reason=str(error)))
            if chunk:
                yield schema.Chunk.stack(chunk)

    digests = schema.write_file(Store(root), file.path, chunks(), file.prefix)
    return _Written(file=file, digests=digests, rejected=rejected)


def _is_iraven(pairs: Sequence[_Pair]) -> bool:
    """I-RAVEN's files name the modified attributes of each candidate."""
    for pair in pairs:
        try:
            return read_modified(parse_xml(Path(f"{pair.stem}.xml").read_bytes())) is not None
        except (BadFile, OSError):
            continue
    return False


def ingest(
    store: Store,
    paths: Sequence[Path],
    *,
    dataset: str | None = None,
    strict: bool = False,
    workers: int = 1,
    progress: Progress | None = None,
) -> IngestReport:
    """Read every problem under ``paths`` into Parquet, one data set for each path.

    :param dataset: name of the data set; None for ``raven_published`` or
        ``iraven_published``, as the files of each path say.
    :param strict: fail, and leave nothing, if any file is rejected.
    :raises UserError: for paths without RAVEN files, a data set of that name with other
        content, or rejected files under ``strict``.
    """
    groups: dict[tuple[str, str, str], list[_Pair]] = defaultdict(list)
    rejected: list[Rejected] = []
    for root in _roots(paths):
        pairs, bad = find_pairs(root)
        rejected += bad
        name = dataset or ("iraven_published" if _is_iraven(pairs) else "raven_published")
        for pair in pairs:
            groups[name, pair.configuration, pair.split].append(pair)
    for key, pairs in groups.items():
        groups[key], repeated = _without_repeated(pairs)
        rejected += repeated
    if not groups and not rejected:
        where = ", ".join(str(path) for path in paths)
        raise UserError(f"no RAVEN_<index>_<split>.npz and .xml under {where}")
    files = [file for key, pairs in groups.items() for file in _files(key, pairs)]
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
    return IngestReport(manifests=manifests, rejected=rejected)


def _without_repeated(pairs: Sequence[_Pair]) -> tuple[list[_Pair], list[Rejected]]:
    """The first problem of every index, and the others with the reason."""
    first: dict[int, _Pair] = {}
    rejected = []
    for pair in pairs:
        if (kept := first.setdefault(pair.index, pair)).stem != pair.stem:
            reason = f"index {pair.index} is in {kept.stem} too; ingest them as two data sets"
            rejected.append(Rejected(path=pair.stem, reason=reason))
    return list(first.values()), rejected


def _roots(paths: Sequence[Path]) -> Sequence[Path]:
    """The folders that hold configuration folders, so that data sets side by side stay apart.

    :raises UserError: if a path is no folder, or none holds a configuration.
    """
    roots: dict[Path, None] = {}
    for path in map(Path.resolve, paths):
        if not path.is_dir():
            what = "is not a folder" if path.exists() else "does not exist"
            raise UserError(f"{path} {what}; give a folder of published RAVEN files")
        if grammar.by_folder(path.name):
            roots[path] = None
            continue
        inner = [p for p in sorted(path.rglob("*")) if p.is_dir() and grammar.by_folder(p.name)]
        if not inner:
            raise UserError(
                f"{path} holds no folder of a RAVEN configuration (center_single, ...); "
                "give the folder that does"
            )
        roots |= dict.fromkeys(p.parent for p in inner)
    return list(roots)


def _folder(key: tuple[str, str, str]) -> str:
    return schema.folder(*key) + "/"


def _files(key: tuple[str, str, str], pairs: Sequence[_Pair]) -> Iterator[_File]:
    token = uuid.uuid4().hex[:8]
    ordered = sorted(pairs, key=lambda pair: pair.index)
    for start in range(0, len(ordered), FILE_PROBLEMS):
        yield _File(
            path=f"{_folder(key)}part-{token}-{start // FILE_PROBLEMS:05d}.parquet",
            prefix=f"{key[0]}/{key[1]}",
            pairs=tuple(ordered[start : start + FILE_PROBLEMS]),
        )


def _write_all(
    store: Store, files: Sequence[_File], workers: int, progress: Progress | None
) -> Sequence[_Written]:
    """Write every file, in order; on any failure none of them stays."""
    total, done = sum(len(file.pairs) for file in files), 0
    written: list[_Written] = []
    write = partial(_write, store.root)

    def collect(results: Iterable[_Written]) -> None:
        nonlocal done
        for result in results:
            written.append(result)
            done += len(result.file.pairs)
            if progress is not None:
                progress(done, total)

    try:
        if workers == 1 or len(files) == 1:
            collect(map(write, files))
        else:
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(min(workers, len(files)), context) as pool:
                collect(pool.map(write, files))
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
