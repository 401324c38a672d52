"""Cells that have no number of ours, or too few seeds, and the commands that fill them."""

import json
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from artifacts import published
from artifacts.numbers import Number
from artifacts.paper_cells import PAPER_MODELS, Extension, PaperCell, paper_model
from artifacts.published import model_label
from artifacts.tables import CONFIGURATIONS
from raise_model.presets import LABEL_RATIOS
from raise_model.specs import canonical_json

_OWN_TABLES = {
    "bottom_right_selection": "main_table",
    "arbitrary_position": "arbitrary_position",
}
"""Tables whose rows of this project's own models are looked at, and their studies."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Cells that lack something of one kind, and what would give it to them."""

    study: str
    """Empty where no study has them."""
    models: Sequence[str]
    configurations: Sequence[str]
    cells: int
    own_only: int
    """Those of the cells that have a number of a model of this project alone."""
    seeds: int
    """How many each of the cells has; 0: they have no number."""
    wanted: int
    """How many each should have; 0 for any."""
    what: str
    """Which of the models' cells, in words; empty for all."""
    unit: str
    command: str
    """Empty where no solver of these names is registered."""

    @property
    def text(self) -> str:
        """In words, e.g. ``14 cells of RAISE (study main_table)``."""
        parts = [
            f"{self.cells} {self.unit}{'' if self.cells == 1 else 's'} of "
            + ", ".join(map(model_label, self.models)),
            *([self.what] if self.what else []),
            *([f"{self.seeds} of {self.wanted} seeds"] if self.seeds else []),
        ]
        said = [f"study {self.study}"] if self.study else []
        if self.own_only:
            said.append(f"{self.own_only} with a number of our own model only")
        return ", ".join(parts) + (f" ({'; '.join(said)})" if said else "")


@dataclass(frozen=True, kw_only=True)
class Lack:
    """One cell that has no number of ours, or too few seeds."""

    study: str
    model: str
    configurations: Sequence[str]
    """What has to be trained or evaluated for it."""
    seeds: int = 0
    """How many it has."""
    is_own_only: bool = False
    """Whether it has a number of a model of this project alone."""
    is_buildable: bool = True
    what: str = ""
    unit: str = "cell"


@dataclass(frozen=True, kw_only=True)
class Asking:
    """What the commands of a report ask for, whatever is missing."""

    preset: str | None
    seeds: int = 0
    """A number of fewer seeds than these is missing too; 0 for any."""
    store: str = ""
    """The flow's parameter; empty for its default."""


def gaps(
    cells: Sequence[PaperCell], asking: Asking, *, extended: Collection[int] = ()
) -> list[Gap]:
    """What is missing of the paper's cells, in as few commands as there are kinds of it.

    :param extended: places of cells that have a number of this project's own models.
    """
    return merged(
        (
            Lack(
                study=each.study,
                model=each.model,
                configurations=each.configurations,
                seeds=seeds,
                is_own_only=each.ours is None and each.cell.place in extended,
                is_buildable=each.is_buildable,
            )
            for each in cells
            if not (seeds := _seeds(each.ours)) or seeds < asking.seeds
        ),
        asking,
    )


def own_gaps(extensions: Sequence[Extension], asking: Asking) -> list[Gap]:
    """What this project's own models lack of the tables in which they have a number.

    Averages do not count.
    """
    found = {(each.number.setting["model"], each.cell.place): each for each in extensions}
    lacking = []
    for model, table in dict.fromkeys(
        (each.number.setting["model"], each.cell.table)
        for each in extensions
        if each.cell.table in _OWN_TABLES
    ):
        for cell in published.cells():
            if cell.table != table or paper_model(cell) != published.stands_for(model):
                continue
            beside = found.get((model, cell.place))
            seeds = _seeds(beside.number if beside else None)
            if cell.configuration != "average" and (not seeds or seeds < asking.seeds):
                lacking.append(
                    Lack(
                        study=_OWN_TABLES[table],
                        model=model,
                        configurations=[cell.configuration],
                        seeds=seeds,
                    )
                )
    return merged(lacking, asking)


def _seeds(number: Number | None) -> int:
    return number.spreads["seeds"] if number else 0


def merged(lacking: Iterable[Lack], asking: Asking) -> list[Gap]:
    """Cells of one study that lack the same, models with the same configurations together."""
    kinds: dict[tuple[str, bool, int, str, str], dict[str, list[Lack]]] = {}
    for each in lacking:
        kind = (each.study, each.is_buildable, each.seeds, each.what, each.unit)
        kinds.setdefault(kind, {}).setdefault(each.model, []).append(each)
    found = []
    for (study, is_buildable, seeds, what, unit), by_model in kinds.items():
        alike: dict[tuple[str, ...], list[str]] = {}
        for model, lacks in by_model.items():
            alike.setdefault(_configurations(lacks), []).append(model)
        for configurations, names in alike.items():
            models = sorted(names, key=_place)
            lacks = [each for model in models for each in by_model[model]]
            found.append(
                Gap(
                    study=study,
                    models=models,
                    configurations=configurations,
                    cells=len(lacks),
                    own_only=sum(each.is_own_only for each in lacks),
                    seeds=seeds,
                    wanted=asking.seeds,
                    what=what,
                    unit=unit,
                    command=command(asking, study, models, configurations) if is_buildable else "",
                )
            )
    return found


def _configurations(lacks: Sequence[Lack]) -> tuple[str, ...]:
    """An average asks for nothing that the cells which it is of do not ask for, if any does."""
    single = {c for each in lacks if len(each.configurations) == 1 for c in each.configurations}
    names = single or {name for each in lacks for name in each.configurations}
    order = [*CONFIGURATIONS, *(name for name in LABEL_RATIOS if name not in CONFIGURATIONS)]
    return tuple(sorted(names, key=order.index))


def _place(model: str) -> tuple[int, str]:
    place = PAPER_MODELS.index(model) if model in PAPER_MODELS else len(PAPER_MODELS)
    return place, model


def command(
    asking: Asking, study: str, models: Sequence[str], configurations: Sequence[str]
) -> str:
    """What runs a study for these models and configurations."""
    values: dict[str, Sequence[str]] = {
        "studies": [study],
        "models": list(models),
        "configurations": list(configurations),
    }
    given = [f"-p preset={asking.preset}"] if asking.preset else []
    given += [f"-p {name}='{canonical_json(value)}'" for name, value in values.items()]
    if asking.store:
        given.append(f"-p store={shlex.quote(json.dumps(asking.store, ensure_ascii=False))}")
    return " ".join(["prefect deployment run raise/full-repro", *given])
