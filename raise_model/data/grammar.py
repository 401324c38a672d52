"""Configurations of RAVEN: names, components, slots, attribute levels and ruled attributes.

Names are the project's; ``folder`` is the published one.  A component holds entities in slots;
a slot is (y, x, size): its centre and side as fractions of the panel, y counted downwards.
Attribute values are levels, indices into the lists below.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from raise_model.errors import UserError

TYPES = ("none", "triangle", "square", "pentagon", "hexagon", "circle")
"""Levels 1 to 5 are drawn."""
SIZES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Size of an entity as a share of its slot."""
COLORS = (255, 224, 196, 168, 140, 112, 84, 56, 28, 0)
"""Grey value of the fill; level 0 is white, drawn as outline only."""
ANGLES = (-135, -90, -45, 0, 45, 90, 135, 180)
"""Degrees; never ruled."""
UNIFORM_LEVEL = 3
"""Of four equally likely uniformity levels, only this one makes the entities of a panel equal."""

Slot = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Component:
    """One part of a panel."""

    slots: tuple[Slot, ...]
    size_levels: tuple[int, int] = (0, 5)
    color_levels: tuple[int, int] = (0, 9)
    type_levels: tuple[int, int] = (1, 5)

    def levels(self, attribute: str) -> tuple[int, int]:
        """Lowest and highest level of ``type``, ``size`` or ``color``."""
        return getattr(self, f"{attribute}_levels")


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One of the seven layouts, or one of the three with uniform, unrotated entities."""

    folder: str
    components: tuple[Component, ...]
    official_labels: tuple[tuple[int, str], ...]
    """(component, attribute) of each label of the authors' code, in its order."""
    separator: str | None = None
    """``column`` or ``row``: a line of one pixel through the middle."""
    uniform: bool = False

    @property
    def merged_labels(self) -> tuple[tuple[int, str], ...]:
        """One label for Number/Position where there are several slots, Type, Size, and Color
        where the component has more than one; per component.
        """
        return self._labels("number_position")

    @property
    def separate_labels(self) -> tuple[tuple[int, str], ...]:
        """As the merged ones, with a label for Number and one for Position."""
        return self._labels("number", "position")

    def _labels(self, *layout: str) -> tuple[tuple[int, str], ...]:
        labels: list[tuple[int, str]] = []
        for number, component in enumerate(self.components):
            if len(component.slots) > 1:
                labels += [(number, attribute) for attribute in layout]
            labels += [(number, "type"), (number, "size")]
            if component.color_levels[0] < component.color_levels[1]:
                labels.append((number, "color"))
        return tuple(labels)


def _grid(centres: tuple[float, ...], size: float) -> tuple[Slot, ...]:
    return tuple((y, x, size) for y in centres for x in centres)


_WHOLE = Component(slots=((0.5, 0.5, 1.0),))
_OUTER = Component(slots=((0.5, 0.5, 1.0),), size_levels=(3, 5), color_levels=(0, 0))
_SINGLE = ((0, "type"), (0, "size"), (0, "color"))
_PAIR = (*_SINGLE, (1, "type"), (1, "size"), (1, "color"))

_SEVEN = {
    "center": Configuration(
        folder="center_single", components=(_WHOLE,), official_labels=_SINGLE
    ),
    "left_right": Configuration(
        folder="left_center_single_right_center_single",
        components=tuple(Component(slots=((0.5, x, 0.5),)) for x in (0.25, 0.75)),
        official_labels=_PAIR,
        separator="column",
    ),
    "up_down": Configuration(
        folder="up_center_single_down_center_single",
        components=tuple(Component(slots=((y, 0.5, 0.5),)) for y in (0.25, 0.75)),
        official_labels=_PAIR,
        separator="row",
    ),
    "out_in_center": Configuration(
        folder="in_center_single_out_center_single",
        components=(_OUTER, Component(slots=((0.5, 0.5, 0.33),))),
        official_labels=((0, "type"), (0, "size"), (1, "type"), (1, "size"), (1, "color")),
    ),
    "out_in_grid": Configuration(
        folder="in_distribute_four_out_center_single",
        components=(_OUTER, Component(slots=_grid((0.42, 0.58), 0.15), size_levels=(2, 5))),
        official_labels=(
            (0, "type"), (1, "position"), (1, "type"), (1, "size"), (1, "color"),
        ),
    ),
    "grid_2x2": Configuration(
        folder="distribute_four",
        components=(Component(slots=_grid((0.25, 0.75), 0.5)),),
        official_labels=((0, "number"), *_SINGLE),
    ),
    "grid_3x3": Configuration(
        folder="distribute_nine",
        components=(Component(slots=_grid((0.16, 0.5, 0.83), 0.33)),),
        official_labels=((0, "position"), *_SINGLE),
    ),
}  # fmt: skip

CONFIGURATIONS: Mapping[str, Configuration] = _SEVEN | {
    f"{name}_uni": replace(_SEVEN[name], folder=f"{_SEVEN[name].folder}_uni", uniform=True)
    for name in ("out_in_grid", "grid_2x2", "grid_3x3")
}
"""All configurations by name."""


def configuration(name: str) -> Configuration:
    """:raises UserError: for an unknown name; it lists the known ones."""
    try:
        return CONFIGURATIONS[name]
    except KeyError:
        known = ", ".join(CONFIGURATIONS)
        raise UserError(f"unknown configuration {name!r}; known: {known}") from None


def by_folder(folder: str) -> str | None:
    """Name of the configuration whose published folder this is."""
    return next((name for name, c in CONFIGURATIONS.items() if c.folder == folder), None)
