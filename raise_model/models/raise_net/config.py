"""Settings of RAISE: every choice that changes its numbers, and the named settings.

Where the paper and its authors' code differ, the field's text says which value is which;
:func:`paper` takes the code's, which made the published numbers, :func:`reading_text` the
paper's formulas.
"""

from dataclasses import dataclass, replace
from typing import Literal

from raise_model.errors import UserError
from raise_model.models.lite_panels import image_size, pixel_weight
from raise_model.models.solver import added_field
from raise_model.problem import NUM_PANELS

LabelLoss = Literal["code", "paper", "mean_log", "log_mean"]


@dataclass(frozen=True, kw_only=True)
class RaiseConfig:
    """Every field is part of a trial's identity."""

    num_concepts: int
    """C, latent concepts of a panel."""
    concept_size: int
    """d_z, size of one concept."""
    num_rules: int
    """K, atomic rules."""
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
    """Negative slope of the decoder's LeakyReLU; .02 in the paper, .01 in the code."""
    rule_net_hidden: int
    """Width of the row and column networks f_row and f_col."""
    rule_net_features: int
    """Outputs of the row and column networks."""
    rule_head_hidden: int
    """Width of f_ind, which turns the features into logits."""
    executor_channels: int
    """Width of the rule executors h."""
    rule_net_target: Literal["learnable", "zero"]
    """The rule networks' missing cell: a parameter for each position (code) or zeros (paper)."""
    rule_sample: Literal["soft", "hard"]
    """Training, R_pred to: the mixture weighted by the Gumbel softmax (code), or one sampled
    rule with the mixture's gradient (straight through), as the paper's indicator reads."""
    test_rule: Literal["sample", "argmax"]
    """Prediction: rules sampled from the prior at the checkpoint's tau (code), or the likeliest."""
    sigma_x: float
    """Standard deviation of a pixel."""
    sigma_z: float
    """Standard deviation of a latent code's entry."""
    beta_prediction: float
    """beta_1, weight of R_pred."""
    beta_rule: float
    """beta_2, weight of R_rule."""
    beta_label: float
    """beta_3, weight of the label term."""
    reconstruction_weight: float
    """Factor on L_rec; (64 / image size) squared keeps its balance on smaller panels."""
    label_loss: LabelLoss
    """Of the labelled rule's prior p and posterior q, for each attribute at its concept:
    ``code``: (p + q) / 2, summed over the batch; ``paper``: log(p + q) / 2, mean over the
    labelled problems; ``mean_log``: (log p + log q) / 2 and ``log_mean``: log((p + q) / 2),
    both summed over the batch.  The assignment maximises the same gain."""
    batches: Literal["separate", "joint"]
    """``separate``: labelled steps, then an unlabelled one (code); ``joint``: both kinds of
    problems in every step and in one BatchNorm batch."""
    labelled_steps: int
    """Labelled steps before each unlabelled one; only with ``separate``."""
    labelled_batch: int
    """Labelled problems in a step."""
    unlabelled_batch: int
    """Problems without labels in a step."""
    targets_per_problem: int
    """Positions predicted from one encoding of the nine panels, 1 (paper, code) to 9."""
    target_positions: Literal["batch", "problem"]
    """Draw the target positions once a batch (code) or for each problem."""
    always_bottom_right: bool
    """Whether the bottom-right panel is always the first target."""
    decoded_panels: int
    """Panels of a problem that are reconstructed in a step, 1 (paper, code) to 9: the targets
    in the order drawn, then others."""
    optimizer: Literal["rmsprop", "adamw"]
    """RMSprop in paper and code; AdamW runs without weight decay."""
    squared_gradient_decay: float
    """alpha of RMSprop, beta_2 of AdamW."""
    learning_rate: float
    """Highest rate of the run."""
    learning_rate_warmup: float
    """Share of the run over which the rate rises linearly."""
    learning_rate_knee: float
    """Share of the run after which the rate falls; 1 = constant."""
    learning_rate_fall: Literal["linear", "cosine"]
    """Form of the fall."""
    learning_rate_end: float
    """Rate at the end as a share of the highest."""
    tau_start: float
    """Temperature of the Gumbel softmax at the first step."""
    tau_end: float
    """Temperature at the end of the fall and after."""
    tau_fraction: float
    """Share of the run over which tau falls linearly."""
    ema_decay: float
    """Decay of the averaged weights with which predictions are made; 0 = the last weights."""
    spare_dropout: float = added_field(0.0)
    """Chance that a problem's panels are reconstructed from the concepts alone that an attribute
    is assigned to, the others' codes zero; 0 (paper, code) without labels."""

    def __post_init__(self) -> None:
        for field in ("targets_per_problem", "decoded_panels"):
            if not 1 <= getattr(self, field) <= NUM_PANELS:
                raise UserError(f"{field} must lie in 1 to 9, not {getattr(self, field)}")
        if self.tau_fraction <= 0.0:
            raise UserError(f"tau_fraction must be above 0, not {self.tau_fraction}")
        if not 0.0 <= self.ema_decay < 1.0:
            raise UserError(f"ema_decay must lie in [0, 1), not {self.ema_decay}")
        if not 0.0 <= self.spare_dropout <= 1.0:
            raise UserError(f"spare_dropout must lie in [0, 1], not {self.spare_dropout}")


