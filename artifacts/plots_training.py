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
from artifacts.plots import STYLE

GOAL = 0.95
"""Accuracy whose first validation is marked beside the paper's."""
_PALETTE = (
    "#1f6fb4", "#d97a00", "#2a8a43", "#c8102e", "#7b3fa0", "#7a5230", "#e377c2", "#555555",
    "#9a9a00", "#00a3b5",
)  # fmt: skip
"""Of settings, in order; seeds share a colour."""
_LINES: Sequence[Any] = ("-", "--", (0, (1, 1)), "-.")
"""Of settings beyond as many as there are colours."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One training: a row a validation, with ``step`` and ``validation_accuracy``."""

    model: str
    configuration: str
    label: str
    """Model, preset, labels: what the seeds of a setting share.  A colour stands for it in every
    configuration."""
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
        for axes, what in zip(grid.T, ("optimiser steps", "minutes of training"), strict=True):
            axes[0].set_title(f"against {what}", fontsize=9)
            axes[-1].set_xlabel(what)
    return figure


def _styles(curves: Sequence[Curve]) -> dict[str, dict[str, Any]]:
    """Colour and line of each setting, the same in every panel."""
    return {
        label: {
            "color": _PALETTE[place % len(_PALETTE)],
            "linestyle": _LINES[place // len(_PALETTE) % len(_LINES)],
        }
        for place, label in enumerate(dict.fromkeys(curve.label for curve in curves))
    }


def _draw(
    row: Sequence[Axes], curves: Sequence[Curve], styles: Mapping[str, Mapping[str, Any]]
) -> None:
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
    for shape, text in (("o", f"first with {100 * GOAL:g} %"), ("*", "first with the paper's")):
        handles.append(Line2D([], [], color="#333333", marker=shape, linestyle=""))
        labels.append(text)
    row[1].legend(
        handles, labels, fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0)
    )


def _draw_curve(
    row: Sequence[Axes], curve: Curve, style: Mapping[str, Any], label: str | None
) -> None:
    step = curve.rows["step"].to_numpy()
    accuracy = 100 * curve.rows["validation_accuracy"].to_numpy()
    scales = (1.0, curve.seconds / 60 / curve.steps)
    for axes, scale in zip(row, scales, strict=True):
        axes.plot(step * scale, accuracy, linewidth=1.2, label=label, alpha=0.85, **style)
        for goal, shape, size in ((GOAL, "o", 6), (curve.paper, "*", 8)):
            found = curve.reached(goal)
            if found is not None and goal is not None:
                height = accuracy[(step < found[0]).sum()]
                axes.plot(
                    [found[0] * scale], [height], shape, color=style["color"], markersize=size,
                    markeredgecolor="white", markeredgewidth=0.5, zorder=3,
                )  # fmt: skip
