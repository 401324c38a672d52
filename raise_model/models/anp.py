"""Attentive neural process on whole panels, a solver that RAISE is compared with.

A matrix is a function from cells, (row, column) in {-1, 0, 1}^2, to panels; the known panels
are its context points.  A deterministic path attends from a missing cell to the known ones, a
latent path summarises them in one global latent; the decoder gives mean and standard
deviation of every pixel (Kim et al., 2019).  No labels, no candidates are read in training.

Given by the paper (appendix D.3): the size of the global latent, the batch and a learning rate
for each configuration; all else "as in 2-D regression" of the first paper, where a point is a
pixel.  Chosen here:

* A point is a panel: its value is the vector of all its pixels, less 1, so that white is 0.
* Widths and depths as in the first paper's regression with multihead attention: 128 features,
  eight heads, encoders of three layers and two self-attention blocks each, a decoder of four
  hidden layers.  The blocks are Transformer encoder blocks without dropout whose feed-forward
  network is as wide as the features.
* One or two cells, uniform, the same in the whole batch, are missing in a training step.  As in
  the first paper the known cells are predicted too, the posterior reads all nine, and its
  divergence from the prior is shared out among them.
* Adam; 120,000 steps as for RAISE.
* The candidate with the smallest squared pixel difference from the predicted mean is chosen;
  the mean is cut to [0, 1].  ``test_latent``: the latent is drawn from the prior (paper) or its
  mean (the others).
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from raise_model.errors import UserError
from raise_model.models.common.attention import AttentionBlock
from raise_model.models.common.masking import draw_masks
from raise_model.models.common.precision import full_precision
from raise_model.models.common.schedule import warm_cosine
from raise_model.models.solver import (
    Batches,
    Loss,
    Needs,
    Prediction,
    Solver,
)
from raise_model.problem import NUM_PANELS, Batch

WHITE = 1.0
LEARNING_RATES: Mapping[str, float] = {
    "center": 5e-5,
    "left_right": 1e-5,
    "up_down": 1e-5,
    "out_in_center": 5e-6,
    "out_in_grid": 5e-6,
    "grid_2x2": 3e-5,
    "grid_3x3": 3e-5,
    # Not in the paper: those of the same layouts with noise.
    "out_in_grid_uni": 5e-6,
    "grid_2x2_uni": 3e-5,
    "grid_3x3_uni": 3e-5,
}
"""The paper's learning rate for each configuration (appendix D.3, table of ANP)."""


@dataclass(frozen=True, kw_only=True)
class AnpConfig:
    """Every field is part of a trial's identity."""

    features: int
    """Width of all networks but the decoder."""
    encoder_layers: int
    """Linear layers of the network on single points, in both paths."""
    self_attention_blocks: int
    """Self-attention blocks over the points, in both paths."""
    heads: int
    """Attention heads; they divide ``features``."""
    latent_size: int
    """Size of the global latent."""
    decoder_layers: int
    """Hidden layers of the decoder."""
    decoder_features: int
    """Width of the decoder's hidden layers."""
    sigma_floor: float
    """Least standard deviation, of a pixel and of an entry of the latent."""
    test_latent: Literal["sample", "mean"]
    """Prediction from a latent drawn from the prior or from the prior's mean."""
    batch_size: int
    """Problems in a step."""
    max_missing: int
    """A training step leaves 1 to so many panels out of the context."""
    learning_rate: float
    """Highest rate of the run."""
    learning_rate_warmup: float
    """Share of the run over which the rate rises linearly."""
    learning_rate_end: float
    """Rate at the end of its cosine fall as a share of the highest; 1 = constant."""

    def __post_init__(self) -> None:
        if self.features % self.heads:
            raise UserError(f"{self.heads} heads do not divide {self.features} features")
        for field in ("encoder_layers", "decoder_layers"):
            if getattr(self, field) < 1:
                raise UserError(f"{field} must be at least 1, not {getattr(self, field)}")
        if not 1 <= self.max_missing < NUM_PANELS:
            raise UserError(f"max_missing must lie in 1 to 8, not {self.max_missing}")


