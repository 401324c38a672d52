"""What a preset trains: the budget, data form and labels of each model's named settings.

``paper`` is the authors' setting, ``lite`` fits one CPU thread in about an hour, ``demo`` in
minutes, ``smoke`` in seconds (it learns nothing).  Model widths and learning rates are in
the model's own ``config`` module.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from raise_model.data.grammar import CONFIGURATIONS
from raise_model.errors import UserError
from raise_model.models import anp, lite_panels, registry, transformer
from raise_model.models.clap import config as clap_config
from raise_model.models.lgpp import config as lgpp_config
from raise_model.models.raise_net import config as raise_config
from raise_model.models.solver import config_to_json
from raise_model.specs import DataSpec, LabelMap, Precision, Resize, TrialSpec

PRESETS = ("paper", "lite", "demo", "smoke")

LABEL_RATIOS: Mapping[str, float] = {
    "center": 0.05,
    "left_right": 0.05,
    "up_down": 0.05,
    "out_in_center": 0.05,
    "out_in_grid": 0.2,
    "grid_2x2": 1.0,
    "grid_3x3": 1.0,
    "out_in_grid_uni": 0.2,
    "grid_2x2_uni": 0.2,
    "grid_3x3_uni": 0.2,
}
"""Share of labelled training problems in the paper (section 4; appendix E for -Uni)."""


@dataclass(frozen=True, kw_only=True)
class TrainingPreset:
    """How one model is trained under one preset."""

    config: Any
    """The model's Config."""
    steps: int
    validate_every: int
    validation_problems: int
    image_size: int
    resize: Resize
    label_map: LabelMap = "official"
    precision: Precision = "fp32"


def _raise_paper(configuration: str, label_ratio: float) -> TrainingPreset:
    # 10,000 epochs of twelve batches; between 0 and 1, four labelled steps precede each
    # unlabelled one (authors' code).
    partly_labelled = 0.0 < label_ratio < 1.0
    return TrainingPreset(
        config=raise_config.paper(),
        steps=600_000 if partly_labelled else 120_000,
        validate_every=600,
        validation_problems=2_000,
        image_size=64,
        resize="bilinear",
    )


_LITE_STEPS: Mapping[str, int] = {
    "grid_3x3": 12_000,
    "out_in_center": 20_000,
    "out_in_grid": 20_000,
}
"""Steps of RAISE's lite setting where they are not 15,000."""


def _raise_lite(configuration: str, label_ratio: float) -> TrainingPreset:
    return TrainingPreset(
        config=raise_config.lite(configuration),
        steps=_LITE_STEPS.get(configuration.removesuffix("_uni"), 15_000),
        validate_every=500,
        validation_problems=1_000,
        image_size=lite_panels.image_size(configuration),
        resize="area",
    )


def _raise_demo(configuration: str, label_ratio: float) -> TrainingPreset:
    return TrainingPreset(
        config=raise_config.demo(), steps=3_000, validate_every=250,
        validation_problems=500, image_size=20, resize="area",
    )  # fmt: skip


def _raise_smoke(configuration: str, label_ratio: float) -> TrainingPreset:
    return TrainingPreset(
        config=raise_config.smoke(), steps=20, validate_every=10,
        validation_problems=50, image_size=20, resize="area",
    )  # fmt: skip


def _raise_plus_lite(configuration: str, label_ratio: float) -> TrainingPreset:
    # With one slot a component the two maps are the same.
    has_grid = any(len(part.slots) > 1 for part in CONFIGURATIONS[configuration].components)
    return replace(
        _raise_lite(configuration, label_ratio), label_map="separate" if has_grid else "merged"
    )


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """What the compared solvers share under a preset."""

    steps: Mapping[str, int]
    """By model."""
    validate_every: int
    validation_problems: int
    image_sizes: Mapping[str, int]
    """By configuration."""
    resize: Resize


_SCALES: Mapping[str, _Scale] = {
    "paper": _Scale(
        steps={"lgpp": 48_000, "clap": 120_000, "transformer": 120_000, "anp": 120_000},
        validate_every=600, validation_problems=2_000,
        image_sizes=dict.fromkeys(CONFIGURATIONS, 64), resize="bilinear",
    ),
    "lite": _Scale(
        steps={"lgpp": 4_000, "clap": 8_000, "transformer": 16_000, "anp": 6_000},
        validate_every=1_000, validation_problems=1_000,
        image_sizes={name: lite_panels.compared_image_size(name) for name in CONFIGURATIONS},
        resize="area",
    ),
    "demo": _Scale(
        steps={"lgpp": 5_000, "clap": 4_000, "transformer": 6_000, "anp": 3_500},
        validate_every=250, validation_problems=500,
        image_sizes=dict.fromkeys(CONFIGURATIONS, 20), resize="area",
    ),
    "smoke": _Scale(
        steps=dict.fromkeys(("lgpp", "clap", "transformer", "anp"), 20), validate_every=10,
        validation_problems=50, image_sizes=dict.fromkeys(CONFIGURATIONS, 20), resize="area",
    ),
}  # fmt: skip


_Make = Callable[[str, float], TrainingPreset]
"""A preset of a model from configuration and label ratio."""


def _compared(model: str, **configs: Callable[[str], Any]) -> Mapping[str, _Make]:
    """Presets of a solver that uses no labels, from its Config by configuration."""

    def preset(scale: _Scale, config: Callable[[str], Any]) -> _Make:
        return lambda configuration, _: TrainingPreset(
            config=config(configuration),
            steps=scale.steps[model],
            validate_every=scale.validate_every,
            validation_problems=scale.validation_problems,
            image_size=scale.image_sizes[configuration],
            resize=scale.resize,
        )

    return {name: preset(_SCALES[name], config) for name, config in configs.items()}


