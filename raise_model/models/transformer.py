"""Transformer on panel codes, a solver that RAISE is compared with (paper, appendix D.3).

A convolutional encoder gives each known panel a code; the codes, and a learned vector in the
place of each missing panel, are nine tokens with learned position vectors; the blocks' outputs
at the missing places are the predicted codes, which the decoder draws.  Training reads neither
labels nor candidates.

Given by the paper and kept in :func:`paper`: RAISE's encoder and decoder, the size of the codes,
the blocks, heads, feed-forward width, dropout, Adam and its learning rate.  Not given, and
chosen here:

* Loss, a mean over predicted panels: squared pixel error of the panel drawn from the predicted
  code, the same of the panel drawn from its own code (candidates are compared by their codes,
  which must therefore describe them), both over 2 sigma_x^2, and ``code_weight`` times the
  squared distance of the two codes, the panel's own taken as given.
* Codes are deterministic, and each is shifted and scaled to mean 0 and variance 1: without that
  they grow throughout the training, and their distances with them.
* A position vector is the sum of a vector for the row and one for the column.
* Blocks normalise their inputs, not their outputs; dropout is in the blocks alone.
* Missing panels in training: one, uniform, the same in the whole batch, as for RAISE.
* Batch 512 and 120,000 steps, as for RAISE.
* The candidate whose code is nearest to the predicted code is chosen, as for RAISE; pixel
  distances are offered too.

``lite`` and ``demo`` encode a problem's panels once and predict several masks from them.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from raise_model.errors import UserError
from raise_model.models.common.attention import AttentionBlock
from raise_model.models.common.masking import draw_masks
from raise_model.models.common.panel_networks import Convolutions, PanelDecoder, PanelEncoder
from raise_model.models.common.precision import full_precision
from raise_model.models.common.schedule import warm_cosine
from raise_model.models.lite_panels import compared_patch
from raise_model.models.solver import (
    Batches,
    Loss,
    Needs,
    Prediction,
    Solver,
)
from raise_model.problem import NUM_PANELS, Batch


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Every field is part of a trial's identity."""

    encoder_channels: tuple[int, ...]
    """Outputs of each convolution of the encoder; the decoder is built as its mirror."""
    encoder_kernels: tuple[int, ...]
    """Kernel of each convolution."""
    encoder_strides: tuple[int, ...]
    """Stride of each convolution."""
    encoder_paddings: tuple[int, ...]
    """Padding of each convolution."""
    encoder_hidden: int
    """Outputs of the layer over the whole remaining map, before the codes."""
    decoder_hidden: int
    """Outputs of the decoder's first layer."""
    decoder_channels: tuple[int, ...]
    """Inputs of each transposed convolution; their kernels are the encoder's, reversed."""
    leaky_slope: float
    """Negative slope of the decoder's LeakyReLU."""
    representation_size: int
    """Size of a panel's code and of a token."""
    blocks: int
    """Transformer blocks."""
    heads: int
    """Attention heads; they divide ``representation_size``."""
    feed_forward: int
    """Width of the blocks' feed-forward networks."""
    dropout: float
    """Dropout in the blocks."""
    sigma_x: float
    """Standard deviation of a pixel."""
    code_weight: float
    """Weight of the squared distance between predicted and own code."""
    batch_size: int
    """Problems in a step."""
    masks_per_problem: int
    """Masks predicted from one encoding of the nine panels, 1 to 9."""
    max_missing: int
    """A mask hides 1 to so many panels."""
    learning_rate: float
    """Highest rate of the run."""
    learning_rate_warmup: float
    """Share of the run over which the rate rises linearly."""
    learning_rate_end: float
    """Rate at the end of its cosine fall as a share of the highest; 1 = constant."""

    def __post_init__(self) -> None:
        if self.representation_size % self.heads:
            raise UserError(
                f"{self.heads} heads do not divide a representation of {self.representation_size}"
            )
        if not 1 <= self.masks_per_problem <= NUM_PANELS:
            raise UserError(f"masks_per_problem must lie in 1 to 9, not {self.masks_per_problem}")
        if not 1 <= self.max_missing < NUM_PANELS:
            raise UserError(f"max_missing must lie in 1 to 8, not {self.max_missing}")


