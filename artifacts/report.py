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
from artifacts.departures import departures
from artifacts.gaps import Asking, Gap, gaps, own_gaps
from artifacts.latex import latex_tables
from artifacts.markdown import pipe_table
from artifacts.numbers import Number, frame_of, selection_numbers
from artifacts.own_tables import own_tables
from artifacts.paper_cells import (
    Extension,
    PaperCell,
    average_extensions,
    extensions,
    paper_cells,
)
from artifacts.paper_tables import TITLES, paper_tables
from artifacts.published import MINIMUM_SEEDS, model_label
from artifacts.records import TrialRecord, read_records
from artifacts.report_figure import ReportFigure
from artifacts.report_figures import report_figures
from artifacts.report_html import page
from artifacts.report_tables import COVERAGE, MODELS, NOTHING, ROUNDING, SIGNS, ReportTable
from artifacts.settings import is_ablation, root
from artifacts.studies import ratio_groups, study_gaps
from artifacts.training_table import ranked, training_curve, training_table
from raise_model import atomic_write
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
    own_gaps: Sequence[Gap]
    """Of this project's own models in the paper's tables, and of studies beyond the paper."""
    others: int
    """Finished trainings of the store that are not of the preset, and left out."""
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
        lacking = [each for each in cells if each.ours is None]
        beside = sum(each.cell.place in extended for each in lacking)
        unsolved = sum(not each.is_buildable for each in lacking)
        return {
            "published": len(cells),
            "reproduced": sum(marks.values()),
            "inside": marks["inside"],
            "above": marks["above"],
            "below": marks["below"],
            "no mark": marks[None],
            "own model only": beside,
            "no solver": unsolved,
            "missing": len(lacking) - beside - unsolved,
        }

    def summary(self) -> dict[str, Any]:
        """For machines."""
        return {
            "store": self.root,
            "preset": self.preset,
            "trials": len(self.records),
            "other_trials": self.others,
            "evaluations": sum(len(record.evaluations) for record in self.records),
            "cells": self._counts(self.cells),
            "missing": [dataclasses.asdict(gap) for gap in self.gaps],
            "missing_of_own_models": [dataclasses.asdict(gap) for gap in self.own_gaps],
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
            f"Store: `{self.root}`; "
            + (f"preset {self.preset}." if self.preset else "every preset, the largest first."),
            *([self.others_text()] if self.others else []),
            "A cell is ours / published, in percent; ± is the sample standard deviation over "
            f"seeds. {SIGNS['inside']} the published value lies inside our Student interval, "
            f"widened by its own standard error; {SIGNS['above']} ours is above it; "
            f"{SIGNS['below']} ours is below; no sign where there are fewer than {MINIMUM_SEEDS} "
            f"seeds. {NOTHING} no number of ours yet; n/a: no solver of that name is registered. "
            f"{ROUNDING}",
            pipe_table(self.coverage()),
            COVERAGE,
            "## The paper's tables",
            *(table.to_markdown() for table in self.paper),
        ]  # fmt: skip
        if self.own:
            parts += ["## Beyond the paper", *(table.to_markdown() for table in self.own)]
        parts += ["## Figures"]
        parts += [f"![{f.title}](figures/{f.key}.svg)\n\n{f.caption}" for f in self.figures]
        parts += ["## Missing", self.missing_markdown()]
        parts += ["## Models", MODELS]
        for title, items in self.departures().items():
            parts += [f"### {title}", "\n".join(f"- {item}" for item in items)]
        return "\n\n".join(parts) + "\n"

    def departures(self) -> dict[str, list[str]]:
        """By the titles of models that have a training here, what they do otherwise."""
        titles: dict[tuple[str, ...], list[str]] = {}
        for model in sorted({record.spec.model for record in self.records}):
            titles.setdefault(tuple(departures(model)), []).append(model_label(model))
        return {", ".join(models): list(items) for items, models in titles.items() if items}

    def others_text(self) -> str:
        """What the preset leaves out of the store."""
        are = "training of this store is" if self.others == 1 else "trainings of this store are"
        return (
            f"{self.others} finished {are} not of preset {self.preset}: `raise-rpm report` without "
            "--preset shows them."
        )

    def missing(self) -> list[tuple[str, list[Gap]]]:
        """What lacks what, each kind with a heading; see :attr:`gaps` and :attr:`own_gaps`."""
        nothing = [gap for gap in self.gaps if gap.command and not gap.seeds]
        few = [gap for gap in self.gaps if gap.command and gap.seeds]
        unsolved = [gap for gap in self.gaps if not gap.command]
        own = sum(gap.own_only for gap in nothing)
        beside = f", {own} of them with a number of this project's own model" if own else ""
        parts = [
            (f"{_cells(nothing)} of the paper without a number of ours{beside}", nothing),
            (f"{_cells(few)} of the paper with fewer than {self.seeds} seeds", few),
            ("This project's own models, and studies beyond the paper", list(self.own_gaps)),
            (f"{_cells(unsolved)} of the paper whose models have no solver here yet", unsolved),
        ]
        return [(heading, found) for heading, found in parts if found]

    def missing_markdown(self) -> str:
        """The commands that fill what is missing."""
        parts = [f"### {heading}\n\n{_list(found)}" for heading, found in self.missing()]
        return "\n\n".join(parts) or "Nothing: every cell has a number."


def _cells(found: Sequence[Gap]) -> str:
    count = sum(gap.cells for gap in found)
    return f"{count} cell{'' if count == 1 else 's'}"


def _list(found: Sequence[Gap]) -> str:
    return "\n".join(
        f"- {gap.text}" + (f":\n  `{gap.command}`" if gap.command else "") for gap in found
    )


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
    store_parameter: str = "",
) -> Report:
    """The report of every finished trial in a store.

    :param preset: only its trainings; without it those of every preset.
    :param seeds: numbers of fewer seeds are listed as missing, with the command that adds them.
    :param store_parameter: what the commands say of the store; empty for the flow's default.
    :raises UserError: if a record is damaged.
    """
    found = read_records(store)
    records = sorted((record for record in found if _is_of(record, preset)), key=ranked)
    numbers = selection_numbers(records)
    cells = paper_cells(numbers, preset)
    extended = extensions(numbers, preset)
    extended += average_extensions(extended)
    curves = [(record, c) for record in records if (c := training_curve(store, record))]
    specs = {record.name: record.spec for record in records}
    tests = [number for number in numbers if number.setting["split"] == "test"]
    ablations = [number for number in tests if is_ablation(number.presets)]
    ratios = ratio_groups([n for n in tests if not is_ablation(n.presets)], specs)
    asking = Asking(preset=preset, seeds=seeds, store=store_parameter)
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
        gaps=gaps(cells, asking, extended={each.cell.place for each in extended}),
        own_gaps=[
            *own_gaps(extended, asking),
            *study_gaps(records, ratios, ablations, asking),
        ],
        others=len(found) - len(records),
        seeds=seeds,
        figures=[
            *report_figures(cells, extended, ratios, [curve for _, curve in curves]),
            *concept_figures(records),
        ],
        extensions=extended,
    )


def _is_of(record: TrialRecord, preset: str | None) -> bool:
    return preset is None or preset in {root(name) for name in record.presets}


def write_report(files: Mapping[str, bytes], folder: Path) -> None:
    """Write a report's files, each whole or not at all; what else is in the folder stays.

    :raises UserError: if it cannot be written.
    """
    try:
        for name, content in files.items():
            atomic_write.replace(folder / name, content, durable=False)
    except OSError as error:
        raise UserError(
            f"cannot write {folder}: {error.strerror or error}; choose another with --output"
        ) from error
