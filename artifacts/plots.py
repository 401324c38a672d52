"""Figures of a report from numbers and training curves; one function each, a Figure returned.

They are drawn without pyplot, so that nothing of the caller's is touched.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from artifacts import published
from artifacts.numbers import Number
from artifacts.paper_cells import Extension, PaperCell
from artifacts.paper_tables import LABELS
from artifacts.published import model_label
from artifacts.tables import CONFIGURATIONS

COLORS: Mapping[str, str] = {
    "raise": "#7b3fa0",
    "raise_plus": "#c23b75",
    "transformer": "#d97a00",
    "clap": "#2a8a43",
    "anp": "#1f6fb4",
    "lgpp": "#444444",
}
"""Of a model in every figure; the paper's choice where it has one."""
OTHER_COLOR = "#8a7a00"
STYLE: Any = {  # names of settings have a type of their own in later matplotlib
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "raise-rpm",
    "svg.fonttype": "path",
}


def accuracy_by_distractors(
    cells: Sequence[PaperCell], dataset: str, extensions: Sequence[Extension] = ()
) -> Figure:
    """Accuracy at arbitrary positions against the number of distractors.

    A column a configuration, a row a number of targets; ours drawn through with the deviation
    over seeds, the paper's dashed (its figures 3 and 9).

    :param dataset: ``RAVEN`` or ``I-RAVEN``.
    :param extensions: numbers of models that the paper does not have.
    """
    chosen = [
        c for c in cells if c.cell.table == "arbitrary_position" and c.cell.dataset == dataset
    ]
    places = {c.cell.place for c in chosen}
    added = [each for each in extensions if each.cell.place in places]
    with matplotlib.rc_context(STYLE):
        # Fixed places: fourteen panels of one size need no layout engine, which is slow.
        figure = Figure(figsize=(14, 5.2))
        figure.subplots_adjust(left=0.045, right=0.995, top=0.87, bottom=0.17, wspace=0.1)
        grid = figure.subplots(2, len(CONFIGURATIONS), sharex=True, sharey=True)
        for row, targets in zip(grid, (1, 2), strict=True):
            for axes, (name, label) in zip(row, CONFIGURATIONS.items(), strict=True):
                here = [
                    c for c in chosen
                    if c.cell.configuration == name and c.cell.num_targets == targets
                ]  # fmt: skip
                beside = [
                    each for each in added
                    if each.cell.configuration == name and each.cell.num_targets == targets
                ]  # fmt: skip
                _draw_distractors(axes, here, beside)
                axes.set_title(f"{label}, |T| = {targets}", fontsize=9)
        _name_axes(grid)
        figure.suptitle(
            f"Selection at arbitrary positions, {dataset}: ours (lines) and the paper (dashed)"
        )
        _legend(figure, grid)
    return figure


def _draw_distractors(
    axes: Axes, cells: Sequence[PaperCell], extensions: Sequence[Extension]
) -> None:
    ticks = sorted({cell.cell.num_distractors or 0 for cell in cells})
    places = {value: place for place, value in enumerate(ticks)}
    for model in dict.fromkeys(cell.model for cell in cells):
        line = [cell for cell in cells if cell.model == model]
        color = COLORS.get(model, OTHER_COLOR)
        x = [places[cell.cell.num_distractors or 0] for cell in line]
        paper = [100 * cell.cell.value.accuracy for cell in line]
        axes.plot(
            x, paper, "--", color=color, linewidth=1, alpha=0.7,
            label=f"{model_label(model)} (paper)",
        )  # fmt: skip
        ours = [(place, cell.ours) for place, cell in zip(x, line, strict=True) if cell.ours]
        _draw_ours(axes, model, ours)
    for model in dict.fromkeys(each.number.setting["model"] for each in extensions):
        of_model = [each for each in extensions if each.number.setting["model"] == model]
        _draw_ours(axes, model, [(places[e.cell.num_distractors or 0], e.number) for e in of_model])
    chance = [100 / (value + 1) for value in ticks]
    axes.plot(range(len(ticks)), chance, ":", color="#999999", label="chance")
    axes.set_xticks(range(len(ticks)), [str(value) for value in ticks])
    axes.set_ylim(0, 102)


