"""Cells of the paper that have no number of ours, and the commands that give them one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from artifacts.paper_cells import PAPER_MODELS, PaperCell
from artifacts.tables import CONFIGURATIONS
from raise_model.presets import LABEL_RATIOS
from raise_model.specs import canonical_json


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Cells that have no number of ours, and what would give them one."""

    study: str
    models: Sequence[str]
    configurations: Sequence[str]
    cells: int
    command: str
    """Empty where no solver of these names is registered."""


def gaps(cells: Sequence[PaperCell], preset: str | None, seeds: int = 0) -> list[Gap]:
    """What is missing, in as few commands as there are different sets of configurations.

    :param seeds: a number of fewer seeds than these is missing too; 0 for any.
    """
    lacking = [c for c in cells if c.ours is None or c.ours.spreads["seeds"] < seeds]
    wanted: dict[tuple[str, bool, str], dict[str, None]] = {}
    counts: dict[tuple[str, bool, str], int] = {}
    for each in lacking:
        key = (each.study, each.is_buildable, each.model)
        counts[key] = counts.get(key, 0) + 1
        if each.cell.configuration != "average":
            wanted.setdefault(key, {}).update(dict.fromkeys(each.configurations))
    return list(_merged(wanted, counts, preset))


def _merged(
    wanted: Mapping[tuple[str, bool, str], Mapping[str, None]],
    counts: Mapping[tuple[str, bool, str], int],
    preset: str | None,
) -> Iterator[Gap]:
    order = [*CONFIGURATIONS, *(name for name in LABEL_RATIOS if name not in CONFIGURATIONS)]
    groups: dict[tuple[str, bool, tuple[str, ...]], list[str]] = {}
    for (study, buildable, model), names in wanted.items():
        shape = (study, buildable, tuple(sorted(names, key=order.index)))
        groups.setdefault(shape, []).append(model)
    for (study, buildable, configurations), models in groups.items():
        yield Gap(
            study=study,
            models=sorted(models, key=PAPER_MODELS.index),
            configurations=configurations,
            cells=sum(counts[study, buildable, model] for model in models),
            command=command(preset, study, sorted(models, key=PAPER_MODELS.index), configurations)
            if buildable
            else "",
        )


def command(
    preset: str | None, study: str, models: Sequence[str], configurations: Sequence[str]
) -> str:
    """What runs a study for these models and configurations."""
    values: dict[str, Sequence[str]] = {
        "studies": [study],
        "models": list(models),
        "configurations": list(configurations),
    }
    given = [f"-p preset={preset}"] if preset else []
    given += [f"-p {name}='{canonical_json(value)}'" for name, value in values.items()]
    return " ".join(["prefect deployment run raise/full-repro", *given])
