"""Each of the paper's numbers, with ours beside it or the reason why there is none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from artifacts import published
from artifacts.numbers import Number, average
from artifacts.published import Mark, PublishedCell, model_label
from artifacts.settings import CUSTOM, PREFERENCE, is_of
from artifacts.tables import CONFIGURATIONS
from raise_model.models import registry
from raise_model.presets import LABEL_RATIOS

HELD_OUT_RATIOS: Mapping[str, float] = {"center": 0.05, "out_in_center": 0.2}
"""Label ratios of the held-out configurations (paper, section 4.5)."""

_ANY = ("latent", "pixel")
_OURS: Mapping[str, tuple[str, Sequence[str]]] = {
    "RAISE": ("raise", ("latent",)),
    "RAISE (-aux)": ("raise", ("latent",)),
    "RAISE-latent": ("raise", ("latent",)),
    "RAISE-pixel": ("raise", ("pixel",)),
    "Transformer": ("transformer", _ANY),
    "ANP": ("anp", _ANY),
    "LGPP": ("lgpp", _ANY),
    "CLAP": ("clap", _ANY),
    "CLAP-NP": ("clap", _ANY),
    "PrAE": ("prae", _ANY),
    "ALANS": ("alans", _ANY),
    "GCA-I": ("gca", ("pixel",)),
    "GCA-R": ("gca", ("latent",)),
    "GCA-C": ("gca", ("recognition",)),
}
"""Our model of each name in the paper, and where it compares candidates, preferred first."""
PAPER_MODELS = list(dict.fromkeys(name for name, _ in _OURS.values()))
"""Our names of the paper's models."""
_TESTS: Mapping[str, Sequence[str]] = {
    "RAVEN": ("raven", "raven_published"),
    "I-RAVEN": ("iraven", "iraven_published"),
}
"""Our data sets of each of the paper's, preferred first."""
_STUDIES: Mapping[str, str] = {
    "bottom_right_selection": "main_table",
    "bottom_right_selection_no_labels": "no_labels",
    "bottom_right_selection_uni": "uniform_noise",
    "held_out": "held_out",
    "answer_selection_strategy": "answer_selection",
    "arbitrary_position": "arbitrary_position",
}
_AUTHORS_OPTIONS = {"masks": "batch", "duplicates": "keep"}
"""How the authors draw masks and wrong candidates at arbitrary positions."""


@dataclass(frozen=True, kw_only=True)
class PaperCell:
    """A number of the paper and ours."""

    cell: PublishedCell
    ours: Number | None
    mark: Mark | None

    @property
    def model(self) -> str:
        """Our name of the model."""
        return paper_model(self.cell)

    @property
    def is_buildable(self) -> bool:
        """Whether a solver of that name is registered."""
        return self.model in _registered()

    @property
    def configurations(self) -> Sequence[str]:
        """What has to be trained: of an average, all seven."""
        if self.cell.configuration == "average":
            return tuple(CONFIGURATIONS)
        return (self.cell.configuration.removesuffix("_held_out"),)

    @property
    def study(self) -> str:
        """The study that fills it."""
        if self.cell.table == "bottom_right_selection_no_labels" and self.model != "raise":
            return "main_table"
        return _STUDIES[self.cell.table]


@dataclass(frozen=True, kw_only=True)
class Extension:
    """A number of a model that the paper does not have, where its own has a cell."""

    cell: PublishedCell
    """Of the model that is extended."""
    number: Number

    @property
    def name(self) -> str:
        """Of its row, e.g. ``RAISE plus, latent`` below the paper's ``RAISE-latent``."""
        model = self.number.setting["model"]
        variant = self.cell.model.removeprefix(published.compared_label(model))
        if variant.startswith("-"):
            variant = f", {variant[1:]}"
        return model_label(model) + variant


@cache
def _registered() -> frozenset[str]:
    return frozenset(registry.names())


def paper_cells(numbers: Sequence[Number], preset: str | None = None) -> list[PaperCell]:
    """All 912, in the order of ``published.csv``.

    :param preset: only trainings of this preset stand beside the paper's; without it, each
        cell takes the first of :data:`artifacts.settings.PREFERENCE` that it finds.
    """
    known = [n for n in numbers if is_of(n.presets, preset)]
    index: dict[tuple[str, str, str], list[Number]] = {}
    for number in known:
        s = number.setting
        if s["split"] == "test":
            index.setdefault((s["protocol"], s["model"], s["configuration"]), []).append(number)
    filled = [_filled(cell, index) for cell in published.cells()]
    singles = {
        (each.cell.table, each.cell.dataset, each.cell.model, each.cell.configuration): each.ours
        for each in filled
        if each.cell.num_targets is None
    }
    return [
        _averaged(each.cell, singles) if each.cell.configuration == "average" else each
        for each in filled
    ]


def extensions(numbers: Sequence[Number], preset: str | None = None) -> list[Extension]:
    """Numbers of this project's own models beside the cells of those that they extend.

    :param preset: as in :func:`paper_cells`.  Averages are left out.
    """
    index: dict[tuple[str, str, str], list[Number]] = {}
    for number in numbers:
        s = number.setting
        extended = published.stands_for(s["model"])
        if extended and s["split"] == "test" and is_of(number.presets, preset):
            index.setdefault((s["protocol"], extended, s["configuration"]), []).append(number)
    made = []
    for cell in published.cells():
        fits = _fits(cell)
        by_model: dict[str, list[Number]] = {}
        for number in index.get(_place_of(cell), ()):
            if fits(number):
                by_model.setdefault(number.setting["model"], []).append(number)
        for found in by_model.values():
            best = min(found, key=lambda number: _rank(cell, number))
            made.append(Extension(cell=cell, number=best))
    return made