def paper(configuration: str) -> AnpConfig:
    """The paper's setting for one configuration.

    :raises UserError: if the paper has no learning rate for it.
    """
    if configuration not in LEARNING_RATES:
        raise UserError(
            f"anp has no learning rate for configuration {configuration!r}; it has one for "
            f"{', '.join(LEARNING_RATES)}"
        )
    return AnpConfig(
        features=128,
        encoder_layers=3,
        self_attention_blocks=2,
        heads=8,
        latent_size=1024,
        decoder_layers=4,
        decoder_features=128,
        sigma_floor=0.1,
        test_latent="sample",
        batch_size=512,
        max_missing=2,
        learning_rate=LEARNING_RATES[configuration],
        learning_rate_warmup=0.0,
        learning_rate_end=1.0,
    )


def lite() -> AnpConfig:
    """One higher rate for all configurations: a quarter of an hour of one CPU thread."""
    return dataclasses.replace(
        paper("center"),
        latent_size=128,
        decoder_features=256,
        test_latent="mean",
        batch_size=32,
        learning_rate=1e-3,
        learning_rate_warmup=0.02,
        learning_rate_end=0.02,
    )


def demo() -> AnpConfig:
    """20x20 panels: minutes of one CPU thread."""
    return lite()


def smoke() -> AnpConfig:
    """Tiny: for tests of everything around it; it learns nothing."""
    return dataclasses.replace(
        demo(),
        features=12,
        encoder_layers=2,
        self_attention_blocks=1,
        heads=3,
        latent_size=5,
        decoder_layers=1,
        decoder_features=10,
        test_latent="sample",
        batch_size=4,
    )


def _mlp(inputs: int, *widths: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(inputs, width), nn.ReLU(inplace=True)]
        inputs = width
    return nn.Sequential(*layers[:-1])


class PointEncoder(nn.Module):
    """Features of points (cell and panel), each seeing the others of its problem."""

    def __init__(self, config: AnpConfig, point: int) -> None:
        super().__init__()
        width = config.features
        self.points = _mlp(point, *[width] * config.encoder_layers)
        self.blocks = nn.ModuleList(
            AttentionBlock(width, config.heads, width, dropout=0.0)
            for _ in range(config.self_attention_blocks)
        )

    def forward(
        self, points: Float[Tensor, "batch points point"], generator: torch.Generator
    ) -> Float[Tensor, "batch points features"]:
        features = self.points(points)
        for block in self.blocks:
            features = block(features, generator)
        return features


