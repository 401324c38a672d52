"""CLAP-NP: concept-changing laws as neural processes (Shi et al., 2022), a solver RAISE is
compared with.

Each concept of a panel has a neural process of its own over the nine cells: known values and
places make a latent function, function and place make the value at a missing cell.  A penalty
on the total correlation of concepts keeps them apart; a decoder draws panels.  No labels, no
candidates are read in training.

Layers are those of the authors' setting for matrices ("CRPM"), hyperparameters those of RAISE's
appendix D.3.  Departures from the authors' code and text:

* The estimate of the total correlation has the constant that makes mixtures means (no effect on
  gradients), and is computed in chunks.
* -Uni configurations, which the hyperparameter table lacks, take the values of their layout.
* Best weights by validation accuracy, as for every solver here; the authors take the lower bound.
* A batch crosses the end of an epoch; 120,000 steps, as for RAISE (the authors give a cap only).
* ``lite`` and ``demo``: several masks from one encoding of the panels, all nine panels
  reconstructed, a learning rate that warms up and falls, a lighter divergence of targets, and
  concepts of one number (authors' code; RAISE's appendix says eight).  Functions are sampled
  from the known cells' distribution in training too: sampled from that of all nine, they first
  learn to repeat what they were given, and to foresee it far later.

Selection, as in the authors' code: the predicted panel is drawn and encoded again, and the
candidate with the nearest code is chosen (``latent``).  Pixel distances are offered too.
"""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from raise_model.models.clap.config import ClapConfig
from raise_model.models.clap.networks import NeuralProcesses
from raise_model.models.common.masking import draw_masks
from raise_model.models.common.panel_networks import Convolutions, PanelDecoder, PanelEncoder
from raise_model.models.common.precision import full_precision
from raise_model.models.common.schedule import warm_cosine
from raise_model.models.common.total_correlation import total_correlation
from raise_model.models.solver import (
    Batches,
    Loss,
    Needs,
    Prediction,
    Solver,
    Space,
)
from raise_model.problem import NUM_PANELS, Batch