def paper() -> TransformerConfig:
    """The setting that the paper's grid search chose."""
    return TransformerConfig(
        encoder_channels=(64, 128, 256, 512),
        encoder_kernels=(4, 4, 4, 4),
        encoder_strides=(2, 2, 2, 2),
        encoder_paddings=(1, 1, 1, 1),
        encoder_hidden=512,
        decoder_hidden=256,
        decoder_channels=(128, 64, 32, 32),
        leaky_slope=0.02,
        representation_size=256,
        blocks=4,
        heads=4,
        feed_forward=1024,
        dropout=0.1,
        sigma_x=0.1,
        code_weight=1.0,
        batch_size=512,
        masks_per_problem=1,
        max_missing=1,
        learning_rate=1e-4,
        learning_rate_warmup=0.0,
        learning_rate_end=1.0,
    )


def paper_grid() -> list[TransformerConfig]:
    """The 27 settings of the paper's grid search."""
    grid = itertools.product((5e-4, 1e-4, 5e-5), (512, 256, 128), (2, 4, 6))
    return [
        dataclasses.replace(paper(), learning_rate=rate, representation_size=size, blocks=blocks)
        for rate, size, blocks in grid
    ]


def lite(configuration: str) -> TransformerConfig:
    """Patch convolutions, all nine positions: a quarter of an hour of one CPU thread."""
    patch = compared_patch(configuration)
    return dataclasses.replace(
        paper(),
        encoder_channels=(32, 128),
        encoder_kernels=(patch, 2),
        encoder_strides=(patch, 2),
        encoder_paddings=(0, 0),
        encoder_hidden=256,
        decoder_hidden=256,
        decoder_channels=(128, 32),
        representation_size=64,
        blocks=2,
        feed_forward=256,
        dropout=0.0,
        batch_size=8,
        masks_per_problem=9,
        learning_rate=2e-3,
        learning_rate_warmup=0.02,
        learning_rate_end=0.02,
    )


def demo() -> TransformerConfig:
    """20x20 panels, as lite's of Center: minutes of one CPU thread."""
    return lite("center")


def smoke() -> TransformerConfig:
    """Tiny: for tests of everything around it; it learns nothing."""
    return dataclasses.replace(
        demo(),
        encoder_channels=(4,),
        encoder_kernels=(10,),
        encoder_strides=(10,),
        encoder_paddings=(0,),
        encoder_hidden=16,
        decoder_hidden=16,
        decoder_channels=(4,),
        representation_size=12,
        blocks=1,
        heads=3,
        feed_forward=8,
        dropout=0.1,
        batch_size=4,
        max_missing=2,
    )


