"""What a run is asked to reproduce."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flows.presets import (
    CONFIGURATIONS,
    DATASETS,
    PRESETS,
    STUDIES,
    Configuration,
    DataSource,
    Preset,
)
from raise_model.errors import UserError
from raise_model.models import registry


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to reproduce; empty sequences and zeros mean what the preset has."""

    preset: str
    studies: Sequence[str] = ()
    models: Sequence[str] = ()
    configurations: Sequence[str] = ()
    trials: int = 0
    label_ratio: float = -1.0
    """-1: the paper's ratio of each configuration.  Studies whose subject is the ratio
    (``no_labels``, ``label_ratio``, ``held_out``) keep theirs."""
    data: DataSource = "generated"

    def __post_init__(self) -> None:
        _check_known("preset", [self.preset], PRESETS)
        _check_known("study", self.studies, STUDIES)
        _check_known("configuration", self.configurations, CONFIGURATIONS)
        _check_known("model", self.models, registry.names())
        _check_known("data", [self.data], DATASETS)
        if self.trials < 0:
            raise UserError(f"trials must be 1 or more (0: the preset's), not {self.trials}")
        if self.label_ratio != -1.0 and not 0.0 <= self.label_ratio <= 1.0:
            raise UserError(
                f"label_ratio must lie in [0, 1] (-1: the paper's), not {self.label_ratio:g}"
            )

    @property
    def scale(self) -> Preset:
        """The preset with this request's own values."""
        given = {
            "studies": tuple(self.studies),
            "models": tuple(self.models),
            "configurations": tuple(self.configurations),
            "seeds": self.trials,
        }
        changes = {name: value for name, value in given.items() if value}
        return dataclasses.replace(PRESETS[self.preset], **changes)

    def configurations_of(self, study: Sequence[Configuration]) -> Sequence[str]:
        """Configurations of a study that has its own: those of them that were asked for."""
        return [name for name in study if name in (self.configurations or study)]


def _check_known(what: str, values: Iterable[str], known: Iterable[str]) -> None:
    for value in values:
        if value not in known:
            raise UserError(f"unknown {what} {value!r}; known: {', '.join(known)}")
