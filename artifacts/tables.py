"""Results tables: the paper's layout with the published values beside ours.

A :class:`ResultsTable` holds the cells as text for people (Markdown, terminal) and the long
frame behind them for machines (CSV).  A cell is RAVEN/I-RAVEN accuracy in percent.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pandas as pd
from rich.table import Table

from artifacts import published
from artifacts.markdown import pipe_table
from artifacts.settings import is_ablation
from raise_model.data.audit import CHANCE_SHARE
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
        parts.append(pipe_table(self.cells))
        if not self.details.empty:
            parts.append(pipe_table(_readable(self.details)))
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

    :param expected: (trial, evaluation) pairs that were asked for; those of this protocol that
        ``results`` (:func:`artifacts.aggregate.results`) lacks are named as missing.
    """
    records = [
        _with_published(row)
        for row in _records(summary)
        if row["protocol"] == "bottom_right" and row["split"] == "test"
    ]
    order = {name: place for place, name in enumerate(_LABELS)}
    records.sort(
        key=lambda r: (r["model"], r["space"], order.get(r["configuration"], 99), r["dataset"])
    )
    columns = [*(c for c in summary.columns if c not in _DROPPED), "space", "published", "mark"]
    return ResultsTable(
        title="Bottom-right selection accuracy (%), RAVEN/I-RAVEN",
        heading=_heading(records, preset),
        cells=_cells(records),
        details=pd.DataFrame(records, columns=pd.Index(columns)),
        notes=_notes(records),
        missing=_missing(expected, results),
    )


_DROPPED = ("protocol", "options", "split", "evaluation")
_OTHER_TESTS = ("iraven_paired", "iraven_overlapping")
"""Test sets that have rows of their own, beside RAVEN/I-RAVEN."""
_Record = dict[str, Any]


def _records(frame: pd.DataFrame) -> list[_Record]:
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]


def _missing(
    expected: Sequence[tuple[str, EvaluationSpec]], results: pd.DataFrame | None
) -> list[str]:
    records = [] if results is None else _records(results)
    found = {(row["trial"], row["evaluation"]) for row in records}
    # Other protocols have tables of their own in the report.
    asked = [(t, s) for t, s in expected if s.protocol == "bottom_right"]
    return [f"{t} on {s.dataset}" for t, s in asked if (t, s.name) not in found]


def _with_published(row: _Record) -> _Record:
    """A row of the summary with the published value (NaN if none) and the mark."""
    space = "pixel" if '"pixel"' in row["options"] else "latent"
    paper = None
    if not _is_ablation(row):
        paper = published.bottom_right(
            model=row["model"],
            dataset=row["dataset"],
            configuration=row["configuration"],
            label_ratio=row["label_ratio"],
            space=space,
        )
    half_width = row["t_high"] - row["mean"]
    mark = published.mark(row["mean"], half_width, row["seeds"], paper) if paper else None
    kept = {key: value for key, value in row.items() if key not in _DROPPED}
    accuracy = paper.accuracy if paper else math.nan
    return kept | {"space": space, "published": accuracy, "mark": mark or ""}


def _is_ablation(row: _Record) -> bool:
    """Whether a row is of a shortened training, which is compared with nothing of the paper."""
    return is_ablation(row["preset"].split("/"))


def _row_label(row: _Record) -> tuple[str, ...]:
    """What makes a row of the table: everything that is not its column or its data set."""
    return (
        row["model"],
        row["space"],
        row["label_map"],
        row["train_dataset"],
        f"{row['image_size']}px",
        row["precision"],
        f"{row['steps']} steps",
        "unlabelled" if row["label_ratio"] == 0 else "labelled",
        row["dataset"] if row["dataset"] in _OTHER_TESTS else "",
        f"({row['preset']})" if _is_ablation(row) else "",
    )


def _cells(records: Sequence[_Record]) -> pd.DataFrame:
    """Rows: a training setting, then the paper's; columns: Average and the configurations."""
    columns = {str(row["configuration"]): _label(row) for row in records}
    with_average = set(CONFIGURATIONS) <= set(columns)
    header = ["model", *(["Average"] if with_average else []), *columns.values()]
    groups: dict[tuple[str, ...], list[_Record]] = {}
    for row in records:
        groups.setdefault(_row_label(row), []).append(row)
    rows = []
    for label, group in groups.items():
        ours = {"model": _shown_model(label, list(groups))}
        paper = {"model": f"{published.compared_label(label[0])} (paper)"}
        for name, column in columns.items():
            cell = [row for row in group if row["configuration"] == name]
            ours[column], paper[column] = _pair(cell, _ours), _pair(cell, _papers)
        if with_average:
            ours["Average"] = _average(group, "mean")
            paper["Average"] = _average(group, "published")
        rows += [ours] if _is_ablation(group[0]) else [ours, paper]
    return pd.DataFrame(rows, columns=pd.Index(header))


def _shown_model(label: Sequence[str], labels: Sequence[Sequence[str]]) -> str:
    """Name of a row; settings are added where the table has several."""
    name = published.model_label(label[0]) + (" (pixel)" if label[1] == "pixel" else "")
    same = [other for other in labels if other[:2] == label[:2]]
    places = [p for p in range(2, len(label)) if len({other[p] for other in same}) > 1]
    return " ".join([name, *(label[place] for place in places)]).rstrip()


