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
"""

from collections.abc import Callable, Iterator
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from raise_model.models.raise_net import loss
from raise_model.models.raise_net.config import RaiseConfig
from raise_model.models.raise_net.networks import Decoder, Encoder
from raise_model.models.raise_net.rules import RuleExecutors, RuleNet
from raise_model.models.solver import (
    Batches,
    Loss,
    Needs,
    Prediction,
    Solver,
    Space,
)
from raise_model.problem import BOTTOM_RIGHT, NUM_PANELS, Batch, concatenate

_Selection = Callable[[Tensor], Tensor]
"""Takes the targets out of (batch, panels, ...): (targets, batch, ...)."""
_Reasoned = tuple[Tensor, Tensor, _Selection]
"""Log prior (targets, batch, concepts, rules), predictions (..., rules, dims), selection."""


class Raise(Solver):
    """Conditional latent-variable model of a matrix with missing panels."""

    Config: ClassVar[type] = RaiseConfig
    revision: ClassVar[int] = 1
    supports: ClassVar[frozenset[str]] = frozenset({"bottom_right", "latent", "pixel"})
    needs = Needs(labels=True)
    tau: Tensor
    """Temperature of the Gumbel softmax; a buffer, so that a checkpoint is evaluated at its own."""

    def __init__(self, config: RaiseConfig, image_size: int) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config, image_size)
        self.decoder = Decoder(config, image_size)
        self.rule_net = RuleNet(config)
        self.executors = RuleExecutors(config)
        self.register_buffer("tau", torch.tensor(config.tau_start))

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        rate = self.config.learning_rate
        if self.config.optimizer == "rmsprop":
            return {"all": torch.optim.RMSprop(self.parameters(), lr=rate)}
        return {"all": torch.optim.AdamW(self.parameters(), lr=rate, weight_decay=0.0)}

    def set_step(self, step: int, steps: int) -> dict[str, float]:
        config, done = self.config, step / steps
        fallen = min(1.0, done / config.tau_fraction)
        self.tau.fill_(config.tau_start + (config.tau_end - config.tau_start) * fallen)
        return {"all": config.learning_rate * self._rate_factor(done)}

    def _rate_factor(self, done: float) -> float:
        config = self.config
        if config.learning_rate_schedule == "constant":
            return 1.0
        if config.learning_rate_schedule == "cosine":
            falling = 0.5 * (1 + float(torch.cos(torch.tensor(torch.pi * done))))
        elif done <= config.learning_rate_knee:
            return 1.0
        else:
            falling = (1 - done) / (1 - config.learning_rate_knee)
        return config.learning_rate_end + (1 - config.learning_rate_end) * falling

    def training_steps(self, batches: Batches, generator: torch.Generator) -> Iterator[Loss]:
        for batch in self._round(batches):
            yield self.loss(batch, generator)

    def _round(self, batches: Batches) -> Iterator[Batch]:
        config = self.config
        labelled, every = batches.num_problems("labelled"), batches.num_problems("all")
        if config.batches == "joint" and labelled > 0:
            yield concatenate(
                batches.draw("labelled", config.labelled_batch),
                batches.draw("all", config.unlabelled_batch),
            )
            return
        if config.batches == "joint":
            yield batches.draw("all", config.labelled_batch + config.unlabelled_batch)
            return
        if labelled > 0:
            for _ in range(config.labelled_steps):
                yield batches.draw("labelled", config.labelled_batch, partial=True)
        if labelled < every:
            yield batches.draw("all", config.unlabelled_batch, partial=True)

    def encode(
        self, panels: Float[Tensor, "batch panels 1 size size"]
    ) -> Float[Tensor, "batch panels concepts dims"]:
        """Means of every panel's concepts."""
        shape = (*panels.shape[:2], self.config.num_concepts, self.config.concept_size)
        return _full(self.encoder(panels.flatten(0, 1))).view(shape)

    def loss(self, batch: Batch, generator: torch.Generator) -> Loss:
        """Negative of L_rec - beta_1 R_pred - beta_2 R_rule + beta_3 L_sup."""
        config = self.config
        means = self.encode(batch.panels)
        codes = means + config.sigma_z * _noise(means, generator)
        if config.target_positions == "problem":
            prior, predicted, at = self._reason_each(codes, generator)
        else:
            prior, predicted, at = self._reason_together(codes, generator)
        posterior = loss.posterior_logits(prior, at(codes), predicted, config.sigma_z)
        weights = loss.gumbel_softmax(posterior, self.tau, generator)
        if config.rule_sample == "hard":
            weights = _straight_through(weights)
        mixture = torch.einsum("tbck,tbckd->tbcd", weights, predicted)
        terms = {
            "reconstruction": self._reconstruction(batch.panels, codes, at),
            "prediction": loss.prediction_divergence(at(means), mixture, config.sigma_z),
            "rule": loss.rule_divergence(posterior, prior),
            "label": loss.supervision(
                loss.label_gain(prior, posterior, batch.rule_labels, config.label_loss)
            ),
        }
        total = (
            config.reconstruction_weight * terms["reconstruction"]
            + config.beta_prediction * terms["prediction"]
            + config.beta_rule * terms["rule"]
            - config.beta_label * terms["label"]
        )
        return Loss(optimizer="all", total=total, terms={k: v.detach() for k, v in terms.items()})

    def _reason_together(self, codes: Tensor, generator: torch.Generator) -> _Reasoned:
        """Prior and predictions for target positions that all problems share."""
        targets = self._draw_targets(1, generator)[0].tolist()
        maps = _maps(codes)
        prior = _full(self.rule_net.leave_one_out(maps, targets)).log_softmax(-1)
        predicted = _full(self.executors.leave_one_out(maps, targets))
        batch, concepts = codes.shape[0], codes.shape[2]
        return (
            prior.unflatten(1, (batch, concepts)),
            predicted.unflatten(2, (batch, concepts)).permute(0, 2, 3, 1, 4),
            lambda values: values[:, targets].transpose(0, 1),
        )

    def _reason_each(self, codes: Tensor, generator: torch.Generator) -> _Reasoned:
        """The same for target positions drawn for each problem."""
        batch, _, concepts, _ = codes.shape
        targets = self._draw_targets(batch, generator).to(codes.device)
        rows = torch.arange(batch, device=codes.device)
        priors, predictions = [], []
        for column in targets.unbind(1):
            missing = torch.zeros(batch, NUM_PANELS, dtype=torch.bool, device=codes.device)
            missing[rows, column] = True
            prior, predicted = self._reason_masked(codes, missing)
            priors.append(prior)
            chosen = column[:, None, None, None, None].expand(
                -1, concepts, predicted.shape[2], 1, predicted.shape[4]
            )
            predictions.append(predicted.gather(3, chosen).squeeze(3))
        return (
            torch.stack(priors),
            torch.stack(predictions),
            lambda values: values[rows[None], targets.T],
        )

    def _draw_targets(self, rows: int, generator: torch.Generator) -> Tensor:
        """(rows, targets) different positions each, uniformly."""
        keys = torch.rand(rows, NUM_PANELS, generator=generator, device=generator.device)
        if self.config.always_bottom_right:
            keys[:, BOTTOM_RIGHT] = -1
        return keys.argsort(1)[:, : self.config.targets_per_problem].cpu()

    def _reason_masked(
        self, codes: Float[Tensor, "batch 9 concepts dims"], missing: Bool[Tensor, "batch 9"]
    ) -> tuple[Float[Tensor, "batch concepts rules"], Float[Tensor, "batch concepts rules 9 dims"]]:
        """Log prior, and every rule's prediction at every cell, with any cells missing."""
        concepts = codes.shape[2]
        hidden = missing.repeat_interleave(concepts, 0)
        maps = _maps(codes)
        prior = _full(self.rule_net.masked(maps, hidden)).log_softmax(-1)
        predicted = _full(self.executors.masked(maps, hidden))
        shape = (len(codes), concepts)
        return prior.unflatten(0, shape), predicted.unflatten(0, shape)

    def _reconstruction(self, panels: Tensor, codes: Tensor, at: _Selection) -> Tensor:
        """-L_rec of the decoded panels, from the encoder's own sampled codes."""
        if self.config.decoded == "targets":
            panels, codes = at(panels), at(codes)
        images = self.decoder(codes.flatten(0, 1).flatten(1))
        return loss.reconstruction(_full(images), panels.flatten(0, 1), self.config.sigma_x)

    def predict(
        self,
        panels: Float[Tensor, "batch 9 1 size size"],
        missing: Bool[Tensor, "batch 9"],
        generator: torch.Generator,
    ) -> Prediction:
        config = self.config
        batch = len(panels)
        known = _full(self.encoder(panels[~missing]))
        codes = known.new_zeros(batch, NUM_PANELS, config.num_concepts, config.concept_size)
        codes[~missing] = known.view(-1, config.num_concepts, config.concept_size)
        prior, predicted = self._reason_masked(codes, missing)
        if config.test_rule == "argmax":
            weights = torch.nn.functional.one_hot(prior.argmax(-1), config.num_rules).to(prior)
        else:
            weights = loss.gumbel_softmax(prior, self.tau, generator)
        chosen = torch.einsum("bck,bckpd->bpcd", weights, predicted)
        latents = chosen[missing].view(batch, -1, config.num_concepts * config.concept_size)
        images = _full(self.decoder(latents.flatten(0, 1))).unflatten(0, latents.shape[:2])
        return Prediction(latents=latents, images=images, rules=prior.exp())

    def score(
        self,
        prediction: Prediction,
        candidates: Float[Tensor, "batch candidates targets 1 size size"],
        space: Space,
    ) -> Float[Tensor, "batch candidates"]:
        """Negative squared distance: of codes (latent) or of pixels."""
        assert prediction.latents is not None
        assert prediction.images is not None
        if space == "pixel":
            return -(candidates - prediction.images[:, None]).square().flatten(2).sum(2)
        batch, number, targets = candidates.shape[:3]
        codes = self.encode(candidates.flatten(1, 2)).view(batch, number, targets, -1)
        return -(codes - prediction.latents[:, None]).square().flatten(2).sum(2)


def _full(values: Tensor) -> Tensor:
    """At least fp32, whatever autocast computed in."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def _maps(codes: Float[Tensor, "batch 9 concepts dims"]) -> Float[Tensor, "n 9 dims"]:
    """Every concept's nine values, problem-major."""
    return codes.transpose(1, 2).flatten(0, 1)


def _noise(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, device=like.device, dtype=like.dtype)


def _straight_through(weights: Tensor) -> Tensor:
    """One-hot forwards, the soft sample's gradient backwards."""
    hard = torch.nn.functional.one_hot(weights.argmax(-1), weights.shape[-1]).to(weights.dtype)
    return hard + weights - weights.detach()
