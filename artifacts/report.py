"""The report of a store: every number of the paper with ours beside it, in four forms.

A report is made in memory and then written, so that a damaged record leaves nothing behind.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from artifacts import plots
from artifacts.concept_figures import concept_figures
from artifacts.gaps import Gap, gaps
from artifacts.latex import latex_tables
from artifacts.markdown import pipe_table
from artifacts.numbers import Number, frame_of, selection_numbers
from artifacts.own_tables import label_ratio_groups, own_tables
from artifacts.paper_cells import Extension, PaperCell, extensions, paper_cells
from artifacts.paper_tables import TITLES, paper_tables
from artifacts.published import model_label
from artifacts.records import TrialRecord, read_records
from artifacts.report_figure import ReportFigure
from artifacts.report_figures import report_figures
from artifacts.report_html import page
from artifacts.report_tables import SIGNS, ReportTable
from artifacts.settings import root
from artifacts.training_table import training_curve, training_table
from raise_model.errors import UserError
from raise_model.store import Store

README = """Made by `raise-rpm report`.

- `report.html`: everything in one page, for a browser; no network needed
- `report.md`: the same tables as text
- `latex/`: a table each, as in the paper; needs booktabs and graphicx
- `csv/published_cells.csv`: one row for each of the paper's 912 numbers, with ours
- `csv/selection.csv`: every selection accuracy of the store, with its spreads
- `csv/<table>.csv`: the tables as they are shown
- `figures/`: PNG and SVG
"""


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that the four forms say."""

    root: str
    """Of the store."""
    preset: str | None
    records: Sequence[TrialRecord]
    numbers: Sequence[Number]
    cells: Sequence[PaperCell]
    """One for each row of ``published.csv``."""
    paper: Sequence[ReportTable]
    own: Sequence[ReportTable]
    gaps: Sequence[Gap]
    seeds: int
    """How many a number should have; 0 for any."""
    figures: Sequence[ReportFigure]
    extensions: Sequence[Extension]
    """Numbers of this project's own models, where the paper's model has a cell."""

    def coverage(self) -> pd.DataFrame:
        """One row a table of the paper: cells, and how ours compare."""
        rows = []
        for table, title in TITLES.items():
            of_table = [each for each in self.cells if each.cell.table == table]
            rows.append({"table": title} | self._counts(of_table))
        return pd.DataFrame([*rows, {"table": "All"} | self._counts(self.cells)])

    def _counts(self, cells: Sequence[PaperCell]) -> dict[str, int]:
        marks = Counter(each.mark for each in cells if each.ours is not None)
        extended = {each.cell.place for each in self.extensions}
        lacking = [each.cell.place for each in cells if each.ours is None]
        beside = len(extended.intersection(lacking))
        return {
            "published": len(cells),
            "reproduced": sum(marks.values()),
            "inside": marks["inside"],
            "above": marks["above"],
            "below": marks["below"],
            "no mark": marks[None],
            "own model only": beside,
            "missing": len(lacking) - beside,
        }

    def summary(self) -> dict[str, Any]:
        """For machines."""
        return {
            "store": self.root,
            "preset": self.preset,
            "trials": len(self.records),
            "evaluations": sum(len(record.evaluations) for record in self.records),
            "cells": self._counts(self.cells),
            "missing": [dataclasses.asdict(gap) for gap in self.gaps],
        }

    def files(self, *, png: bool = True) -> dict[str, bytes]:
        """Content by path below the report's folder; without ``png`` pictures as SVG alone."""
        images: dict[str, bytes] = {}
        for each in self.figures:
            figure = each.draw()
            images[f"figures/{each.key}.svg"] = plots.to_svg(figure)
            if png:
                images[f"figures/{each.key}.png"] = plots.to_png(figure)
        html = page(self, [(each, images[f"figures/{each.key}.svg"]) for each in self.figures])
        texts = {"README.md": README, "report.html": html, "report.md": self.to_markdown()}
        texts |= {f"latex/{name}": text for name, text in latex_tables(self.cells).items()}
        texts |= {"csv/published_cells.csv": _csv(published_frame(self))}
        texts |= {"csv/selection.csv": _csv(frame_of(self.numbers))}
        texts |= {f"csv/{t.key}.csv": t.to_csv() for t in (*self.paper, *self.own)}
        return {name: text.encode() for name, text in texts.items()} | images

    def to_markdown(self) -> str:
        """All tables, figures linked, and what is missing."""
        parts = [
            "# Published and reproduced",
            f"Store `{self.root}`; "
            + (f"preset {self.preset}." if self.preset else "every preset, the largest first."),
            "A cell is ours / published, in percent; ± is the sample standard deviation over "
            "seeds. " + "; ".join(f"{sign} {mark}" for mark, sign in SIGNS.items())
            + " (the published value against ours, three seeds or more).",
            pipe_table(self.coverage()),
            "Own model only: the paper's model was not trained here, but a model of this project "
            "that extends it; its rows stand below it in the tables.",
            "## The paper's tables",
            *(table.to_markdown() for table in self.paper),
        ]  # fmt: skip
        if self.own:
            parts += ["## Beyond the paper", *(table.to_markdown() for table in self.own)]
        parts += ["## Figures"]
        parts += [f"![{f.title}](figures/{f.key}.svg)\n\n{f.caption}" for f in self.figures]
        parts += ["## Missing", self.missing_markdown()]
        return "\n\n".join(parts) + "\n"

    def missing_markdown(self) -> str:
        """The commands that fill what is missing."""
        if not self.gaps:
            return "Nothing: every cell has a number."
        lines = []
        for gap in self.gaps:
            models = ", ".join(map(model_label, gap.models))
            what = f"{gap.cells} cells of {models} (study {gap.study})"
            lines.append(
                f"- {what}:\n  `{gap.command}`" if gap.command
                else f"- {what}: no solver of that name is registered"
            )  # fmt: skip
        return "\n".join(lines)


