"""Seconds of an optimiser step, as this project's own trainings took them.

``step_costs.csv`` beside this file has a row for each preset, model and configuration that was
trained: median, least and most of its trainings, by the clock, while other work ran on the same
machine.  ``python benchmarks/step_costs.py`` makes it of the committed records.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from statistics import median
from typing import TextIO

from artifacts.settings import ABLATION_AS_PUBLISHED, CUSTOM, matching_presets, root
from raise_model.specs import TrialSpec
from raise_model.trial_record import Record

FILE = Path(__file__).with_name("step_costs.csv")
_SAME_NETWORKS = {"raise": "raise_plus", "raise_plus": "raise"}
"""Models that differ in their labels alone."""

Key = tuple[str, str, str]
"""Preset (or the ablation that trains as the authors do), model, configuration."""


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """A row of the table."""

    preset: str
    model: str
    configuration: str
    seconds: float
    """Median of the trainings."""
    least: float
    most: float
    trainings: int
    device: str
    threads: int

    def source(self) -> str:
        """What the figure is from, in words."""
        what = f"{self.model} on {self.configuration}, {self.device}, {self.threads} thread"
        if self.trainings == 1:
            return f"measured: one training of {what}"
        return (
            f"measured: median of {self.trainings} trainings ({self.least:.2g} to "
            f"{self.most:.2g} s) of {what}"
        )


def is_gpu(device: str) -> bool:
    """Whether a device's name, as trainings record it, is that of a GPU."""
    return "NVIDIA" in device or "Tesla" in device


def measured_step(spec: TrialSpec, *, on_gpu: bool) -> MeasuredStep | None:
    """The row of a training: its own, else that of the same networks; None where there is none."""
    configuration = spec.data.configuration
    table = _read(on_gpu)
    for preset in _presets(spec):
        for model in (spec.model, _SAME_NETWORKS.get(spec.model, spec.model)):
            # Uniform grids have the networks and panels of the others.
            for name in (configuration, configuration.removesuffix("_uni")):
                if (found := table.get((preset, model, name))) is not None:
                    return found
    return None


def measured_steps(records: Iterable[Record]) -> Sequence[MeasuredStep]:
    """Rows of the table from records of finished trainings; those of no preset are left out."""
    found: dict[tuple[Key, str, int], list[float]] = defaultdict(list)
    for record in records:
        where = record.done["provenance"]
        seconds = record.done["seconds"] / record.done["step"]
        for preset in _presets(record.spec):
            key = (preset, record.spec.model, record.spec.data.configuration)
            found[key, where["device"], where["threads"]].append(seconds)
    return [
        MeasuredStep(
            preset=preset, model=model, configuration=configuration, device=device, threads=threads,
            seconds=round(median(seconds), 4), least=round(min(seconds), 4),
            most=round(max(seconds), 4), trainings=len(seconds),
        )
        for ((preset, model, configuration), device, threads), seconds in sorted(found.items())
    ]  # fmt: skip


def write_table(steps: Iterable[MeasuredStep], file: TextIO) -> None:
    """Write the rows as CSV."""
    names = [field.name for field in fields(MeasuredStep)]
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows([asdict(step) for step in steps])


def _presets(spec: TrialSpec) -> Sequence[str]:
    """Presets whose steps a training takes; shorter trainings take the same."""
    names = matching_presets(spec)
    found = [name if name == ABLATION_AS_PUBLISHED else root(name) for name in names]
    return [name for name in found if name != CUSTOM]


@cache
def _read(on_gpu: bool) -> Mapping[Key, MeasuredStep]:
    """Rows of one kind of device; of several devices, that with most trainings."""
    types = {field.name: field.type for field in fields(MeasuredStep)}
    with FILE.open(newline="") as file:
        rows = [
            MeasuredStep(**{name: types[name](value) for name, value in row.items()})  # type: ignore[operator]
            for row in csv.DictReader(file)
        ]
    chosen = [row for row in rows if is_gpu(row.device) == on_gpu]
    chosen.sort(key=lambda row: row.trainings)
    return {(row.preset, row.model, row.configuration): row for row in chosen}
