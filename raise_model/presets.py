"""What a preset trains: the budget, data form and labels of each model's named settings.

``paper`` is the authors' setting, ``lite`` fits one CPU thread in about an hour, ``demo`` in
minutes, ``smoke`` in seconds (it learns nothing).  Model widths and learning rates are in
the model's own ``config`` module.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from raise_model.data.grammar import CONFIGURATIONS
from raise_model.errors import UserError
from raise_model.models import anp, registry, transformer
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


def _raise_lite(configuration: str, label_ratio: float) -> TrainingPreset:
    return TrainingPreset(
        config=raise_config.lite(), steps=5_800, validate_every=200,
        validation_problems=1_000, image_size=32, resize="area",
    )  # fmt: skip


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
    is_grid = any(len(part.slots) > 1 for part in CONFIGURATIONS[configuration].components)
    return TrainingPreset(
        config=raise_config.plus_grid() if is_grid else raise_config.plus(),
        steps=15_000,
        validate_every=500,
        validation_problems=1_000,
        image_size=32 if is_grid else 20,
        resize="area",
        label_map="merged",
    )


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """What the compared solvers share under a preset."""

    steps: Mapping[str, int]
    """By model."""
    validate_every: int
    validation_problems: int
    image_size: int
    resize: Resize


_SCALES: Mapping[str, _Scale] = {
    "paper": _Scale(
        steps={"lgpp": 48_000, "clap": 120_000, "transformer": 120_000, "anp": 120_000},
        validate_every=600, validation_problems=2_000, image_size=64, resize="bilinear",
    ),
    "lite": _Scale(
        steps={"lgpp": 8_000, "clap": 8_000, "transformer": 18_000, "anp": 12_000},
        validate_every=400, validation_problems=1_000, image_size=32, resize="area",
    ),
    "demo": _Scale(
        steps={"lgpp": 5_000, "clap": 4_000, "transformer": 6_000, "anp": 3_500},
        validate_every=250, validation_problems=500, image_size=20, resize="area",
    ),
    "smoke": _Scale(
        steps=dict.fromkeys(("lgpp", "clap", "transformer", "anp"), 20), validate_every=10,
        validation_problems=50, image_size=20, resize="area",
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
            image_size=scale.image_size,
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
        lite=lambda _: transformer.lite(),
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


def training_preset(
    model: str, preset: str, configuration: str, label_ratio: float
) -> TrainingPreset:
    """:raises UserError: for an unknown model, an unknown preset, or one the model lacks."""
    registry.solver_class(model)
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset!r}; known presets: {', '.join(PRESETS)}")
    make = _BY_MODEL.get(model, {}).get(preset)
    if make is None:
        known = ", ".join(_BY_MODEL.get(model, {})) or "none"
        raise UserError(
            f"model {model} has no preset {preset} (it has: {known}); give its spec instead"
        )
    return make(configuration, label_ratio)


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
) -> TrialSpec:
    """The training of one model under a preset; ``label_ratio`` defaults to the paper's.

    Solvers that read no labels have the ratio 0, so that no ratio trains them again.
    """
    ratio = LABEL_RATIOS[configuration] if label_ratio is None else label_ratio
    if not registry.solver_class(model).needs.labels:
        ratio = 0.0
    setting = training_preset(model, preset, configuration, ratio)
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
