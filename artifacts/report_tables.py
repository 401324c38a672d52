"""Tables of a report, as its four forms need them: cells with text, sort value and origin."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO

import pandas as pd

from artifacts.markdown import pipe_table
from artifacts.numbers import Number, percent
from artifacts.paper_cells import PaperCell
from artifacts.published import Mark

SIGNS: dict[Mark, str] = {"inside": "=", "above": "↑", "below": "↓"}
"""Sign of a mark: ours against the published value."""
NOTHING = "·"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell."""

    text: str
    """Ours, or whatever the column says; empty where there is nothing."""
    sort: float | None = None
    """What a column of numbers is sorted by, None to sort by text."""
    number: Number | None = None
    """What the text is of; its provenance is linked."""
    paper: str = ""
    """The published value beside it, as printed."""
    link: str = ""
    """Name of a trial that the text is of."""
    place: int | None = None
    """Row of published.csv."""
    mark: Mark | None = None
    tag: str = ""
    """A word on the number, e.g. its preset."""

    def plain(self) -> str:
        """For Markdown: ours, mark, preset and seeds where they differ, published."""
        ours = self.text + (f" {SIGNS[self.mark]}" if self.mark else "")
        ours += f" ({self.tag})" if self.tag else ""
        return f"{ours or NOTHING} / {self.paper}" if self.paper else ours


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """One table."""

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default=())
    name_columns: int = 1
    """The first so many name the row."""

    def cells(self) -> list[Cell]:
        return [cell for row in self.rows for cell in row]

    def frame(self) -> pd.DataFrame:
        """The cells as text."""
        rows = [[cell.plain() for cell in row] for row in self.rows]
        return pd.DataFrame(rows, columns=pd.Index(self.columns))

    def to_markdown(self) -> str:
        notes = "\n".join(f"- {note}" for note in self.notes)
        return "\n\n".join(
            part for part in (f"### {self.title}", notes, pipe_table(self.frame())) if part
        )

    def to_csv(self) -> str:
        buffer = StringIO()
        self.frame().to_csv(buffer, index=False)
        return buffer.getvalue()


def name_cell(text: str) -> Cell:
    """A cell that names its row."""
    return Cell(text=text)


def value_cell(value: float | None, text: str | None = None) -> Cell:
    """A share as percent, or ``text``."""
    if value is None or value != value:
        return Cell(text=NOTHING, sort=float("-inf"))
    return Cell(text=percent(value) if text is None else text, sort=value)


def number_cell(number: Number | None, *, tag: bool = False) -> Cell:
    """A number of ours that the paper does not have; ``tag`` adds its preset and seeds."""
    if number is None:
        return Cell(text=NOTHING, sort=float("-inf"))
    return Cell(
        text=number.text(), sort=number.mean, number=number, tag=_tag(number) if tag else ""
    )


def trial_cell(name: str) -> Cell:
    """A cell that names a training and leads to it."""
    return Cell(text=name, link=name)


def paper_cell(each: PaperCell, *, tag: bool) -> Cell:
    """A published number with ours; ``tag`` adds the preset of ours."""
    value = each.cell.value
    printed = f"{100 * value.accuracy:.1f}"
    if value.std is not None:
        printed += f" ± {100 * value.std:.1f}"
    ours = each.ours
    return Cell(
        text=ours.text() if ours else "" if each.is_buildable else "n/a",
        # What is not reproduced yet sorts by the published value, below everything of ours.
        sort=ours.mean if ours else value.accuracy - 2.0,
        number=ours,
        paper=printed,
        place=each.cell.place,
        mark=each.mark,
        tag=_tag(ours) if ours and tag else "",
    )


def _tag(ours: Number) -> str:
    seeds = ours.spreads["seeds"]
    return f"{'/'.join(ours.presets)}, {seeds} seed{'s' if seeds > 1 else ''}"
