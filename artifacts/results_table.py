"""What stands in the results table: one row a model, preset and share of labels.

Which numbers are compared with the paper's, and how, is what the report says
(:mod:`artifacts.paper_cells`); the others have rows of their own, without a published value.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import pandas as pd

from artifacts import aggregate, published
from artifacts.numbers import Number, average, percent, selection_numbers
from artifacts.paper_cells import PaperCell, extensions, paper_cells
from artifacts.paper_tables import LABELS, TITLES
from artifacts.published import Mark, PublishedCell
from artifacts.records import TrialRecord
from artifacts.report_tables import SIGNS
from artifacts.results_names import (
    Place,
    fields_apart,
    place,
    reads_labels,
    row_name,
    share,
    source,
    space,
)
from artifacts.settings import PREFERENCE, root
from artifacts.tables import CONFIGURATIONS, MISSING, NAMES, ResultsTable
from raise_model.data.audit import CHANCE_SHARE

_DROPPED = ("protocol", "options", "split", "evaluation", "num_targets", "num_distractors")
"""What is the same in every row of the details, or said in another column."""
_WHOLE = (
    "image_size", "steps", "model_revision", "protocol_revision", "seeds", "problems", "rounds",
)  # fmt: skip
"""Columns of the details that are whole numbers."""
_TESTS = ("RAVEN", "I-RAVEN")
_COLUMNS = tuple(LABELS.values())
"""Tests and configurations in the paper's order."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One number of the table."""

    number: Number
    cell: PublishedCell | None = None
    """The paper's number of the same model, or of the model that it extends."""
    is_compared: bool = False
    """Whether it is of the same model."""
    mark: Mark | None = None

    @property
    def is_average(self) -> bool:
        return self.number.setting["configuration"] == "average"

    @property
    def text(self) -> str:
        sign = f" {SIGNS[self.mark]}" if self.mark else ""
        return self.number.text() + sign + ("†" if self.has_leak else "")

    @property
    def has_leak(self) -> bool:
        """Whether training shows more of the test problems than chance explains."""
        seeds = self.number.seeds
        return any(seed["seen_problems"] > CHANCE_SHARE * seed["problems"] for seed in seeds)


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One training setting on every test and configuration that it has a number of."""

    name: str
    entries: Mapping[Place, _Entry]

    @property
    def first(self) -> Number:
        return next(iter(self.entries.values())).number

    @property
    def family(self) -> str | None:
        """The paper's model that it stands below, if any."""
        models = [entry.cell.model for entry in self.entries.values() if entry.cell]
        return models[0] if models else None


def results_table(
    records: Sequence[TrialRecord], *, preset: str | None = None, missing: Sequence[str] = ()
) -> ResultsTable:
    """Table of bottom-right selection on test problems.

    :param preset: as in :func:`artifacts.paper_cells.paper_cells`.
    :param missing: what was asked for and has no result.
    """
    rows = _rows(_tested(records), preset)
    entries = [row.entries[each] for row in rows for each in sorted(row.entries, key=_nth_place)]
    singles = [entry for entry in entries if not entry.is_average]
    return ResultsTable(
        title="Bottom-right selection accuracy (%)",
        heading=[
            f"preset {preset}"
            if preset
            else "every preset; the largest is compared with the paper",
            *_heading([each.number for each in singles]),
        ],
        cells=_cells(rows),
        details=_details(entries),
        notes=_notes(singles, len(singles) < len(entries)) if singles else [],
        missing=missing,
    )


def _tested(records: Sequence[TrialRecord]) -> list[Number]:
    wanted = {"protocol": "bottom_right", "split": "test"}
    return [n for n in selection_numbers(records) if wanted.items() <= n.setting.items()]


def _rows(numbers: Sequence[Number], preset: str | None) -> list[_Row]:
    """The paper's models first, in its order; then what the paper has nothing of."""
    # A number that is in two of the paper's tables is compared in the more important one.
    order = list(TITLES)
    cells = sorted(paper_cells(numbers, preset), key=lambda each: order.index(each.cell.table))
    added = sorted(extensions(numbers, preset), key=lambda each: order.index(each.cell.table))
    entries = {number.key: _Entry(number=number) for number in numbers}
    for each in reversed(added):
        entries[each.number.key] = _Entry(number=each.number, cell=each.cell)
    for each in reversed(cells):
        if each.ours is not None and each.cell.configuration != "average":
            entries[each.ours.key] = _Entry(
                number=each.ours, cell=each.cell, is_compared=True, mark=each.mark
            )
    averages = {_table_row(c.cell): c for c in cells if c.cell.configuration == "average"}
    rows = [
        _Row(name=name, entries=found | _averages(found, averages))
        for name, found in _named(list(entries.values())).items()
    ]
    return sorted(rows, key=_rank)


