"""Search spaces: the paper's values, samples that build, and what a sample changes."""

import dataclasses

import pytest

from raise_model.data.grammar import CONFIGURATIONS
from raise_model.errors import UserError
from raise_model.models import registry
from raise_model.presets import presets_of, trial_spec
from tune_spaces import transformer
from tune_spaces.spaces import SPACES, space_of

PAPER = [name for name in CONFIGURATIONS if not name.endswith("_uni")]
PAIRS = [(model, preset) for model in SPACES for preset in presets_of(model) if preset != "paper"]


def trial(model, preset, configuration="center"):
    return trial_spec(
        model=model, preset=preset, dataset="raven", configuration=configuration,
        train_digest="a" * 64, validation_digest="b" * 64, seed=0,
    )  # fmt: skip


def test_every_model_of_the_package_has_a_space():
    assert set(SPACES) == set(registry._OWN)
    assert all(space.model == name for name, space in SPACES.items())
    with pytest.raises(UserError, match="no search space for model toy; there is one for anp"):
        space_of("toy")


@pytest.mark.parametrize(("model", "preset"), PAIRS)
def test_samples_build_change_only_what_is_searched_and_depend_on_the_seed_alone(model, preset):
    space, around = SPACES[model], trial(model, preset, "left_right")
    samples = [space.sample(around, seed) for seed in range(20)]
    assert samples == [space.sample(around, seed) for seed in range(20)]
    for sample in samples[:3]:
        made = space.trial(around, sample)
        registry.build(model, made.config, made.data.image_size, seed=0)
    for sample in samples:
        made = space.trial(around, sample)
        changed = {name for name, value in made.config.items() if value != around.config[name]}
        assert changed <= set(sample)
        assert dataclasses.replace(made, config=around.config) == around
    for field in samples[0]:
        assert len({sample[field] for sample in samples}) > 1, field


def test_a_sample_is_short_and_lies_around_the_settings_own_value():
    around = trial("raise", "lite")
    rates = [SPACES["raise"].sample(around, seed)["learning_rate"] for seed in range(200)]
    assert all(1e-3 <= rate <= 16e-3 for rate in rates)
    assert min(rates) < 2e-3
    assert max(rates) > 8e-3
    assert all(rate == float(f"{rate:.3g}") for rate in rates)


def test_a_field_that_the_model_has_not_is_refused():
    with pytest.raises(UserError, match="model anp: unknown config fields: beta"):
        SPACES["anp"].trial(trial("anp", "lite"), {"beta": 1.0})


@pytest.mark.parametrize("model", [name for name in SPACES if name != "raise_plus"])
def test_the_papers_values_are_those_of_the_preset_paper(model):
    assert list(SPACES[model].paper) == PAPER
    for configuration, values in SPACES[model].paper.items():
        around = trial(model, "paper", configuration)
        assert SPACES[model].trial(around, values) == around
    assert SPACES["raise_plus"].paper == {}


def by_configuration(model, field):
    return [SPACES[model].paper[name][field] for name in PAPER]


def test_the_papers_numbers():
    """Appendix D.3, in the order Center, L-R, U-D, O-IC, O-IG, 2x2, 3x3."""
    assert by_configuration("anp", "learning_rate") == [5e-5, 1e-5, 1e-5, 5e-6, 5e-6, 3e-5, 3e-5]
    assert by_configuration("anp", "latent_size") == [1024] * 7
    assert by_configuration("lgpp", "num_concepts") == [5, 10, 10, 10, 10, 10, 10]
    assert by_configuration("lgpp", "kernel_network_hidden") == [(128, 128, 128, 128)] * 7
    assert by_configuration("clap", "num_concepts") == [5, 10, 10, 6, 8, 8, 10]
    assert by_configuration("clap", "beta_target") == [100, 50, 50, 30, 30, 30, 80]
    assert by_configuration("clap", "beta_function") == [100, 50, 50, 60, 30, 30, 80]
    assert by_configuration("clap", "beta_total_correlation") == [100, 50, 50, 50, 30, 30, 80]
    assert by_configuration("clap", "sigma_z") == [0.1, 0.1, 0.1, 0.4, 0.1, 0.3, 0.3]
    assert SPACES["transformer"].paper["grid_3x3"] == {
        "learning_rate": 1e-4,
        "representation_size": 256,
        "blocks": 4,
        "heads": 4,
        "feed_forward": 1024,
        "dropout": 0.1,
    }
    raise_ = SPACES["raise"].paper["center"]
    assert [raise_[f"beta_{name}"] for name in ("prediction", "rule", "label")] == [5, 20, 10]
    assert (raise_["learning_rate"], raise_["num_concepts"], raise_["concept_size"]) == (3e-4, 8, 8)


@pytest.mark.parametrize("preset", ["paper", "lite", "demo", "smoke"])
def test_every_point_of_a_grid_makes_a_config_and_the_presets_own_is_one(preset):
    around = trial("transformer", preset)
    points = transformer.grid(preset)
    made = [transformer.SPACE.trial(around, point) for point in points]
    assert len({spec.fingerprint for spec in made}) == len(points)
    assert around in made
