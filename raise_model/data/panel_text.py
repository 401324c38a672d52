"""The panels of a published problem's XML, by regular expressions where its form is known.

Nearly all of a file are its panels, and two programs have written them all: one puts the
attributes of an element in the order in which they were made (Python 3.8 and later), the other
sorts them.  Panels in exactly one of these forms are read here in a third of a parser's time.
Of any other text nothing is read, and nothing is said: the parser has the last word.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from raise_model.data.grammar import ANGLES, COLORS, SIZES, TYPES
from raise_model.data.schema import PANELS_PER_PROBLEM

_START, _END = b"<Data><Panels>", b"</Panels>"
_PANEL = re.compile(rb'<Panel><Struct name="\w*+">')
_PANEL_END, _PART_END = b"</Struct></Panel>", b"</Layout></Component>"
_COMPONENT = rb'<Component id="([01])" name="\w*+">'
_LAYOUT = rb' Number="([0-8])" Position="([^"<&]++)" Uniformity="([0-3])"'
_BOXES = rb' bbox="([^"<&]++)" real_bbox="[^"<&]*+"'


class Part(NamedTuple):
    """One component of one panel."""

    component: int
    number: int
    """Level: entities - 1."""
    uniformity: int
    slots: tuple[int, ...]
    """Of each entity, in the file's order."""
    levels: tuple[tuple[int, int, int, int], ...]
    """Type, size, color and angle of each entity."""


@dataclass(frozen=True, kw_only=True)
class _Form:
    part: re.Pattern[bytes]
    """A component up to its end: id, Number, Position, Uniformity, and its entities."""
    entity: re.Pattern[bytes]
    """Box and levels, in the order of the form."""
    levels: Mapping[bytes, tuple[int, int, int, int]]
    """Type, size, color and angle by the text of all four."""
    box: int
    """Which of the two groups of ``entity`` is the box."""


def _form(layout: bytes, levels: bytes, *, levels_first: bool) -> _Form:
    """:param levels: the text of all four levels, with a ``%d`` for each."""
    pattern = rb"(" + re.sub(rb"%\(\w+\)d", rb"[0-9]", levels) + rb")"
    entity = rb"<Entity" + (pattern + _BOXES if levels_first else _BOXES + pattern) + rb" ?+/>"
    types, *spans = (range(len(values)) for values in (TYPES, SIZES, COLORS, ANGLES))
    texts = {
        levels % {b"type": kind, b"size": size, b"color": color, b"angle": angle}: (
            kind, size, color, angle,
        )
        for kind, size, color, angle in product(types[1:], *spans)
    }  # fmt: skip
    return _Form(
        part=re.compile(_COMPONENT + rb"<Layout" + layout + rb">((?:" + _plain(entity) + rb")++)"),
        entity=re.compile(entity),
        levels=texts,
        box=int(levels_first),
    )


def _plain(pattern: bytes) -> bytes:
    """The same pattern without its groups."""
    return pattern.replace(b"(", b"(?:")


_AS_MADE = _form(
    rb' name="\w*+"' + _LAYOUT,
    b' Type="%(type)d" Size="%(size)d" Color="%(color)d" Angle="%(angle)d"',
    levels_first=False,
)
_SORTED = _form(
    _LAYOUT + rb' name="\w*+"',
    b' Angle="%(angle)d" Color="%(color)d" Size="%(size)d" Type="%(type)d"',
    levels_first=True,
)


def cut_panels(xml: bytes, num_slots: Sequence[int]) -> tuple[bytes, list[list[Part]]]:
    """A file without its panels, and these; the whole file and none if its form is not known.

    What is cut is a sequence of whole elements, so the rest is XML if and only if the file is.

    :param xml: without the masks of the entities.
    :param num_slots: of each component.
    """
    end = xml.find(_END)
    if end < 0 or not xml.startswith(_START):
        return xml, []
    *texts, rest = xml[len(_START) : end].split(_PANEL_END)
    panels: list[list[Part]] = []
    if rest or len(texts) != PANELS_PER_PROBLEM:
        return xml, []
    for text in texts:
        panel = _panel(text, num_slots)
        if panel is None:
            return xml, []
        panels.append(panel)
    return _START + xml[end:], panels


def _panel(text: bytes, num_slots: Sequence[int]) -> list[Part] | None:
    start = _PANEL.match(text)
    if start is None:
        return None
    *texts, rest = text[start.end() :].split(_PART_END)
    if rest or len(texts) != len(num_slots):
        return None
    parts: list[Part] = []
    for component in texts:
        part = _part(component, num_slots)
        if part is None:
            return None
        parts.append(part)
    return parts if len({part.component for part in parts}) == len(parts) else None


def _part(text: bytes, num_slots: Sequence[int]) -> Part | None:
    form = _AS_MADE
    matched = form.part.fullmatch(text)
    if matched is None:
        form = _SORTED
        matched = form.part.fullmatch(text)
        if matched is None:
            return None
    component, number, position, uniformity, entities = matched.groups()
    own = int(component)
    slot_of = _slots(position, num_slots[own]) if own < len(num_slots) else None
    if slot_of is None or int(number) >= len(slot_of):
        return None
    found = form.entity.findall(entities)
    box = form.box
    try:
        slots = tuple([slot_of[entity[box]] for entity in found])
        levels = tuple([form.levels[entity[1 - box]] for entity in found])
    except KeyError:
        return None
    if len(set(slots)) != len(slots):
        return None
    return Part(own, int(number), int(uniformity), slots, levels)


@lru_cache(maxsize=256)
def _slots(position: bytes, num_slots: int) -> Mapping[bytes, int] | None:
    """Slot of each box of a layout, by the text of the box as the published files write it."""
    try:
        boxes = json.loads(position)
    except (ValueError, RecursionError):
        return None
    if not isinstance(boxes, list) or len(boxes) != num_slots:
        return None
    slots = {json.dumps(box).encode(): slot for slot, box in enumerate(boxes)}
    return slots if len(slots) == num_slots else None
