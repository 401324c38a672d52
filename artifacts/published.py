"""The numbers printed in the paper, and how ours compare with them.

``published.csv`` has every accuracy of the paper's tables (912 rows, percent).  A cell that
is in two tables is looked up in the table it was made for.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import StringIO
from typing import Any, Literal

import pandas as pd

PAPER_TEST_PROBLEMS = 2000
"""Test problems of a configuration: fold 8 and 9 of 10,000."""
PAPER_TRIALS = 10
MINIMUM_SEEDS = 3
"""With fewer seeds an interval says too little to judge by."""

Mark = Literal["inside", "above", "below"]

_DATASETS = {
    "raven": "RAVEN",
    "raven_published": "RAVEN",
    "iraven": "I-RAVEN",
    "iraven_published": "I-RAVEN",
    "iraven_overlapping": "I-RAVEN",
}
_SOURCES = {
    "published": "published files",
    "paired": "paired",
    "overlapping": "overlapping",
    "held_out": "held out",
}
"""What follows the name of a data set, and how it is said."""
_MODELS = {
    "raise": "RAISE",
    "raise_plus": "RAISE plus",
    "transformer": "Transformer",
    "anp": "ANP",
    "lgpp": "LGPP",
    "clap": "CLAP",
    "prae": "PrAE",
    "alans": "ALANS",
    "gca": "GCA",
}
_COMPARES_PIXELS = {"anp"}
"""Models of the paper that have no latent codes to compare."""
_STANDS_FOR = {"raise_plus": "raise"}
"""Models that the paper does not have, and the one of the paper they are compared with."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """One accuracy of the paper, as shares in [0, 1]."""

    accuracy: float
    std: float | None
    """Standard deviation over ten trials; printed for arbitrary positions only."""
    parts: tuple[float, ...] = ()
    """Of an average: the accuracies whose mean it is."""

    @property
    def error(self) -> float:
        """Standard error: of ten trials where their deviation is printed, else binomial."""
        if self.std is not None:
            return self.std / math.sqrt(PAPER_TRIALS)
        parts = self.parts or (self.accuracy,)
        variance = sum(part * (1 - part) / PAPER_TEST_PROBLEMS for part in parts)
        return math.sqrt(variance) / len(parts)


@dataclass(frozen=True, kw_only=True)
class PublishedCell:
    """One row of ``published.csv``, in the paper's words."""

    place: int
    """Row number, 0 to 911."""
    table: str
    dataset: str
    configuration: str
    """Our name; ``average``, ``center_held_out`` and ``out_in_center_held_out`` besides."""
    model: str
    num_targets: int | None
    num_distractors: int | None
    value: Published


@cache
def frame() -> pd.DataFrame:
    """All rows: table, dataset, configuration, model, counts, accuracy and std in percent."""
    text = files("artifacts").joinpath("published.csv").read_text()
    return pd.read_csv(StringIO(text))


@cache
def cells() -> tuple[PublishedCell, ...]:
    """All rows, in order."""
    rows = frame().to_dict("records")
    parts: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        if row["configuration"] != "average":
            key = (row["table"], row["dataset"], row["model"])
            parts.setdefault(key, []).append(_share(row["accuracy_percent"]))
    return tuple(
        PublishedCell(
            place=place,
            table=row["table"],
            dataset=row["dataset"],
            configuration=row["configuration"],
            model=row["model"],
            num_targets=_whole(row["num_targets"]),
            num_distractors=_whole(row["num_distractors"]),
            value=Published(
                accuracy=_share(row["accuracy_percent"]),
                std=None if math.isnan(row["std_percent"]) else _share(row["std_percent"]),
                parts=tuple(parts[row["table"], row["dataset"], row["model"]])
                if row["configuration"] == "average"
                else (),
            ),
        )
        for place, row in enumerate(rows)
    )


def _share(percent: float) -> float:
    """As printed: with one decimal of a percent."""
    return round(percent / 100, 3)


def _whole(value: float) -> int | None:
    return None if math.isnan(value) else int(value)


@cache
def options_of(text: str) -> Mapping[str, Any]:
    """Options of an evaluation from their canonical JSON."""
    return json.loads(text)


def dataset_label(dataset: str) -> str:
    """Name of a data set as the paper prints it; our own name where the paper has none."""
    return _DATASETS.get(dataset, dataset)


def dataset_title(dataset: str) -> str:
    """Name of a data set for people, which unlike :func:`dataset_label` tells ours apart:
    ``iraven_paired`` is ``I-RAVEN (paired)``.
    """
    name, _, source = dataset.partition("_")
    if name not in _DATASETS:
        return dataset
    found = [text for key, text in _SOURCES.items() if key in source]
    return _DATASETS[name] + (f" ({', '.join(found)})" if found else "")


def model_label(model: str) -> str:
    """Name of a model as the paper prints it; our own name where the paper has none."""
    return _MODELS.get(model, model)


def stands_for(model: str) -> str | None:
    """The paper's model that one of this project's own extends; None for others."""
    return _STANDS_FOR.get(model)


def compared_label(model: str) -> str:
    """Name of the paper's model that a model is compared with."""
    return model_label(_STANDS_FOR.get(model, model))


def bottom_right(
    *, model: str, dataset: str, configuration: str, label_ratio: float, space: str
) -> Published | None:
    """Published accuracy of bottom-right selection, None where the paper has no such cell.

    :param model: our name of the model, ``dataset`` and ``configuration`` likewise.
    :param space: ``latent`` or ``pixel``; the paper has pixels for RAISE, in a table of their
        own, and for solvers that compare nothing else.
    """
    name = _MODELS.get(_STANDS_FOR.get(model, model))
    if name is None or dataset not in _DATASETS:
        return None
    if space == "pixel" and model not in _COMPARES_PIXELS:
        table, name = "answer_selection_strategy", f"{name}-pixel"
    elif configuration.endswith("_uni"):
        table = "bottom_right_selection_uni"
    elif label_ratio == 0 and name == "RAISE":
        table = "bottom_right_selection_no_labels"
        name = "RAISE (-aux)" if name == "RAISE" else name
    else:
        table = "bottom_right_selection"
    rows = frame()
    found = rows[
        (rows.table == table)
        & (rows.model == name)
        & (rows.dataset == _DATASETS[dataset])
        & (rows.configuration == configuration)
    ]
    if found.empty:
        return None
    row = found.iloc[0]
    std = None if math.isnan(row.std_percent) else _share(float(row.std_percent))
    return Published(accuracy=_share(float(row.accuracy_percent)), std=std)


def mark(mean: float, half_width: float, seeds: int, published: Published) -> Mark | None:
    """Where our mean lies: inside the published value's reach, above or below it.

    The reach is our Student-t interval (``half_width`` each side) widened by the published
    value's standard error.  None with fewer than :data:`MINIMUM_SEEDS` seeds.
    """
    if seeds < MINIMUM_SEEDS:
        return None
    if abs(mean - published.accuracy) <= half_width + published.error:
        return "inside"
    return "above" if mean > published.accuracy else "below"
