"""Search space of the Transformer, and the paper's grid search."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ray import tune
from ray.tune.search.sample import Domain

from raise_model.models import transformer
from raise_model.models.transformer import TransformerConfig
from tune_spaces.search_space import Sample, SearchSpace, log_around, papers

GRID_FIELDS = ("learning_rate", "representation_size", "blocks")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Values of a grid search; every combination is a training."""

    learning_rate: Sequence[float]
    representation_size: Sequence[int]
    blocks: Sequence[int]


_SMALL = Grid(learning_rate=(4e-3, 2e-3, 1e-3), representation_size=(128, 64, 32), blocks=(1, 2, 3))

GRIDS: Mapping[str, Grid] = {
    "lite": _SMALL,
    "demo": _SMALL,
    "smoke": Grid(learning_rate=(2e-3, 1e-3), representation_size=(12, 6), blocks=(1,)),
}
"""Grids of the paper's form around the smaller presets."""


def grid(preset: str) -> Sequence[Sample]:
    """Every point of a preset's grid; the preset ``paper`` has the paper's (appendix D.3)."""
    if preset == "paper":
        points = [tuple(getattr(c, name) for name in GRID_FIELDS) for c in transformer.paper_grid()]
    else:
        values = GRIDS[preset]
        points = itertools.product(*(getattr(values, name) for name in GRID_FIELDS))
    return [dict(zip(GRID_FIELDS, point, strict=True)) for point in points]


def _domains(around: TransformerConfig) -> Mapping[str, Domain]:
    size, blocks = around.representation_size, around.blocks
    return {
        "learning_rate": log_around(around.learning_rate, 4.0),
        # Heads divide the size and twice the size.
        "representation_size": tune.choice([size, 2 * size]),
        "blocks": tune.choice([blocks, blocks + 1, blocks + 2]),
        "dropout": tune.choice([0.0, 0.1]),
        "code_weight": log_around(around.code_weight, 10.0),
    }


SPACE = SearchSpace(
    model="transformer",
    domains=_domains,
    paper=papers(
        lambda _: transformer.paper(),
        ("learning_rate", "representation_size", "blocks", "heads", "feed_forward", "dropout"),
    ),
)
