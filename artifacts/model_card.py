"""What each registered model is: size, arithmetic, what it reads, what it can do."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from raise_model.data.splits import label_attributes
from raise_model.models import registry
from raise_model.models.cost import measure
from raise_model.models.solver import config_to_json
from raise_model.presets import LABEL_RATIOS, presets_of, training_preset


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """One model; numbers are of one preset on one configuration, None if it lacks the preset."""

    model: str
    preset: str
    configuration: str
    image_size: int | None
    """Height and width of a panel in pixels."""
    parameters: int | None
    training_gflop: float | None
    """Of a problem in a training step, forwards and backwards."""
    prediction_gflop: float | None
    """Of filling one panel of a problem, its picture included."""
    reads: Sequence[str]
    """In training: panels, and whichever of labels, candidates and scenes."""
    supports: Sequence[str]
    """Protocols and answer spaces."""
    steps: Mapping[str, int]
    """Optimiser steps of each preset on the configuration."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def make_model_card(model: str, preset: str, configuration: str) -> ModelCard:
    """Builds the model and runs it on two random problems: at paper size some seconds.

    :raises UserError: for an unknown model.
    """
    solver_class = registry.solver_class(model)
    needs = solver_class.needs
    ratio = LABEL_RATIOS[configuration] if needs.labels else 0.0
    settings = {n: training_preset(model, n, configuration, ratio) for n in presets_of(model)}
    setting, cost = settings.get(preset), None
    if setting is not None:
        solver = registry.build(model, config_to_json(setting.config), setting.image_size, seed=0)
        attributes = len(label_attributes(configuration, setting.label_map))
        cost = measure(solver, setting.image_size, attributes)
    return ModelCard(
        model=model,
        preset=preset,
        configuration=configuration,
        image_size=setting.image_size if setting else None,
        parameters=cost.parameters if cost else None,
        training_gflop=cost.training / 1e9 if cost else None,
        prediction_gflop=cost.prediction / 1e9 if cost else None,
        reads=["panels", *(n for n in ("labels", "candidates", "scenes") if getattr(needs, n))],
        supports=sorted(solver_class.supports),
        steps={name: setting.steps for name, setting in settings.items()},
    )
