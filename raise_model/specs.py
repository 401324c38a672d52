"""What identifies a training and an evaluation, and nothing else.

Two identities, each with a fingerprint (SHA-256 of canonical JSON):

* :class:`TrialSpec`: one training.  Everything that changes its numbers is in it.
* :class:`EvaluationSpec`: one protocol run over one finished training.

Devices, thread counts, paths, addresses and versions are recorded beside the results
(:func:`raise_model.provenance.provenance`) and never enter a fingerprint, so the same
spec is never trained twice and a new evaluation never retrains.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from raise_model.errors import UserError

Precision = Literal["fp32", "bf16"]
Resize = Literal["bilinear", "area"]
LabelMap = Literal["official", "merged", "separate"]


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces; NaN and Inf are a ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def fingerprint(kind: str, value: Mapping[str, Any]) -> str:
    """SHA-256 (64 hex digits) of ``kind`` and the canonical JSON of ``value``."""
    return hashlib.sha256(f"{kind}:{canonical_json(value)}".encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """What a training reads."""

    dataset: str
    configuration: str
    train_digest: str
    """SHA-256 of the decoded content of the training split."""
    validation_digest: str
    image_size: int
    """Height and width of a panel in pixels."""
    resize: Resize
    label_map: LabelMap
    label_ratio: float
    """Share of the training problems whose rule labels are used, 0 to 1."""
    label_seed: int = 0
    """Which problems are labelled; subsets are nested by ratio."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.label_ratio <= 1.0:
            raise UserError(f"label_ratio must lie in [0, 1], not {self.label_ratio}")


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """One training."""

    model: str
    config: Mapping[str, Any]
    """The model's Config as a mapping, every field written out."""
    revision: int
    """The model's revision: raised whenever its golden file changes."""
    precision: Precision
    data: DataSpec
    seed: int
    steps: int
    """Optimiser steps; every schedule is a function of the step."""
    validate_every: int
    """Steps between two validations; the best of them is kept."""
    validation_problems: int
    """The first so many problems of the validation split are used."""

    def __post_init__(self) -> None:
        for field in ("steps", "validate_every", "validation_problems"):
            if getattr(self, field) < 1:
                raise UserError(f"{field} must be at least 1, not {getattr(self, field)}")

    @property
    def fingerprint(self) -> str:
        return fingerprint("trial", self.to_json())

    @property
    def name(self) -> str:
        """Folder name in the store: readable parts, then 16 digits of the fingerprint."""
        ratio = f"{100 * self.data.label_ratio:g}pct"
        parts = (self.model, self.data.configuration, ratio, f"s{self.seed}", self.fingerprint[:16])
        return "-".join(parts)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"config": dict(self.config)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "TrialSpec":
        return cls(**{**value, "data": DataSpec(**value["data"])})


@dataclass(frozen=True, kw_only=True)
class EvaluationSpec:
    """One protocol over one finished training."""

    protocol: str
    """Name of a module function in :mod:`raise_model.evaluation`, e.g. ``bottom_right``."""
    options: Mapping[str, Any]
    dataset: str
    configuration: str
    split: str
    digest: str
    """SHA-256 of the decoded content of the evaluated split."""
    rounds: int
    """Stochastic passes over the same checkpoint."""
    seed: int
    revision: int
    """Revision of the protocol."""

    @property
    def fingerprint(self) -> str:
        return fingerprint("evaluation", self.to_json())

    @property
    def name(self) -> str:
        """Folder name under the trial: protocol, data set, 16 digits of the fingerprint."""
        return "-".join((self.protocol, self.dataset, self.split, self.fingerprint[:16]))

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"options": dict(self.options)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "EvaluationSpec":
        return cls(**value)
