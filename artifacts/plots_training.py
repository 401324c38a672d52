"""Validation accuracy in the course of trainings, and when it reached what was asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from artifacts.paper_tables import LABELS
from artifacts.plots import COLORS, OTHER_COLOR, STYLE

GOAL = 0.95
"""Accuracy whose first validation is marked beside the paper's."""
_LINES: Sequence[Any] = (
    "-", "--", "-.", ":", (0, (7, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (7, 2, 1, 2)), (0, (1, 3)),
)  # fmt: skip
"""Of a model's settings, in order."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One training: a row a validation, with ``step`` and ``validation_accuracy``."""

    model: str
    configuration: str
    label: str
    """Model, preset, labels: what the seeds of a setting share."""
    rows: pd.DataFrame
    steps: int
    seconds: float
    """Of the whole training; validations are taken as evenly spread over it."""
    paper: float | None
    """The paper's accuracy on test problems, None where it has none."""

    def reached(self, goal: float | None) -> tuple[int, float] | None:
        """Step and seconds of the first validation of ``goal`` at least; None if there is none."""
        if goal is None:
            return None
        steps = self.rows.loc[self.rows["validation_accuracy"] >= goal, "step"].to_list()
        return (int(steps[0]), steps[0] / self.steps * self.seconds) if steps else None


def training_curves(curves: Sequence[Curve]) -> Figure:
    """Validation accuracy against steps and against minutes: a row a configuration, a line a seed.

    A circle is the first validation of :data:`GOAL`, a star that of the paper's accuracy.
    """
    names = [name for name in LABELS if any(c.configuration == name for c in curves)]
    names += [c for c in dict.fromkeys(c.configuration for c in curves) if c not in names]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(12, 0.9 + 2.6 * len(names)), layout="constrained")
        grid = figure.subplots(len(names), 2, squeeze=False, sharey=True)
        styles = _styles(curves)
        for row, name in zip(grid, names, strict=True):
            _draw(row, [c for c in curves if c.configuration == name], styles)
            row[0].set_ylabel(f"{LABELS.get(name, name)}\nvalidation accuracy (%)")
        grid[-1, 0].set_xlabel("optimiser steps")
        grid[-1, 1].set_xlabel("minutes of training")
    return figure


def _styles(curves: Sequence[Curve]) -> dict[str, Any]:
    """Line style of each setting, the same in every panel; models differ in colour."""
    labels: dict[str, dict[str, None]] = {}
    for curve in curves:
        labels.setdefault(curve.model, {})[curve.label] = None
    return {
        label: _LINES[place % len(_LINES)]
        for of_model in labels.values()
        for place, label in enumerate(of_model)
    }


def _draw(row: Sequence[Axes], curves: Sequence[Curve], styles: Mapping[str, Any]) -> None:
    settings: dict[str, list[Curve]] = {}
    for curve in curves:
        settings.setdefault(curve.label, []).append(curve)
    for label, seeds in settings.items():
        # A seed more is a line more, not a name more.
        count = f", {len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
        for place, curve in enumerate(seeds):
            _draw_curve(row, curve, styles[label], label + count if place == 0 else None)
    goals = {GOAL, *(curve.paper for curve in curves if curve.paper is not None)}
    for axes in row:
        for goal in goals:
            axes.axhline(100 * goal, color="#888888", linewidth=0.8, linestyle=(0, (1, 2)))
        axes.set_ylim(0, 102)
        axes.set_xlim(left=0)
    handles, labels = row[1].get_legend_handles_labels()
    for shape, text in (("o", f"first of {100 * GOAL:g} %"), ("*", "first of the paper's")):
        handles.append(Line2D([], [], color="#333333", marker=shape, linestyle=""))
        labels.append(text)
    row[1].legend(
        handles, labels, fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0)
    )


def _draw_curve(row: Sequence[Axes], curve: Curve, line: Any, label: str | None) -> None:
    color = COLORS.get(curve.model, OTHER_COLOR)
    step = curve.rows["step"].to_numpy()
    accuracy = 100 * curve.rows["validation_accuracy"].to_numpy()
    scales = (1.0, curve.seconds / 60 / curve.steps)
    for axes, scale in zip(row, scales, strict=True):
        axes.plot(
            step * scale, accuracy, linestyle=line, linewidth=1, label=label, color=color, alpha=0.8
        )
        for goal, shape, size in ((GOAL, "o", 6), (curve.paper, "*", 8)):
            found = curve.reached(goal)
            if found is not None and goal is not None:
                height = accuracy[(step < found[0]).sum()]
                axes.plot(
                    [found[0] * scale], [height], shape, color=color, markersize=size,
                    markeredgecolor="white", markeredgewidth=0.5, zorder=3,
                )  # fmt: skip
