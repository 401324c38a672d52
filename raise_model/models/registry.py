"""Solvers by name.

The package's own solvers are named here, so that they are found without an installed
distribution too (``python -m raise_model`` on a bare GPU machine).  Others register a
:class:`~raise_model.models.solver.Solver` class under the entry-point group
``raise_rpm.solvers``.
"""

import dataclasses
import importlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import torch

from raise_model.errors import UserError
from raise_model.models.solver import Solver, is_added

ENTRY_POINT_GROUP = "raise_rpm.solvers"

_OWN = {
    "raise": "raise_model.models.raise_net.model:Raise",
    # The same model and supervision, trained otherwise; a row of its own in every table.
    "raise_plus": "raise_model.models.raise_net.model:Raise",
    "transformer": "raise_model.models.transformer:Transformer",
    "anp": "raise_model.models.anp:Anp",
    "lgpp": "raise_model.models.lgpp.model:Lgpp",
    "clap": "raise_model.models.clap.model:Clap",
}


@cache
def _entry_points() -> dict[str, EntryPoint]:
    own = {name: EntryPoint(name, value, ENTRY_POINT_GROUP) for name, value in _OWN.items()}
    others = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    return others | own


def names() -> list[str]:
    """Names of all solvers, sorted."""
    return sorted(_entry_points())


@cache
def solver_class(name: str) -> type[Solver]:
    """:raises UserError: if no solver has that name; it lists the known ones."""
    try:
        point = _entry_points()[name]
    except KeyError:
        raise UserError(f"unknown model {name!r}; known models: {', '.join(names())}") from None
    module = importlib.import_module(point.module)
    return getattr(module, point.attr)


def config_class(name: str) -> type:
    """The Config dataclass of a solver."""
    return solver_class(name).Config


def config_from_json(name: str, value: Mapping[str, Any]) -> Any:
    """A Config from its JSON form; unknown and missing fields are errors.

    :raises UserError: naming the field.
    """
    cls = config_class(name)
    fields = {field.name for field in dataclasses.fields(cls)}
    needed = {field.name for field in dataclasses.fields(cls) if not is_added(field)}
    for problem, found in (("unknown", set(value) - fields), ("missing", needed - set(value))):
        if found:
            raise UserError(f"model {name}: {problem} config fields: {', '.join(sorted(found))}")
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in value.items()})


def build(name: str, config: Mapping[str, Any], image_size: int, seed: int) -> Solver:
    """A new solver whose parameters depend on ``seed`` alone.

    The caller's global torch generator is left as it was.
    """
    cls = solver_class(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return cls(config_from_json(name, config), image_size)  # type: ignore[call-arg]