def average_extensions(found: Sequence[Extension]) -> list[Extension]:
    """Averages of those models of :func:`extensions` that have all seven configurations."""
    by_row: dict[tuple[str, str, str, str], dict[str, Number]] = {}
    for each in found:
        cell, model = each.cell, each.number.setting["model"]
        key = (cell.table, cell.dataset, cell.model, model)
        by_row.setdefault(key, {})[cell.configuration] = each.number
    averages = {
        (cell.table, cell.dataset, cell.model): cell
        for cell in published.cells()
        if cell.configuration == "average"
    }
    made = []
    for (*row, model), numbers in by_row.items():
        cell = averages.get((row[0], row[1], row[2]))
        number = cell and _average(numbers, cell, model_label(model))
        if cell and number:
            number = replace(number, setting={"model": model}, key=f"{number.key}-{model}")
            made.append(Extension(cell=cell, number=number))
    return made


def paper_model(cell: PublishedCell) -> str:
    """Our name of a cell's model."""
    return _OURS[cell.model][0]


def _place_of(cell: PublishedCell) -> tuple[str, str, str]:
    protocol = "arbitrary_position" if cell.table == "arbitrary_position" else "bottom_right"
    return protocol, paper_model(cell), cell.configuration.removesuffix("_held_out")


def _filled(
    cell: PublishedCell, index: Mapping[tuple[str, str, str], Sequence[Number]]
) -> PaperCell:
    fits = _fits(cell)
    found = [number for number in index.get(_place_of(cell), ()) if fits(number)]
    if not found:
        return PaperCell(cell=cell, ours=None, mark=None)
    return _compared(cell, min(found, key=lambda number: _rank(cell, number)))


def _fits(cell: PublishedCell) -> Callable[[Number], bool]:
    """Whether a number of the right protocol, model and configuration is what a cell shows."""
    tests = _tests(cell)
    ratio = _label_ratio(cell)
    spaces = _OURS[cell.model][1]

    def fits(number: Number) -> bool:
        s = number.setting
        options = published.options_of(s["options"])
        others = {key: value for key, value in options.items() if key != "space"}
        is_held_out = s["train_dataset"].endswith("_held_out")
        return (
            s["dataset"] in tests
            and is_held_out == (cell.table == "held_out")
            and options.get("space", spaces[0]) in spaces
            and (ratio is None or s["label_ratio"] == ratio)
            and cell.num_targets in (None, s["num_targets"])
            and cell.num_distractors in (None, s["num_distractors"])
            and all(others.get(key, value) == value for key, value in _AUTHORS_OPTIONS.items())
        )

    return fits


def _tests(cell: PublishedCell) -> Sequence[str]:
    names = _TESTS[cell.dataset]
    return [f"{name}_held_out" for name in names] if cell.table == "held_out" else names


def _label_ratio(cell: PublishedCell) -> float | None:
    """Ratio of labelled problems; None for models that read no labels, or need all."""
    if not cell.model.startswith("RAISE"):
        return None
    if cell.model == "RAISE (-aux)":
        return 0.0
    if cell.table == "held_out":
        return HELD_OUT_RATIOS[cell.configuration.removesuffix("_held_out")]
    return LABEL_RATIOS.get(cell.configuration)


def _rank(cell: PublishedCell, number: Number) -> tuple[float | str, ...]:
    """Smallest first.  Accuracy plays no part: nothing is chosen by its test result."""
    s = number.setting
    space = published.options_of(s["options"]).get("space", "")
    spaces = list(_OURS[cell.model][1])
    return (
        min(_place(preset) for preset in number.presets),
        list(_tests(cell)).index(s["dataset"]),
        spaces.index(space) if space in spaces else 0,
        -s["model_revision"],
        -s["protocol_revision"],
        -number.spreads["seeds"],
        -s["steps"],
        number.key,
    )


def _place(preset: str) -> int:
    return PREFERENCE.index(preset if preset in PREFERENCE else CUSTOM)


def _compared(cell: PublishedCell, ours: Number) -> PaperCell:
    mark = published.mark(ours.mean, ours.half_width, ours.spreads["seeds"], cell.value)
    return PaperCell(cell=cell, ours=ours, mark=mark)


def _averaged(
    cell: PublishedCell, singles: Mapping[tuple[str, str, str, str], Number | None]
) -> PaperCell:
    found = {
        name: number
        for name in CONFIGURATIONS
        if (number := singles[cell.table, cell.dataset, cell.model, name]) is not None
    }
    ours = _average(found, cell, cell.model)
    return PaperCell(cell=cell, ours=None, mark=None) if ours is None else _compared(cell, ours)


def _average(numbers: Mapping[str, Number], cell: PublishedCell, model: str) -> Number | None:
    """Of numbers by configuration; None if one of the seven is lacking."""
    if not CONFIGURATIONS.keys() <= numbers.keys():
        return None
    title = f"{model} · average of seven configurations · {cell.dataset}"
    return average([numbers[name] for name in CONFIGURATIONS], f"average-{cell.place}", title)
