"""Solvers by name: our own, third parties' through entry points, and mistakes."""

import dataclasses
from importlib.metadata import EntryPoint

import pytest
import torch

from raise_model.errors import UserError
from raise_model.models import registry
from raise_model.models.solver import Loss, Needs, Prediction, Solver, config_to_json


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThirdPartyConfig:
    widths: tuple[int, ...] = (3, 5)


class ThirdParty(Solver):
    Config = ThirdPartyConfig
    revision = 4
    supports = frozenset()
    needs = Needs()

    def __init__(self, config, image_size):
        super().__init__()
        self.config = config
        self.layer = torch.nn.Linear(image_size, config.widths[0])

    def optimizers(self):
        return {"all": torch.optim.SGD(self.parameters(), lr=1.0)}

    def set_step(self, step, steps):
        return {"all": 1.0}

    def training_steps(self, batches, generator):
        total = self.layer.weight.sum()
        yield Loss(optimizer="all", total=total, terms={})

    def predict_encoded(self, codes, missing, generator):
        return Prediction()

    def score(self, prediction, candidates, space):
        return candidates.flatten(2).sum(2)


@pytest.fixture
def third_party(monkeypatch):
    point = EntryPoint("third", f"{__name__}:ThirdParty", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    monkeypatch.setattr(registry.importlib, "import_module", _import_module)
    registry._entry_points.cache_clear()
    registry.solver_class.cache_clear()
    yield "third"
    registry._entry_points.cache_clear()
    registry.solver_class.cache_clear()


def _import_module(name, original=registry.importlib.import_module):
    import sys

    # Under --import-mode=importlib this very module is not importable by its name.
    if name == __name__:
        return sys.modules.get(name) or type("Module", (), {"ThirdParty": ThirdParty})
    return original(name)


def test_third_party_solver_is_found_and_built(third_party):
    assert {"raise", third_party} <= set(registry.names())
    config = config_to_json(ThirdPartyConfig(widths=(7,)))
    assert config == {"widths": [7]}
    solver = registry.build(third_party, config, image_size=5, seed=0)
    assert solver.config == ThirdPartyConfig(widths=(7,))
    assert solver.layer.weight.shape == (7, 5)


def test_parameters_depend_on_the_seed_alone(third_party):
    config = config_to_json(ThirdPartyConfig())
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = registry.build(third_party, config, 5, seed=0)
    assert torch.equal(torch.get_rng_state(), before), "the caller's generator is left alone"
    torch.manual_seed(2)
    again = registry.build(third_party, config, 5, seed=0)
    other = registry.build(third_party, config, 5, seed=1)
    assert torch.equal(first.layer.weight, again.layer.weight)
    assert not torch.equal(first.layer.weight, other.layer.weight)


def test_unknown_model_lists_the_known_ones():
    with pytest.raises(UserError, match=r"unknown model 'rise'.*raise"):
        registry.solver_class("rise")


def test_config_with_a_missing_or_unknown_field_is_refused(third_party):
    with pytest.raises(UserError, match="unknown config fields: depth"):
        registry.config_from_json(third_party, {"widths": [1], "depth": 2})
    with pytest.raises(UserError, match="missing config fields: widths"):
        registry.config_from_json(third_party, {})
