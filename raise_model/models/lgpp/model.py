"""LGPP: latent Gaussian-process priors (Shi et al., 2021), a solver RAISE is compared with.

Each concept of a panel is one number.  A Gaussian process for each concept over the nine cells
predicts the numbers of the missing ones; the inputs of its kernel are row and column
coordinates, inferred from the known panels.  A decoder draws panels.  No labels, no candidates
are read in training.

Hyperparameters are those of RAISE's appendix D.3.  Departures from the authors' code and text:

* Axis encoder: the code reads panels 0..7 in order, whichever is missing, and so would look at a
  missing panel.  Here there are nine places, zeros where a panel is missing, and training hides
  random panels; ``target_positions="bottom_right"`` trains as the code does.
* Networks from axis latents to axis representations exist in the code but are not called; RAISE
  names their widths, so they are used, one for each concept and axis.
* Targets are sampled independently of one another, from their own mean and variance.  (The code
  floors every entry of their joint covariance, which need not stay positive definite.)
* As in the code, the noise of a sampled target is scaled by the variance, not by its root.
* Kernel, Cholesky factor and posterior are in float64, with jitter; the code solves in fp32.
* Logarithms of standard deviations are clamped to +-:data:`LOG_STD_BOUND`.
* Best weights by validation accuracy, as for every solver here; the authors take the lower bound.
* A batch crosses the end of an epoch; the learning rate may warm up and fall (not in ``paper``).

The authors give no selection rule: the candidate is chosen whose code (the encoder's mean) is
nearest to the predicted code (the process's mean); pixel distances are offered too.

Equal codes for all panels are a stable state of the training: the divergence weighs 10 on single
numbers, and a process predicts equal ones without error.  The published accuracies, at chance
for arbitrary positions, are of this state.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from raise_model.models.common.gaussian_process import posterior, rbf_kernel
from raise_model.models.common.grouped_mlp import GroupedMLP
from raise_model.models.common.masking import draw_masks
from raise_model.models.common.panel_networks import (
    Convolutions,
    PanelDecoder,
    PanelEncoder,
    PanelFeatures,
)
from raise_model.models.common.precision import full_precision
from raise_model.models.common.schedule import warm_cosine
from raise_model.models.lgpp.config import LgppConfig
from raise_model.models.solver import (
    Batches,
    Loss,
    Needs,
    Prediction,
    Solver,
)
from raise_model.problem import BOTTOM_RIGHT, NUM_PANELS, Batch

SIDE = 3
"""Rows and columns of a matrix."""
LOG_STD_BOUND = 7.0
VARIANCE_FLOOR = 1e-5
"""Least variance of a predicted concept (authors' code)."""


class Axes(nn.Module):
    """Latent rows and columns of a matrix, and the kernel's inputs made of them."""

    def __init__(self, config: LgppConfig, convolutions: Convolutions, image_size: int) -> None:
        super().__init__()
        self.config = config
        concepts, latent = config.num_concepts, config.axis_latent_size
        self.panels = PanelFeatures(
            convolutions, config.axis_channels, config.axis_features, image_size
        )
        self.latents = nn.ModuleList(
            nn.Sequential(
                nn.Linear(NUM_PANELS * config.axis_features, config.axis_hidden),
                nn.ReLU(inplace=True),
                nn.Linear(config.axis_hidden, SIDE * concepts * 2 * latent),
            )
            for _ in ("rows", "columns")
        )
        representation = config.axis_representation_size
        self.representations = GroupedMLP(
            2 * concepts, (latent, *config.axis_network_hidden, representation)
        )
        self.kernel_inputs = GroupedMLP(
            concepts, (2 * representation, *config.kernel_network_hidden, config.kernel_inputs)
        )

    def infer(
        self, features: Float[Tensor, "known features"], missing: Bool[Tensor, "batch 9"]
    ) -> Normal:
        """Distribution of the latents, shape (2 axes, concepts, batch, 3, axis_latent_size).

        :param features: of the known panels (:attr:`panels`), problem-major.
        """
        places = features.new_zeros(*missing.shape, features.shape[1])
        places[~missing] = features
        shape = (SIDE, self.config.num_concepts, 2 * self.config.axis_latent_size)
        each = [network(places.flatten(1)).unflatten(1, shape) for network in self.latents]
        return gaussian(full_precision(torch.stack(each).permute(0, 3, 1, 2, 4)))

    def coordinates(
        self, latents: Float[Tensor, "2 concepts batch 3 latent"], generator: torch.Generator
    ) -> Float[Tensor, "concepts batch 9 inputs"]:
        """Inputs of each concept's kernel at the nine cells, with their noise."""
        axes, concepts, batch = latents.shape[:3]
        represented = self.representations(latents.flatten(2, 3).flatten(0, 1))
        rows, columns = represented.view(axes, concepts, batch, SIDE, -1)
        shape = (concepts, batch, SIDE, SIDE, rows.shape[-1])
        cells = torch.cat(
            [rows[:, :, :, None].expand(shape), columns[:, :, None].expand(shape)], -1
        )
        inputs = full_precision(self.kernel_inputs(cells.flatten(1, 3))).tanh()
        noise = torch.empty_like(inputs).uniform_(-1, 1, generator=generator)
        noisy = inputs * (1 + self.config.kernel_noise * noise)
        return noisy.view(concepts, batch, NUM_PANELS, -1)


class Lgpp(Solver):
    """Gaussian-process regression of latent concepts over the cells of a matrix."""

    Config: ClassVar[type] = LgppConfig
    revision: ClassVar[int] = 1
    supports: ClassVar[frozenset[str]] = frozenset(
        {
            "bottom_right",
            "arbitrary_position",
            "odd_one_out",
            "latent_traversal",
            "multi_answer",
            "latent",
            "pixel",
            "decode",
        }
    )
    needs = Needs()

    def __init__(self, config: LgppConfig, image_size: int) -> None:
        super().__init__()
        self.config = config
        convolutions = Convolutions(
            kernels=config.encoder_kernels,
            strides=config.encoder_strides,
            paddings=config.encoder_paddings,
        )
        self.encoder = PanelEncoder(
            convolutions,
            config.encoder_channels,
            config.encoder_hidden,
            2 * config.num_concepts,
            image_size,
        )
        self.axes = Axes(config, convolutions, image_size)
        self.decoder = PanelDecoder(
            convolutions,
            config.num_concepts,
            config.decoder_hidden,
            config.decoder_channels,
            0.0,
            image_size,
        )

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        optimizer = torch.optim.Adam(self.parameters(), self.config.learning_rate, fused=True)
        optimizer.register_step_pre_hook(self._clip_gradients)
        return {"all": optimizer}

    def _clip_gradients(self, *_: Any) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), self.config.gradient_norm)

    def set_step(self, step: int, steps: int) -> dict[str, float]:
        config = self.config
        share = warm_cosine(
            step, steps, warmup=config.learning_rate_warmup, end=config.learning_rate_end
        )
        return {"all": config.learning_rate * share}

    def training_steps(self, batches: Batches, generator: torch.Generator) -> Iterator[Loss]:
        yield self.loss(batches.draw("all", self.config.batch_size), generator)

    def loss(self, batch: Batch, generator: torch.Generator) -> Loss:
        """Negative lower bound: reconstruction and divergence of concepts are means over panels,
        the divergence of axis latents is a mean over problems.

        Networks run in the precision of the caller's autocast, the terms in fp32 or higher, the
        process in float64.
        """
        config, panels = self.config, batch.panels
        missing = self._draw_missing(generator).to(panels.device).expand(len(batch), -1)
        known = panels[~missing]
        concepts, axes = self._encode(known), self.axes.infer(self.axes.panels(known), missing)
        codes = _sample(concepts, generator)
        mean, variance = self._complete(codes, _sample(axes, generator), missing, generator)
        # The authors scale by the variance.
        targets = mean + variance * _noise(mean, generator)
        images = self._decode(torch.cat([codes, targets]))
        with torch.autocast(panels.device.type, enabled=False):
            wanted = torch.cat([known, panels[missing]])
            error = (images - wanted).square().flatten(1).sum(1).mean()
            divergence = (
                _divergence(concepts).sum() + _divergence(Normal(mean, variance.sqrt())).sum()
            )
            terms = {
                "reconstruction": error / (2 * config.sigma_x**2),
                "concepts": divergence / missing.numel(),
                "axes": _divergence(axes).sum() / len(batch),
            }
            total = config.reconstruction_weight * terms["reconstruction"] + config.beta * (
                terms["concepts"] + terms["axes"]
            )
        return Loss(optimizer="all", total=total, terms={k: v.detach() for k, v in terms.items()})

    def _draw_missing(self, generator: torch.Generator) -> Bool[Tensor, "1 9"]:
        if self.config.target_positions == "bottom_right":
            return torch.arange(NUM_PANELS)[None] == BOTTOM_RIGHT
        return draw_masks(1, self.config.max_missing, generator)

    def _encode(self, panels: Float[Tensor, "n 1 size size"]) -> Normal:
        """Distribution of each panel's concepts, shape (n, concepts)."""
        return gaussian(full_precision(self.encoder(panels)))

    def _decode(self, codes: Float[Tensor, "n concepts"]) -> Float[Tensor, "n 1 size size"]:
        return full_precision(self.decoder(codes)).sigmoid()

    def _complete(
        self,
        codes: Float[Tensor, "known concepts"],
        latents: Float[Tensor, "2 concepts batch 3 latent"],
        missing: Bool[Tensor, "batch 9"],
        generator: torch.Generator,
    ) -> tuple[Float[Tensor, "missing concepts"], Float[Tensor, "missing concepts"]]:
        """Posterior mean and variance at the missing panels, problem-major, given the known."""
        inputs = self.axes.coordinates(latents, generator)
        with torch.autocast(codes.device.type, enabled=False):
            # Known cells first, both kinds in ascending order.
            order = missing.to(torch.uint8).argsort(dim=1, stable=True)
            kernel = rbf_kernel(inputs.gather(2, order[None, :, :, None].expand_as(inputs)))
            values = codes.unflatten(0, (len(missing), -1)).permute(2, 0, 1)
            n = values.shape[2]
            mean, covariance = posterior(
                kernel[..., :n, :n],
                kernel[..., n:, :n],
                kernel[..., n:, n:],
                values,
                self.config.jitter,
            )
            variance = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(VARIANCE_FLOOR)
            moments = torch.stack([mean, variance]).permute(0, 2, 3, 1).flatten(1, 2)
            mean, variance = moments.to(codes.dtype)
            return mean, variance

    @property
    def num_concepts(self) -> int:
        return self.config.num_concepts

    def encode(
        self, panels: Float[Tensor, "batch panels 1 size size"]
    ) -> Float[Tensor, "batch panels code"]:
        """Means, logarithms of standard deviations, and features that axes are inferred from."""
        flat = panels.flatten(0, 1)
        concepts, axes = full_precision(self.encoder(flat)), full_precision(self.axes.panels(flat))
        return torch.cat([concepts, axes], 1).unflatten(0, panels.shape[:2])

    def latents_of(self, codes: Float[Tensor, "*axes code"]) -> Float[Tensor, "*axes concepts"]:
        return codes[..., : self.config.num_concepts]

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
        """The process's mean given sampled codes and axes, with the kernel's noise (code)."""
        concepts = 2 * self.config.num_concepts
        parameters, features = codes[~missing].tensor_split([concepts], 1)
        sampled = _sample(gaussian(parameters), generator)
        axes = _sample(self.axes.infer(features, missing), generator)
        mean, _ = self._complete(sampled, axes, missing, generator)
        return Prediction(latents=mean.unflatten(0, (len(codes), -1)))


def gaussian(parameters: Float[Tensor, "*axes both"]) -> Normal:
    """Means and logarithms of standard deviations, one half each of the last axis."""
    mean, log_std = parameters.chunk(2, -1)
    std = log_std.clamp(-LOG_STD_BOUND, LOG_STD_BOUND).exp()
    return Normal(mean, std, validate_args=False)


def _divergence(distribution: Normal) -> Tensor:
    """From the standard normal distribution, entry by entry."""
    standard = Normal(
        torch.zeros_like(distribution.mean), torch.ones_like(distribution.mean), validate_args=False
    )
    return kl_divergence(distribution, standard)


def _sample(distribution: Normal, generator: torch.Generator) -> Tensor:
    mean = distribution.mean
    return mean + distribution.stddev * _noise(mean, generator)


def _noise(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, device=like.device, dtype=like.dtype)
