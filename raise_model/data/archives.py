"""Indices of zip and tar archives."""

import errno
import gzip
import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from raise_model.data.bad_file import BadFile
from raise_model.data.members import Member, zip_members
from raise_model.data.published import MAX_BYTES
from raise_model.errors import UserError

Open = Callable[[str], Any]
_MEND = "fetch or pack it again"


def zip_index(path: str, opened: Open) -> Iterator[tuple[str, Member]]:
    """Names and places of a zip archive's files.

    :raises UserError: if it is damaged, encrypted or packed by other methods than deflate.
    """
    with opened(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                yield from zip_members(archive)
        except (zipfile.BadZipFile, EOFError, ValueError) as error:
            reason = f"is damaged: {error}" if not isinstance(error, BadFile) else str(error)
            raise UserError(f"{path} {reason}; {_MEND}") from None


def tar_index(path: str, opened: Open) -> Iterator[tuple[str, Member]]:
    """Names and places of the files in an uncompressed tar archive, from its headers.

    :raises UserError: if it is damaged.
    """
    with opened(path) as file:
        try:
            with tarfile.open(fileobj=file, mode="r:") as archive:
                for info in _files(archive):
                    yield (
                        info.name,
                        Member(
                            offset=info.offset_data, packed=info.size, size=info.size, crc=None,
                            method="stored", has_header=False,
                        ),
                    )  # fmt: skip
                # Where an archive is cut between two members, tarfile sees no error.
                file.seek(archive.offset)
                if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                    raise tarfile.ReadError("it has no end")
        except tarfile.TarError as error:
            raise UserError(f"{path} is damaged: {error}; {_MEND}") from None


def tar_spool(
    path: str, opened: Open, spool: Path, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, Member]]:
    """Names of the files in a compressed tar archive, and their places in ``spool``.

    One member is in memory at a time.  Files that no problem can have (by name or size) are
    not kept.

    :raises UserError: if the archive is damaged, or the spool cannot be written.
    """
    with opened(path) as file, gzip.GzipFile(fileobj=file, mode="rb") as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r:") as archive, _unbuffered(spool) as kept:
                for info in _files(archive):
                    if wanted(info.name):
                        yield info.name, _keep(archive, info, kept)
            while stream.read(1 << 20):  # To the end, where gzip tells whether all was read.
                pass
        except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{path} is damaged: {error}; {_MEND}") from None


def _unbuffered(path: Path) -> io.FileIO:
    """A full disk is seen at the write that fills it, not when the file is closed."""
    return io.FileIO(path, "wb")


def _keep(archive: tarfile.TarFile, info: tarfile.TarInfo, kept: io.FileIO) -> Member:
    offset, packed = kept.tell(), b""
    if info.size <= MAX_BYTES:
        content = archive.extractfile(info)
        assert content is not None
        data = content.read()
        if len(data) != info.size:
            raise tarfile.ReadError("unexpected end of data")
        packed = pa.compress(data, codec="zstd", asbytes=True)
        try:
            if kept.write(packed) != len(packed):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise UserError(
                f"cannot write {kept.name}: {error.strerror}; free space, or set TMPDIR to a "
                "folder with as much space as the archive has bytes"
            ) from error
    return Member(
        offset=offset, packed=len(packed), size=info.size, crc=None, method="zstd",
        has_header=False,
    )  # fmt: skip


def _files(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (info := archive.next()) is not None:
        # Else it keeps every header that it has read.
        archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue]
        if info.isreg() and not info.issparse():
            yield info