class Anp(Solver):
    """Attentive neural process whose points are panels."""

    Config: ClassVar[type] = AnpConfig
    revision: ClassVar[int] = 1
    supports: ClassVar[frozenset[str]] = frozenset(
        {"bottom_right", "arbitrary_position", "odd_one_out", "multi_answer", "pixel"}
    )
    needs = Needs()
    cells: Tensor

    def __init__(self, config: AnpConfig, image_size: int) -> None:
        super().__init__()
        self.config = config
        self.image_size = image_size
        pixels, width, latent = image_size**2, config.features, config.latent_size
        self.deterministic = PointEncoder(config, 2 + pixels)
        self.cell_features = _mlp(2, width, width)
        self.cross_attention = nn.MultiheadAttention(width, config.heads, batch_first=True)
        self.latent_points = PointEncoder(config, 2 + pixels)
        self.latent_head = _mlp(width, (width + latent) // 2, 2 * latent)
        hidden = [config.decoder_features] * config.decoder_layers
        self.decoder = _mlp(2 + width + latent, *hidden, 2 * pixels)
        axis = torch.arange(-1.0, 2.0)
        self.register_buffer("cells", torch.cartesian_prod(axis, axis), persistent=False)

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {"all": torch.optim.Adam(self.parameters(), self.config.learning_rate, fused=True)}

    def set_step(self, step: int, steps: int) -> dict[str, float]:
        config = self.config
        share = warm_cosine(
            step, steps, warmup=config.learning_rate_warmup, end=config.learning_rate_end
        )
        return {"all": config.learning_rate * share}

    def training_steps(self, batches: Batches, generator: torch.Generator) -> Iterator[Loss]:
        yield self.loss(batches.draw("all", self.config.batch_size), generator)

    def loss(self, batch: Batch, generator: torch.Generator) -> Loss:
        """Networks run in the precision of the caller's autocast, the terms in fp32 or higher."""
        cells, values = self.cells.expand(len(batch), -1, -1), batch.panels.flatten(2) - WHITE
        points = torch.cat([cells, values], 2)
        missing = draw_masks(1, self.config.max_missing, generator)[0]
        context = points[:, ~missing]
        prior = self._latent(context, generator)
        posterior = self._latent(points, generator)
        latent = _draw(posterior, generator)
        density = self._panels(context, cells, latent, generator)
        with torch.autocast(values.device.type, enabled=False):
            terms = {
                "likelihood": -density.log_prob(values).sum(2).mean(),
                "divergence": kl_divergence(posterior, prior).sum(1).mean() / NUM_PANELS,
            }
            total = terms["likelihood"] + terms["divergence"]
        return Loss(optimizer="all", total=total, terms={k: v.detach() for k, v in terms.items()})

    def _latent(
        self, points: Float[Tensor, "batch points point"], generator: torch.Generator
    ) -> Normal:
        """Distribution (batch, latent) of the global latent given some points."""
        summary = self.latent_points(points, generator).mean(1)
        mean, spread = full_precision(self.latent_head(summary)).chunk(2, dim=1)
        floor = self.config.sigma_floor
        return Normal(mean, floor + (1 - floor) * spread.sigmoid(), validate_args=False)

    def _panels(
        self,
        context: Float[Tensor, "batch points point"],
        cells: Float[Tensor, "batch targets 2"],
        latent: Float[Tensor, "batch latent"],
        generator: torch.Generator,
    ) -> Normal:
        """Distribution (batch, targets, pixels) of the panels at some cells, less 1."""
        values = self.deterministic(context, generator)
        attended, _ = self.cross_attention(
            self.cell_features(cells),
            self.cell_features(context[:, :, :2]),
            values,
            need_weights=False,
        )
        everywhere = latent[:, None].expand(-1, cells.shape[1], -1)
        outputs = self.decoder(torch.cat([cells, attended, everywhere], 2))
        mean, spread = full_precision(outputs).chunk(2, dim=2)
        floor = self.config.sigma_floor
        return Normal(mean, floor + (1 - floor) * F.softplus(spread), validate_args=False)

    def predict_encoded(
        self,
        codes: Float[Tensor, "batch 9 pixels"],
        missing: Bool[Tensor, "batch 9"],
        generator: torch.Generator,
    ) -> Prediction:
        """The mean panel at each missing cell, given one latent for all of a problem."""
        batch = len(codes)
        cells = self.cells.expand(batch, -1, -1)
        values = codes[~missing] - WHITE
        context = torch.cat([cells[~missing], values], 1).unflatten(0, (batch, -1))
        prior = self._latent(context, generator)
        sampled = self.config.test_latent == "sample"
        latent = _draw(prior, generator) if sampled else prior.mean
        targets = cells[missing].unflatten(0, (batch, -1))
        means = self._panels(context, targets, latent, generator).mean
        images = (means + WHITE).clamp(0.0, 1.0)
        return Prediction(images=images.unflatten(2, (1, self.image_size, self.image_size)))


def _draw(distribution: Normal, generator: torch.Generator) -> Tensor:
    """A reparametrised sample from the explicit generator."""
    mean = distribution.mean
    noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
    return mean + distribution.stddev * noise
