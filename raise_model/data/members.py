"""Files within archives: where their bytes lie, and reading them without unpacking anything.

An index of the archive is made once; after that any process can read any member by itself,
from the archive's file and a :class:`Member`.
"""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Literal

import pyarrow as pa

from raise_model.data.bad_file import BadFile

Method = Literal["stored", "deflate", "zstd"]
_METHODS: dict[int, Method] = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflate"}
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_ENCRYPTED = 1
_MAX_HEADER = _LOCAL_HEADER.size + 2048
"""With the member's name and extra fields, which may be longer only where nobody makes them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One file of an archive."""

    offset: int
    """Of its data, or for a zip archive of the header before them."""
    packed: int
    """Bytes in the archive."""
    size: int
    crc: int | None
    """None where the archive has none."""
    method: Method
    has_header: bool


def zip_members(archive: zipfile.ZipFile) -> Iterator[tuple[str, Member]]:
    """Names and places of the files in a zip archive.

    :raises BadFile: if they are encrypted or packed by other methods than deflate.
    """
    for info in archive.infolist():
        if info.is_dir():
            continue
        if info.flag_bits & _ENCRYPTED:
            raise BadFile("is encrypted; decrypt it first")
        if info.compress_type not in _METHODS:
            raise BadFile(f"is packed by method {info.compress_type}; only deflate is read")
        yield (
            info.filename,
            Member(
                offset=info.header_offset, packed=info.compress_size, size=info.file_size,
                crc=info.CRC, method=_METHODS[info.compress_type], has_header=True,
            ),
        )  # fmt: skip


def read_member(file: IO[bytes], member: Member) -> bytes:
    """The content of a member.

    :raises BadFile: if the archive is damaged there.
    """
    file.seek(member.offset)
    # One read, since on a remote file every read is a request.
    data = file.read(member.packed + (_MAX_HEADER if member.has_header else 0))
    return bytes(extract(memoryview(data), member))


def extract(data: memoryview, member: Member) -> bytes | memoryview:
    """The content of a member; ``data`` begin at its offset.  What is stored is not copied.

    :raises BadFile: if the archive is damaged there.
    """
    start = 0
    if member.has_header:
        start = _LOCAL_HEADER.size
        if len(data) < start or data[:4] != b"PK\3\4":
            raise BadFile("is damaged: no member where its index says")
        start += sum(_LOCAL_HEADER.unpack(data[:start])[1:])
    return unpack(data[start : start + member.packed], member)


def unpack(packed: bytes | memoryview, member: Member) -> bytes | memoryview:
    """The content of a member from its packed bytes; never more than its stated size.

    :raises BadFile: if they are damaged.
    """
    try:
        if member.method == "zstd":
            data = pa.decompress(packed, member.size, codec="zstd", asbytes=True)
        else:
            data = packed if member.method == "stored" else _inflate(packed, member.size)
    except (zlib.error, OSError) as error:
        raise BadFile(f"is damaged: {error}") from None
    if len(data) != member.size:
        raise BadFile("is damaged: a member has another size than its index says")
    if member.crc is not None and zlib.crc32(data) != member.crc:
        raise BadFile("is damaged: bad CRC-32")
    return data


def _inflate(packed: bytes | memoryview, size: int) -> bytes:
    """At most ``size`` + 1 bytes, so that a wrong size in the index cannot fill the memory."""
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, size + 1)