def _sides(rows: Sequence[_Record]) -> list[list[_Record]]:
    """RAVEN, then I-RAVEN (of whichever source)."""
    is_iraven = [row["dataset"].startswith("iraven") for row in rows]
    return [
        [row for row, other in zip(rows, is_iraven, strict=True) if other == side]
        for side in (False, True)
    ]


def _joined(texts: Sequence[str]) -> str:
    return MISSING if set(texts) == {MISSING} else "/".join(texts)


def _pair(cell: Sequence[_Record], text: Callable[[_Record], str]) -> str:
    return _joined([text(side[0]) if side else MISSING for side in _sides(cell)])


def _ours(row: _Record) -> str:
    spread = "" if row["seeds"] < 2 else f"±{100 * row['std']:.1f}"
    flag = "†" if _has_leak(row) else ""
    return f"{100 * row['mean']:.1f}{spread}{_MARKS.get(row['mark'], '')}{flag}"


def _has_leak(row: _Record) -> bool:
    """Whether training shows more of the test problems than chance explains."""
    return row["seen_problems"] > CHANCE_SHARE * row["problems"]


def _papers(row: _Record) -> str:
    return _percent(row["published"])


def _average(group: Sequence[_Record], column: str) -> str:
    """Mean over the seven configurations, where all of them have a value."""
    texts = []
    for side in _sides([row for row in group if row["configuration"] in CONFIGURATIONS]):
        values = {row["configuration"]: row[column] for row in side if not math.isnan(row[column])}
        complete = len(values) == len(CONFIGURATIONS)
        texts.append(_percent(sum(values.values()) / len(values)) if complete else MISSING)
    return _joined(texts)


def _heading(records: Sequence[_Record], preset: str) -> list[str]:
    """What every number of the table rests on."""
    if not records:
        return [f"preset {preset}", "no results yet"]

    def listed(column: str) -> str:
        return ", ".join(str(value) for value in dict.fromkeys(row[column] for row in records))

    ratios = {_label(row): f"{100 * row['label_ratio']:g}%" for row in records}
    if len(set(ratios.values())) == 1:
        ratio_text = next(iter(ratios.values()))
    else:
        ratio_text = ", ".join(f"{name} {ratio}" for name, ratio in ratios.items())
    return [
        f"preset {preset}; {listed('steps')} optimiser steps; panels of "
        f"{listed('image_size')} pixels; precision {listed('precision')}",
        f"rule labels: {ratio_text} of the training problems; label map {listed('label_map')}",
        f"trained on {listed('train_dataset')}; seeds {listed('seeds')}; "
        f"rounds {listed('rounds')}; test problems {listed('problems')}",
    ]


def _notes(records: Sequence[_Record]) -> list[str]:
    notes = [
        "± is the sample standard deviation over seeds (n - 1); t is Student's 95 % interval "
        "over seeds, Wilson the 95 % interval over the test problems of one seed; rounds are "
        "passes over one checkpoint",
    ]
    if any(row["mark"] for row in records):
        notes.append(
            "= the published value is inside our t interval widened by its own standard error "
            "(+ ours is above, - below)"
        )
    else:
        notes.append(
            f"no marks against the paper: they need {published.MINIMUM_SEEDS} seeds and a "
            "published value"
        )
    notes += [
        f"† {row['model']} on {row['dataset']}/{row['configuration']}: training shows the nine "
        f"panels of {row['seen_problems']:.0f} of {row['problems']} test problems; seen "
        f"{_percent(row['seen_accuracy'])}, unseen {_percent(row['unseen_accuracy'])}"
        for row in records
        if _has_leak(row)
    ]
    if any(math.isnan(row["seen_problems"]) for row in records):
        notes.append("of some results it is not known whether training shows their test problems")
    return notes


def _label(row: _Record) -> str:
    name = str(row["configuration"])
    return _LABELS.get(name, name)


def _percent(value: float) -> str:
    return MISSING if math.isnan(value) else f"{100 * value:.1f}"


def _interval(low: float, high: float) -> str:
    return MISSING if math.isnan(low) else f"{100 * low:.1f}..{100 * high:.1f}"


def _seen(row: _Record) -> str:
    """Share of test problems whose panels training shows, and accuracies on them and others."""
    if math.isnan(row["seen_problems"]):
        return MISSING
    share = row["seen_problems"] / row["problems"]
    apart = f"{_percent(row['seen_accuracy'])}, others {_percent(row['unseen_accuracy'])}"
    return f"{_percent(share)}" + (f": {apart}" if share else "")


def _readable(details: pd.DataFrame) -> pd.DataFrame:
    """The details for people: percent, intervals in one cell."""
    return pd.DataFrame(
        {
            "model": row["model"],
            "configuration": _label(row),
            "data": row["dataset"],
            "space": row["space"],
            "mean": _percent(row["mean"]),
            "std": _percent(row["std"]),
            "t 95%": _interval(row["t_low"], row["t_high"]),
            "Wilson 95%": _interval(row["wilson_low"], row["wilson_high"]),
            "lowest seed": _percent(row["lowest"]),
            "rounds std": _percent(row["rounds_std"]),
            "rules": _percent(row["rule_accuracy"]),
            "seen": _seen(row),
            "seeds": str(row["seeds"]),
            "paper": _percent(row["published"]),
            "vs paper": row["mark"] or MISSING,
        }
        for row in _records(details)
    )
