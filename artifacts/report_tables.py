"""Tables of a report, as its four forms need them: cells with text, sort value and origin."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO

import pandas as pd

from artifacts.markdown import pipe_table
from artifacts.numbers import Number, deviation, percent
from artifacts.paper_cells import PaperCell
from artifacts.published import Mark, Published

Tag = Callable[[Number], str]
"""A word on a number."""
SIGNS: dict[Mark, str] = {"inside": "=", "above": "↑", "below": "↓"}
"""Sign of a mark: ours against the published value."""
NOTHING = "·"
ROUNDING = "Halves are rounded away from zero: 6.25 is shown as 6.3."
COVERAGE = (
    "Rows are the paper's tables, columns count its numbers; reproduced is inside, above, below "
    "and no mark. Own model only: the paper's model was not trained here, but a model of this "
    "project that extends it was; its numbers stand in rows of their own below it. No solver: "
    "nothing here trains the paper's model yet. Reproduced, own model only, no solver and missing "
    "make up published."
)
"""What every form of a report says of its numbers, and of the table that counts them."""
MODELS = (
    "What the models here do otherwise than the paper and the authors' code, or settle where these "
    "say nothing."
)
WHAT = "What"
"""Column of what was measured, where rows differ in it."""
NOT_TRAINED = "not trained"
NOT_EVALUATED = "not evaluated"
"""In a cell that a study has, and whose command stands under Missing."""


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
    """A word on the number, as of :func:`told_apart`."""

    def plain(self) -> str:
        """For Markdown: ours, mark, what sets it apart in its table, published."""
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
    alike: Mapping[str, str] = field(default_factory=dict)
    """Columns that are said in a note, since every row has the same; they stand in the CSV."""

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
        self.frame().assign(**self.alike).to_csv(buffer, index=False)
        return buffer.getvalue()


def name_cell(text: str) -> Cell:
    """A cell that names its row."""
    return Cell(text=text)


def value_cell(value: float | None, text: str | None = None) -> Cell:
    """A share as percent, or ``text``."""
    if value is None or value != value:
        return Cell(text=NOTHING, sort=float("-inf"))
    return Cell(text=percent(value) if text is None else text, sort=value)


def number_cell(number: Number | None, *, tag: str = "") -> Cell:
    """A number of ours that the paper does not have."""
    if number is None:
        return Cell(text=NOTHING, sort=float("-inf"))
    return Cell(text=number.text(), sort=number.mean, number=number, tag=tag)


def absent_cell(text: str) -> Cell:
    """A cell of a study that has no number yet, and why."""
    return Cell(text=text, sort=float("-inf"))


def trial_cell(name: str) -> Cell:
    """A cell that names a training and leads to it."""
    return Cell(text=name, link=name)


def paper_cell(each: PaperCell, tag: Tag) -> Cell:
    """A published number with ours."""
    value = each.cell.value
    ours = each.ours
    return Cell(
        text=ours.text() if ours else "" if each.is_buildable else "n/a",
        # What is not reproduced yet sorts by the published value, below everything of ours.
        sort=ours.mean if ours else value.accuracy - 2.0,
        number=ours,
        paper=published_text(value),
        place=each.cell.place,
        mark=each.mark,
        tag=tag(ours) if ours else "",
    )


def published_text(value: Published) -> str:
    """As the paper prints it."""
    return percent(value.accuracy) + ("" if value.std is None else deviation(value.std))


def seeds_text(count: int) -> str:
    return f"{count} seed{'' if count == 1 else 's'}"


def told_apart(numbers: Sequence[Number], *, with_preset: bool = True) -> tuple[str, Tag]:
    """What numbers of a table have in common, and what tells each from the others.

    Both are of presets and seeds, e.g. ``preset lite`` and ``3 seeds``.

    :param with_preset: else of seeds alone; for tables whose rows say the preset.
    """
    parts = [_preset, _seeds] if with_preset else [_seeds]
    common = [{part(number) for number in numbers} for part in parts]
    shared = ", ".join(found.copy().pop() for found in common if len(found) == 1)

    def tag(number: Number) -> str:
        told = zip(parts, common, strict=True)
        return ", ".join(part(number) for part, found in told if len(found) > 1)

    return shared, tag


def _preset(number: Number) -> str:
    return f"preset {'/'.join(number.presets)}"


def _seeds(number: Number) -> str:
    return seeds_text(number.spreads["seeds"])


def condensed(table: ReportTable, said: Sequence[str]) -> ReportTable:
    """The table without columns that have nothing in any row.

    :param said: columns that go too if every row has the same in them; a note says it.
    """
    texts = {
        name: {row[place].plain() for row in table.rows} for place, name in enumerate(table.columns)
    }
    alike = {
        name: texts[name].copy().pop()
        for name in said
        if name in texts and len(texts[name]) == 1 and not texts[name] & {"", NOTHING}
    }
    gone = {name for name, found in texts.items() if found <= {"", NOTHING}} | alike.keys()
    kept = [place for place, name in enumerate(table.columns) if name not in gone]
    words = "; ".join(
        text if name == WHAT else f"{name[0].lower()}{name[1:]} {text}"
        for name, text in alike.items()
    )
    return replace(
        table,
        columns=[table.columns[place] for place in kept],
        rows=[[row[place] for place in kept] for row in table.rows],
        notes=[*table.notes, *([f"All: {words}."] if words else [])],
        name_columns=sum(place < table.name_columns for place in kept),
        alike=alike,
    )
