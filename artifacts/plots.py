"""Figures of a report from numbers and training curves; one function each, a Figure returned.

They are drawn without pyplot, so that nothing of the caller's is touched.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from artifacts import published
from artifacts.numbers import Number
from artifacts.paper_cells import PaperCell
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
_OTHER_COLOR = "#8a7a00"
_STYLE: Any = {  # names of settings have a type of their own in later matplotlib
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "raise-rpm",
    "svg.fonttype": "path",
}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One training: a row a validation, with ``step`` and ``validation_accuracy``."""

    model: str
    configuration: str
    label: str
    rows: pd.DataFrame
    steps: int
    seconds: float
    """Of the whole training; validations are taken as evenly spread over it."""


def accuracy_by_distractors(cells: Sequence[PaperCell], dataset: str) -> Figure:
    """Accuracy at arbitrary positions against the number of distractors.

    A column a configuration, a row a number of targets; ours drawn through with the deviation
    over seeds, the paper's dashed (its figures 3 and 9).

    :param dataset: ``RAVEN`` or ``I-RAVEN``.
    """
    chosen = [
        c for c in cells if c.cell.table == "arbitrary_position" and c.cell.dataset == dataset
    ]
    with matplotlib.rc_context(_STYLE):
        # Fixed places: fourteen panels of one size need no layout engine, which is slow.
        figure = Figure(figsize=(14, 5))
        figure.subplots_adjust(left=0.045, right=0.995, top=0.87, bottom=0.17, wspace=0.1)
        grid = figure.subplots(2, len(CONFIGURATIONS), sharex=True, sharey=True)
        for row, targets in zip(grid, (1, 2), strict=True):
            for axes, (name, label) in zip(row, CONFIGURATIONS.items(), strict=True):
                here = [
                    c for c in chosen
                    if c.cell.configuration == name and c.cell.num_targets == targets
                ]  # fmt: skip
                _draw_distractors(axes, here)
                axes.set_title(f"{label}, |T| = {targets}", fontsize=9)
        _name_axes(grid)
        figure.suptitle(
            f"Selection at arbitrary positions, {dataset}: ours (lines) and the paper (dashed)"
        )
        _legend(figure, grid[0, 0])
    return figure


def _draw_distractors(axes: Axes, cells: Sequence[PaperCell]) -> None:
    ticks = sorted({cell.cell.num_distractors or 0 for cell in cells})
    places = {value: place for place, value in enumerate(ticks)}
    for model in dict.fromkeys(cell.model for cell in cells):
        line = [cell for cell in cells if cell.model == model]
        color = COLORS.get(model, _OTHER_COLOR)
        x = [places[cell.cell.num_distractors or 0] for cell in line]
        paper = [100 * cell.cell.value.accuracy for cell in line]
        axes.plot(x, paper, "--", color=color, linewidth=1, alpha=0.7)
        ours = [(place, cell.ours) for place, cell in zip(x, line, strict=True) if cell.ours]
        axes.errorbar(
            [place for place, _ in ours],
            [100 * number.mean for _, number in ours],
            yerr=[100 * np.nan_to_num(number.spreads["std"]) for _, number in ours],
            color=color, marker="o", markersize=3, linewidth=1.6, label=model_label(model),
        )  # fmt: skip
    chance = [100 / (value + 1) for value in ticks]
    axes.plot(range(len(ticks)), chance, ":", color="#999999", label="chance")
    axes.set_xticks(range(len(ticks)), [str(value) for value in ticks])
    axes.set_ylim(0, 102)


def _name_axes(grid: np.ndarray) -> None:
    for axes in grid[-1]:
        axes.set_xlabel("distractors $N_c$")
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy (%)")


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False)


def label_ratio_curves(groups: Sequence[Sequence[Number]]) -> Figure:
    """Bottom-right accuracy against the share of labelled training problems.

    :param groups: as :func:`artifacts.own_tables.label_ratio_groups` gives them.
    """
    names = list(dict.fromkeys(group[0].setting["configuration"] for group in groups))
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(max(4.2, 3.6 * len(names)), 3.6), layout="constrained")
        grid = figure.subplots(1, len(names), squeeze=False, sharey=True)
        for axes, name in zip(grid[0], names, strict=True):
            _draw_ratios(axes, [g for g in groups if g[0].setting["configuration"] == name])
            axes.set_title(LABELS.get(name, name))
            axes.set_xlabel("labelled training problems (%)")
        grid[0, 0].set_ylabel("accuracy (%)")
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
            color=COLORS.get(s["model"], _OTHER_COLOR), marker="o" if is_impartial else "s",
            linestyle="-" if is_impartial else "--", markersize=4, capsize=2,
            label=f"{model_label(s['model'])}, {published.dataset_label(s['dataset'])}",
        )  # fmt: skip
    axes.set_xticks(range(len(ratios)), [f"{100 * ratio:g}" for ratio in ratios])
    axes.axhline(12.5, color="#999999", linestyle=":", label="chance")
    axes.set_ylim(0, 102)
    axes.legend(fontsize=8, frameon=False)


def training_curves(curves: Sequence[Curve]) -> Figure:
    """Validation accuracy against steps and against seconds: a row a configuration."""
    names = [name for name in LABELS if any(c.configuration == name for c in curves)]
    names += [c for c in dict.fromkeys(c.configuration for c in curves) if c not in names]
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(11, 0.6 + 2.6 * len(names)), layout="constrained")
        grid = figure.subplots(len(names), 2, squeeze=False, sharey=True)
        for row, name in zip(grid, names, strict=True):
            _draw_training(row, [c for c in curves if c.configuration == name])
            row[0].set_ylabel(f"{LABELS.get(name, name)}\nvalidation accuracy (%)")
        grid[-1, 0].set_xlabel("optimiser steps")
        grid[-1, 1].set_xlabel("seconds of training")
    return figure


def _draw_training(row: Sequence[Axes], curves: Sequence[Curve]) -> None:
    labels: set[str] = set()
    styles = {label: style for label, style in zip(
        dict.fromkeys(curve.label for curve in curves), ("-", "--", "-.", ":") * len(curves),
        strict=False,
    )}  # fmt: skip
    for curve in curves:
        step = curve.rows["step"].to_numpy()
        accuracy = 100 * curve.rows["validation_accuracy"].to_numpy()
        # A seed more is a line more, not a name more.
        label = None if curve.label in labels else curve.label
        labels.add(curve.label)
        for axes, x in zip(row, (step, step / curve.steps * curve.seconds), strict=True):
            axes.plot(
                x, accuracy, styles[curve.label], linewidth=1.2, label=label,
                color=COLORS.get(curve.model, _OTHER_COLOR), alpha=0.8,
            )  # fmt: skip
            axes.set_ylim(0, 102)
    row[1].legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def to_svg(figure: Figure) -> bytes:
    """The same bytes for the same figure."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, facecolor="white")
    return buffer.getvalue()


def to_png(figure: Figure, dpi: int = 120) -> bytes:
    """For places that show no SVG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None}, facecolor="white")
    return buffer.getvalue()
