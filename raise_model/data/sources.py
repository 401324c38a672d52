"""Where problems lie: folders, archives and hub files, on this machine or at any fsspec URI.

====================  =====================================================================
source                how it is read
====================  =====================================================================
folder                every file by itself
``.zip``, ``.tar``    an index is made once (for tar: from the headers, one by one), then every
                      process seeks the members that it wants; nothing is unpacked
``.tar.gz``, ``.tgz`` read once from beginning to end; the members wanted are kept, packed
                      again, in one file of the scratch folder, since a stream has no index and
                      its order need not be that of the problems
hub Parquet           ``<configuration>/<split>-*.parquet`` or ``<configuration>/<split>/*``:
                      the column ``id`` is read once, then every process reads its rows
====================  =====================================================================

A problem's files are named ``RAVEN_<index>_<train|val|test>.npz`` and ``.xml`` and lie in a
folder with the published name of their configuration.  Names in archives are only compared,
never used as paths.
"""

import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import fsspec

from raise_model.data import archives, grammar, hub
from raise_model.data.bad_file import BadFile
from raise_model.data.members import Member, read_member
from raise_model.data.published import MAX_BYTES, Files, Images
from raise_model.data.splits import split_of
from raise_model.errors import UserError

_NAME = re.compile(r"RAVEN_(\d{1,9})_(train|val|test)\.(npz|xml)")
_KNOWN = "a folder, .zip, .tar, .tar.gz or hub .parquet of published RAVEN problems"


@dataclass(frozen=True, kw_only=True)
class Rejected:
    path: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A problem and where it lies."""

    configuration: str
    split: str
    index: int
    name: str
    """What messages call it: its path without suffix."""
    root: str
    """The folder of its configuration's folder; a data set has one."""
    file: str | None = None
    """Archive or hub file that holds it; None for files of a folder."""
    npz: Member | None = None
    xml: Member | None = None
    row: int = -1
    """In a hub file."""


def find(paths: Iterable[str | Path], scratch: Path) -> tuple[list[Found], list[Rejected]]:
    """Every problem under some paths or URIs, and the files that belong to none.

    :param scratch: an empty folder for compressed tar archives; needed as long as the problems.
    :raises UserError: for a path that does not exist, or is nothing that can be read.
    """
    found: dict[str, Found] = {}
    rejected: dict[str, Rejected] = {}
    for path in dict.fromkeys(_absolute(path) for path in paths):
        for item in _find_one(path, scratch):
            if isinstance(item, Found):
                found.setdefault(item.name, item)
            else:
                rejected.setdefault(item.path, item)
    return list(found.values()), list(rejected.values())


def read(problems: Sequence[Found]) -> Iterator[tuple[Found, Files | Images | BadFile]]:
    """What each problem is made of, in the order given, or why it cannot be had.

    :raises UserError: if a hub file is damaged.
    """
    opened: dict[str, IO[bytes]] = {}
    images: dict[str, dict[int, Images]] = {}
    try:
        for found in problems:
            if found.row >= 0:
                assert found.file is not None
                if found.file not in images:
                    rows = [other.row for other in problems if other.file == found.file]
                    images[found.file] = hub.read_rows(found.file, rows)
                yield found, images[found.file].pop(found.row)
                continue
            try:
                if found.file is not None and found.file not in opened:
                    opened[found.file] = open_file(found.file)
                npz = _read(found, opened, ".npz", found.npz)
                xml = _read(found, opened, ".xml", found.xml)
            except BadFile as error:
                yield found, error
            except OSError as error:
                yield found, BadFile(f"cannot be read: {error.strerror or error}")
            else:
                yield found, Files(npz=npz, xml=xml)
    finally:
        for file in opened.values():
            file.close()


