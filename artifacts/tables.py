"""Results tables: the paper's layout with the published values beside ours.

A :class:`ResultsTable` holds the cells as text for people (Markdown, terminal) and the long
frame behind them for machines (CSV).  A cell is RAVEN/I-RAVEN accuracy in percent.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO

import pandas as pd
from rich.table import Table

from artifacts import published
from raise_model.specs import EvaluationSpec

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
_LABELS = {**CONFIGURATIONS, **UNIFORM}
_MARKS = {"inside": "=", "above": "+", "below": "-"}
MISSING = "·"


@dataclass(frozen=True, kw_only=True)
class ResultsTable:
    """One table, ready to print."""

    title: str
    heading: Sequence[str]
    """What the numbers rest on, one statement a line."""
    cells: pd.DataFrame
    """The paper's layout, all text."""
    details: pd.DataFrame
    """One row a number: both spreads, the published value, the mark; shares in [0, 1]."""
    notes: Sequence[str]
    missing: Sequence[str]
    """What was asked for and has no result."""

    def to_markdown(self) -> str:
        """Heading, cells, details, notes and what is missing."""
        parts = [f"## {self.title}", "\n".join(f"- {line}" for line in self.heading)]
        parts.append(_markdown(self.cells))
        if not self.details.empty:
            parts.append(_markdown(_readable(self.details)))
        parts.append("\n".join(f"- {note}" for note in (*self.notes, *self._missing_lines())))
        return "\n\n".join(parts) + "\n"

    def to_csv(self) -> str:
        """The details, shares with all their digits."""
        buffer = StringIO()
        self.details.to_csv(buffer, index=False)
        return buffer.getvalue()

    def to_rich(self) -> Table:
        """For a terminal: the cells; heading above, notes below."""
        table = Table(
            title="\n".join([self.title, *self.heading]),
            caption="\n".join([*self.notes, *self._missing_lines()]),
            title_justify="left",
            caption_justify="left",
        )
        for column in self.cells.columns:
            table.add_column(str(column))
        for row in self.cells.itertuples(index=False):
            table.add_row(*(str(value) for value in row))
        return table

    def to_rows(self) -> list[dict[str, str]]:
        """The cells as records, e.g. for a Prefect table artifact."""
        return [{str(k): str(v) for k, v in row.items()} for row in self.cells.to_dict("records")]

    def _missing_lines(self) -> list[str]:
        if not self.missing:
            return []
        shown = ", ".join(self.missing[:5])
        more = len(self.missing) - 5
        return [
            f"PARTIAL: {len(self.missing)} results are missing: {shown}"
            + (f" and {more} more" if more > 0 else "")
        ]


def results_table(
    summary: pd.DataFrame,
    *,
    preset: str,
    expected: Sequence[tuple[str, EvaluationSpec]] = (),
    results: pd.DataFrame | None = None,
) -> ResultsTable:
    """Table of bottom-right selection from :func:`artifacts.aggregate.summarise`.

    :param expected: (trial, evaluation) pairs that were asked for; those that ``results``
        (:func:`artifacts.aggregate.results`) lacks are named as missing.
    """
    chosen = summary[(summary["protocol"] == "bottom_right") & (summary["split"] == "test")]
    details = _details(chosen)
    return ResultsTable(
        title="Bottom-right selection accuracy (%), RAVEN/I-RAVEN",
        heading=_heading(chosen, preset),
        cells=_cells(details),
        details=details,
        notes=_notes(details),
        missing=_missing(expected, results),
    )


def _missing(
    expected: Sequence[tuple[str, EvaluationSpec]], results: pd.DataFrame | None
) -> list[str]:
    found = set()
    if results is not None:
        found = set(zip(results["trial"], results["evaluation"], strict=True))
    return [f"{t} on {s.dataset}" for t, s in expected if (t, s.name) not in found]


def _space(options: str) -> str:
    return "pixel" if '"pixel"' in options else "latent"


