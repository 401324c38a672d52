"""A model's hyperparameters: where to search, and what the paper chose."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ray import tune
from ray.tune.search.sample import Domain

from raise_model.data.grammar import CONFIGURATIONS
from raise_model.models import registry
from raise_model.models.solver import config_to_json
from raise_model.specs import TrialSpec

Sample = Mapping[str, Any]
"""Values of some fields of a Config."""


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """What can be tuned of one model.

    Domains lie around a setting's own values, so that one space serves every preset.
    """

    model: str
    domains: Callable[[Any], Mapping[str, Domain]]
    """Domain of every searched field of the Config, from the Config to search around."""
    paper: Mapping[str, Sample]
    """What the paper (appendix D.3) gives, by configuration."""

    def sample(self, around: TrialSpec, seed: int) -> dict[str, Any]:
        """One point of the space; the same for the same seed everywhere."""
        domains = self.domains(registry.config_from_json(self.model, around.config))
        # Ray draws from NumPy's legacy generator, whose stream is fixed.
        random = np.random.RandomState(seed)
        return {name: _plain(domains[name].sample(random_state=random)) for name in sorted(domains)}

    def trial(self, around: TrialSpec, sample: Sample) -> TrialSpec:
        """The training at a point of the space; all that is not searched is as in ``around``.

        :raises UserError: for a field or a value that the model's Config refuses.
        """
        config = registry.config_from_json(self.model, {**around.config, **sample})
        return dataclasses.replace(around, config=config_to_json(config))


def _plain(value: Any) -> Any:
    """Three digits are enough to tune, and the same on every machine."""
    if not isinstance(value, float):
        return value.item() if isinstance(value, np.generic) else value
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return round(float(value), digits)


def log_around(value: float, factor: float) -> Domain:
    """Log-uniform between ``value / factor`` and ``value * factor``."""
    return tune.loguniform(value / factor, value * factor)


def papers(config_of: Callable[[str], Any], fields: Sequence[str]) -> Mapping[str, Sample]:
    """Fields of the paper's Config, for the seven configurations that the paper gives them for."""
    return {
        name: {field: getattr(config_of(name), field) for field in fields}
        for name in CONFIGURATIONS
        if not name.endswith("_uni")
    }
