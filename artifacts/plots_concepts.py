"""Pictures of concepts: what they draw, where they err, and what is generated with them.

Each function returns a figure; nothing is saved here.  Grey values are shares of white.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextPath

from raise_model.matrix import NUM_PANELS

FRAME = "#d7191c"
"""Red of the paper's frames."""
_CELL = 0.5
"""Inches of a small panel."""
_NAME_SIZE, _SLANT = 7.5, 60
"""Points and degrees of the names above columns."""


@dataclass(frozen=True, kw_only=True)
class OddExample:
    """A matrix with an odd panel, and what a solver made of it."""

    panels: Float[np.ndarray, "9 size size"]
    errors: Float[np.ndarray, "9 concepts"]
    """Squared error of each panel's prediction in each concept."""
    odd: int
    """The odd panel, 0 to 8; framed."""
    title: str


def attribute_labels(names: Sequence[str]) -> list[str]:
    """Attributes of a configuration as figures say them: without component if there is one."""
    is_single = len({name[-1] for name in names}) == 1
    return [
        (name[:-1] if is_single else name).replace("number_position", "number/position")
        for name in names
    ]


def draw_traversal(
    images: Float[np.ndarray, "concepts steps size size"],
    matrix: Float[np.ndarray, "attributes concepts"],
    attributes: Sequence[str],
    concept_of: Sequence[int | None],
) -> Figure:
    """One row of pictures a concept, and beside it the attribute-concept matrix M.

    :param matrix: soft M, 0 to 1.
    :param concept_of: binary M, framed.
    """
    concepts, steps = images.shape[:2]
    width, height = _CELL * steps, _CELL * concepts
    side = 0.45 * len(attributes)
    left, top, gap, right = 0.9, max(0.4, _name_height(attributes)), 0.3, 0.75
    page = (left + width + gap + side + right, top + height + 0.2)
    figure = Figure(figsize=page)
    axes = _axes(figure, left, 0.2, width, height)
    _tile(axes, images)
    axes.set_yticks([concept + 0.5 for concept in range(concepts)])
    axes.set_yticklabels([f"concept {concept + 1}" for concept in range(concepts)], fontsize=8)
    axes.set_title("from the smallest to the largest value", fontsize=9)
    map_axes = _axes(figure, left + width + gap, 0.2, side, height)
    map_axes.imshow(
        matrix.T, cmap="Greys", vmin=0, vmax=1, aspect="auto",
        extent=(0, len(attributes), concepts, 0),
    )  # fmt: skip
    for attribute, concept in enumerate(concept_of):
        if concept is not None:
            map_axes.add_patch(_frame(attribute, concept))
    _name_columns(map_axes, attributes)
    map_axes.set_yticks([])
    return figure


def draw_odd_one_out(examples: Sequence[OddExample], names: Sequence[str | None]) -> Figure:
    """Two examples a row: the matrix, its odd panel framed, and beside it the error map.

    In the map a row is a panel and a column a concept, grey from no error to the example's
    largest.

    :param names: the attribute matched to each concept, None without.
    """
    columns = min(2, len(examples))
    rows = -(-len(examples) // columns)
    side = 0.34 * len(names)
    labels = [str(n) if name is None else f"{n} {name}" for n, name in enumerate(names, 1)]
    width, height = 3.0 + side + 0.5, 2.45 + max(0.6, _name_height(labels))
    figure = Figure(figsize=(width * columns, height * rows))
    for number, example in enumerate(examples):
        row, column = divmod(number, columns)
        left, bottom = column * width + 0.15, (rows - 1 - row) * height + 0.15
        matrix = _axes(figure, left, bottom, 2.3, 2.3)
        _tile(matrix, example.panels.reshape(3, 3, *example.panels.shape[1:]))
        matrix.set_yticks([])
        matrix.add_patch(_frame(example.odd % 3, example.odd // 3))
        matrix.set_title(example.title, fontsize=8, loc="left", pad=8)
        _draw_errors(_axes(figure, left + 2.7, bottom, side, 2.3), example, labels)
    return figure


def _draw_errors(axes: Axes, example: OddExample, labels: Sequence[str]) -> None:
    concepts = len(labels)
    axes.imshow(
        example.errors, cmap="Greys", vmin=0, aspect="auto", extent=(0, concepts, NUM_PANELS, 0)
    )
    axes.add_patch(_frame(0, example.odd, width=concepts))
    _name_columns(axes, labels)
    axes.set_yticks([number + 0.5 for number in range(NUM_PANELS)])
    axes.set_yticklabels([str(number) for number in range(1, NUM_PANELS + 1)], fontsize=7)


def draw_answers(
    panels: Float[np.ndarray, "problems 9 size size"],
    missing: Bool[np.ndarray, "problems 9"],
    *,
    titles: Sequence[str] = (),
    columns: int = 4,
) -> Figure:
    """Matrices whose missing panels are generated ones, framed in red."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(1.9 * columns, 2.2 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    for number, axes in enumerate(grid.flat[: len(panels)]):
        _tile(axes, panels[number].reshape(3, 3, *panels.shape[2:]))
        axes.set_yticks([])
        axes.set_aspect("equal")
        for position in np.flatnonzero(missing[number]).tolist():
            axes.add_patch(_frame(position % 3, position // 3))
        if titles:
            axes.set_title(fill(titles[number], 30), fontsize=8)
    return figure


def _axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Axes at a place given in inches."""
    across, up = figure.get_size_inches()
    return figure.add_axes((left / across, bottom / up, width / across, height / up))


def _name_height(names: Sequence[str]) -> float:
    """Inches that the longest of slanted names takes above its axes."""
    points = TextPath((0, 0), max(names, key=len), size=_NAME_SIZE).get_extents().width
    return points / 72 * math.sin(math.radians(_SLANT)) + 0.15


def _name_columns(axes: Axes, names: Sequence[str]) -> None:
    axes.set_xticks([number + 0.5 for number in range(len(names))])
    axes.set_xticklabels(
        names, fontsize=_NAME_SIZE, rotation=_SLANT, ha="left", rotation_mode="anchor"
    )
    axes.xaxis.tick_top()
    axes.tick_params(length=0)


def _tile(axes: Axes, images: Float[np.ndarray, "rows columns size size"]) -> None:
    """Pictures in cells of one by one, thin lines between them."""
    rows, columns, size = images.shape[:3]
    whole = images.transpose(0, 2, 1, 3).reshape(rows * size, columns * size)
    axes.imshow(
        whole, cmap="gray", vmin=0, vmax=1, aspect="auto", extent=(0, columns, rows, 0),
        interpolation="nearest",
    )  # fmt: skip
    axes.set_xticks([])
    axes.tick_params(length=0)
    for row in range(1, rows):
        axes.axhline(row, color="0.6", linewidth=0.6)
    for column in range(1, columns):
        axes.axvline(column, color="0.6", linewidth=0.6)


def _frame(column: float, row: float, width: float = 1) -> Rectangle:
    return Rectangle(
        (column, row), width, 1, fill=False, edgecolor=FRAME, linewidth=2, zorder=3, clip_on=False
    )
