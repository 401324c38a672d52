"""The concept-specific neural processes of CLAP.

Concept c at cell x of a matrix is the value there of a function f_c, known from its values at
the other cells.  Concepts share nothing.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Normal

from raise_model.models.clap.config import ClapConfig
from raise_model.models.common.grouped_mlp import GroupedMLP
from raise_model.models.common.precision import full_precision

LOG_STD_RANGE = math.log(0.01), math.log(3.0)
"""Of a function's latent (authors' code)."""


class NeuralProcesses(nn.Module):
    """From known values of each concept to its function, and from that to the values."""

    coordinates: Tensor

    def __init__(self, config: ClapConfig) -> None:
        super().__init__()
        concepts, size, embedded = config.num_concepts, config.concept_size, config.embedding_size
        self.value = GroupedMLP(concepts, (size, config.embedding_hidden, embedded))
        self.place = GroupedMLP(concepts, (2, config.embedding_hidden, embedded))
        self.point = GroupedMLP(
            concepts, (2 * embedded, *config.point_hidden, config.point_features)
        )
        self.function = GroupedMLP(
            concepts, (config.point_features, *config.function_hidden, 2 * config.function_size)
        )
        self.target = GroupedMLP(
            concepts, (config.function_size + embedded, *config.target_hidden, size)
        )
        cells = torch.cartesian_prod(torch.arange(-1.0, 2.0), torch.arange(-1.0, 2.0))
        self.register_buffer("coordinates", cells.repeat(concepts, 1, 1), persistent=False)

    def points(
        self, codes: Float[Tensor, "batch 9 concepts dims"]
    ) -> Float[Tensor, "concepts batch 9 features"]:
        """Features of each cell from its value and place."""
        batch, cells = codes.shape[:2]
        values = self.value(codes.permute(2, 0, 1, 3).flatten(1, 2)).unflatten(1, (batch, cells))
        places = self._places()[:, None].expand(-1, batch, -1, -1)
        joined = torch.cat([values, places], -1).flatten(1, 2)
        return full_precision(self.point(joined)).unflatten(1, (batch, cells))

    def functions(
        self,
        points: Float[Tensor, "concepts batch 9 features"],
        missing: Bool[Tensor, "masks batch 9"],
    ) -> Normal:
        """Distribution of the functions given known cells, under each mask.

        :param points: finite at the missing cells, which have no part in the result.
        :returns: shape (concepts, masks * batch, function), mask-major.
        """
        known = (~missing).to(points.dtype)
        share = known / known.sum(2, keepdim=True)
        pooled = torch.einsum("cbpf,mbp->cmbf", points, share).flatten(1, 2)
        mean, log_std = full_precision(self.function(pooled)).chunk(2, -1)
        return Normal(mean, log_std.clamp(*LOG_STD_RANGE).exp(), validate_args=False)

    def values(
        self,
        functions: Float[Tensor, "concepts n function"],
        missing: Bool[Tensor, "n 9"],
    ) -> Float[Tensor, "missing concepts dims"]:
        """Means of the concepts at the missing cells, function by function."""
        function, cell = missing.nonzero(as_tuple=True)
        places = self._places()[:, cell]
        values = self.target(torch.cat([functions[:, function], places], -1))
        return full_precision(values).transpose(0, 1)

    def _places(self) -> Float[Tensor, "concepts 9 embedding"]:
        return full_precision(self.place(self.coordinates))
