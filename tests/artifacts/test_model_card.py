"""What the card says of a model."""

import json

import pytest

from artifacts.model_card import make_model_card
from raise_model.errors import UserError
from raise_model.models import registry


def test_a_card_has_size_cost_needs_and_presets():
    card = make_model_card("raise", "smoke", "out_in_grid")
    assert card.parameters == 4850
    assert card.image_size == 20
    assert 0 < card.prediction_gflop < card.training_gflop < 0.01
    assert card.reads == ["panels", "labels"]
    assert {"bottom_right", "latent", "pixel"} <= set(card.supports)
    assert card.steps == {"paper": 600_000, "lite": 20_000, "demo": 3_000, "smoke": 20}
    assert json.loads(json.dumps(card.to_json()))["model"] == "raise"


def test_steps_are_those_of_the_configuration():
    card = make_model_card("raise", "smoke", "grid_3x3")  # all labelled
    assert card.steps["paper"] == 120_000


@pytest.mark.parametrize("model", [name for name in registry._OWN if name != "raise_plus"])
def test_every_model_has_a_card(model):
    card = make_model_card(model, "smoke", "center")
    assert card.training_gflop > card.prediction_gflop > 0
    assert ("labels" in card.reads) == (model == "raise")


def test_what_a_preset_lacks_is_not_said():
    card = make_model_card("raise_plus", "smoke", "center")
    assert (card.parameters, card.training_gflop, card.image_size) == (None, None, None)
    assert card.steps == {"lite": 15_000}


def test_an_unknown_model_is_one_line():
    with pytest.raises(UserError, match="unknown model 'raize'"):
        make_model_card("raize", "smoke", "center")