def _table_row(cell: PublishedCell) -> tuple[str, str, str]:
    return cell.table, cell.dataset, cell.model


@cache
def _families() -> list[str]:
    """The paper's models, in its order."""
    return list(dict.fromkeys(cell.model for cell in published.cells()))


def _rank(row: _Row) -> tuple[float | str, ...]:
    number = row.first
    s = number.setting
    return (
        _families().index(row.family) if row.family else math.inf,
        s["model"],
        s["options"],
        s["label_ratio"] if share(number) else -1.0,
        PREFERENCE.index(root(number.presets[0])),
        row.name,
    )


def _named(entries: Sequence[_Entry]) -> dict[str, dict[Place, _Entry]]:
    """Numbers by the name of their row, and place in it; one a place.

    Where several are of one place, the one that the report takes has it, and the others have
    rows that say what they have otherwise.
    """
    several = len({source(entry.number) for entry in entries}) > 1
    same: dict[tuple[str, Place], list[_Entry]] = {}
    for entry in entries:
        key = (row_name(entry.number, with_source=several), place(entry.number))
        same.setdefault(key, []).append(entry)
    rows: dict[str, dict[Place, _Entry]] = {}
    for (name, where), found in same.items():
        told = fields_apart([entry.number for entry in found])
        for entry in found:
            own = row_name(entry.number, with_source=several, told=told)
            rows.setdefault(name if entry.cell else own, {})[where] = entry
    return rows


def _averages(
    entries: Mapping[Place, _Entry], paper: Mapping[tuple[str, str, str], PaperCell]
) -> dict[Place, _Entry]:
    """Of each test on which a row has all seven configurations, of the seeds that all have."""
    made = {}
    for test in dict.fromkeys(test for test, _ in entries):
        found = [entries.get((test, label)) for label in CONFIGURATIONS.values()]
        parts = [entry for entry in found if entry is not None]
        if len(parts) == len(CONFIGURATIONS):
            entry = _averaged(parts, paper)
            made |= {(test, LABELS["average"]): entry} if entry else {}
    return made


def _averaged(
    parts: Sequence[_Entry], paper: Mapping[tuple[str, str, str], PaperCell]
) -> _Entry | None:
    numbers = [part.number for part in parts]
    number = average(numbers, f"average-{numbers[0].key}", "average")
    if number is None:
        return None
    shared = {
        name: value
        for name, value in numbers[0].setting.items()
        if all(other.setting[name] == value for other in numbers)
    }
    number = dataclasses.replace(number, setting=shared | {"configuration": "average"})
    cells = {_table_row(part.cell) if part.cell else None for part in parts}
    beside = paper.get(cells.pop() or ("", "", "")) if len(cells) == 1 else None
    if beside is None:
        return _Entry(number=number)
    is_compared = all(part.is_compared for part in parts)
    mark = beside.mark if is_compared else None
    return _Entry(number=number, cell=beside.cell, is_compared=is_compared, mark=mark)


def _cells(rows: Sequence[_Row]) -> pd.DataFrame:
    """Each of the paper's models with the rows that stand below it, a part for each test."""
    places = {place for row in rows for place in row.entries}
    columns = _ordered({column for _, column in places}, _COLUMNS)
    lines = []
    for test in _ordered({test for test, _ in places}, _TESTS):
        papers = _paper_lines(rows, test)
        for row in rows:
            texts = {c: e.text for (of, c), e in row.entries.items() if of == test}
            if texts and (paper := papers.pop(row.family, None)):
                lines.append(paper)
            if texts:
                names = {"model": row.name, "test": test, "paper": row.family or MISSING}
                lines.append(names | texts)
    return pd.DataFrame(lines, columns=pd.Index([*NAMES, *columns])).fillna(MISSING)


