"""Pictures of concepts: what they draw, where they err, and what is generated with them.

Each function returns a figure; nothing is saved here.  Grey values are shares of white.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from raise_model.matrix import NUM_PANELS

FRAME = "#d7191c"
"""Red of the paper's frames."""
_CELL = 0.5
"""Inches of a small panel."""


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
    left, top, gap = 0.9, 1.0, 0.3
    page = (left + width + gap + side + 0.2, top + height + 0.2)
    figure = plt.figure(figsize=page)
    bottom = 0.2 / page[1]
    axes = figure.add_axes((left / page[0], bottom, width / page[0], height / page[1]))
    _tile(axes, images)
    axes.set_yticks([concept + 0.5 for concept in range(concepts)])
    axes.set_yticklabels([f"concept {concept + 1}" for concept in range(concepts)], fontsize=8)
    axes.set_title("from the smallest to the largest value", fontsize=9)
    start = (left + width + gap) / page[0]
    map_axes = figure.add_axes((start, bottom, side / page[0], height / page[1]))
    map_axes.imshow(
        matrix.T, cmap="Greys", vmin=0, vmax=1, aspect="auto",
        extent=(0, len(attributes), concepts, 0),
    )  # fmt: skip
    for attribute, concept in enumerate(concept_of):
        if concept is not None:
            map_axes.add_patch(_frame(attribute, concept))
    map_axes.set_xticks([number + 0.5 for number in range(len(attributes))])
    map_axes.set_xticklabels(attributes, fontsize=8, rotation=60, ha="left")
    map_axes.xaxis.tick_top()
    map_axes.tick_params(length=0)
    map_axes.set_yticks([])
    return figure


def draw_odd_one_out(
    panels: Float[np.ndarray, "9 size size"],
    errors: Float[np.ndarray, "9 concepts"],
    position: int,
    names: Sequence[str | None],
) -> Figure:
    """The matrix with its odd panel framed, and the error of each panel in each concept.

    :param position: the odd panel, framed in both parts.
    :param names: the attribute matched to each concept, None without.
    """
    concepts = errors.shape[1]
    figure = plt.figure(figsize=(3.6 + 0.5 * concepts + 1.3, 3.9))
    grid = figure.add_gridspec(
        1, 2, width_ratios=(3.2, 0.5 * concepts), left=0.02, right=0.98, bottom=0.05, top=0.74,
        wspace=0.3,
    )  # fmt: skip
    matrix = figure.add_subplot(grid[0])
    _tile(matrix, panels.reshape(3, 3, *panels.shape[1:]))
    matrix.set_yticks([])
    matrix.set_aspect("equal")
    matrix.add_patch(_frame(position % 3, position // 3))
    axes = figure.add_subplot(grid[1])
    shown = axes.imshow(
        errors, cmap="Greys", vmin=0, aspect="auto", extent=(0, concepts, NUM_PANELS, 0)
    )
    axes.add_patch(_frame(0, position, width=concepts))
    labels = [
        str(number) if name is None else f"{number} {name}" for number, name in enumerate(names, 1)
    ]
    axes.set_xticks([number + 0.5 for number in range(concepts)])
    axes.set_xticklabels(labels, fontsize=8, rotation=60, ha="left")
    axes.xaxis.tick_top()
    axes.set_yticks([number + 0.5 for number in range(NUM_PANELS)])
    axes.set_yticklabels([str(number) for number in range(1, NUM_PANELS + 1)], fontsize=8)
    axes.tick_params(length=0)
    axes.set_ylabel("panel", fontsize=9)
    bar = figure.colorbar(shown, ax=axes, fraction=0.06, pad=0.03)
    bar.ax.tick_params(labelsize=7)
    bar.set_label("squared error", fontsize=8)
    return figure


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
    figure, grid = plt.subplots(
        rows, columns, figsize=(1.8 * columns, 2.0 * rows), squeeze=False, layout="constrained"
    )
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    for number, axes in enumerate(grid.flat[: len(panels)]):
        _tile(axes, panels[number].reshape(3, 3, *panels.shape[2:]))
        axes.set_yticks([])
        axes.set_aspect("equal")
        for position in np.flatnonzero(missing[number]).tolist():
            axes.add_patch(_frame(position % 3, position // 3))
        if titles:
            axes.set_title(titles[number], fontsize=8)
    return figure


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
