"""One problem of the published RAVEN or I-RAVEN files: an npz archive and its XML.

Files are input from anywhere: npz is read with pickle forbidden and member sizes bounded, XML
with document types refused (no entity expansion), and every number is checked against its
range.  What is wrong with a file is said in one line (:class:`BadFile`).
"""

import io
import json
import struct
import zipfile
import zlib
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np
from jaxtyping import UInt8

from raise_model.data import grammar
from raise_model.data.grammar import ANGLES, COLORS, SIZES, TYPES, UNIFORM_LEVEL, Component
from raise_model.data.schema import PANEL_SIZE, PANELS_PER_PROBLEM, Problem
from raise_model.problem import NUM_CANDIDATES, RULES

_LEVELS = {
    "Type": (1, len(TYPES) - 1),
    "Size": (0, len(SIZES) - 1),
    "Color": (0, len(COLORS) - 1),
    "Angle": (0, len(ANGLES) - 1),
}
_RULED = {"Number/Position", "Number", "Position", "Type", "Size", "Color"}
_MAX_MEMBER = 1 << 20
"""Bytes of an array in the archive: the panels have 409,600, all else is far smaller."""


class BadFile(ValueError):
    """Why a problem cannot be read, without its path."""


def read_problem(npz: bytes, xml: bytes, configuration: str, index: int) -> Problem:
    """A published problem in canonical form.

    :raises BadFile: naming what is wrong.
    """
    panels, target = _read_npz(npz)
    root = parse_xml(xml)
    found = root.findall("./Panels/Panel")
    if len(found) != PANELS_PER_PROBLEM:
        raise BadFile(f"XML has {len(found)} panels, not {PANELS_PER_PROBLEM}")
    components = grammar.configuration(configuration).components
    read = [_read_panel(panel, components) for panel in found]
    return Problem(
        index=index,
        panels=panels,
        target=target,
        rules=_read_rules(root, len(components)),
        layouts=[layouts for layouts, _ in read],
        entities=[entities for _, entities in read],
        modified=read_modified(root),
    )


def parse_xml(data: bytes) -> ElementTree.Element:
    """Parse without document types, so that no entity can be declared or expanded.

    :raises BadFile: if the text is no XML or declares a document type.
    """
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate()

    def refuse(name: str, *_: Any) -> None:
        raise BadFile(f"XML declares a document type ({name}), which is refused")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise BadFile(f"XML is damaged: {error}") from None
    return builder.close()


def _read_npz(data: bytes) -> tuple[UInt8[np.ndarray, "16 160 160"], int]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            panels = _read_array(archive, "image")
            target = _read_array(archive, "target")
    except BadFile:
        raise
    except KeyError as error:
        raise BadFile(f"npz lacks an array: {error.args[0]}") from None
    except (
        OSError, ValueError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile,
        zlib.error, struct.error,
    ) as error:  # fmt: skip
        raise BadFile(f"npz is damaged: {error}") from None
    shape = (PANELS_PER_PROBLEM, PANEL_SIZE, PANEL_SIZE)
    if panels.shape != shape or panels.dtype != np.uint8:
        raise BadFile(f"image is {panels.dtype} {panels.shape}, not uint8 {shape}")
    if target.size != 1 or target.dtype.kind not in "iu":
        raise BadFile(f"target is {target.dtype} {target.shape}, not one whole number")
    if not 0 <= int(target.item()) < NUM_CANDIDATES:
        raise BadFile(f"target is {target.item()}, not 0 to {NUM_CANDIDATES - 1}")
    return np.ascontiguousarray(panels), int(target.item())


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    member = archive.getinfo(f"{name}.npy")
    if member.file_size > _MAX_MEMBER:
        raise BadFile(f"npz: {name} has {member.file_size} bytes, more than any RAVEN array")
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _number(element: ElementTree.Element, name: str, low: int, high: int) -> int:
    text = element.get(name, "")
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise BadFile(f"XML: {element.tag} has {name}={text[:20]!r}, not {low} to {high}")
    return value


def _read_panel(
    panel: ElementTree.Element, components: tuple[Component, ...]
) -> tuple[list[dict[str, Any]], list[dict[str, int]]]:
    """Layouts and entities of one panel."""
    layouts, entities = [], []
    found = panel.findall("./Struct/Component")
    if len(found) != len(components):
        raise BadFile(f"XML: a panel has {len(found)} components, not {len(components)}")
    for element in found:
        layout = element.find("Layout")
        if layout is None:
            raise BadFile("XML: a component has no Layout")
        number = _number(element, "id", 0, len(components) - 1)
        boxed = layout.findall("Entity")
        num_slots = len(components[number].slots)
        slots = _slots(layout, boxed, num_slots)
        layouts.append(
            {
                "component": number,
                "number": _number(layout, "Number", 0, num_slots - 1),
                "position": sorted(slots),
                "uniformity": _number(layout, "Uniformity", 0, UNIFORM_LEVEL),
            }
        )
        for slot, entity in zip(slots, boxed, strict=True):
            levels = {name.lower(): _number(entity, name, *span) for name, span in _LEVELS.items()}
            entities.append({"component": number, "slot": slot, **levels})
    return layouts, entities


def _slots(
    layout: ElementTree.Element, entities: list[ElementTree.Element], num_slots: int
) -> list[int]:
    """Slot of each entity: the place of its box in the layout's list of boxes."""
    try:
        boxes = json.loads(layout.get("Position", ""))
        if not isinstance(boxes, list) or len(boxes) != num_slots:
            raise BadFile(f"XML: a layout's Position is not a list of {num_slots} boxes")
        slots = [boxes.index(json.loads(entity.get("bbox", ""))) for entity in entities]
    except BadFile:
        raise
    except (ValueError, RecursionError):
        raise BadFile("XML: an entity's bbox is not in its layout's Position") from None
    if len(set(slots)) != len(slots) or not slots:
        raise BadFile("XML: a layout has no entity, or two in one slot")
    return slots


def _read_rules(root: ElementTree.Element, components: int) -> list[dict[str, Any]]:
    rules = []
    for group in root.findall("./Rules/Rule_Group"):
        for rule in group.findall("Rule"):
            name, attribute = rule.get("name", ""), rule.get("attr", "")
            if name.lower() not in RULES or attribute not in _RULED:
                raise BadFile(f"XML: unknown rule {name[:40]!r} on {attribute[:40]!r}")
            rules.append(
                {
                    "component": _number(group, "id", 0, components - 1),
                    "attribute": attribute.lower().replace("/", "_"),
                    "rule": name.lower(),
                    "value": None,
                }
            )
    if not rules:
        raise BadFile("XML has no rules")
    return rules


def read_modified(root: ElementTree.Element) -> list[list[str]] | None:
    """I-RAVEN says which attributes each candidate changes; RAVEN does not (None)."""
    candidates = root.findall("./Modified_attributes/Candidate")
    if not candidates:
        return None
    if len(candidates) != NUM_CANDIDATES:
        raise BadFile(f"XML: modified attributes of {len(candidates)} candidates, not 8")
    return [
        sorted(
            f"{attribute.get('name', '').lower()}{_number(attribute, 'component_id', 0, 1)}"
            for attribute in candidate.findall("Attribute")
        )
        for candidate in candidates
    ]