def read_xml(found: Found) -> bytes:
    """A problem's XML alone.

    :raises BadFile: if it cannot be had.
    """
    if found.row >= 0:
        assert found.file is not None
        return hub.read_rows(found.file, [found.row])[found.row].xml
    try:
        if found.file is None:
            return _read(found, {}, ".xml", None)
        with open_file(found.file) as file:
            return _read(found, {found.file: file}, ".xml", found.xml)
    except OSError as error:
        raise BadFile(f"cannot be read: {error.strerror or error}") from None


def is_local(path: str) -> bool:
    return urlsplit(path).scheme in ("", "file")


def open_file(path: str) -> Any:
    """:raises OSError: if it cannot be opened."""
    if is_local(path):
        return open(path, "rb")
    filesystem, inner = fsspec.url_to_fs(path)
    return filesystem.open(inner, "rb")


def _read(found: Found, opened: dict[str, IO[bytes]], suffix: str, member: Member | None) -> bytes:
    if member is not None and max(member.size, member.packed) > MAX_BYTES:
        raise BadFile(f"{suffix} has {member.size} bytes, more than any RAVEN file")
    if member is None:
        data = _read_file(found.name + suffix)
        if len(data) > MAX_BYTES:
            raise BadFile(f"{suffix} has over {MAX_BYTES} bytes, more than any RAVEN file")
        return data
    assert found.file is not None
    try:
        return read_member(opened[found.file], member)
    except BadFile as error:
        raise BadFile(f"{suffix} {error}") from None


def _read_file(path: str) -> bytes:
    """At most one byte more than any file of a problem has."""
    if not is_local(path):
        with open_file(path) as file:
            return file.read(MAX_BYTES + 1)
    with open(path, "rb", buffering=0) as file:
        # As large as the file says: room for the most that it may have costs more than reading.
        return file.read(min(os.fstat(file.fileno()).st_size, MAX_BYTES) + 1)


def _absolute(path: str | Path) -> str:
    text = os.fspath(path)
    if not is_local(text):
        return text.rstrip("/")
    return str(Path(text.removeprefix("file://")).expanduser().resolve())


def _find_one(path: str, scratch: Path) -> Iterator[Found | Rejected]:
    """:raises UserError: as :func:`find`."""
    filesystem, inner = _filesystem(path)
    try:
        if filesystem.isdir(inner):
            yield from _folder(path, filesystem, inner)
            return
        if not filesystem.exists(inner):
            raise UserError(f"{path} does not exist; give {_KNOWN}")
        kind = path.lower()
        if kind.endswith(".parquet"):
            yield from _hub_file(path, strict=True)
            return
        if kind.endswith(".zip"):
            members = archives.zip_index(path, open_file)
            archive = path
        elif kind.endswith(".tar"):
            members = archives.tar_index(path, open_file)
            archive = path
        elif kind.endswith((".tar.gz", ".tgz")):
            handle, archive = tempfile.mkstemp(dir=scratch)
            os.close(handle)
            members = archives.tar_spool(path, open_file, Path(archive), _wanted)
        else:
            raise UserError(f"{path} is not a folder, and no archive that is known; give {_KNOWN}")
        yield from _pairs(path, archive, members)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error


def _filesystem(path: str) -> tuple[Any, str]:
    try:
        return fsspec.url_to_fs(path)
    except ValueError as error:
        raise UserError(f"{path}: {error}; use a path or a URI that fsspec knows") from None
    except ImportError as error:
        raise UserError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def _folder(path: str, filesystem: Any, inner: str) -> Iterator[Found | Rejected]:
    failed: list[Rejected] = []
    names = _walk(path, failed) if is_local(path) else _find_remote(filesystem, inner)
    pairs: list[tuple[str, None]] = []
    parquet: list[str] = []
    folders = False
    for name in names:
        folders = folders or _configuration(name) is not None
        if name.endswith(".parquet"):
            parquet.append(name)
        else:
            pairs.append((name, None))
    known = False
    for item in _pairs("", None, pairs):
        known = True
        yield item
    for name in parquet:
        for item in _hub_file(name, strict=False):
            known = True
            yield item
    yield from failed
    if known or failed:
        return
    if folders:
        raise UserError(f"no RAVEN_<index>_<split>.npz and .xml, or hub .parquet, under {path}")
    raise UserError(
        f"{path} holds no folder of a RAVEN configuration (center_single, ...); "
        "give the folder that does"
    )


