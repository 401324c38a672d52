"""The XML of a published problem: rules, layouts, entities and what I-RAVEN's candidates change.

Two thirds of a file are the run-length masks of its entities, which nobody reads: they are cut
out of the text, then the panels where :mod:`.panel_text` knows their form, and the rest is
parsed.

Document types are refused (no entity is ever declared or expanded), and every number is checked
against its range.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from xml.parsers import expat

from raise_model.data import grammar
from raise_model.data.bad_file import BadFile
from raise_model.data.grammar import ANGLES, COLORS, SIZES, TYPES, UNIFORM_LEVEL
from raise_model.data.panel_text import Part, cut_panels
from raise_model.data.schema import PANELS_PER_PROBLEM
from raise_model.matrix import NUM_CANDIDATES

_RULE_NAMES = {
    name: name.lower() for name in ("Constant", "Progression", "Arithmetic", "Distribute_Three")
}
_RULED = {
    name: name.lower().replace("/", "_")
    for name in ("Number/Position", "Number", "Position", "Type", "Size", "Color")
}
_MODIFIED = {name: name.lower() for name in ("Number", "Position", "Type", "Size", "Color")}
_MASK = re.compile(rb' mask="\[[0-9,]*\]"')


def _texts(low: int, high: int) -> Mapping[str, int]:
    return {str(level): level for level in range(low, high + 1)}


_TYPES = _texts(1, len(TYPES) - 1)
_SIZES = _texts(0, len(SIZES) - 1)
_COLORS = _texts(0, len(COLORS) - 1)
_ANGLES = _texts(0, len(ANGLES) - 1)
_UNIFORMITIES = _texts(0, UNIFORM_LEVEL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotations:
    """What a problem's XML says."""

    panels: Sequence[Sequence[Part]]
    rules: Sequence[tuple[int, str, str]]
    """Component, attribute, rule."""
    modified: Sequence[Sequence[str]] | None
    """By candidate; None where the file does not say (RAVEN)."""


def read_annotations(xml: bytes, configuration: str) -> Annotations:
    """The annotations of a problem of ``configuration``.

    :raises BadFile: naming what is wrong.
    """
    components = grammar.configuration(configuration).components
    num_slots = tuple(len(component.slots) for component in components)
    text, panels = cut_panels(_MASK.sub(b"", xml), num_slots)
    reader = _Reader(num_slots, panels)
    _parse(text, reader.start)
    return reader.annotations()


def names_modified(xml: bytes) -> bool:
    """Whether the candidates' modified attributes are named, as only I-RAVEN does.

    :raises BadFile: if the XML cannot be read.
    """
    tags: set[str] = set()
    _parse(_MASK.sub(b"", xml), lambda tag, _: tags.add(tag))
    return "Modified_attributes" in tags


def _parse(data: bytes, start: Callable[[str, dict[str, str]], None]) -> None:
    """:raises BadFile: if the text is no XML or declares a document type."""
    parser = expat.ParserCreate()

    def refuse(name: str, *_: object) -> None:
        raise BadFile(f"XML declares a document type ({name}), which is refused")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise BadFile(f"XML is damaged: {error}") from None


class _Boxes(dict[str, int]):
    """Slot of each box of a layout, by the text of the box as the published files write it."""

    def __init__(self, boxes: Sequence[object]) -> None:
        super().__init__({json.dumps(box): slot for slot, box in enumerate(boxes)})
        self._boxes = boxes

    def __missing__(self, text: str) -> int:
        """The slot of a box that is written in another way.

        :raises BadFile: if the layout has no such box.
        """
        try:
            return self._boxes.index(json.loads(text))
        except (ValueError, RecursionError):
            raise BadFile("XML: an entity's bbox is not in its layout's Position") from None


_NO_BOXES = _Boxes(())


@lru_cache(maxsize=256)
def _boxes(position: str, num_slots: int) -> _Boxes:
    """:raises BadFile: if the text is no list of ``num_slots`` boxes."""
    try:
        boxes = json.loads(position)
    except (ValueError, RecursionError):
        boxes = None
    if not isinstance(boxes, list) or len(boxes) != num_slots:
        raise BadFile(f"XML: a layout's Position is not a list of {num_slots} boxes")
    return _Boxes(boxes)


