"""One problem of the published RAVEN or I-RAVEN data: its panels, target and XML.

Panels come as an npz archive (the published files) or as PNG images (the public hub).  Files
are input from anywhere: npz is read with pickle forbidden and sizes bounded, a PNG's kind is
checked before it is decoded.  What is wrong with a file is said in one line (:class:`BadFile`).
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import cv2
import numpy as np
from jaxtyping import UInt8

from raise_model.data.annotations import Annotations, read_annotations
from raise_model.data.bad_file import BadFile
from raise_model.data.members import Member, extract, zip_members
from raise_model.data.schema import PANEL_SIZE, PANELS_PER_PROBLEM, Problem
from raise_model.matrix import NUM_CANDIDATES

MAX_BYTES = 2 << 20
"""Of any one file of a problem: an npz has 412,180, an XML 60,000 at most."""
_MAX_ARRAY = 1 << 20
"""Bytes of an array in the npz: the panels have 409,600, all else is far smaller."""
_PNG = b"\x89PNG\r\n\x1a\n"
_HEADER = struct.Struct(">IIBBBBB")
"""Of a PNG: width, height, depth, colour type, and three methods."""
_PNG_START = 33
"""Bytes of its signature and its first chunk, the header."""
_GREY = 0

Panels = UInt8[np.ndarray, "16 160 160"]


class Source(Protocol):
    """What one problem is read from."""

    @property
    def xml(self) -> bytes: ...

    def read_panels(self, panels: Panels) -> int:
        """Fill ``panels``; return the target.

        :raises BadFile: naming what is wrong.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """A problem of the published files."""

    npz: bytes
    xml: bytes

    def read_panels(self, panels: Panels) -> int:
        try:
            archive = memoryview(self.npz)
            with zipfile.ZipFile(io.BytesIO(self.npz)) as index:
                members = dict(zip_members(index))
            image = _array(archive, members, "image")
            target = _array(archive, members, "target")
        except BadFile as error:
            raise BadFile(f"npz {error}") from None
        except (zipfile.BadZipFile, ValueError, struct.error, OverflowError) as error:
            raise BadFile(f"npz is damaged: {error}") from None
        if image.shape != panels.shape or image.dtype != np.uint8:
            raise BadFile(f"image is {image.dtype} {image.shape}, not uint8 {panels.shape}")
        if target.size != 1 or target.dtype.kind not in "iu":
            raise BadFile(f"target is {target.dtype} {target.shape}, not one whole number")
        panels[...] = image
        return _target(int(target.item()))


@dataclass(frozen=True, kw_only=True, slots=True)
class Images:
    """A problem of the public hub's Parquet files."""

    pngs: Sequence[bytes]
    """Eight context panels row by row, then the eight candidates."""
    target: int | None
    xml: bytes

    def read_panels(self, panels: Panels) -> int:
        if len(self.pngs) != PANELS_PER_PROBLEM:
            raise BadFile(f"has {len(self.pngs)} images, not {PANELS_PER_PROBLEM}")
        for number, png in enumerate(self.pngs):
            try:
                panels[number] = _decode(png)
            except BadFile as error:
                raise BadFile(f"image {number} {error}") from None
        return _target(self.target)


def read_problem(npz: bytes, xml: bytes, configuration: str, index: int) -> Problem:
    """A published problem in canonical form.

    :raises BadFile: naming what is wrong.
    """
    panels = np.empty((PANELS_PER_PROBLEM, PANEL_SIZE, PANEL_SIZE), np.uint8)
    target = Files(npz=npz, xml=xml).read_panels(panels)
    return as_problem(read_annotations(xml, configuration), index, target, panels)


def as_problem(annotations: Annotations, index: int, target: int, panels: Panels) -> Problem:
    """The form in which the rest of the package knows a problem."""
    return Problem(
        index=index,
        panels=panels,
        target=target,
        rules=[
            {"component": component, "attribute": attribute, "rule": rule, "value": None}
            for component, attribute, rule in annotations.rules
        ],
        layouts=[
            [
                {
                    "component": part.component,
                    "number": part.number,
                    "position": sorted(part.slots),
                    "uniformity": part.uniformity,
                }
                for part in panel
            ]
            for panel in annotations.panels
        ],
        entities=[
            [
                {"component": part.component, "slot": slot}
                | dict(zip(("type", "size", "color", "angle"), levels, strict=True))
                for part in panel
                for slot, levels in zip(part.slots, part.levels, strict=True)
            ]
            for panel in annotations.panels
        ],
        modified=annotations.modified,
    )


def _target(value: int | None) -> int:
    if value is None or not 0 <= value < NUM_CANDIDATES:
        raise BadFile(f"target is {value}, not 0 to {NUM_CANDIDATES - 1}")
    return value


def _array(archive: memoryview, members: dict[str, Member], name: str) -> np.ndarray:
    member = members.get(f"{name}.npy")
    if member is None:
        raise BadFile(f"lacks an array: {name}")
    if member.size > _MAX_ARRAY:
        raise BadFile(f"array {name} has {member.size} bytes, more than any RAVEN array")
    data = extract(archive[member.offset :], member)
    length = 10 + int.from_bytes(data[8:10], "little")
    shape, fortran, dtype = _array_header(bytes(data[:length]))
    flat = np.frombuffer(data, dtype, offset=length)
    return flat.reshape(shape, order="F" if fortran else "C")


@lru_cache(maxsize=64)
def _array_header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type of an array in format version 1, as all small arrays have it."""
    file = io.BytesIO(header)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array's format version is not 1.0")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("Object arrays are pickles, which are never loaded")
    return shape, fortran, dtype


def _decode(png: bytes) -> UInt8[np.ndarray, "160 160"]:
    header = png[:_PNG_START]
    if header[:8] != _PNG or header[12:16] != b"IHDR" or not _PNG_START <= len(png) <= MAX_BYTES:
        raise BadFile("is not a PNG")
    width, height, depth, colour, *_ = _HEADER.unpack_from(header, 16)
    if (width, height) != (PANEL_SIZE, PANEL_SIZE):
        raise BadFile(f"has {width}x{height} pixels, not {PANEL_SIZE}x{PANEL_SIZE}")
    if (depth, colour) != (8, _GREY):
        raise BadFile(f"has {depth} bits of PNG colour type {colour}, not 8 bits of grey")
    _check_chunks(png)
    image = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED)
    if image is None or image.shape != (PANEL_SIZE, PANEL_SIZE):
        raise BadFile("is damaged")
    return image


def _check_chunks(png: bytes) -> None:
    """Of a damaged image the decoder returns what it could read: check before.

    :raises BadFile: unless every chunk is whole and the last one is the end.
    """
    start, kind = len(_PNG), b""
    while kind != b"IEND":
        length = int.from_bytes(png[start : start + 4], "big")
        end = start + 8 + length
        kind = png[start + 4 : start + 8]
        checksum = int.from_bytes(png[end : end + 4], "big")
        if end + 4 > len(png) or zlib.crc32(png[start + 4 : end]) != checksum:
            raise BadFile("is damaged")
        start = end + 4
