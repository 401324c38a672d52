"""The one interface between solvers and everything else.

``fit`` executes a solver and knows no model: it asks for the optimisers, sets the step,
draws the losses of a round one after another and steps the optimiser that each names.

Evaluation protocols see :meth:`Solver.predict` and :meth:`Solver.score`, or, where one panel
serves many predictions, their two halves: :meth:`Solver.encode` once a panel, then
:meth:`Solver.predict_encoded` and :meth:`Solver.score_encoded`.
"""

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from raise_model.models.common.agreement import agreement
from raise_model.problem import Batch

Space = Literal["latent", "pixel"]
Pool = Literal["all", "labelled"]


class UnsupportedProtocol(ValueError):
    """The solver cannot be run under the protocol; tables print ``n/a``."""


class Batches(Protocol):
    """Endless, resumable stream of training problems."""

    def draw(self, pool: Pool, size: int, *, partial: bool = False) -> Batch:
        """Next ``size`` problems of a pool in shuffled order, each once an epoch.

        ``labelled`` problems carry their labels; problems drawn from ``all`` carry -1.
        A batch crosses the end of an epoch; with ``partial`` it stops there and is
        shorter.  A pool smaller than ``size`` is given whole.
        """
        ...

    def num_problems(self, pool: Pool) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a solver reads in training besides panels."""

    labels: bool = False
    candidates: bool = False
    scenes: bool = False


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One optimiser step: minimise ``total`` with the optimiser named."""

    optimizer: str
    total: Float[Tensor, ""]
    terms: Mapping[str, Float[Tensor, ""]]
    """Detached parts of the loss, for the training curve."""
    problems: Int[Tensor, " batch"] | None = None
    """Rows of the problems that it was made from, to name them if it is not finite."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A solver's answer for the missing panels; only what the solver produces is set.

    A solver that decodes sets ``images`` in :meth:`Solver.predict` alone.
    """

    latents: Float[Tensor, "batch targets latent"] | None = None
    images: Float[Tensor, "batch targets 1 size size"] | None = None
    rules: Float[Tensor, "batch concepts rules"] | None = None
    """Probability of each rule for each concept (prior, from the context alone)."""