class Clap(Solver):
    """Neural processes of concepts over the cells of a matrix.

    =================  ==========================  =================================
    paper              here                        shape
    =================  ==========================  =================================
    mu                 ``means``                   batch, 9, concepts, dims
    z_s, z_t           ``codes``                   batch, 9, concepts, dims
    q(f | z_S, z_T)    ``informed``                concepts, masks * batch, function
    p(f | z_S)         ``prior``                   concepts, masks * batch, function
    p(z_t | f, z_S)    ``predicted`` (its mean)    missing, concepts, dims
    =================  ==========================  =================================
    """

    Config: ClassVar[type] = ClapConfig
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

    def __init__(self, config: ClapConfig, image_size: int) -> None:
        super().__init__()
        self.config = config
        convolutions = Convolutions(
            kernels=config.encoder_kernels,
            strides=config.encoder_strides,
            paddings=config.encoder_paddings,
        )
        codes = config.num_concepts * config.concept_size
        self.encoder = nn.Sequential(
            PanelEncoder(
                convolutions,
                config.encoder_channels,
                config.encoder_hidden,
                config.encoder_linear,
                image_size,
            ),
            nn.Linear(config.encoder_linear, codes),
        )
        self.processes = NeuralProcesses(config)
        self.decoder = PanelDecoder(
            convolutions,
            codes,
            config.decoder_hidden,
            config.decoder_channels,
            0.0,
            image_size,
        )

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
        """Negative lower bound: terms are sums over a mask's targets, means over problems and
        masks.

        Networks run in the precision of the caller's autocast, the terms in fp32 or higher.
        """
        config, panels, problems = self.config, batch.panels, len(batch)
        means = self._encode(panels)
        codes = means + config.sigma_z * _noise(means, generator)
        masks = draw_masks(config.masks_per_problem, config.max_missing, generator)
        masked = masks.to(panels.device)[:, None].expand(-1, problems, -1)
        missing = masked.flatten(0, 1)
        points = self.processes.points(codes)
        prior = self.processes.functions(points, masked)
        informed = prior
        if config.functions_from == "all":
            informed = self.processes.functions(points, torch.zeros_like(masked[:1]))
            informed = Normal(
                informed.mean.repeat(1, len(masks), 1),
                informed.stddev.repeat(1, len(masks), 1),
                validate_args=False,
            )
        predicted = self.processes.values(_sample(informed, generator), missing)
        every = missing.new_ones(problems, NUM_PANELS)
        drawn = missing if config.decoded_panels == "targets" else every
        wanted, images = _take(panels, drawn), self._decode(_take(codes, drawn))
        with torch.autocast(panels.device.type, enabled=False):
            number = missing.sum() / len(missing)
            distance = (_take(means, missing) - predicted).square()
            error = (images - wanted).square().flatten(1).sum(1).mean()
            terms = {
                "reconstruction": number * error / (2 * config.sigma_x**2),
                "target": distance.sum() / (2 * config.sigma_z**2) / len(missing),
                "function": kl_divergence(informed, prior).sum() / len(missing),
                "total_correlation": self._total_correlation(codes, means, generator),
            }
            total = (
                config.reconstruction_weight * terms["reconstruction"]
                + config.beta_target * terms["target"]
                + config.beta_function * terms["function"]
                + config.beta_total_correlation * terms["total_correlation"]
            )
        return Loss(optimizer="all", total=total, terms={k: v.detach() for k, v in terms.items()})

    def _total_correlation(
        self,
        codes: Float[Tensor, "batch 9 concepts dims"],
        means: Float[Tensor, "batch 9 concepts dims"],
        generator: torch.Generator,
    ) -> Float[Tensor, ""]:
        """At as many codes as there are problems, of any panels (authors' code)."""
        samples, panels = codes.flatten(0, 1), means.flatten(0, 1)
        number = min(self.config.correlation_samples, len(codes))
        order = torch.randperm(len(samples), generator=generator, device=generator.device)
        chosen = order[:number].to(samples.device)
        return total_correlation(samples[chosen], panels, self.config.sigma_z)

    def _encode(
        self, panels: Float[Tensor, "batch panels 1 size size"]
    ) -> Float[Tensor, "batch panels concepts dims"]:
        shape = (*panels.shape[:2], self.config.num_concepts, self.config.concept_size)
        return full_precision(self.encoder(panels.flatten(0, 1))).view(shape)

    def _decode(self, codes: Float[Tensor, "n concepts dims"]) -> Float[Tensor, "n 1 size size"]:
        return full_precision(self.decoder(codes.flatten(1))).sigmoid()

    @property
    def num_concepts(self) -> int:
        return self.config.num_concepts

    def encode(
        self, panels: Float[Tensor, "batch panels 1 size size"]
    ) -> Float[Tensor, "batch panels code"]:
        """The encoder's means."""
        return self._encode(panels).flatten(2)

    def decode(
        self, latents: Float[Tensor, "batch panels latent"]
    ) -> Float[Tensor, "batch panels 1 size size"]:
        return self._decode(self._concepts(latents.flatten(0, 1))).unflatten(0, latents.shape[:2])

    def _concepts(self, codes: Float[Tensor, "n code"]) -> Float[Tensor, "n concepts dims"]:
        return codes.unflatten(1, (self.config.num_concepts, self.config.concept_size))

    def predict_encoded(
        self,
        codes: Float[Tensor, "batch 9 code"],
        missing: Bool[Tensor, "batch 9"],
        generator: torch.Generator,
    ) -> Prediction:
        """Known codes, functions and missing codes are all sampled (authors' code).

        ``latents`` are the predicted codes; panels drawn from them are what is scored.
        """
        means = self._concepts(codes[~missing])
        known = means.new_zeros(*missing.shape, *means.shape[1:])
        known[~missing] = means + self.config.sigma_z * _noise(means, generator)
        prior = self.processes.functions(self.processes.points(known), missing[None])
        predicted = self.processes.values(_sample(prior, generator), missing)
        predicted = predicted + self.config.sigma_z * _noise(predicted, generator)
        return Prediction(latents=predicted.flatten(1).unflatten(0, (len(codes), -1)))

    def score_encoded(
        self,
        prediction: Prediction,
        candidates: Float[Tensor, "batch candidates targets code"],
        space: Space,
    ) -> Float[Tensor, "batch candidates"]:
        """Latent: negative squared distance from the code of the predicted panel as drawn."""
        if space == "latent":
            assert prediction.latents is not None
            images = prediction.images
            drawn = self.encode(self.decode(prediction.latents) if images is None else images)
            prediction = dataclasses.replace(prediction, latents=drawn)
        return super().score_encoded(prediction, candidates, space)


def _take(
    values: Float[Tensor, "batch 9 *rest"], chosen: Bool[Tensor, "masks*batch 9"]
) -> Float[Tensor, "n *rest"]:
    """The chosen panels' values, mask after mask, each over all problems."""
    masks = len(chosen) // len(values)
    return values.expand(masks, *values.shape).flatten(0, 1)[chosen]


def _sample(distribution: Normal, generator: torch.Generator) -> Tensor:
    mean = distribution.mean
    return mean + distribution.stddev * _noise(mean, generator)


def _noise(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, device=like.device, dtype=like.dtype)
