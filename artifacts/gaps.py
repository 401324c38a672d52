"""Cells of the paper that have no number of ours, and the commands that give them one."""

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from artifacts import published
from artifacts.paper_cells import PAPER_MODELS, Extension, PaperCell
from artifacts.published import model_label
from artifacts.tables import CONFIGURATIONS
from raise_model.presets import LABEL_RATIOS
from raise_model.specs import canonical_json

OWN_MISSING = "Beside the paper's cells, this project's own models lack of the main table"
"""Heading of :func:`own_gaps`."""
_MAIN_TABLE = "bottom_right_selection"
_Key = tuple[str, bool, str]
"""Study, whether there is a solver, model."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Cells that have no number of ours, and what would give them one."""

    study: str
    models: Sequence[str]
    configurations: Sequence[str]
    cells: int
    own_only: int
    """Those of the cells that have a number of a model of this project alone."""
    command: str
    """Empty where no solver of these names is registered."""

    @property
    def text(self) -> str:
        """In words, e.g. ``14 cells of RAISE (study main_table)``."""
        own = f"; {self.own_only} with a number of our own model only" if self.own_only else ""
        models = ", ".join(map(model_label, self.models))
        return f"{self.cells} cell{_s(self.cells)} of {models} (study {self.study}{own})"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def gaps(
    cells: Sequence[PaperCell],
    preset: str | None,
    seeds: int = 0,
    *,
    extended: Collection[int] = (),
    store: str = "",
) -> list[Gap]:
    """What is missing, in as few commands as there are different sets of configurations.

    :param seeds: a number of fewer seeds than these is missing too; 0 for any.
    :param extended: places of cells that have a number of this project's own models.
    :param store: the flow's parameter; empty for its default.
    """
    lacking = [c for c in cells if c.ours is None or c.ours.spreads["seeds"] < seeds]
    wanted: dict[_Key, dict[str, None]] = {}
    counts: dict[_Key, list[int]] = {}
    for each in lacking:
        key = (each.study, each.is_buildable, each.model)
        count = counts.setdefault(key, [0, 0])
        count[0] += 1
        count[1] += each.ours is None and each.cell.place in extended
        if each.cell.configuration != "average":
            wanted.setdefault(key, {}).update(dict.fromkeys(each.configurations))
    return list(_merged(wanted, counts, preset, store))


def _merged(
    wanted: Mapping[_Key, Mapping[str, None]],
    counts: Mapping[_Key, Sequence[int]],
    preset: str | None,
    store: str,
) -> Iterator[Gap]:
    order = [*CONFIGURATIONS, *(name for name in LABEL_RATIOS if name not in CONFIGURATIONS)]
    groups: dict[tuple[str, bool, tuple[str, ...]], list[str]] = {}
    for (study, buildable, model), names in wanted.items():
        shape = (study, buildable, tuple(sorted(names, key=order.index)))
        groups.setdefault(shape, []).append(model)
    for (study, buildable, configurations), found in groups.items():
        models = sorted(found, key=PAPER_MODELS.index)
        yield Gap(
            study=study,
            models=models,
            configurations=configurations,
            cells=sum(counts[study, buildable, model][0] for model in models),
            own_only=sum(counts[study, buildable, model][1] for model in models),
            command=command(preset, study, models, configurations, store) if buildable else "",
        )


def own_gaps(
    extensions: Sequence[Extension], preset: str | None, seeds: int = 0, *, store: str = ""
) -> list[Gap]:
    """What this project's own models that have a number lack of the main table.

    Parameters as in :func:`gaps`; averages do not count.
    """
    made = []
    for model in dict.fromkeys(each.number.setting["model"] for each in extensions):
        found = {
            each.cell.place
            for each in extensions
            if each.number.setting["model"] == model and each.number.spreads["seeds"] >= seeds
        }
        lacking = [
            cell
            for cell in published.cells()
            if (cell.table, cell.model) == (_MAIN_TABLE, published.compared_label(model))
            and cell.configuration != "average"
            and cell.place not in found
        ]
        lacked = {cell.configuration for cell in lacking}
        names = [name for name in CONFIGURATIONS if name in lacked]
        if names:
            made.append(
                Gap(
                    study="main_table",
                    models=[model],
                    configurations=names,
                    cells=len(lacking),
                    own_only=0,
                    command=command(preset, "main_table", [model], names, store),
                )
            )
    return made


def command(
    preset: str | None,
    study: str,
    models: Sequence[str],
    configurations: Sequence[str],
    store: str = "",
) -> str:
    """What runs a study for these models and configurations."""
    values: dict[str, Sequence[str]] = {
        "studies": [study],
        "models": list(models),
        "configurations": list(configurations),
    }
    given = [f"-p preset={preset}"] if preset else []
    given += [f"-p {name}='{canonical_json(value)}'" for name, value in values.items()]
    if store:
        given.append(f"-p store={shlex.quote(json.dumps(store, ensure_ascii=False))}")
    return " ".join(["prefect deployment run raise/full-repro", *given])
