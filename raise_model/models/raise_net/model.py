"""RAISE: rule abstraction and selection (ICLR 2024), as one :class:`Solver`.

=================  =======================  ==========================================
paper              here                     shape
=================  =======================  ==========================================
mu_s, mu_t         ``means``                batch, 9, concepts, dims
z_s, z_t           ``codes``                batch, 9, concepts, dims
pi (prior)         ``prior``, log           targets, batch, concepts, rules
pi~ (posterior)    ``posterior``, log       targets, batch, concepts, rules
h(Z; psi_k)        ``predicted``            targets, batch, concepts, rules, dims
r                  ``weights``              targets, batch, concepts, rules
M                  ``loss.assign``          attributes, concepts
=================  =======================  ==========================================

With several targets, the nine panels are encoded once and each target position is predicted
from the other eight; every term is a mean over targets.  One target is the paper's setting.

Departures from the paper and the authors' code:

* Where the two differ, ``paper`` takes the code, which made the published numbers; the slope of
  LeakyReLU is the paper's.
* ``lite`` and ``demo`` keep the model but train it otherwise: up to three targets, the
  bottom-right one always among them, from one encoding of all nine panels, which are all
  reconstructed; labelled and unlabelled problems in one step; AdamW with a cosine fall; averaged
  weights; the label term (log p + log q) / 2; the likeliest rule when answering.
* ``lite`` in O-IC and O-IG: half of the problems are reconstructed from the concepts alone that
  an attribute is assigned to.
* ``raise_plus`` has a label each for the rules on Number and on Position of a grid, which the
  authors' labels merge.
"""

import math
from collections.abc import Iterator
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from raise_model.models.common.panel_networks import Convolutions, PanelDecoder, PanelEncoder
from raise_model.models.common.precision import full_precision
from raise_model.models.common.weight_average import WeightAverage
from raise_model.models.raise_net import loss
from raise_model.models.raise_net.config import RaiseConfig
from raise_model.models.raise_net.prediction import distinct_pairs, execute, prior_logits
from raise_model.models.raise_net.rules import RuleExecutors, RuleNet
from raise_model.models.solver import (
    Batches,
    Loss,
    Needs,
    Prediction,
    Solver,
)
from raise_model.problem import BOTTOM_RIGHT, NUM_PANELS, UNLABELLED, Batch, concatenate


class Networks(nn.Module):
    """Everything with parameters."""

    def __init__(self, config: RaiseConfig, image_size: int) -> None:
        super().__init__()
        codes = config.num_concepts * config.concept_size
        convolutions = Convolutions(
            kernels=config.encoder_kernels,
            strides=config.encoder_strides,
            paddings=config.encoder_paddings,
        )
        self.encoder = PanelEncoder(
            convolutions, config.encoder_channels, config.encoder_hidden, codes, image_size
        )
        self.decoder = PanelDecoder(
            convolutions, codes, config.decoder_hidden, config.decoder_channels,
            config.leaky_slope, image_size,
        )  # fmt: skip
        self.rule_net = RuleNet(config)
        self.executors = RuleExecutors(config)