def _draw_ours(axes: Axes, model: str, points: Sequence[tuple[int, Number]]) -> None:
    if points:
        axes.errorbar(
            [place for place, _ in points],
            [100 * number.mean for _, number in points],
            yerr=[100 * np.nan_to_num(number.spreads["std"]) for _, number in points],
            color=COLORS.get(model, OTHER_COLOR), marker="o", markersize=3, linewidth=1.6,
            label=model_label(model),
        )  # fmt: skip


def _name_axes(grid: np.ndarray) -> None:
    for axes in grid[-1]:
        axes.set_xlabel("distractors $N_c$")
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy (%)")


def _legend(figure: Figure, grid: np.ndarray) -> None:
    """One for all panels: what stands in any of them."""
    named = _named(grid)
    figure.legend(
        list(named.values()), list(named), loc="lower center", ncols=len(named), frameon=False,
        columnspacing=1.2,
    )  # fmt: skip


def _named(grid: np.ndarray) -> dict[str, Any]:
    """Handles by label, each once."""
    named: dict[str, Any] = {}
    for axes in grid.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    return named


def label_ratio_curves(groups: Sequence[Sequence[Number]]) -> Figure:
    """Bottom-right accuracy against the share of labelled training problems.

    :param groups: as :func:`artifacts.studies.ratio_groups` gives them.
    """
    names = list(dict.fromkeys(group[0].setting["configuration"] for group in groups))
    with matplotlib.rc_context(STYLE):
        # One panel is as wide as a telephone's screen.
        figure = Figure(figsize=(3.5 * len(names), 3.4), layout="constrained")
        grid = figure.subplots(1, len(names), squeeze=False, sharey=True)
        for axes, name in zip(grid[0], names, strict=True):
            _draw_ratios(axes, [g for g in groups if g[0].setting["configuration"] == name])
            axes.set_title(LABELS.get(name, name))
            axes.set_xlabel("labelled training problems (%)")
        grid[0, 0].set_ylabel("accuracy (%)")
        named = _named(grid)
        figure.legend(
            list(named.values()), list(named), loc="outside lower center", ncols=2, frameon=False,
            fontsize=8,
        )  # fmt: skip
    return figure


def _draw_ratios(axes: Axes, groups: Sequence[Sequence[Number]]) -> None:
    ratios = sorted({number.setting["label_ratio"] for group in groups for number in group})
    places = {ratio: place for place, ratio in enumerate(ratios)}
    for group in groups:
        s = group[0].setting
        is_impartial = s["dataset"].startswith("iraven")
        axes.errorbar(
            [places[number.setting["label_ratio"]] for number in group],
            [100 * number.mean for number in group],
            yerr=[100 * np.nan_to_num(number.spreads["std"]) for number in group],
            color=COLORS.get(s["model"], OTHER_COLOR), marker="o" if is_impartial else "s",
            linestyle="-" if is_impartial else "--", markersize=4, capsize=2,
            label=f"{model_label(s['model'])}, {published.dataset_title(s['dataset'])}",
        )  # fmt: skip
    axes.set_xticks(range(len(ratios)), [f"{100 * ratio:g}" for ratio in ratios])
    axes.axhline(12.5, color="#999999", linestyle=":", label="chance")
    axes.set_ylim(0, 102)


def to_svg(figure: Figure) -> bytes:
    """The same bytes for the same figure."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, facecolor="white")
    return buffer.getvalue()


def to_png(figure: Figure, dpi: int = 120) -> bytes:
    """For places that show no SVG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None}, facecolor="white")
    return buffer.getvalue()
