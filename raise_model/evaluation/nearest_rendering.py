"""Attributes read back from pictures: the scene whose rendering is nearest.

Slots of a configuration do not overlap in ink, so that each is read by itself: of every entity
that may stand in it (and of nothing, where a component has several slots), drawn by the data's
renderer and reduced as the solver's panels are, the one with the least squared error over the
slot's pixels.  An inner component owns its slots' pixels, the outer one the rest.  Some entities
look exactly alike (the squares of sizes 0.6 and 0.7 in the smallest slots): one of them is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from raise_model.data.grammar import ANGLES, Component, Configuration, configuration
from raise_model.data.loader import resize_panels
from raise_model.data.render import render_panels
from raise_model.specs import Resize

_DRAWN_AT_ONCE = 256
_READ_AT_ONCE = 1024
_NOTHING = (0, 0, 0, 0)
_RULED = ("type", "size", "color")
_UNROTATED = ANGLES.index(0)


class NearestRendering:
    """Reads panels of one configuration at one size."""

    def __init__(self, name: str, image_size: int, resize: Resize) -> None:
        """Draw every entity in every slot; seconds for nine slots."""
        made = configuration(name)
        owners = pixel_owners(made, image_size)
        self.slots = [
            (number, slot)
            for number, component in enumerate(made.components)
            for slot in range(len(component.slots))
        ]
        self._pixels: list[Tensor] = []
        self._levels: list[Int[np.ndarray, "entities 4"]] = []
        self._drawn: list[Float[Tensor, "entities pixels"]] = []
        self._alike: list[Mapping[tuple[int, ...], Sequence[tuple[int, ...]]]] = []
        for owner, (number, slot) in enumerate(self.slots):
            pixels = np.flatnonzero(owners.ravel() == owner)
            levels = _vocabulary(made.components[number], made.uniform)
            drawn = [
                resize_panels(panels, image_size, resize).reshape(len(panels), -1)[:, pixels]
                for panels in _draw(made, number, slot, levels)
            ]
            rows = np.concatenate(drawn)
            self._pixels.append(torch.from_numpy(pixels))
            self._levels.append(np.array(levels))
            self._drawn.append(torch.from_numpy(rows).float().div_(255))
            self._alike.append(_alike(levels, rows))

    def read(self, images: Float[Tensor, "n size size"]) -> Int[np.ndarray, "n slots 4"]:
        """Type, size, color and angle in each of ``slots``; type 0 where there is nothing."""
        flat = images.flatten(1).cpu()
        columns = []
        for pixels, levels, drawn in zip(self._pixels, self._levels, self._drawn, strict=True):
            norms = drawn.square().sum(1)
            nearest = [
                # Less the picture's own square, which is the same for all.
                (norms - 2 * part[:, pixels] @ drawn.T).argmin(1)
                for part in flat.split(_READ_AT_ONCE)
            ]
            columns.append(levels[torch.cat(nearest).numpy()])
        return np.stack(columns, 1)

    def variants(self, levels: Int[np.ndarray, "slots 4"]) -> Iterator[Int[np.ndarray, "slots 4"]]:
        """A panel that was read, and every other one that looks exactly the same."""
        each = [
            alike.get(tuple(row), [tuple(row)])
            for alike, row in zip(self._alike, levels.tolist(), strict=True)
        ]
        return (np.array(rows) for rows in product(*each))

    def scene(self, levels: Int[np.ndarray, "slots 4"]) -> Sequence[Mapping[str, int]]:
        """The entities of one panel that was read."""
        return [
            _entity(number, slot, tuple(each))
            for (number, slot), each in zip(self.slots, levels.tolist(), strict=True)
            if each[0]
        ]

    def levels(self, scene: Sequence[Mapping[str, int]]) -> Int[np.ndarray, "slots 4"]:
        """What :meth:`read` finds in a perfect picture of a panel, but for the angles."""
        table = np.zeros((len(self.slots), 4), np.int64)
        for entity in scene:
            slot = self.slots.index((entity["component"], entity["slot"]))
            table[slot] = [entity[name] for name in (*_RULED, "angle")]
        return table


def pixel_owners(made: Configuration, image_size: int) -> Int[np.ndarray, "size size"]:
    """Which slot, counted through all components, each pixel is read for; -1 for none.

    A pixel belongs to the last component with a slot around its centre, and there to the slot
    whose centre is nearest.
    """
    centres = (np.arange(image_size) + 0.5) / image_size
    owners = np.full((image_size, image_size), -1)
    first = 0
    for component in made.components:
        distances = np.stack(
            [
                np.maximum(abs(centres[:, None] - y), abs(centres[None] - x))
                for y, x, _ in component.slots
            ]
        )
        inside = distances.min(0) <= component.slots[0][2] / 2
        owners[inside] = first + distances.argmin(0)[inside]
        first += len(component.slots)
    return owners


def _vocabulary(component: Component, uniform: bool) -> list[tuple[int, ...]]:
    """Unrotated first, so that shapes which look alike rotated are read as such."""
    ranges = [range(low, high + 1) for low, high in map(component.levels, _RULED)]
    angles = [_UNROTATED, *(a for a in range(len(ANGLES)) if a != _UNROTATED and not uniform)]
    nothing = [_NOTHING] if len(component.slots) > 1 else []
    return [*nothing, *((*levels, angle) for angle in angles for levels in product(*ranges))]


def _alike(
    levels: Sequence[tuple[int, ...]], rows: np.ndarray
) -> Mapping[tuple[int, ...], Sequence[tuple[int, ...]]]:
    """Of what is read, first of its picture: all with that picture that differ but in angle."""
    groups: dict[bytes, list[tuple[int, ...]]] = {}
    for entity, row in zip(levels, rows, strict=True):
        group = groups.setdefault(row.tobytes(), [])
        if entity[:3] not in [other[:3] for other in group]:
            group.append(entity)
    return {group[0]: group for group in groups.values() if len(group) > 1}


def _draw(
    made: Configuration, number: int, slot: int, levels: Sequence[tuple[int, ...]]
) -> Iterator[np.ndarray]:
    for start in range(0, len(levels), _DRAWN_AT_ONCE):
        part = levels[start : start + _DRAWN_AT_ONCE]
        yield render_panels(
            made, [[_entity(number, slot, each)] if each != _NOTHING else [] for each in part]
        )


def _entity(component: int, slot: int, levels: tuple[int, ...]) -> dict[str, int]:
    kind, size, color, angle = levels
    return {
        "component": component, "slot": slot, "type": kind, "size": size, "color": color,
        "angle": angle,
    }  # fmt: skip