class Raise(Solver):
    """Conditional latent-variable model of a matrix with missing panels."""

    Config: ClassVar[type] = RaiseConfig
    revision: ClassVar[int] = 1
    supports: ClassVar[frozenset[str]] = frozenset(
        {
            "bottom_right",
            "arbitrary_position",
            "odd_one_out",
            "rule_accuracy",
            "concept_alignment",
            "latent_traversal",
            "multi_answer",
            "latent",
            "pixel",
            "decode",
        }
    )
    needs = Needs(labels=True)
    tau: Tensor
    """Temperature of the Gumbel softmax; a buffer, so that a checkpoint is evaluated at its own."""

    def __init__(self, config: RaiseConfig, image_size: int) -> None:
        super().__init__()
        self.config = config
        self.networks = Networks(config, image_size)
        averaged = config.ema_decay > 0
        self.average = WeightAverage(self.networks, config.ema_decay) if averaged else None
        self.register_buffer("tau", torch.tensor(config.tau_start))
        self._step = 0

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        config, parameters = self.config, list(self.parameters())
        if config.optimizer == "rmsprop":
            optimizer = torch.optim.RMSprop(
                parameters, config.learning_rate, alpha=config.squared_gradient_decay, foreach=True
            )
        else:
            optimizer = torch.optim.AdamW(
                parameters,
                config.learning_rate,
                betas=(0.9, config.squared_gradient_decay),
                weight_decay=0.0,
                fused=True,
            )
        return {"all": optimizer}

    def set_step(self, step: int, steps: int) -> dict[str, float]:
        config, done = self.config, step / steps
        self._step = step
        fallen = min(1.0, done / config.tau_fraction)
        self.tau.fill_(config.tau_start + (config.tau_end - config.tau_start) * fallen)
        warm = min(1.0, (step + 1) / max(1.0, config.learning_rate_warmup * steps))
        return {"all": config.learning_rate * warm * self._rate_left(done)}

    def _rate_left(self, done: float) -> float:
        """The learning rate after the share ``done`` of the run, as a share of the highest."""
        config = self.config
        if done <= config.learning_rate_knee:
            return 1.0
        left = (1 - done) / (1 - config.learning_rate_knee)
        if config.learning_rate_fall == "cosine":
            left = (1 - math.cos(math.pi * left)) / 2
        return config.learning_rate_end + (1 - config.learning_rate_end) * left

    def training_steps(self, batches: Batches, generator: torch.Generator) -> Iterator[Loss]:
        for batch in self._round(batches):
            yield self.loss(batch, generator)
            if self.average is not None:  # the caller has stepped the optimiser
                self.average.update(self.networks)

    def _round(self, batches: Batches) -> Iterator[Batch]:
        config = self.config
        labelled, every = batches.num_problems("labelled"), batches.num_problems("all")
        if config.batches == "joint":
            if labelled > 0:
                yield concatenate(
                    batches.draw("labelled", config.labelled_batch),
                    batches.draw("all", config.unlabelled_batch),
                )
            else:
                yield batches.draw("all", config.labelled_batch + config.unlabelled_batch)
            return
        if labelled > 0:
            # With every problem labelled there are only labelled steps.
            for _ in range(config.labelled_steps if labelled < every else 1):
                yield batches.draw("labelled", config.labelled_batch, partial=True)
        if labelled < every:
            yield batches.draw("all", config.unlabelled_batch, partial=True)

    def loss(self, batch: Batch, generator: torch.Generator) -> Loss:
        """Negative of L_rec - beta_1 R_pred - beta_2 R_rule + beta_3 L_sup.

        Networks run in the precision of the caller's autocast, everything else in fp32 or
        higher.
        """
        config = self.config
        means = self._encode(self.networks, batch.panels)
        codes = means + config.sigma_z * _noise(means, generator)
        order = self._draw_positions(len(batch), generator)
        targets = order[:, : config.targets_per_problem]
        prior, predicted = self._reason(codes, targets)
        with torch.autocast(means.device.type, enabled=False):
            target_codes = _take(codes, targets).transpose(0, 1)
            posterior = loss.posterior_logits(prior, target_codes, predicted, config.sigma_z)
            weights = loss.gumbel_softmax(posterior, self.tau, generator)
            if config.rule_sample == "hard":
                weights = _straight_through(weights)
            mixture = torch.einsum("tbck,tbckd->tbcd", weights, predicted)
            gain = loss.label_gain(prior, posterior, batch.rule_labels, config.label_loss)
            assignment = loss.assign(gain)
        shown = codes
        if config.spare_dropout > 0.0:
            shown = codes * self._kept(batch, assignment[1], generator)[:, None, :, None]
        panels = batch.panels
        if config.decoded_panels < NUM_PANELS:
            decoded = order[:, : config.decoded_panels]
            shown, panels = _take(shown, decoded), _take(panels, decoded)
        images = self._decode(self.networks, shown.flatten(2))
        with torch.autocast(means.device.type, enabled=False):
            terms = {
                "reconstruction": loss.reconstruction(
                    images.flatten(0, 1), panels.flatten(0, 1), config.sigma_x
                ),
                "prediction": loss.prediction_divergence(
                    _take(means, targets).transpose(0, 1), mixture, config.sigma_z
                ),
                "rule": loss.rule_divergence(posterior, prior),
                "label": loss.supervision(gain, assignment),
            }
            total = (
                config.reconstruction_weight * terms["reconstruction"]
                + config.beta_prediction * terms["prediction"]
                + config.beta_rule * terms["rule"]
                - config.beta_label * terms["label"]
            )
        detached = {name: term.detach() for name, term in terms.items()}
        return Loss(optimizer="all", total=total, terms=detached, problems=batch.index)

    def _kept(
        self,
        batch: Batch,
        assigned: Int[Tensor, " attributes"],
        generator: torch.Generator,
    ) -> Bool[Tensor, "batch concepts"]:
        """The concepts whose codes the decoder is shown; ``spare_dropout`` hides others than
        the assigned ones.

        What no attribute is assigned to would else draw a panel's shapes by itself, and the
        attributes' concepts would not have to tell them apart.
        """
        device = assigned.device
        is_spare = torch.ones(self.num_concepts, dtype=torch.bool, device=device)
        is_spare.index_fill_(0, assigned, False)
        uniform = torch.rand(len(batch), generator=generator, device=device)
        hidden = uniform < self.config.spare_dropout
        # Without a label the assignment says nothing.
        hidden &= (batch.rule_labels != UNLABELLED).any()
        return ~(hidden[:, None] & is_spare)

    def _draw_positions(self, batch: int, generator: torch.Generator) -> Int[Tensor, "rows 9"]:
        """Uniform orders of the nine positions, one for each problem or one for all (CPU).

        The host draws them, also for a GPU: it has to know them, and must not wait for it.
        """
        if generator.device.type != "cpu":
            seed = (generator.initial_seed() * 1_000_003 + self._step) % 2**63
            generator = torch.Generator().manual_seed(seed)
        rows = batch if self.config.target_positions == "problem" else 1
        keys = torch.rand(rows, NUM_PANELS, generator=generator)
        if self.config.always_bottom_right:
            keys[:, BOTTOM_RIGHT] = -1
        return keys.argsort(1)

    def _encode(
        self, networks: Networks, panels: Float[Tensor, "batch panels 1 size size"]
    ) -> Float[Tensor, "batch panels concepts dims"]:
        shape = (*panels.shape[:2], self.config.num_concepts, self.config.concept_size)
        return full_precision(networks.encoder(panels.flatten(0, 1))).view(shape)

    def _decode(
        self, networks: Networks, codes: Float[Tensor, "batch panels latent"]
    ) -> Float[Tensor, "batch panels 1 size size"]:
        images = full_precision(networks.decoder(codes.flatten(0, 1))).sigmoid()
        return images.unflatten(0, codes.shape[:2])

    def _reason(
        self, codes: Float[Tensor, "batch 9 concepts dims"], targets: Int[Tensor, "rows targets"]
    ) -> tuple[
        Float[Tensor, "targets batch concepts rules"],
        Float[Tensor, "targets batch concepts rules dims"],
    ]:
        """Log prior, and each rule's prediction, at every target from the other eight cells."""
        batch, _, concepts, _ = codes.shape
        maps = _maps(codes)
        if len(targets) == 1:
            positions = targets[0].tolist()
            prior = self.networks.rule_net.leave_one_out(maps, positions)
            predicted = self.networks.executors.leave_one_out(maps, positions)
        else:
            positions = targets.to(codes.device).repeat_interleave(concepts, 0)
            each = [self._reason_at(maps, column) for column in positions.unbind(1)]
            prior, predicted = (torch.stack(part) for part in zip(*each, strict=True))
        prior = full_precision(prior).log_softmax(-1).unflatten(1, (batch, concepts))
        predicted = full_precision(predicted).unflatten(2, (batch, concepts)).permute(0, 2, 3, 1, 4)
        return prior, predicted

    def _reason_at(
        self, maps: Float[Tensor, "n 9 dims"], target: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, "n rules"], Float[Tensor, "rules n dims"]]:
        """Logits and predictions at one target position for each matrix."""
        rows = torch.arange(len(maps), device=maps.device)
        missing = F.one_hot(target, NUM_PANELS).bool()
        prior = self.networks.rule_net.masked(maps, missing)
        return prior, self.networks.executors.masked(maps, missing)[:, rows, target]

    @property
    def num_concepts(self) -> int:
        return self.config.num_concepts

    def encode(
        self, panels: Float[Tensor, "batch panels 1 size size"]
    ) -> Float[Tensor, "batch panels code"]:
        """The encoder's means."""
        return self._encode(self._predictor(), panels).flatten(2)

    def decode(
        self, latents: Float[Tensor, "batch panels latent"]
    ) -> Float[Tensor, "batch panels 1 size size"]:
        return self._decode(self._predictor(), latents)

    def predict_encoded(
        self,
        codes: Float[Tensor, "batch 9 code"],
        missing: Bool[Tensor, "batch 9"],
        generator: torch.Generator,
    ) -> Prediction:
        """What the rules make of the context's means."""
        (prediction,) = self.predict_masks(codes, missing[None], generator)
        return prediction

    def predict_masks(
        self,
        codes: Float[Tensor, "batch 9 code"],
        missing: Bool[Tensor, "masks batch 9"],
        generator: torch.Generator,
    ) -> list[Prediction]:
        config, networks = self.config, self._predictor()
        codes = codes.unflatten(2, (config.num_concepts, config.concept_size))
        pairs = distinct_pairs(missing)
        prior = full_precision(prior_logits(networks.rule_net, codes, pairs)).log_softmax(-1)
        weights = [self._rule_weights(prior[asked], generator) for asked in pairs.asked]
        needed = torch.zeros_like(prior, dtype=torch.bool)
        for asked, weight in zip(pairs.asked, weights, strict=True):
            needed[asked] |= weight != 0
        predicted = execute(networks.executors, codes, pairs, needed)
        predictions = []
        numbers = missing[:, 0].sum(1).tolist()
        for asked, weight, number in zip(pairs.asked, weights, numbers, strict=True):
            with torch.autocast(codes.device.type, enabled=False):
                cells = torch.einsum("bck,btckd->btcd", weight, predicted[asked, :number])
            rules = prior[asked].exp()
            predictions.append(Prediction(latents=cells.flatten(2), rules=rules))
        return predictions

    def _rule_weights(
        self, prior: Float[Tensor, "batch concepts rules"], generator: torch.Generator
    ) -> Float[Tensor, "batch concepts rules"]:
        if self.config.test_rule == "argmax":
            return F.one_hot(prior.argmax(-1), self.config.num_rules).to(prior)
        return loss.gumbel_softmax(prior, self.tau, generator)

    def rule_posterior(
        self, codes: Float[Tensor, "batch 9 code"]
    ) -> Float[Tensor, "batch concepts rules"]:
        """q(r | z_S, z_T) at the bottom-right panel, given the encoder's means (appendix A.1)."""
        config, networks = self.config, self._predictor()
        concepts = codes.unflatten(2, (config.num_concepts, config.concept_size))
        maps, shape = _maps(concepts), (len(codes), config.num_concepts)
        hidden = torch.zeros(maps.shape[:2], dtype=torch.bool, device=codes.device)
        hidden[:, BOTTOM_RIGHT] = True
        prior = full_precision(networks.rule_net.masked(maps, hidden)).log_softmax(-1)
        predicted = full_precision(networks.executors.masked(maps, hidden))[:, :, BOTTOM_RIGHT]
        posterior = loss.posterior_logits(
            prior.unflatten(0, shape)[None],
            concepts[None, :, BOTTOM_RIGHT],
            predicted.transpose(0, 1).unflatten(0, shape)[None],
            config.sigma_z,
        )
        return posterior[0].exp()

    def _predictor(self) -> Networks:
        """The networks to predict with: in evaluation mode the averaged ones, where kept."""
        if self.training or self.average is None:
            return self.networks
        return cast(Networks, self.average.module)


def _maps(codes: Float[Tensor, "batch 9 concepts dims"]) -> Float[Tensor, "n 9 dims"]:
    """Every concept's nine values, problem-major."""
    return codes.transpose(1, 2).flatten(0, 1)


def _take(
    values: Float[Tensor, "batch 9 *rest"], positions: Int[Tensor, "rows taken"]
) -> Float[Tensor, "batch taken *rest"]:
    """Some positions of every problem, the same in all where ``positions`` has one row."""
    if len(positions) == 1:
        return values[:, positions[0].tolist()]
    rows = torch.arange(len(values), device=values.device)[:, None]
    return values[rows, positions.to(values.device)]


def _noise(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, device=like.device, dtype=like.dtype)


def _straight_through(weights: Tensor) -> Tensor:
    """One-hot forwards, the soft sample's gradient backwards."""
    hard = F.one_hot(weights.argmax(-1), weights.shape[-1]).to(weights.dtype)
    return hard + weights - weights.detach()
