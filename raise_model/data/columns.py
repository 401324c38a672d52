"""Read problems as Arrow columns, without an object for every entity.

Holds the same rows and the same digests as :class:`raise_model.data.schema.Problem` does; the
tests compare the two.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
import pyarrow as pa
from jaxtyping import UInt8

from raise_model.data.annotations import Annotations
from raise_model.data.panel_text import Part
from raise_model.data.schema import PANEL_SIZE, PANELS_PER_PROBLEM, SCHEMA


class Columns:
    """Up to ``capacity`` problems, their panels in one array that is used again and again."""

    def __init__(self, capacity: int) -> None:
        self._panels = np.empty((capacity, PANELS_PER_PROBLEM, PANEL_SIZE, PANEL_SIZE), np.uint8)
        self.clear()

    def __len__(self) -> int:
        return len(self._index)

    @property
    def full(self) -> bool:
        return len(self) == len(self._panels)

    @property
    def next_panels(self) -> UInt8[np.ndarray, "16 160 160"]:
        """To be filled before :meth:`append`."""
        return self._panels[len(self)]

    def clear(self) -> None:
        """Forget every problem; tables made before must not be used any more."""
        self._index: list[int] = []
        self._target: list[int] = []
        self._annotations: list[Annotations] = []
        self.digests: list[bytes] = []

    def append(self, index: int, target: int, annotations: Annotations) -> None:
        """Take the problem whose panels were filled."""
        self.digests.append(_digest(index, target, annotations, self.next_panels))
        self._index.append(index)
        self._target.append(target)
        self._annotations.append(annotations)

    def table(self, prefix: str) -> pa.Table:
        """The rows; ``prefix`` is ``dataset/configuration``.  Panels are not copied."""
        columns = {
            "problem_id": pa.array([f"{prefix}/{index}" for index in self._index]),
            "index": pa.array(self._index, pa.int32()),
            "panels": pa.Array.from_buffers(
                SCHEMA.field("panels").type,
                len(self),
                [None, pa.py_buffer(self._panels[: len(self)])],
            ),
            "target": pa.array(self._target, pa.int8()),
            "rules": self._rules(),
            "layouts": self._layouts(),
            "entities": self._entities(),
            "modified": pa.array(
                [annotations.modified for annotations in self._annotations],
                SCHEMA.field("modified").type,
            ),
        }
        return pa.Table.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)

    def _rules(self) -> pa.Array:
        kind = SCHEMA.field("rules").type
        rules = [rule for annotations in self._annotations for rule in annotations.rules]
        component, attribute, rule = zip(*rules, strict=True)
        values = pa.StructArray.from_arrays(
            [
                pa.array(component, pa.int8()),
                pa.array(attribute),
                pa.array(rule),
                pa.nulls(len(rules), pa.int8()),
            ],
            fields=list(kind.value_type),
        )
        return _lists([len(annotations.rules) for annotations in self._annotations], values, kind)

    def _layouts(self) -> pa.Array:
        kind = SCHEMA.field("layouts").type
        fields = kind.value_type.value_type
        parts = self._parts()
        position = _lists(
            [len(part.slots) for part in parts],
            _int8([slot for part in parts for slot in sorted(part.slots)]),
            fields.field("position").type,
        )
        values = pa.StructArray.from_arrays(
            [
                _int8([part.component for part in parts]),
                _int8([part.number for part in parts]),
                position,
                _int8([part.uniformity for part in parts]),
            ],
            fields=list(fields),
        )
        return self._by_panel([len(panel) for panel in self._all_panels()], values, kind)

    def _entities(self) -> pa.Array:
        kind = SCHEMA.field("entities").type
        rows = [
            (part.component, slot, *levels)
            for part in self._parts()
            for slot, levels in zip(part.slots, part.levels, strict=True)
        ]
        values = pa.StructArray.from_arrays(
            [pa.array(column) for column in np.array(rows, np.int8).T.copy()],
            fields=list(kind.value_type.value_type),
        )
        numbers = [sum(len(part.slots) for part in panel) for panel in self._all_panels()]
        return self._by_panel(numbers, values, kind)

    def _all_panels(self) -> Sequence[Sequence[Part]]:
        return [panel for annotations in self._annotations for panel in annotations.panels]

    def _parts(self) -> Sequence[Part]:
        return [part for panel in self._all_panels() for part in panel]

    def _by_panel(self, lengths: Sequence[int], values: pa.Array, kind: pa.ListType) -> pa.Array:
        panels = _lists(lengths, values, kind.value_type)
        return _lists([PANELS_PER_PROBLEM] * len(self), panels, kind)


def _int8(values: Sequence[int]) -> pa.Array:
    return pa.array(np.array(values, np.int8))


def _lists(lengths: Sequence[int], values: pa.Array, kind: pa.ListType) -> pa.Array:
    offsets = pa.array(np.fromiter(accumulate(lengths, initial=0), np.int32, len(lengths) + 1))
    return pa.ListArray.from_arrays(offsets, values, type=kind)


def _digest(index: int, target: int, annotations: Annotations, panels: np.ndarray) -> bytes:
    """As :meth:`raise_model.data.schema.Problem.digest`."""
    entities = ", ".join(
        "[" + ", ".join([text for part in panel for text in _entity_texts(part)]) + "]"
        for panel in annotations.panels
    )
    layouts = ", ".join(
        "[" + ", ".join(map(_layout_text, panel)) + "]" for panel in annotations.panels
    )
    text = (
        f'{{"entities": [{entities}], "index": {index}, "layouts": [{layouts}], '
        f'"modified": {json.dumps(annotations.modified)}, '
        f'"rules": [{", ".join(_rule_text(*rule) for rule in annotations.rules)}], '
        f'"target": {target}}}'
    )
    sha = hashlib.sha256(text.encode())
    sha.update(panels.data)
    return sha.digest()


def _entity_texts(part: Part) -> list[str]:
    component = part.component
    return [
        _entity_text(component, slot, levels)
        for slot, levels in zip(part.slots, part.levels, strict=True)
    ]


@lru_cache(maxsize=1 << 16)
def _entity_text(component: int, slot: int, levels: tuple[int, int, int, int]) -> str:
    kind, size, color, angle = levels
    return (
        f'{{"angle": {angle}, "color": {color}, "component": {component}, '
        f'"size": {size}, "slot": {slot}, "type": {kind}}}'
    )


def _layout_text(part: Part) -> str:
    return _layout_text_of(part.component, part.number, part.slots, part.uniformity)


@lru_cache(maxsize=1 << 16)
def _layout_text_of(component: int, number: int, slots: tuple[int, ...], uniformity: int) -> str:
    return (
        f'{{"component": {component}, "number": {number}, '
        f'"position": {sorted(slots)}, "uniformity": {uniformity}}}'
    )


@lru_cache(maxsize=256)
def _rule_text(component: int, attribute: str, rule: str) -> str:
    return (
        f'{{"attribute": "{attribute}", "component": {component}, "rule": "{rule}", "value": null}}'
    )
