"""Which preset a training belongs to, and what sets two trainings apart.

A spec does not name its preset: it says every value.  A training is of a preset if the preset
gives the same values today.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from raise_model.errors import UserError
from raise_model.presets import ABLATION_PRESET, PRESETS, as_published, shortened, trial_spec
from raise_model.specs import TrialSpec, canonical_json

CUSTOM = "custom"
"""What a training is of that no preset gives."""
EQUAL_EXPOSURE = ", equal exposure"
"""Added to a preset's name: as many steps and problems in a step at every label ratio."""
ABLATION = f"{ABLATION_PRESET}, ablation"
"""What an ablation's training is of, with the model's own way to train."""
ABLATION_AS_PUBLISHED = f"{ABLATION}, as published"
"""The same, trained as the authors do."""
PREFERENCE = ("paper", "lite", CUSTOM, "demo", "smoke")
"""Which of several trainings stands in a table of the paper, where no preset is asked for."""


def matching_presets(spec: TrialSpec) -> tuple[str, ...]:
    """Every preset that gives this training, or ``("custom",)``."""
    wanted = canonical_json(_unseeded(spec))
    data = spec.data
    found = [
        preset + (EQUAL_EXPOSURE if equal else "")
        for equal in (False, True)
        for preset in PRESETS
        if _of_preset(
            preset, spec.model, data.dataset, data.configuration, data.label_ratio, equal
        ) == wanted
    ]  # fmt: skip
    # Where batches are of one kind anyway, the two are the same training.
    plain = [name for name in found if not name.endswith(EQUAL_EXPOSURE)]
    return tuple(plain or found or _ablations(spec, wanted)) or (CUSTOM,)


def root(preset: str) -> str:
    """The preset that a name of :func:`matching_presets` starts from."""
    return preset.partition(", ")[0]


def is_of(presets: Sequence[str], preset: str | None) -> bool:
    """Whether a training of ``presets`` stands beside the paper's; an ablation's never does."""
    if preset is None:
        return not is_ablation(presets)
    return preset in presets


def is_ablation(presets: Sequence[str]) -> bool:
    return any(name.startswith(ABLATION) for name in presets)


@cache
def _of_preset(
    preset: str, model: str, dataset: str, configuration: str, label_ratio: float, equal: bool
) -> str | None:
    """The training of a preset; None where the model has no such preset."""
    spec = _preset_spec(preset, model, dataset, configuration, label_ratio, equal)
    return canonical_json(_unseeded(spec)) if spec else None


@cache
def _ablations_of(
    model: str, dataset: str, configuration: str, label_ratio: float
) -> Mapping[str, str]:
    """The trainings of an ablation by name; none where the model has no such preset."""
    lite = _preset_spec(ABLATION_PRESET, model, dataset, configuration, label_ratio, False)
    made = {ABLATION: shortened(lite)} if lite else {}
    if lite and model == "raise":
        made[ABLATION_AS_PUBLISHED] = as_published(shortened(lite))
    return {name: canonical_json(_unseeded(each)) for name, each in made.items()}


def _ablations(spec: TrialSpec, wanted: str) -> list[str]:
    data = spec.data
    known = _ablations_of(spec.model, data.dataset, data.configuration, data.label_ratio)
    return [name for name, each in known.items() if each == wanted]


def _preset_spec(
    preset: str, model: str, dataset: str, configuration: str, label_ratio: float, equal: bool
) -> TrialSpec | None:
    try:
        return trial_spec(
            model=model, preset=preset, dataset=dataset, configuration=configuration,
            train_digest="", validation_digest="", seed=0, label_ratio=label_ratio,
            equal_exposure=equal,
        )  # fmt: skip
    except UserError:
        # A model of somebody else, or one without this preset: nothing to compare with.
        return None


def _unseeded(spec: TrialSpec) -> dict[str, Any]:
    """A spec without seed, content of the data, and revision: what a preset decides."""
    data = dataclasses.replace(spec.data, train_digest="", validation_digest="")
    return dataclasses.replace(spec, seed=0, revision=0, data=data).to_json()


def setting(spec: TrialSpec) -> dict[str, Any]:
    """Every value of a training but its seed, flat."""
    values = _unseeded(spec)
    data, config = values.pop("data"), values.pop("config")
    return values | data | {f"config.{name}": value for name, value in config.items()}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What ``one`` has otherwise, e.g. ``steps 15000 (3000)``; ``other``'s value in brackets."""
    return [
        f"{name.removeprefix('config.')} {_short(one.get(name))} ({_short(other.get(name))})"
        for name in dict.fromkeys([*one, *other])
        if canonical_json(one.get(name)) != canonical_json(other.get(name))
    ]


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