def paper() -> RaiseConfig:
    """The authors' code at paper size; LeakyReLU slope from the paper."""
    return RaiseConfig(
        num_concepts=8,
        concept_size=8,
        num_rules=4,
        encoder_channels=(64, 128, 256, 512),
        encoder_kernels=(4, 4, 4, 4),
        encoder_strides=(2, 2, 2, 2),
        encoder_paddings=(1, 1, 1, 1),
        encoder_hidden=512,
        decoder_hidden=256,
        decoder_channels=(128, 64, 32, 32),
        leaky_slope=0.02,
        rule_net_hidden=512,
        rule_net_features=64,
        rule_head_hidden=64,
        executor_channels=128,
        rule_net_target="learnable",
        rule_sample="soft",
        test_rule="sample",
        sigma_x=0.1,
        sigma_z=0.1,
        beta_prediction=5.0,
        beta_rule=20.0,
        beta_label=10.0,
        reconstruction_weight=1.0,
        label_loss="code",
        batches="separate",
        labelled_steps=4,
        labelled_batch=512,
        unlabelled_batch=512,
        targets_per_problem=1,
        target_positions="batch",
        always_bottom_right=False,
        decoded_panels=1,
        optimizer="rmsprop",
        squared_gradient_decay=0.99,
        learning_rate=3e-4,
        learning_rate_warmup=0.0,
        learning_rate_knee=1.0,
        learning_rate_fall="linear",
        learning_rate_end=1.0,
        tau_start=1.0,
        tau_end=0.1,
        # 100 of 10,000 epochs
        tau_fraction=0.01,
        ema_decay=0.0,
    )


def reading_text() -> RaiseConfig:
    """The paper's formulas where its text and the code differ."""
    return replace(paper(), rule_net_target="zero", rule_sample="hard", label_loss="paper")


