"""The flow with smoke trials that are long enough for a fault to meet them in the middle."""

import dataclasses
from typing import Any

from flows.full_repro import full_repro
from raise_model import presets

STEPS = 120
VALIDATE_EVERY = 20

_smoke = presets._raise_smoke


def _longer(*arguments: Any) -> presets.TrainingPreset:
    return dataclasses.replace(_smoke(*arguments), steps=STEPS, validate_every=VALIDATE_EVERY)


# Only the driver reads presets; nodes get whole specs.
presets._BY_MODEL["raise"]["smoke"] = _longer  # type: ignore[index]

__all__ = ["full_repro"]