def _details(summary: pd.DataFrame) -> pd.DataFrame:
    """The summary with the published value and the mark of each row, in the table's order."""
    rows = []
    for row in summary.to_dict("records"):
        space = _space(row["options"])
        paper = published.bottom_right(
            model=row["model"], dataset=row["dataset"], configuration=row["configuration"],
            label_ratio=row["label_ratio"], space=space,
        )  # fmt: skip
        half_width = row["t_high"] - row["mean"]
        mark = published.mark(row["mean"], half_width, row["seeds"], paper) if paper else None
        rows.append(
            {str(k): v for k, v in row.items() if k not in ("protocol", "options", "split")}
            | {
                "space": space,
                "published": paper.accuracy if paper else math.nan,
                "mark": mark or "",
            }
        )
    columns = [c for c in summary.columns if c not in ("protocol", "options", "split")]
    frame = pd.DataFrame(rows, columns=pd.Index([*columns, "space", "published", "mark"]))
    order = {name: place for place, name in enumerate(_LABELS)}
    places = frame["configuration"].map(lambda name: order.get(name, len(order)))
    return (
        frame.assign(place=places)
        .sort_values(["model", "space", "place", "dataset"], kind="stable")
        .drop(columns="place")
        .reset_index(drop=True)
    )


def _row_label(row: pd.Series) -> tuple[str, ...]:
    """What makes a row of the table: everything that is not its column or its data set."""
    return (
        str(row["model"]), str(row["space"]), str(row["label_map"]), str(row["train_dataset"]),
        f"{row['image_size']}px", str(row["precision"]), f"{row['steps']} steps",
        "unlabelled" if row["label_ratio"] == 0 else "labelled",
    )  # fmt: skip


def _cells(details: pd.DataFrame) -> pd.DataFrame:
    """Rows: a training setting, then the paper's; columns: Average and the configurations."""
    present = list(dict.fromkeys(details["configuration"]))
    columns = {name: _LABELS.get(name, name) for name in present}
    with_average = set(CONFIGURATIONS) <= set(present)
    header = ["model", *(["Average"] if with_average else []), *columns.values()]
    rows = []
    groups = (
        details.groupby([details.apply(_row_label, axis=1)], sort=False) if len(details) else []
    )
    for (label,), group in groups:
        ours: dict[str, str] = {"model": _shown_model(label, labels)}
        paper: dict[str, str] = {"model": f"{published.model_label(label[0])} (paper)"}
        for name, column in columns.items():
            cell = group[group["configuration"] == name]
            ours[column], paper[column] = _pair(cell, "mean"), _pair(cell, "published")
        if with_average:
            ours["Average"] = _average(group, "mean")
            paper["Average"] = _average(group, "published")
        rows += [ours, paper]
    return pd.DataFrame(rows, columns=pd.Index(header))


def _shown_model(label: Sequence[str], labels: Sequence[Sequence[str]]) -> str:
    """Name of a row; settings are added where the table has several."""
    name = published.model_label(label[0]) + (" (pixel)" if label[1] == "pixel" else "")
    same = [other for other in labels if other[:2] == tuple(label[:2])]
    differing = [
        label[place] for place in range(2, len(label)) if len({other[place] for other in same}) > 1
    ]
    return " ".join([name, *differing])


