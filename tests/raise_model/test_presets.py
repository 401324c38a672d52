"""Every preset of every model makes a spec that builds a solver."""

import pytest

from raise_model import presets
from raise_model.data.grammar import CONFIGURATIONS
from raise_model.errors import UserError
from raise_model.models import registry
from raise_model.models.raise_net import config as raise_config

PAIRS = [
    (model, preset)
    for model, made in presets._BY_MODEL.items()
    for preset in made
    if preset != "paper"  # millions of parameters; their sizes are asserted with the models
]


def spec(model, preset, configuration="center", **options):
    return presets.trial_spec(
        model=model, preset=preset, dataset="raven", configuration=configuration,
        train_digest="a" * 64, validation_digest="b" * 64, seed=0, **options,
    )  # fmt: skip


@pytest.mark.parametrize(("model", "preset"), PAIRS)
def test_every_preset_builds_in_every_configuration(model, preset):
    sizes = set()
    for configuration in CONFIGURATIONS:
        made = spec(model, preset, configuration)
        assert made.steps >= made.validate_every
        sizes.add(tuple(sorted(made.config)))
        registry.config_from_json(model, made.config)
    assert len(sizes) == 1
    first = spec(model, preset, "grid_3x3")
    solver = registry.build(model, first.config, first.data.image_size, seed=0)
    assert sum(p.numel() for p in solver.parameters()) > 0


def test_every_model_of_the_package_has_a_preset():
    assert set(presets._BY_MODEL) == set(registry._OWN)


def test_label_ratio_is_the_papers_or_none_where_labels_are_not_read():
    assert spec("raise", "demo").data.label_ratio == 0.05
    assert spec("raise", "demo", "grid_2x2").data.label_ratio == 1.0
    assert spec("raise", "demo", label_ratio=0.1).data.label_ratio == 0.1
    assert spec("transformer", "demo").data.label_ratio == 0.0
    assert spec("clap", "demo", label_ratio=0.1) == spec("clap", "demo")


def test_raise_plus_merges_labels_and_draws_grids_larger():
    center, grid = spec("raise_plus", "lite"), spec("raise_plus", "lite", "grid_2x2")
    assert (center.data.label_map, center.data.image_size) == ("merged", 20)
    assert grid.data.image_size == 32
    assert center.config != grid.config
    assert registry.config_from_json("raise_plus", center.config) == raise_config.plus()


@pytest.mark.parametrize(
    ("model", "preset", "message"),
    [
        ("raise_plus", "demo", r"raise_plus has no preset demo \(it has: lite\)"),
        ("raise", "large", "unknown preset 'large'"),
        ("rise", "demo", "unknown model 'rise'"),
    ],
)
def test_unknown_presets_are_one_line(model, preset, message):
    with pytest.raises(UserError, match=message):
        spec(model, preset)
