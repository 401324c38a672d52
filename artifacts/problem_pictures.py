"""Pictures of problems: the matrix, its answer, the candidates and the rules in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from raise_model.data.grammar import CONFIGURATIONS
from raise_model.data.schema import Manifest, Problem
from raise_model.matrix import NUM_CANDIDATES, NUM_PANELS

ANSWER_COLOR = "#d55e00"
"""Vermilion of a palette that colour-blind readers tell apart."""
WIDTH, MATRIX, CANDIDATES, LINE = 6.4, 4.2, 4.3, 0.2
"""Inches: of the page, the matrix, the candidates below it, and a line of text."""
_COMPONENTS = {
    "left_right": ("left", "right"),
    "up_down": ("up", "down"),
    "out_in_center": ("outer", "inner"),
    "out_in_grid": ("outer", "inner"),
}
_ATTRIBUTES: Mapping[str, str] = {"number_position": "Number/Position"}
_SIGNS = {-1: "minus", 1: "plus"}


def component_name(configuration: str, component: int) -> str:
    """``left``, ``outer`` ...; ``entities`` where there is one component only."""
    names = _COMPONENTS.get(configuration.removesuffix("_uni"), ("entities",))
    return names[component]


def rules_in_words(problem: Problem, configuration: str) -> list[str]:
    """One line a component, e.g. ``left: Type progression +1; Size constant``."""
    lines = []
    for component in range(len(CONFIGURATIONS[configuration].components)):
        texts = []
        for rule in problem.rules:
            if rule["component"] == component:
                attribute: str = rule["attribute"]
                words = [_ATTRIBUTES.get(attribute, attribute.capitalize())]
                words.append(rule["rule"].replace("_", " "))
                if rule["value"]:
                    value = rule["value"]
                    is_sign = rule["rule"] == "arithmetic"
                    words.append(_SIGNS[value] if is_sign else f"{value:+d}")
                texts.append(" ".join(words))
        lines.append(f"{component_name(configuration, component)}: {'; '.join(texts)}")
    return lines


def changes_in_words(problem: Problem, configuration: str) -> list[str]:
    """By candidate what differs from the answer; empty texts where the source does not say."""
    if problem.modified is None:
        return [""] * NUM_CANDIDATES
    single = len(CONFIGURATIONS[configuration].components) == 1
    texts = []
    for changed in problem.modified:
        words = [
            name[:-1] if single else f"{component_name(configuration, int(name[-1]))} {name[:-1]}"
            for name in changed
        ]
        texts.append("\n".join(words))
    return texts


def _draw(axes: Axes, panel: UInt8[np.ndarray, "160 160"], *, framed: bool = False) -> None:
    axes.imshow(panel, cmap="gray", vmin=0, vmax=255)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_edgecolor(ANSWER_COLOR if framed else "black")
        spine.set_linewidth(3 if framed else 0.8)


def _hide(axes: Axes) -> None:
    _draw(axes, np.full((160, 160), 255, np.uint8), framed=True)
    axes.text(0.5, 0.5, "?", transform=axes.transAxes, ha="center", va="center", fontsize=28)


def draw_problem(
    manifest: Manifest, problem: Problem, *, candidates: bool = True, answer: bool = True
) -> Figure:
    """The matrix with its rules, and the candidates with what each changes.

    :param answer: frame the right candidate and fill it in; otherwise a question mark.
    """
    lines = rules_in_words(problem, manifest.configuration)
    head = 0.5 + LINE * len(lines)
    height = head + MATRIX + 0.1 + (CANDIDATES if candidates else 0)
    figure = plt.figure(figsize=(WIDTH, height))
    margin = (WIDTH - MATRIX) / 2
    grid = figure.add_gridspec(
        3, 3, wspace=0.04, hspace=0.04, left=margin / WIDTH, right=1 - margin / WIDTH,
        top=1 - head / height, bottom=1 - (head + MATRIX) / height,
    )  # fmt: skip
    shown = [*problem.panels[: NUM_PANELS - 1], problem.panels[NUM_PANELS - 1 + problem.target]]
    for place, panel in enumerate(shown):
        axes = figure.add_subplot(grid[place // 3, place % 3])
        if place == NUM_PANELS - 1 and not answer:
            _hide(axes)
        else:
            _draw(axes, panel, framed=place == NUM_PANELS - 1)
    if candidates:
        below = figure.add_gridspec(
            2, 4, wspace=0.12, hspace=0.6, left=0.04, right=0.96,
            top=(CANDIDATES - 0.35) / height, bottom=0.45 / height,
        )  # fmt: skip
        _draw_candidates(figure, below, problem, manifest.configuration, answer)
    title = f"{manifest.dataset}/{manifest.configuration}/{problem.index} ({manifest.split})"
    figure.suptitle(title, y=1 - 0.1 / height, va="top", fontsize=12)
    for place, line in enumerate(lines):
        figure.text(0.5, 1 - (0.4 + LINE * place) / height, line, ha="center", va="top", fontsize=8)
    return figure


def _draw_candidates(
    figure: Figure, grid: GridSpec, problem: Problem, configuration: str, answer: bool
) -> None:
    changes = changes_in_words(problem, configuration)
    for number in range(NUM_CANDIDATES):
        axes = figure.add_subplot(grid[number // 4, number % 4])
        is_answer = answer and number == problem.target
        _draw(axes, problem.panels[NUM_PANELS - 1 + number], framed=is_answer)
        axes.set_title(
            f"{number}: answer" if is_answer else str(number), fontsize=9, pad=3,
            color=ANSWER_COLOR if is_answer else "black",
        )  # fmt: skip
        # The answer's lack of a caption would give it away.
        axes.set_xlabel(changes[number] if answer else "", fontsize=7, labelpad=3)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A problem in a gallery."""

    manifest: Manifest
    problem: Problem


def draw_gallery(problems: Sequence[Shown], *, columns: int = 4) -> Figure:
    """Matrices with their answers framed, titled by name."""
    columns = min(columns, len(problems))
    rows = -(-len(problems) // columns)
    figure = plt.figure(figsize=(2.6 * columns, 2.9 * rows))
    outer = figure.add_gridspec(
        rows, columns, wspace=0.12, hspace=0.2, left=0.02, right=0.98, bottom=0.02,
        top=1 - 0.3 / figure.get_figheight(),
    )  # fmt: skip
    for number, shown in enumerate(problems):
        cell = outer[number // columns, number % columns]
        frame = figure.add_subplot(cell)
        frame.axis("off")
        manifest, problem = shown.manifest, shown.problem
        name = f"{manifest.dataset}/{manifest.configuration}/{problem.index}"
        frame.set_title(name, fontsize=8, pad=3)
        inner = cell.subgridspec(3, 3, wspace=0.04, hspace=0.04)
        for place in range(NUM_PANELS):
            axes = figure.add_subplot(inner[place // 3, place % 3])
            last = place == NUM_PANELS - 1
            panel = problem.panels[place + (problem.target if last else 0)]
            _draw(axes, panel, framed=last)
    return figure