def _ordered(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Known names in their order, then the others."""
    return sorted(names, key=lambda name: _nth(name, known))


def _nth(name: str, known: Sequence[str]) -> tuple[float, str]:
    return known.index(name) if name in known else math.inf, name


def _nth_place(each: Place) -> tuple[tuple[float, str], ...]:
    test, column = each
    return _nth(column, _COLUMNS), _nth(test, _TESTS)


def _paper_lines(rows: Sequence[_Row], test: str) -> dict[str | None, dict[str, str]]:
    """A line for each of the paper's models: its numbers where a row below has one."""
    papers: dict[str | None, dict[str, str]] = {}
    for row in rows:
        for (of, column), entry in row.entries.items():
            if of == test and entry.cell:
                model = entry.cell.model
                names = {"model": f"{model}, paper", "test": test, "paper": model}
                line = papers.setdefault(model, names)
                line[column] = percent(entry.cell.value.accuracy)
    return papers


def _details(entries: Sequence[_Entry]) -> pd.DataFrame:
    columns = [c for c in aggregate.summarise(pd.DataFrame()).columns if c not in _DROPPED]
    rows = []
    for entry in entries:
        number = entry.number
        paper = entry.cell.value.accuracy if entry.cell and entry.is_compared else math.nan
        rows.append(
            number.setting
            | number.spreads
            | {
                "preset": "/".join(number.presets),
                "space": space(number),
                "published": paper,
                "mark": entry.mark or "",
            }
        )
    frame = pd.DataFrame(rows, columns=pd.Index([*columns, "space", "published", "mark"]))
    # An average has no steps; a column with a hole would turn into floats.
    return frame.astype(dict.fromkeys(_WHOLE, "Int64"))


def _heading(numbers: Sequence[Number]) -> list[str]:
    """What every number of the table rests on."""
    if not numbers:
        return ["no results yet"]

    def listed(column: str) -> str:
        return ", ".join(dict.fromkeys(str(number.setting[column]) for number in numbers))

    def span(column: str) -> str:
        values = [(number.setting | number.spreads)[column] for number in numbers]
        low, high = min(values), max(values)
        return str(low) if low == high else f"{low} to {high}"

    return [
        f"{span('steps')} optimiser steps; panels of {span('image_size')} pixels; precision "
        f"{listed('precision')}",
        *_label_lines(numbers),
        f"trained on {listed('train_dataset')}; seeds {span('seeds')}; rounds {span('rounds')}; "
        f"test problems {span('problems')}",
    ]


def _label_lines(numbers: Sequence[Number]) -> list[str]:
    """The paper's shares of labelled problems, and how grids are labelled."""
    readers = [number for number in numbers if reads_labels(number)]
    shares = {place(n)[1]: f"{100 * n.setting['label_ratio']:g} %" for n in readers if not share(n)}
    maps = ", ".join(dict.fromkeys(number.setting["label_map"] for number in readers))
    if not readers:
        return []
    if not shares:
        return [f"rule labels: as each row says; label map {maps}"]
    if len(set(shares.values())) == 1:
        text = next(iter(shares.values()))
    else:
        text = ", ".join(f"{name} {shares[name]}" for name in _ordered(shares, _COLUMNS))
    rest = ", unless a row says otherwise" if any(map(share, readers)) else ""
    return [f"rule labels: {text} of the training problems{rest}; label map {maps}"]


def _notes(entries: Sequence[_Entry], has_average: bool) -> list[str]:
    notes = [
        "± is the sample standard deviation over seeds (n - 1); a number without it is of one seed"
    ]
    if any(entry.mark for entry in entries):
        notes.append(
            f"{SIGNS['inside']} the published value is inside our t interval widened by its own "
            f"standard error ({SIGNS['above']} ours is above, {SIGNS['below']} below)"
        )
    else:
        notes.append(
            f"no signs against the paper: they need {published.MINIMUM_SEEDS} seeds of a model of "
            "the paper with the paper's labels"
        )
    if has_average:
        notes.append("Average: of the seeds that all seven configurations have")
    own = {e.number.setting["model"] for e in entries if e.cell and not e.is_compared}
    notes += [
        f"{published.model_label(model)} is a model of this project, not of the paper: nothing is "
        "published for it, so that it stands below the paper's numbers without a sign"
        for model in sorted(own)
    ]
    notes += [_leak_note(entry.number) for entry in entries if entry.has_leak]
    if any(math.isnan(entry.number.spreads["seen_problems"]) for entry in entries):
        notes.append("of some results it is not known whether training shows their test problems")
    return notes


def _leak_note(number: Number) -> str:
    s, spreads = number.setting, number.spreads
    return (
        f"† {s['model']} on {s['dataset']}/{s['configuration']}: training shows the nine panels "
        f"of {spreads['seen_problems']:.0f} of {spreads['problems']} test problems; seen "
        f"{percent(spreads['seen_accuracy'])}, unseen {percent(spreads['unseen_accuracy'])}"
    )