def demo() -> RaiseConfig:
    """20x20 panels, patch convolutions: minutes of one CPU thread."""
    return RaiseConfig(
        num_concepts=6,
        concept_size=8,
        num_rules=4,
        encoder_channels=(32, 128),
        encoder_kernels=(5, 2),
        encoder_strides=(5, 2),
        encoder_paddings=(0, 0),
        encoder_hidden=256,
        decoder_hidden=256,
        decoder_channels=(128, 32),
        leaky_slope=0.02,
        rule_net_hidden=64,
        rule_net_features=64,
        rule_head_hidden=64,
        executor_channels=32,
        rule_net_target="zero",
        rule_sample="soft",
        test_rule="argmax",
        sigma_x=0.1,
        sigma_z=0.1,
        beta_prediction=5.0,
        beta_rule=20.0,
        beta_label=10.0,
        reconstruction_weight=10.24,
        label_loss="mean_log",
        batches="joint",
        labelled_steps=1,
        labelled_batch=16,
        unlabelled_batch=16,
        targets_per_problem=3,
        target_positions="batch",
        always_bottom_right=True,
        decoded_panels=9,
        optimizer="adamw",
        squared_gradient_decay=0.99,
        learning_rate=4e-3,
        learning_rate_warmup=0.033,
        learning_rate_knee=0.0,
        learning_rate_fall="cosine",
        learning_rate_end=0.02,
        tau_start=1.0,
        tau_end=0.1,
        tau_fraction=0.4,
        ema_decay=0.995,
    )


def lite(configuration: str) -> RaiseConfig:
    """Small panels and patch convolutions: up to an hour of one CPU thread.

    Center as in the demo; elsewhere a convolution and two concepts more, in O-IG with its seven
    attributes four.  Where much of a panel is not to be predicted (angles of outlines and of
    many entities; positions under rules on Number), a heavier ``beta_prediction`` keeps that
    out of the codes.  Where the outer shape is an outline, ``spare_dropout`` leaves it to the
    attributes' concepts.
    """
    layout = configuration.removesuffix("_uni")
    if layout == "center":
        return demo()
    size = image_size(configuration)
    patch = 5 if size == 60 else 4
    config = replace(
        demo(),
        num_concepts=8,
        encoder_channels=(32, 64, 128),
        encoder_kernels=(patch, 2, 2),
        encoder_strides=(patch, 2, 2),
        encoder_paddings=(0, 0, 0),
        decoder_channels=(128, 64, 32),
        reconstruction_weight=pixel_weight(size),
    )
    if layout in ("left_right", "up_down"):
        return config
    config = replace(config, beta_prediction=12.0)
    if layout == "out_in_center":
        return replace(config, spare_dropout=0.5)
    config = replace(config, labelled_batch=24, unlabelled_batch=8)
    if layout == "out_in_grid":
        # Entities of four to eight pixels: drawn too faintly for the plain weight.
        weight = 3 * config.reconstruction_weight
        return replace(
            config,
            num_concepts=10,
            targets_per_problem=2,
            reconstruction_weight=weight,
            spare_dropout=0.5,
        )
    if layout == "grid_3x3":
        return replace(config, targets_per_problem=2, executor_channels=48)
    return config


def as_published(networks: RaiseConfig) -> RaiseConfig:
    """Some networks, trained as the authors do, in batches of as many problems as ``networks``
    has in a step (512 would leave too few steps on a CPU).
    """
    kept = (
        "num_concepts", "concept_size", "encoder_channels", "encoder_kernels", "encoder_strides",
        "encoder_paddings", "encoder_hidden", "decoder_hidden", "decoder_channels",
        "rule_net_hidden", "rule_net_features", "rule_head_hidden", "executor_channels",
        "reconstruction_weight",
    )  # fmt: skip
    batch = networks.labelled_batch + networks.unlabelled_batch
    return replace(
        paper(),
        labelled_batch=batch,
        unlabelled_batch=batch,
        **{name: getattr(networks, name) for name in kept},
    )


def smoke() -> RaiseConfig:
    """Tiny: for tests of everything around it; it learns nothing."""
    return replace(
        demo(),
        num_concepts=7,
        concept_size=3,
        encoder_channels=(4,),
        encoder_kernels=(10,),
        encoder_strides=(10,),
        encoder_paddings=(0,),
        encoder_hidden=16,
        decoder_hidden=16,
        decoder_channels=(4,),
        rule_net_hidden=8,
        rule_net_features=8,
        rule_head_hidden=8,
        executor_channels=5,
        labelled_batch=4,
        unlabelled_batch=4,
        ema_decay=0.0,
    )
