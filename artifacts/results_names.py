"""How the results table names its rows, and which cell of it a number stands in."""

from collections.abc import Mapping, Sequence
from typing import Any

from artifacts import published
from artifacts.numbers import Number
from artifacts.paper_cells import HELD_OUT_RATIOS
from artifacts.paper_tables import LABELS
from raise_model.models import registry
from raise_model.presets import LABEL_RATIOS

_HELD_OUT = "_held_out"
_OTHER_TESTS = ("iraven_paired", "iraven_overlapping")
"""Test sets that are not the paper's I-RAVEN."""
_TELLING: Mapping[str, str] = {
    "dataset": "on {}",
    "steps": "{} steps",
    "label_map": "label map {}",
    "image_size": "panels of {} pixels",
    "precision": "{}",
    "rounds": "rounds {}",
    "model_revision": "revision {}",
    "protocol_revision": "revision {} of the protocol",
    "study_cell": "{:.8}",
    "evaluation": "{}",
}
"""What tells numbers apart that would stand in one cell, and how a row's name says it."""
Place = tuple[str, str]
"""Test and configuration, by the names that the table shows."""


def row_name(number: Number, *, with_source: bool, told: Sequence[str] = ()) -> str:
    """Model, what is not as in the paper, and preset, e.g. ``RAISE, 20 % labels (lite)``.

    :param with_source: whether to name the data set of the training.
    :param told: of :func:`fields_apart`.
    """
    model = number.setting["model"]
    own = "latent" if _supports(model, "latent") else "pixel"
    parts = [
        published.model_label(model),
        *([space(number)] if space(number) != own else []),
        *([share(number)] if share(number) else []),
        *([f"trained on {source(number)}"] if with_source else []),
    ]
    values = dict(zip(told, _values(number, told), strict=True))
    preset = [
        "/".join(number.presets),
        *(_TELLING[field].format(value) for field, value in values.items()),
    ]
    return f"{', '.join(parts)} ({', '.join(preset)})"


def fields_apart(numbers: Sequence[Number]) -> list[str]:
    """Fields in which numbers of one place differ, until all are told apart."""
    told: list[str] = []
    for field in _TELLING:
        if len({_values(number, told) for number in numbers}) == len(numbers):
            break
        if len({_values(number, [field]) for number in numbers}) > 1:
            told.append(field)
    return told


def _values(number: Number, fields: Sequence[str]) -> tuple[Any, ...]:
    values = number.setting | number.spreads
    return tuple(values[field] for field in fields)


def space(number: Number) -> str:
    """Where candidates are compared."""
    return published.options_of(number.setting["options"]).get("space", "latent")


def share(number: Number) -> str:
    """The share of labelled problems where it is not the paper's; empty where it is.

    Empty too for solvers that read no labels.
    """
    s = number.setting
    ratios = HELD_OUT_RATIOS if _is_held_out(number) else LABEL_RATIOS
    is_papers = s["label_ratio"] == ratios.get(s["configuration"])
    return "" if is_papers or not reads_labels(number) else f"{100 * s['label_ratio']:g} % labels"


def reads_labels(number: Number) -> bool:
    """Whether the solver does; one that is not installed here is taken to."""
    model = number.setting["model"]
    return model not in registry.names() or registry.solver_class(model).needs.labels


def _supports(model: str, name: str) -> bool:
    return model not in registry.names() or name in registry.solver_class(model).supports


def _is_held_out(number: Number) -> bool:
    return number.setting["train_dataset"].endswith(_HELD_OUT)


def source(number: Number) -> str:
    """Data set of the training, whichever way it is split."""
    return number.setting["train_dataset"].removesuffix(_HELD_OUT)


def place(number: Number) -> Place:
    """Test and configuration, as the paper calls them where it has them."""
    dataset = number.setting["dataset"].removesuffix(_HELD_OUT)
    test = dataset if dataset in _OTHER_TESTS else published.dataset_label(dataset)
    name = number.setting["configuration"] + (_HELD_OUT if _is_held_out(number) else "")
    return test, LABELS.get(name, name)