def _sides(cell: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of a cell: RAVEN, then I-RAVEN (of whichever source)."""
    is_iraven = cell["dataset"].str.startswith("iraven")
    return [cell[~is_iraven], cell[is_iraven]]


def _pair(cell: pd.DataFrame, column: str) -> str:
    texts = [_number(side, column) for side in _sides(cell)]
    return MISSING if set(texts) == {MISSING} else "/".join(texts)


def _number(side: pd.DataFrame, column: str) -> str:
    if side.empty or math.isnan(side.iloc[0][column]):
        return MISSING
    row = side.iloc[0]
    text = f"{100 * row[column]:.1f}"
    if column == "published":
        return text
    spread = "" if row["seeds"] < 2 else f"±{100 * row['std']:.1f}"
    return text + spread + _MARKS.get(row["mark"], "")


def _average(group: pd.DataFrame, column: str) -> str:
    """Mean over the seven configurations, where all of them have a value."""
    texts = []
    for side in _sides(group[group["configuration"].isin(CONFIGURATIONS)]):
        values = side.drop_duplicates("configuration")[column].dropna()
        complete = len(values) == len(CONFIGURATIONS)
        texts.append(f"{100 * values.mean():.1f}" if complete else MISSING)
    return MISSING if set(texts) == {MISSING} else "/".join(texts)


def _heading(summary: pd.DataFrame, preset: str) -> list[str]:
    def listed(column: str) -> str:
        return ", ".join(str(value) for value in dict.fromkeys(summary[column]))

    ratios = {
        _LABELS.get(row["configuration"], row["configuration"]): f"{100 * row['label_ratio']:g}%"
        for row in summary.to_dict("records")
    }
    if len(set(ratios.values())) == 1:
        ratio_text = next(iter(ratios.values()))
    else:
        ratio_text = ", ".join(f"{name} {ratio}" for name, ratio in ratios.items())
    if summary.empty:
        return [f"preset {preset}", "no results yet"]
    return [
        f"preset {preset}; {listed('steps')} optimiser steps; panels of "
        f"{listed('image_size')} pixels; precision {listed('precision')}",
        f"rule labels: {ratio_text} of the training problems; label map {listed('label_map')}",
        f"trained on {listed('train_dataset')}; seeds {listed('seeds')}; "
        f"rounds {listed('rounds')}; test problems {listed('problems')}",
    ]


def _notes(details: pd.DataFrame) -> list[str]:
    notes = [
        "± is the sample standard deviation over seeds (n - 1); t is Student's 95 % interval "
        "over seeds, Wilson the 95 % interval over the test problems of one seed; rounds are "
        "passes over one checkpoint",
    ]
    if (details["mark"] != "").any():
        notes.append(
            "= the published value is inside our t interval widened by its own standard error "
            "(+ ours is above, - below)"
        )
    elif not details.empty:
        notes.append(
            f"no marks against the paper with fewer than {published.MINIMUM_SEEDS} seeds "
            "or without a published value"
        )
    if not details.empty and (details["dataset"] == "iraven_overlapping").any():
        notes.append("iraven_overlapping: part of the test contexts was seen in training")
    return notes


def _readable(details: pd.DataFrame) -> pd.DataFrame:
    """The details for people: percent, intervals in one cell."""

    def percent(value: float) -> str:
        return MISSING if math.isnan(value) else f"{100 * value:.1f}"

    def interval(low: float, high: float) -> str:
        return MISSING if math.isnan(low) else f"{100 * low:.1f}..{100 * high:.1f}"

    rows = [
        {
            "model": row["model"],
            "configuration": _LABELS.get(row["configuration"], row["configuration"]),
            "data": row["dataset"],
            "space": row["space"],
            "mean": percent(row["mean"]),
            "std": percent(row["std"]),
            "t 95%": interval(row["t_low"], row["t_high"]),
            "Wilson 95%": interval(row["wilson_low"], row["wilson_high"]),
            "lowest seed": percent(row["lowest"]),
            "rounds std": percent(row["rounds_std"]),
            "rules": percent(row["rule_accuracy"]),
            "seeds": str(row["seeds"]),
            "paper": percent(row["published"]),
            "vs paper": row["mark"] or MISSING,
        }
        for row in details.to_dict("records")
    ]
    return pd.DataFrame(rows)


def _markdown(frame: pd.DataFrame) -> str:
    """A pipe table (pandas would need another package for it)."""
    lines = [list(map(str, frame.columns)), ["---"] * len(frame.columns)]
    lines += [[str(value) for value in row] for row in frame.itertuples(index=False)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