class Transformer(Solver):
    """Predicts the codes of missing panels from all tokens at once."""

    Config: ClassVar[type] = TransformerConfig
    revision: ClassVar[int] = 1
    supports: ClassVar[frozenset[str]] = frozenset(
        {
            "bottom_right",
            "arbitrary_position",
            "odd_one_out",
            "multi_answer",
            "latent",
            "pixel",
            "decode",
        }
    )
    needs = Needs()

    def __init__(self, config: TransformerConfig, image_size: int) -> None:
        super().__init__()
        self.config = config
        size = config.representation_size
        convolutions = Convolutions(
            kernels=config.encoder_kernels,
            strides=config.encoder_strides,
            paddings=config.encoder_paddings,
        )
        self.encoder = PanelEncoder(
            convolutions, config.encoder_channels, config.encoder_hidden, size, image_size
        )
        self.decoder = PanelDecoder(
            convolutions,
            size,
            config.decoder_hidden,
            config.decoder_channels,
            config.leaky_slope,
            image_size,
        )
        self.rows = nn.Parameter(torch.randn(3, 1, size))
        self.columns = nn.Parameter(torch.randn(1, 3, size))
        self.hidden_panel = nn.Parameter(torch.randn(size))
        self.blocks = nn.ModuleList(
            AttentionBlock(size, config.heads, config.feed_forward, config.dropout)
            for _ in range(config.blocks)
        )
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, size)

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
        config, panels, problems = self.config, batch.panels, len(batch)
        codes = self._encode(panels)
        masks = draw_masks(config.masks_per_problem, config.max_missing, generator)
        mask, place = masks.nonzero(as_tuple=True)  # of every predicted panel
        completed = self._complete(
            codes.repeat(len(masks), 1, 1),
            masks.to(codes.device).repeat_interleave(problems, 0),
            generator,
        )
        predicted = completed.unflatten(0, (len(masks), problems))[mask, :, place]
        own, rebuilt = codes.transpose(0, 1), place.unique()
        images = self._decode(torch.cat([predicted, own[rebuilt]]).flatten(0, 1))
        images = images.unflatten(0, (-1, problems))
        with torch.autocast(panels.device.type, enabled=False):
            prediction, reconstruction = images.split([len(place), len(rebuilt)])
            terms = {
                "prediction": self._pixel_error(prediction, panels[:, place]),
                "reconstruction": self._pixel_error(reconstruction, panels[:, rebuilt]),
                "code": (predicted - own[place].detach()).square().sum(2).mean(),
            }
            pixels = terms["prediction"] + terms["reconstruction"]
            total = pixels + config.code_weight * terms["code"]
        return Loss(optimizer="all", total=total, terms={k: v.detach() for k, v in terms.items()})

    def _pixel_error(
        self,
        images: Float[Tensor, "drawn batch 1 size size"],
        panels: Float[Tensor, "batch drawn 1 size size"],
    ) -> Float[Tensor, ""]:
        """Mean over panels of the squared error over 2 sigma_x^2."""
        error = (images - panels.transpose(0, 1)).square().flatten(2).sum(2)
        return error.mean() / (2 * self.config.sigma_x**2)

    def _encode(
        self, panels: Float[Tensor, "batch panels 1 size size"]
    ) -> Float[Tensor, "batch panels codes"]:
        codes = full_precision(self.encoder(panels.flatten(0, 1)))
        return F.layer_norm(codes, codes.shape[1:]).unflatten(0, panels.shape[:2])

    def _decode(self, codes: Float[Tensor, "n codes"]) -> Float[Tensor, "n 1 size size"]:
        return full_precision(self.decoder(codes)).sigmoid()

    def _complete(
        self,
        codes: Float[Tensor, "n 9 codes"],
        missing: Bool[Tensor, "n 9"],
        generator: torch.Generator,
    ) -> Float[Tensor, "n 9 codes"]:
        """Predicted codes, of use at the missing places; the codes there are not read."""
        positions = (self.rows + self.columns).flatten(0, 1)
        tokens = torch.where(missing[:, :, None], self.hidden_panel, codes) + positions
        for block in self.blocks:
            tokens = block(tokens, generator)
        return full_precision(self.head(self.norm(tokens)))

    def encode(
        self, panels: Float[Tensor, "batch panels 1 size size"]
    ) -> Float[Tensor, "batch panels code"]:
        return self._encode(panels)

    def decode(
        self, latents: Float[Tensor, "batch panels latent"]
    ) -> Float[Tensor, "batch panels 1 size size"]:
        return self._decode(latents.flatten(0, 1)).unflatten(0, latents.shape[:2])

    def predict_encoded(
        self,
        codes: Float[Tensor, "batch 9 code"],
        missing: Bool[Tensor, "batch 9"],
        generator: torch.Generator,
    ) -> Prediction:
        """Nothing is drawn at random: all passes give the same prediction."""
        predicted = self._complete(codes, missing, generator)[missing]
        return Prediction(latents=predicted.unflatten(0, (len(codes), -1)))