def _csv(frame: pd.DataFrame) -> str:
    buffer = StringIO()
    frame.to_csv(buffer, index=False)
    return buffer.getvalue()


_SPREADS = ("mean", "std", "seeds", "t_low", "t_high", "lowest", "wilson_low", "wilson_high",
            "problems", "rounds", "rounds_std")  # fmt: skip


def published_frame(report: Report) -> pd.DataFrame:
    """The 912 rows with ours; shares in [0, 1], ``published_*`` too."""
    rows = []
    for each in report.cells:
        cell, ours = each.cell, each.ours
        row: dict[str, Any] = {
            "table": cell.table,
            "dataset": cell.dataset,
            "configuration": cell.configuration,
            "model": cell.model,
            "num_targets": cell.num_targets,
            "num_distractors": cell.num_distractors,
            "published": cell.value.accuracy,
            "published_std": cell.value.std,
        }
        row |= {name: ours.spreads[name] if ours else None for name in _SPREADS}
        row |= {
            "mark": each.mark or "",
            "preset": "/".join(ours.presets) if ours else "",
            "trials": " ".join(row["trial"] for row in ours.seeds) if ours else "",
            "evaluations": " ".join(row["evaluation"] for row in ours.seeds) if ours else "",
            "status": _status(each, report.seeds),
        }
        rows.append(row)
    frame = pd.DataFrame(rows)
    whole = ["num_targets", "num_distractors", "seeds", "problems", "rounds"]
    return frame.astype(dict.fromkeys(whole, "Int64"))


def _status(each: PaperCell, seeds: int) -> str:
    if each.ours is None:
        return "missing" if each.is_buildable else "no solver"
    return "reproduced" if each.ours.spreads["seeds"] >= seeds else "too few seeds"


def build_report(
    store: Store,
    *,
    preset: str | None = None,
    seeds: int = 0,
) -> Report:
    """The report of every finished trial in a store.

    :param preset: only its trainings; without it those of every preset.
    :param seeds: numbers of fewer seeds are listed as missing, with the command that adds them.
    :raises UserError: if a record is damaged.
    """
    records = [record for record in read_records(store) if _is_of(record, preset)]
    numbers = selection_numbers(records)
    cells = paper_cells(numbers, preset)
    extended = extensions(numbers, preset)
    curves = [(record, c) for record in records if (c := training_curve(store, record))]
    specs = {record.name: record.spec for record in records}
    tests = [number for number in numbers if number.setting["split"] == "test"]
    return Report(
        root=store.root,
        preset=preset,
        records=records,
        numbers=numbers,
        cells=cells,
        paper=paper_tables(cells, extended),
        own=[
            *own_tables(records, numbers, cells, extended),
            *([training_table(curves)] if curves else []),
        ],
        gaps=gaps(cells, preset, seeds),
        seeds=seeds,
        figures=[
            *report_figures(
                cells, extended, label_ratio_groups(tests, specs), [curve for _, curve in curves]
            ),
            *concept_figures(records),
        ],
        extensions=extended,
    )


def _is_of(record: TrialRecord, preset: str | None) -> bool:
    return preset is None or preset in {root(name) for name in record.presets}


def write_report(files: Mapping[str, bytes], folder: Path) -> None:
    """Write a report's files; what else is in the folder stays.

    :raises UserError: if it cannot be written.
    """
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as error:
        raise UserError(
            f"cannot write {folder}: {error.strerror or error}; choose another with --output"
        ) from error