_BY_MODEL: Mapping[str, Mapping[str, _Make]] = {
    "raise": {
        "paper": _raise_paper,
        "lite": _raise_lite,
        "demo": _raise_demo,
        "smoke": _raise_smoke,
    },
    "raise_plus": {"lite": _raise_plus_lite},
    "transformer": _compared(
        "transformer",
        paper=lambda _: transformer.paper(),
        lite=transformer.lite,
        demo=lambda _: transformer.demo(),
        smoke=lambda _: transformer.smoke(),
    ),
    "anp": _compared(
        "anp",
        paper=anp.paper,
        lite=lambda _: anp.lite(),
        demo=lambda _: anp.demo(),
        smoke=lambda _: anp.smoke(),
    ),
    "lgpp": _compared(
        "lgpp",
        paper=lgpp_config.paper,
        lite=lgpp_config.lite,
        demo=lgpp_config.demo,
        smoke=lgpp_config.smoke,
    ),
    "clap": _compared(
        "clap",
        paper=clap_config.paper,
        lite=clap_config.lite,
        demo=clap_config.demo,
        smoke=clap_config.smoke,
    ),
}


def presets_of(model: str) -> list[str]:
    """Names of a model's presets; none of a third party's."""
    return list(_BY_MODEL.get(model, {}))


def training_preset(
    model: str, preset: str, configuration: str, label_ratio: float
) -> TrainingPreset:
    """:raises UserError: for an unknown model, an unknown preset, or one the model lacks."""
    registry.solver_class(model)
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset!r}; known presets: {', '.join(PRESETS)}")
    make = _BY_MODEL.get(model, {}).get(preset)
    if make is None:
        known = ", ".join(presets_of(model)) or "none"
        raise UserError(
            f"model {model} has no preset {preset} (it has: {known}); give its spec instead"
        )
    return make(configuration, label_ratio)


_JOINT_LABELLED = 48
"""Labelled problems in a joint step at paper size: 1 % of the training problems are 60, and a
smaller pool would make a smaller batch."""


def _equally_exposed(
    setting: TrainingPreset, model: str, preset: str, configuration: str
) -> TrainingPreset:
    """The setting with steps and batches that do not depend on the label ratio.

    Joint batches are so already.  With the authors' separate ones a ratio between 0 and 1 takes
    five times the steps, most on the few labelled problems; here every step has as many
    labelled and unlabelled problems as theirs together, and the label term, a sum over the
    labelled ones, weighs as in their fully labelled step.
    """
    config = setting.config
    if not isinstance(config, raise_config.RaiseConfig) or config.batches == "joint":
        return setting
    whole = config.labelled_batch
    joint = replace(
        config,
        batches="joint",
        labelled_batch=_JOINT_LABELLED,
        unlabelled_batch=whole - _JOINT_LABELLED,
        beta_label=config.beta_label * whole / _JOINT_LABELLED,
    )
    steps = training_preset(model, preset, configuration, 0.0).steps
    return replace(setting, config=joint, steps=steps)


def trial_spec(
    *,
    model: str,
    preset: str,
    dataset: str,
    configuration: str,
    train_digest: str,
    validation_digest: str,
    seed: int,
    label_ratio: float | None = None,
    equal_exposure: bool = False,
) -> TrialSpec:
    """The training of one model under a preset; ``label_ratio`` defaults to the paper's.

    Solvers that read no labels have the ratio 0, so that no ratio trains them again.

    :param equal_exposure: as many steps, and problems in a step, at every ratio; for
        comparisons between ratios.
    """
    ratio = LABEL_RATIOS[configuration] if label_ratio is None else label_ratio
    if not registry.solver_class(model).needs.labels:
        ratio = 0.0
    setting = training_preset(model, preset, configuration, ratio)
    if equal_exposure:
        setting = _equally_exposed(setting, model, preset, configuration)
    return TrialSpec(
        model=model,
        config=config_to_json(setting.config),
        revision=registry.solver_class(model).revision,
        precision=setting.precision,
        data=DataSpec(
            dataset=dataset,
            configuration=configuration,
            train_digest=train_digest,
            validation_digest=validation_digest,
            image_size=setting.image_size,
            resize=setting.resize,
            label_map=setting.label_map,
            label_ratio=ratio,
        ),
        seed=seed,
        steps=setting.steps,
        validate_every=setting.validate_every,
        validation_problems=setting.validation_problems,
    )


RATIOS: Sequence[float] = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of labelled training problems on the curve over them."""
ABLATION_PRESET = "lite"
"""What an ablation shortens."""
_ABLATION_SHARE = 1 / 3


def shortened(lite: TrialSpec) -> TrialSpec:
    """A training of an ablation: a third of the steps, since three seeds of three settings would
    be a day of one CPU thread otherwise.
    """
    return replace(lite, steps=round(lite.steps * _ABLATION_SHARE))


_STEPS_AS_PUBLISHED = 1.8
"""A step that predicts and draws one panel of a problem costs a CPU so many times less than
one of the lite setting (median 1.76 to 1.82 in benchmarks/README.md)."""


def as_published(lite: TrialSpec) -> TrialSpec:
    """A lite training of RAISE, trained as the authors do, in as much time.

    :raises UserError: for another model.
    """
    networks = registry.config_from_json(lite.model, lite.config)
    if not isinstance(networks, raise_config.RaiseConfig):
        raise UserError(f"only RAISE is trained as published here, not {lite.model}")
    return replace(
        lite,
        model="raise",
        config=config_to_json(raise_config.as_published(networks)),
        steps=round(_STEPS_AS_PUBLISHED * lite.steps),
        validate_every=round(_STEPS_AS_PUBLISHED * lite.validate_every),
    )