def _walk(path: str, failed: list[Rejected]) -> Iterator[str]:
    """Files under a local folder, and the folders themselves with a slash at the end."""

    def unreadable(error: OSError) -> None:
        failed.append(Rejected(path=str(error.filename), reason=f"{error.strerror}"))

    for folder, folders, names in os.walk(path, onerror=unreadable):
        folders.sort()
        yield folder + "/"
        for name in sorted(names):
            yield os.path.join(folder, name)


def _find_remote(filesystem: Any, inner: str) -> Iterator[str]:
    for name in sorted(filesystem.find(inner)):
        yield filesystem.unstrip_protocol(name)


def _wanted(name: str) -> bool:
    """Whether a file of an archive may belong to a problem."""
    base = name.rpartition("/")[2]
    return base.endswith((".npz", ".xml")) and not base.startswith("._")


def _configuration(name: str) -> str | None:
    return grammar.by_folder(name.rpartition("/")[0].rpartition("/")[2])


def _pairs(
    path: str, archive: str | None, files: Iterable[tuple[str, Member | None]]
) -> Iterator[Found | Rejected]:
    """Match npz with XML; ``path`` goes before the names of an archive."""
    seen: dict[str, dict[str, Member | None]] = defaultdict(dict)
    for name, member in files:
        if not _wanted(name):
            continue
        full = f"{path}/{name.lstrip('/')}" if archive else name
        if _NAME.fullmatch(full.rpartition("/")[2]):
            stem, _, suffix = full.rpartition(".")
            seen[stem][suffix] = member
        else:
            reason = "name is not RAVEN_<index>_<train|val|test>.npz or .xml"
            yield Rejected(path=full, reason=reason)
    for stem, members in seen.items():
        yield _pair(stem, archive, members)


def _pair(stem: str, archive: str | None, members: dict[str, Member | None]) -> Found | Rejected:
    folder, _, base = stem.rpartition("/")
    matched = _NAME.fullmatch(f"{base}.npz")
    assert matched is not None
    root, _, published = folder.rpartition("/")
    configuration = grammar.by_folder(published)
    if configuration is None:
        return Rejected(path=stem, reason=f"folder {published} is no configuration's")
    if len(members) != 2:
        (present,) = members
        missing = "xml" if present == "npz" else "npz"
        return Rejected(path=f"{stem}.{present}", reason=f"its .{missing} is missing")
    index, split = int(matched[1]), matched[2]
    if split_of(index) != split:
        reason = f"index {index} belongs to {split_of(index)}, not {split}"
        return Rejected(path=stem, reason=reason)
    return Found(
        configuration=configuration, split=split, index=index, name=stem, root=root,
        file=archive, npz=members["npz"], xml=members["xml"],
    )  # fmt: skip


def _hub_file(path: str, *, strict: bool) -> Iterator[Found | Rejected]:
    """:param strict: whether a file that is not the hub's is an error; else it is no matter.
    :raises UserError: if it is damaged.
    """
    place = hub.place(path)
    if place is None:
        if strict:
            raise UserError(
                f"{path} is not <configuration>/<split>-*.parquet, e.g. center_single/"
                "train-00000-of-00001.parquet; give the hub's files as they lie there"
            )
        return
    for row, index in enumerate(hub.read_ids(path)):
        name = f"{path}, row {row}"
        if index < 0 or split_of(index) != place.split:
            of = split_of(index) if index >= 0 else "no problem"
            reason = f"id {index} belongs to {of}, not {place.split}"
            yield Rejected(path=name, reason=reason)
            continue
        yield Found(
            configuration=place.configuration, split=place.split, index=index, name=name,
            root=place.root, file=path, row=row,
        )  # fmt: skip
