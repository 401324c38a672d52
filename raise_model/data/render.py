"""Panels from annotations, equal to the published renderings to the pixel (160 x 160, uint8).

Every entity is drawn as ink on an empty layer (fill first, then an outline of two pixels),
rotated about its centre, and laid over what was there: its non-zero ink replaces what is
below.  The panel is 255 - ink.  All lengths are truncated to whole pixels, as in the
published data.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from jaxtyping import Bool, UInt8

from raise_model.data.grammar import ANGLES, COLORS, SIZES, TYPES, Configuration, Slot
from raise_model.data.schema import PANEL_SIZE

OUTLINE = 2

# Panels are too small to share out: threads would cost more than they save.
cv2.setNumThreads(1)


def polygon(kind: str, unit: float, size: float) -> list[tuple[int, int]]:
    """Offsets (x, y) of a polygon's corners from its centre, y counted downwards."""
    if kind == "square":
        half = int(unit * math.sqrt(2) / 2 * size)
        return [(-half, -half), (half, -half), (half, half), (-half, half)]
    radius = int(unit * size)
    if kind == "triangle":
        x, y = int(radius / 2 * math.sqrt(3)), int(radius / 2)
        return [(0, -radius), (x, y), (-x, y)]
    if kind == "pentagon":
        upper = int(radius * math.cos(math.pi / 10)), int(radius * math.sin(math.pi / 10))
        lower = int(radius * math.sin(math.pi / 5)), int(radius * math.cos(math.pi / 5))
        return [
            (0, -radius), (-upper[0], -upper[1]), (-lower[0], lower[1]),
            (lower[0], lower[1]), (upper[0], -upper[1]),
        ]  # fmt: skip
    x, y = int(radius / 2 * math.sqrt(3)), int(radius / 2)
    return [(0, -radius), (-x, -y), (-x, y), (0, radius), (x, y), (x, -y)]


@dataclass(frozen=True)
class _Drawn:
    """The part of a panel that one entity covers."""

    rows: slice
    columns: slice
    grey: UInt8[np.ndarray, "height width"]
    is_inked: Bool[np.ndarray, "height width"]


@lru_cache(maxsize=25_000)
def _draw(slot: Slot, kind: int, size: int, color: int, angle: int) -> _Drawn:
    """One entity; 25,000 of a nine-slot grid, its whole vocabulary, take about 150 MB."""
    y, x, side = slot
    centre = (int(x * PANEL_SIZE), int(y * PANEL_SIZE))
    unit = side * PANEL_SIZE / 2
    layer = np.zeros((PANEL_SIZE, PANEL_SIZE), np.uint8)
    fill = 255 - COLORS[color]
    if TYPES[kind] == "circle":
        radius = int(unit * SIZES[size])
        if fill:
            cv2.circle(layer, centre, radius, fill, -1)
        cv2.circle(layer, centre, radius, 255, OUTLINE)
    else:
        offsets = polygon(TYPES[kind], unit, SIZES[size])
        points = np.array([[centre[0] + dx, centre[1] + dy] for dx, dy in offsets], np.int32)
        if fill:
            cv2.fillConvexPoly(layer, points, fill)
        cv2.polylines(layer, [points], True, 255, OUTLINE)
    turn = cv2.getRotationMatrix2D(centre, ANGLES[angle], 1)
    turned = cv2.warpAffine(layer, turn, (PANEL_SIZE, PANEL_SIZE), flags=cv2.INTER_LINEAR)
    left, top, width, height = cv2.boundingRect(turned)
    rows, columns = slice(top, top + height), slice(left, left + width)
    ink = turned[rows, columns]
    return _Drawn(rows, columns, 255 - ink, ink > 0)


def render_panels(
    configuration: Configuration,
    panels: Sequence[Iterable[Mapping[str, int]]],
    out: UInt8[np.ndarray, "panels 160 160"] | None = None,
) -> UInt8[np.ndarray, "panels 160 160"]:
    """Draw the entities of each panel, in their order; components ascending.

    :param out: array to draw into; whatever is in it is erased.
    """
    shape = (len(panels), PANEL_SIZE, PANEL_SIZE)
    drawn = np.empty(shape, np.uint8) if out is None else out
    drawn.fill(255)
    for panel, entities in zip(drawn, panels, strict=True):
        for entity in entities:
            slot = configuration.components[entity["component"]].slots[entity["slot"]]
            part = _draw(slot, entity["type"], entity["size"], entity["color"], entity["angle"])
            np.copyto(panel[part.rows, part.columns], part.grey, where=part.is_inked)
    middle = PANEL_SIZE // 2
    if configuration.separator == "column":
        drawn[:, :, middle] = 0
    elif configuration.separator == "row":
        drawn[:, middle] = 0
    return drawn