class Solver(nn.Module, ABC):
    """A model that completes matrices.  Subclasses are final.

    ``__init__(config, image_size)`` builds all parameters from the global torch
    generator, which the registry seeds; training and prediction draw from the explicit
    generator that they are given.
    """

    Config: ClassVar[type]
    """Frozen dataclass of everything that changes the solver's numbers."""
    revision: ClassVar[int]
    """Raised whenever the golden file of the solver changes."""
    supports: ClassVar[frozenset[str]]
    """Protocols and answer spaces, e.g. ``bottom_right``, ``latent``, ``pixel``; ``decode``."""
    needs: Needs

    @abstractmethod
    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Named optimisers over disjoint parameters, newly made."""

    @abstractmethod
    def set_step(self, step: int, steps: int) -> dict[str, float]:
        """Set every step-dependent quantity for the step about to be taken.

        Returns the learning rate of each optimiser.  A pure function of ``step``
        (0-based) and of the budget ``steps``.
        """

    @abstractmethod
    def training_steps(self, batches: Batches, generator: torch.Generator) -> Iterator[Loss]:
        """Yield the losses of one round; each is computed after the one before was stepped.

        A round is the smallest repeating unit (for example four labelled steps and one
        unlabelled one); it keeps no state between rounds but parameters and buffers.
        """

    def encode(
        self, panels: Float[Tensor, "batch panels 1 size size"]
    ) -> Float[Tensor, "batch panels code"]:
        """All that predictions and latent scores read of each panel, whatever stands beside it.

        To be called in evaluation mode.  Without an override a code is the panel's pixels.
        """
        return panels.flatten(2)

    @abstractmethod
    def predict_encoded(
        self,
        codes: Float[Tensor, "batch 9 code"],
        missing: Bool[Tensor, "batch 9"],
        generator: torch.Generator,
    ) -> Prediction:
        """Fill the missing panels (the same number in every problem) from the others' codes.

        The codes of missing panels are never read and may hold anything, NaN included.
        """

    def predict_masks(
        self,
        codes: Float[Tensor, "batch 9 code"],
        missing: Bool[Tensor, "masks batch 9"],
        generator: torch.Generator,
    ) -> list[Prediction]:
        """:meth:`predict_encoded` of the same problems under one mask after another.

        To be overridden where masks can share work.  The number of missing panels may change
        from mask to mask.
        """
        return [self.predict_encoded(codes, mask, generator) for mask in missing]

    def predict(
        self,
        panels: Float[Tensor, "batch 9 1 size size"],
        missing: Bool[Tensor, "batch 9"],
        generator: torch.Generator,
    ) -> Prediction:
        """Fill the missing panels (the same number in every problem), which are never read."""
        known = self.encode(panels[~missing][:, None])[:, 0]
        codes = known.new_zeros(*missing.shape, known.shape[1])
        codes[~missing] = known
        prediction = self.predict_encoded(codes, missing, generator)
        if prediction.images is None and "decode" in self.supports:
            assert prediction.latents is not None
            prediction = dataclasses.replace(prediction, images=self.decode(prediction.latents))
        return prediction

    def latents_of(self, codes: Float[Tensor, "*axes code"]) -> Float[Tensor, "*axes latent"]:
        """The part of panels' codes that predicted latents are compared with."""
        return codes

    def score_encoded(
        self,
        prediction: Prediction,
        candidates: Float[Tensor, "batch candidates targets code"],
        space: Space,
    ) -> Float[Tensor, "batch candidates"]:
        """:meth:`score` of candidates whose codes are known.

        Pixels are compared only where they are the codes.

        :raises UnsupportedProtocol: if the solver has no such space, or not in its codes.
        """
        self._check_space(space)
        if space == "latent":
            assert prediction.latents is not None
            return agreement(prediction.latents, self.latents_of(candidates))
        if "latent" in self.supports:
            raise UnsupportedProtocol(f"the codes of {type(self).__name__} hold no pixel values")
        assert prediction.images is not None
        return agreement(prediction.images.flatten(2), candidates)

    def score(
        self,
        prediction: Prediction,
        candidates: Float[Tensor, "batch candidates targets 1 size size"],
        space: Space,
    ) -> Float[Tensor, "batch candidates"]:
        """Agreement of each candidate with the prediction; the highest is chosen.

        Negative squared distance, summed over the targets: of latents or of pixels.

        :raises UnsupportedProtocol: if the solver has no such space.
        """
        self._check_space(space)
        if space == "pixel":
            assert prediction.images is not None
            return agreement(prediction.images, candidates)
        codes = self.encode(candidates.flatten(1, 2)).unflatten(1, candidates.shape[1:3])
        return self.score_encoded(prediction, codes, space)

    def _check_space(self, space: Space) -> None:
        if space not in self.supports:
            raise UnsupportedProtocol(f"{type(self).__name__} does not score in {space} space")

    def decode(
        self, latents: Float[Tensor, "batch panels latent"]
    ) -> Float[Tensor, "batch panels 1 size size"]:
        """Draw panels from latents; for solvers that support ``decode``.

        :raises UnsupportedProtocol: if the solver cannot.
        """
        raise UnsupportedProtocol(f"{type(self).__name__} draws no panels from latents")

    @property
    def num_concepts(self) -> int | None:
        """Number of equal parts of a latent that each stand for one concept, if it has any."""
        return None


_ADDED = "added"


def added_field(default: Any) -> Any:
    """A field of a Config that had none of it once: at ``default``, what was trained before
    is the same training, and keeps its identity.
    """
    return dataclasses.field(default=default, metadata={_ADDED: True})


def is_added(field: dataclasses.Field[Any]) -> bool:
    """Whether a Config's JSON form leaves the field out at its default."""
    return _ADDED in field.metadata


def config_to_json(config: Any) -> dict[str, Any]:
    """Every field of a Config dataclass, in the form that a spec holds (tuples as lists).

    Fields made by :func:`added_field` are there where they differ from their default.
    """
    left_out = {
        field.name
        for field in dataclasses.fields(config)
        if is_added(field) and getattr(config, field.name) == field.default
    }
    values = {k: v for k, v in dataclasses.asdict(config).items() if k not in left_out}
    return json.loads(json.dumps(values, allow_nan=False))
