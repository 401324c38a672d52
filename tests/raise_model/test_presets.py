"""Every preset of every model makes a spec that builds a solver."""

import dataclasses

import pytest
import torch

from raise_model import presets
from raise_model.data.grammar import CONFIGURATIONS
from raise_model.errors import UserError
from raise_model.models import registry
from raise_model.models.cost import RandomBatches
from raise_model.models.raise_net import config as raise_config
from raise_model.models.raise_net.model import Raise
from raise_model.models.solver import Loss, is_added

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
    fields = dataclasses.fields(registry.config_class(model))
    added = {field.name for field in fields if is_added(field)}
    sizes = set()
    for configuration in CONFIGURATIONS:
        made = spec(model, preset, configuration)
        assert made.steps >= made.validate_every
        sizes.add(tuple(sorted(made.config.keys() - added)))
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


def test_raise_plus_labels_number_and_position_apart():
    for name in CONFIGURATIONS:
        plain, plus = spec("raise", "lite", name), spec("raise_plus", "lite", name)
        has_grid = name.startswith(("grid", "out_in_grid"))
        assert plus.data.label_map == ("separate" if has_grid else "merged")
        assert plain.data.label_map == "official"
        assert (plus.config, plus.steps, plus.data.image_size) == (
            plain.config, plain.steps, plain.data.image_size,
        )  # fmt: skip


def test_lite_as_published_changes_the_training_alone():
    networks = raise_config.lite("grid_2x2")
    published = raise_config.as_published(networks)
    solvers = [Raise(config, 32) for config in (networks, published)]
    plain, other = (
        {name: tensor.shape for name, tensor in solver.networks.named_parameters()}
        for solver in solvers
    )
    other.pop("rule_net.target")  # learnt in the authors' code
    assert plain == other
    assert (published.labelled_batch, published.unlabelled_batch) == (32, 32)
    assert published.targets_per_problem == 1
    assert published.optimizer == "rmsprop"


def test_trained_as_published_is_raise_for_more_and_cheaper_steps():
    lite = spec("raise_plus", "lite", "grid_2x2")
    made = presets.as_published(lite)
    assert (made.model, made.steps, made.validate_every) == ("raise", 27_000, 900)
    assert (made.data, made.seed) == (lite.data, lite.seed)
    assert made.config["optimizer"] == "rmsprop"


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


def problems_of_a_round(made, labelled):
    """Problems of each step of a round, with so many labelled ones of 6,000."""
    solver = registry.build(made.model, made.config, made.data.image_size, seed=0)
    sizes = []

    def note(batch, generator):
        sizes.append((len(batch), int((batch.rule_labels >= 0).all(1).sum())))
        return Loss(optimizer="all", total=torch.zeros(()), terms={})

    solver.loss = note
    # Panels of one pixel: only their number is of interest.
    batches = RandomBatches(1, 3, problems=6_000, labelled=labelled)
    list(solver.training_steps(batches, torch.Generator()))
    return sizes


@pytest.mark.parametrize("preset", ["paper", "lite", "demo"])
def test_equally_exposed_every_ratio_sees_as_many_problems_in_as_many_steps(preset):
    ratios = (0.0, 0.01, 0.05, 0.2, 1.0)
    made = [spec("raise", preset, label_ratio=ratio, equal_exposure=True) for ratio in ratios]
    assert len({trial.steps for trial in made}) == 1
    assert all(trial.config == made[0].config for trial in made)
    rounds = [
        problems_of_a_round(trial, int(6_000 * ratio))
        for trial, ratio in zip(made, ratios, strict=True)
    ]
    ((problems, none),) = rounds[0]
    assert none == 0
    ((_, labelled),) = rounds[-1]
    assert labelled > 0
    assert rounds == [[(problems, 0)], *[[(problems, labelled)]] * 4]


def test_the_papers_own_training_is_not_equally_exposed_and_stays_as_it_is():
    partly, none = spec("raise", "paper"), spec("raise", "paper", label_ratio=0.0)
    assert (partly.steps, none.steps) == (600_000, 120_000)
    fair = spec("raise", "paper", equal_exposure=True)
    assert fair.steps == 120_000
    assert fair.config["labelled_batch"] + fair.config["unlabelled_batch"] == 512
    # The label term is a sum: 48 labelled problems weigh as the 512 of a labelled step.
    assert fair.config["beta_label"] * 48 == pytest.approx(partly.config["beta_label"] * 512)
    assert spec("raise", "lite", equal_exposure=True) == spec("raise", "lite")
    assert spec("anp", "paper", equal_exposure=True) == spec("anp", "paper")


def test_presets_of_a_model_are_listed():
    assert presets.presets_of("raise_plus") == ["lite"]
    assert presets.presets_of("raise") == ["paper", "lite", "demo", "smoke"]
    assert presets.presets_of("somebody_elses") == []
