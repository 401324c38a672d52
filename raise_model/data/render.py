"""Panels from annotations, equal to the published renderings to the pixel (160 x 160, uint8).

Every entity is drawn as ink on an empty layer (fill first, then an outline of two pixels),
rotated about its centre, and laid over what was there: its non-zero ink replaces what is
below.  The panel is 255 - ink.  All lengths are truncated to whole pixels, as in the
published data.
"""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

import cv2
import numpy as np
from jaxtyping import UInt8

from raise_model.data.grammar import ANGLES, COLORS, SIZES, TYPES, Configuration, Slot
from raise_model.data.schema import PANEL_SIZE

OUTLINE = 2


def _corners(kind: str, unit: float, size: float) -> list[tuple[int, int]]:
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


@lru_cache(maxsize=20_000)
def _ink(
    slot: Slot, kind: int, size: int, color: int, angle: int
) -> tuple[UInt8[np.ndarray, "160 160"], UInt8[np.ndarray, "160 160"]]:
    """Ink of one entity, and where it is (255)."""
    y, x, side = slot
    centre = (int(x * PANEL_SIZE), int(y * PANEL_SIZE))
    unit = side * PANEL_SIZE / 2
    ink = np.zeros((PANEL_SIZE, PANEL_SIZE), np.uint8)
    fill = 255 - COLORS[color]
    if TYPES[kind] == "circle":
        radius = int(unit * SIZES[size])
        if fill:
            cv2.circle(ink, centre, radius, fill, -1)
        cv2.circle(ink, centre, radius, 255, OUTLINE)
    else:
        offsets = _corners(TYPES[kind], unit, SIZES[size])
        points = np.array([[centre[0] + dx, centre[1] + dy] for dx, dy in offsets], np.int32)
        if fill:
            cv2.fillConvexPoly(ink, points, fill)
        cv2.polylines(ink, [points], True, 255, OUTLINE)
    turn = cv2.getRotationMatrix2D(centre, ANGLES[angle], 1)
    turned = cv2.warpAffine(ink, turn, (PANEL_SIZE, PANEL_SIZE), flags=cv2.INTER_LINEAR)
    return turned, np.where(turned > 0, 255, 0).astype(np.uint8)


def render_panel(
    configuration: Configuration, entities: Iterable[Mapping[str, int]]
) -> UInt8[np.ndarray, "160 160"]:
    """Draw the entities of one panel, in their order; components ascending."""
    panel = np.zeros((PANEL_SIZE, PANEL_SIZE), np.uint8)
    for entity in entities:
        slot = configuration.components[entity["component"]].slots[entity["slot"]]
        ink, where = _ink(slot, entity["type"], entity["size"], entity["color"], entity["angle"])
        cv2.copyTo(ink, where, panel)
    middle = PANEL_SIZE // 2
    if configuration.separator == "column":
        panel[:, middle] = 255
    elif configuration.separator == "row":
        panel[middle] = 255
    return 255 - panel
