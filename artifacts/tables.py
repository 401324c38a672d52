"""The results table, in every form it is shown in.

A :class:`ResultsTable` holds the cells as text for people (Markdown, terminal) and the long
frame behind them for machines (CSV).  What stands in it is decided in
:mod:`artifacts.results_table`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pandas as pd
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from artifacts.markdown import pipe_table
from artifacts.numbers import percent

CONFIGURATIONS: Mapping[str, str] = {
    "center": "Center",
    "left_right": "L-R",
    "up_down": "U-D",
    "out_in_center": "O-IC",
    "out_in_grid": "O-IG",
    "grid_2x2": "2x2Grid",
    "grid_3x3": "3x3Grid",
}
"""The seven configurations in the paper's order; their mean is its column Average."""
UNIFORM: Mapping[str, str] = {
    "out_in_grid_uni": "O-IG-Uni",
    "grid_2x2_uni": "2x2Grid-Uni",
    "grid_3x3_uni": "3x3Grid-Uni",
}
AVERAGE: Mapping[str, str] = {"average": "Average"}
MISSING = "·"
NAMES = ("model", "test", "paper")
"""Columns of the cells that name a row; the others are configurations.  ``paper`` is the model
of the paper that a row stands below, :data:`MISSING` where the paper has nothing of the kind."""
_LABELS = {**AVERAGE, **CONFIGURATIONS, **UNIFORM}
_UNBOUNDED = 10_000
"""Characters; wider than any table."""


@dataclass(frozen=True, kw_only=True)
class ResultsTable:
    """One table, ready to print: rich shows it as wide as the console is."""

    title: str
    heading: Sequence[str]
    """What the numbers rest on, one statement a line."""
    cells: pd.DataFrame
    """:data:`NAMES`, then a column a configuration; all text, :data:`MISSING` for nothing."""
    details: pd.DataFrame
    """One row a number: both spreads, the published value where one is comparable, the mark;
    shares in [0, 1]."""
    notes: Sequence[str]
    missing: Sequence[str]
    """What was asked for and has no result."""

    def to_markdown(self) -> str:
        """Heading, cells, details, notes and what is missing."""
        parts = [f"## {self.title}", "\n".join(f"- {line}" for line in self.heading)]
        parts.append(pipe_table(self.cells))
        notes = [*self.notes, *self._missing_lines()]
        if not self.details.empty:
            parts.append(pipe_table(_readable(self.details)))
            notes.append(
                "t is Student's 95 % interval over seeds, Wilson the 95 % interval over the test "
                "problems of one seed; rounds are passes over one checkpoint"
            )
        parts.append("\n".join(f"- {note}" for note in notes))
        return "\n\n".join(parts) + "\n"

    def to_csv(self) -> str:
        """The details, shares with all their digits."""
        buffer = StringIO()
        self.details.to_csv(buffer, index=False)
        return buffer.getvalue()

    def to_rows(self) -> list[dict[str, str]]:
        """The cells as records, e.g. for a Prefect table artifact."""
        return [{str(k): str(v) for k, v in row.items()} for row in self.cells.to_dict("records")]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The paper's layout where it fits, else configurations below one another.

        Prose wraps at the console's width, which a caption of the table would not.
        """
        yield Text(self.title, style="bold")
        yield from map(Text, self.heading)
        yield ""
        if not self.cells.empty:
            wide = self._grid("test", "configuration")
            unbounded = options.update(max_width=_UNBOUNDED)
            fits = Measurement.get(console, unbounded, wide).maximum <= options.max_width
            yield wide if fits else self._grid("configuration", "test")
            yield ""
        yield from map(Text, (*self.notes, *self._missing_lines()))

    def _grid(self, section: str, column: str) -> Table:
        """Rows are models, in parts; one of test and configuration makes parts, one columns."""
        long = self.cells.melt(id_vars=list(NAMES), var_name="configuration", value_name="text")
        texts = long.set_index([section, "model", column])["text"].to_dict()
        orders = {
            "test": list(dict.fromkeys(self.cells["test"])),
            "configuration": [name for name in self.cells.columns if name not in NAMES],
        }
        papers = dict(zip(self.cells["model"], self.cells["paper"], strict=True))
        grid = Table("", *orders[column], box=None, pad_edge=False)
        for each in grid.columns:
            # A number that does not fit goes on in the next line; by default it is cut.
            each.overflow = "fold"
        for part in orders[section]:
            if grid.rows:
                grid.add_row()
            grid.add_row(Text(part, style="bold"))
            above = MISSING
            for model, paper in papers.items():
                found = [texts.get((part, model, name), MISSING) for name in orders[column]]
                if set(found) == {MISSING}:
                    continue
                if paper == MISSING != above:
                    grid.add_row(Text("beyond the paper", style="italic"))
                grid.add_row(*map(Text, (model, *found)))
                above = paper
        return grid

    def _missing_lines(self) -> list[str]:
        if not self.missing:
            return []
        shown = ", ".join(self.missing[:5])
        more = len(self.missing) - 5
        return [
            f"PARTIAL: {len(self.missing)} results are missing: {shown}"
            + (f" and {more} more" if more > 0 else "")
        ]


def _interval(low: float, high: float) -> str:
    return MISSING if math.isnan(low) else f"{percent(low)}..{percent(high)}"


def _seen(row: Mapping[str, Any]) -> str:
    """Share of test problems whose panels training shows, and accuracies on them and others."""
    if math.isnan(row["seen_problems"]):
        return MISSING
    share = row["seen_problems"] / row["problems"]
    apart = f"{percent(row['seen_accuracy'])}, others {percent(row['unseen_accuracy'])}"
    return percent(share) + (f": {apart}" if share else "")


def _readable(details: pd.DataFrame) -> pd.DataFrame:
    """The details for people: percent, intervals in one cell."""
    return pd.DataFrame(
        {
            "model": row["model"],
            "configuration": _LABELS.get(row["configuration"], row["configuration"]),
            "data": row["dataset"],
            "space": row["space"],
            "preset": row["preset"],
            "labels": percent(row["label_ratio"]) or MISSING,
            "mean": percent(row["mean"]),
            "std": percent(row["std"]) or MISSING,
            "t 95%": _interval(row["t_low"], row["t_high"]),
            "Wilson 95%": _interval(row["wilson_low"], row["wilson_high"]),
            "lowest seed": percent(row["lowest"]),
            "rounds std": percent(row["rounds_std"]) or MISSING,
            "rules": percent(row["rule_accuracy"]) or MISSING,
            "seen": _seen(row),
            "seeds": str(row["seeds"]),
            "paper": percent(row["published"]) or MISSING,
            "vs paper": row["mark"] or MISSING,
        }
        for row in details.to_dict("records")
    )