class _Reader:
    """Collects the elements of one file, in the order in which a parser meets them."""

    def __init__(self, num_slots: Sequence[int], panels: list[list[Part]]) -> None:
        """:param panels: those that were read before."""
        self._num_slots = num_slots
        self._panels = panels
        self._rules: list[tuple[int, str, str]] = []
        self._modified: list[list[str]] | None = None
        self._components = {str(number): number for number in range(len(num_slots))}
        self._component = self._group = -1
        self._boxes = _NO_BOXES
        self._slots: list[int] = []
        self._levels: list[tuple[int, int, int, int]] = []
        self._layout: dict[str, str] | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """The handler of an element's start."""
        get = attributes.get
        if tag == "Entity":
            self._slots.append(self._boxes[get("bbox", "")])
            try:
                self._levels.append(
                    (
                        _TYPES[attributes["Type"]],
                        _SIZES[attributes["Size"]],
                        _COLORS[attributes["Color"]],
                        _ANGLES[attributes["Angle"]],
                    )
                )
            except KeyError:
                for name, texts in (
                    ("Type", _TYPES), ("Size", _SIZES), ("Color", _COLORS), ("Angle", _ANGLES),
                ):  # fmt: skip
                    _level(tag, attributes, name, texts)
                raise
        elif tag == "Layout":
            self._close_layout()
            if self._component < 0:
                raise BadFile("XML: a Layout is in no Component")
            self._layout = attributes
            self._boxes = _boxes(get("Position", ""), self._num_slots[self._component])
        elif tag == "Component":
            self._close_layout()
            if not self._panels:
                raise BadFile("XML: a Component is in no Panel")
            self._component = _level(tag, attributes, "id", self._components)
        elif tag == "Panel":
            self._close_layout()
            self._panels.append([])
        elif tag == "Rule_Group":
            self._group = _level(tag, attributes, "id", self._components)
        elif tag == "Rule":
            name, attribute = get("name", ""), get("attr", "")
            if name not in _RULE_NAMES or attribute not in _RULED:
                raise BadFile(f"XML: unknown rule {name[:40]!r} on {attribute[:40]!r}")
            if self._group < 0:
                raise BadFile("XML: a Rule is in no Rule_Group")
            self._rules.append((self._group, _RULED[attribute], _RULE_NAMES[name]))
        elif tag == "Modified_attributes":
            self._modified = []
        elif tag == "Candidate" and self._modified is not None:
            self._modified.append([])
        elif tag == "Attribute" and self._modified:
            name = get("name", "")
            if name not in _MODIFIED:
                raise BadFile(f"XML: a candidate's modified attribute is {name[:40]!r}")
            number = _level(tag, attributes, "component_id", self._components)
            self._modified[-1].append(f"{_MODIFIED[name]}{number}")

    def _close_layout(self) -> None:
        if self._layout is None:
            return
        slots = tuple(self._slots)
        if not slots or len(set(slots)) != len(slots):
            raise BadFile("XML: a layout has no entity, or two in one slot")
        numbers = _texts(0, self._num_slots[self._component] - 1)
        self._panels[-1].append(
            Part(
                component=self._component,
                number=_level("Layout", self._layout, "Number", numbers),
                uniformity=_level("Layout", self._layout, "Uniformity", _UNIFORMITIES),
                slots=slots,
                levels=tuple(self._levels),
            )
        )
        self._layout, self._boxes, self._component = None, _NO_BOXES, -1
        self._slots.clear()
        self._levels.clear()

    def annotations(self) -> Annotations:
        """What was read, once the file has ended.

        :raises BadFile: if something is missing.
        """
        self._close_layout()
        if len(self._panels) != PANELS_PER_PROBLEM:
            raise BadFile(f"XML has {len(self._panels)} panels, not {PANELS_PER_PROBLEM}")
        for panel in self._panels:
            if sorted(part.component for part in panel) != sorted(self._components.values()):
                raise BadFile(
                    f"XML: a panel has {len(panel)} layouts, not one for each of "
                    f"{len(self._components)} components"
                )
        if not self._rules:
            raise BadFile("XML has no rules")
        if self._modified is not None and len(self._modified) != NUM_CANDIDATES:
            raise BadFile(f"XML: modified attributes of {len(self._modified)} candidates, not 8")
        return Annotations(
            panels=self._panels,
            rules=self._rules,
            modified=self._modified and [sorted(names) for names in self._modified],
        )


def _level(tag: str, attributes: Mapping[str, str], name: str, texts: Mapping[str, int]) -> int:
    """:raises BadFile: if an attribute is none of ``texts``."""
    text = attributes.get(name, "")
    if text not in texts:
        low, *_, high = (*texts, *texts)
        raise BadFile(f"XML: {tag} has {name}={text[:20]!r}, not {low} to {high}")
    return texts[text]
