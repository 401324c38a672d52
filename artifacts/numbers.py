"""One number of a report, with all that it rests on, and how it is rounded.

Halves are rounded away from zero, 6.25 to 6.3: one rule for every number that is shown.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pandas as pd

from artifacts import aggregate
from artifacts.records import TrialRecord

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Number:
    """A mean over seeds."""

    key: str
    """Unique in a report; where its provenance is found."""
    title: str
    """What was measured; of what model, configuration and data set is in ``setting``, but of an
    average, which has more than one, in the title."""
    setting: Row
    """What the seeds share: columns of :func:`artifacts.aggregate.summarise`."""
    presets: tuple[str, ...]
    spreads: Row
    """``mean``, ``std``, ``t_low`` ... as of :func:`artifacts.aggregate.spreads`."""
    seeds: Sequence[Row]
    """Rows of :func:`artifacts.aggregate.results`."""
    is_share: bool = True
    """Printed in percent; else as it is."""

    @property
    def mean(self) -> float:
        return self.spreads["mean"]

    @property
    def half_width(self) -> float:
        """Of Student's interval; NaN for one seed."""
        return self.spreads["t_high"] - self.mean

    def text(self) -> str:
        """The mean, with the deviation over seeds where there are several."""
        if self.is_share:
            return percent(self.mean) + deviation(self.spreads["std"])
        std = rounded(self.spreads["std"], 3)
        return rounded(self.mean, 3) + (f" ± {std}" if std else "")


def selection_numbers(records: Sequence[TrialRecord]) -> list[Number]:
    """Every selection accuracy of the records, means over seeds."""
    by_name = {record.name: record for record in records}
    return [
        _selection_number(setting, seeds, by_name[seeds[0]["trial"]].presets)
        for setting, seeds in aggregate.grouped(aggregate.selection_rows(records))
    ]


def _selection_number(setting: Row, seeds: Sequence[Row], presets: tuple[str, ...]) -> Number:
    what = "bottom right"
    if setting["protocol"] == "arbitrary_position":
        what = f"|T|={setting['num_targets']}, N_c={setting['num_distractors']}"
    key = "-".join(
        (
            setting["study_cell"],
            setting["evaluation"],
            str(setting["num_targets"]),
            str(setting["num_distractors"]),
        )
    )
    return Number(
        key=key,
        title=f"{what} · {100 * setting['label_ratio']:g} % labels",
        setting=setting,
        presets=presets,
        spreads=aggregate.spreads(seeds),
        seeds=seeds,
    )


def average(numbers: Sequence[Number], key: str, title: str) -> Number | None:
    """Mean over configurations, by seed; of the seeds that every configuration has.

    None if there is no such seed.  Test problems are summed: taken as one sample, they give
    an interval that is never too narrow (a mixture varies less than the mean share).
    """
    by_seed = [{row["seed"]: row for row in number.seeds} for number in numbers]
    shared = sorted(set.intersection(*(set(rows) for rows in by_seed)))
    if not shared:
        return None
    parts = [[rows[seed] for rows in by_seed] for seed in shared]
    means = [sum(row["accuracy"] for row in part) / len(part) for part in parts]
    problems = sum(int(row["problems"]) for row in parts[0])
    spreads = aggregate.over_seeds(means, problems)
    spreads |= {"rounds": numbers[0].spreads["rounds"], "rounds_std": math.nan}
    presets = [p for p in numbers[0].presets if all(p in n.presets for n in numbers)]
    return Number(
        key=key,
        title=title,
        setting={},
        presets=tuple(presets) or ("mixed",),
        spreads=spreads,
        seeds=[row for part in parts for row in part],
    )


def rounded(value: float, digits: int, scale: int = 1) -> str:
    """So many decimals, halves away from zero; empty for NaN."""
    if math.isnan(value):
        return ""
    # Twelve decimals are the value as it was counted: binary fractions and means over seeds
    # are off by less, to either side of a half.
    exact = Decimal(f"{value:.12f}") * scale
    return str(exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def percent(value: float) -> str:
    """One decimal; empty for NaN."""
    return rounded(value, 1, 100)


def deviation(std: float) -> str:
    """`` ± 1.2``; empty for NaN."""
    return "" if math.isnan(std) else f" ± {percent(std)}"


def interval(low: float, high: float) -> str:
    """``81.2 to 89.9``; empty for NaN."""
    return "" if math.isnan(low) else f"{percent(low)} to {percent(high)}"


def frame_of(numbers: Sequence[Number]) -> pd.DataFrame:
    """One row a number, with the names of its trials and evaluations; shares in [0, 1]."""
    return pd.DataFrame(
        [
            number.setting
            | number.spreads
            | {
                "preset": "/".join(number.presets),
                "trials": " ".join(row["trial"] for row in number.seeds),
            }
            for number in numbers
        ]
    )
