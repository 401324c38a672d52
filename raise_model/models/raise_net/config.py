"""Settings of RAISE: every choice that changes its numbers, and the named settings.

Where the paper and its authors' code differ, the field's text says which value is which;
:func:`paper` takes the code's, which made the published numbers, :func:`paper_text` the
paper's formulas.
"""

from dataclasses import dataclass, replace
from typing import Literal


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
    """Outputs of each convolution of the encoder."""
    encoder_kernels: tuple[int, ...]
    encoder_strides: tuple[int, ...]
    encoder_paddings: tuple[int, ...]
    encoder_hidden: int
    """Outputs of the layer over the whole remaining map, before the codes."""
    decoder_hidden: int
    """Outputs of the decoder's first layer."""
    decoder_channels: tuple[int, ...]
    """Inputs of each transposed convolution; kernels mirror the encoder's."""
    leaky_slope: float
    """Negative slope of the decoder's LeakyReLU; .02 in the paper, .01 in the code."""
    rule_net_hidden: int
    """Width of the row and column networks f_row and f_col."""
    rule_net_features: int
    """Outputs of the row and column networks."""
    executor_channels: int
    """Width of the rule executors h."""
    rule_net_target: Literal["learnable", "zero"]
    """The rule networks' missing cell: a parameter for each position (code) or zeros (paper)."""
    rule_sample: Literal["soft", "hard"]
    """Training: mixture weighted by the Gumbel softmax (code), or one rule with its gradient
    (straight through), as the paper's categorical indicator reads."""
    test_rule: Literal["sample", "argmax"]
    """Prediction: rules sampled from the prior at the checkpoint's tau (code), or the likeliest."""
    sigma_x: float
    sigma_z: float
    beta_prediction: float
    """beta_1, weight of R_pred."""
    beta_rule: float
    """beta_2, weight of R_rule."""
    beta_label: float
    """beta_3, weight of the label term."""
    reconstruction_weight: float
    """Factor on L_rec; (64 / image size) squared keeps its balance on smaller panels."""
    label_loss: Literal["code", "paper", "mean_log"]
    """``code``: mean of prior and posterior probability, summed over the batch.  ``paper``: half
    the log of their sum, averaged over the labelled problems.  ``mean_log``: mean of their
    logs, summed over the batch.  The assignment maximises the same gain."""
    batches: Literal["separate", "joint"]
    """``separate``: labelled steps, then one unlabelled step (code); ``joint``: both kinds of
    problems in every step and in one BatchNorm batch."""
    labelled_steps: int
    """Labelled steps before each unlabelled one (``separate``)."""
    labelled_batch: int
    unlabelled_batch: int
    targets_per_problem: int
    """Positions predicted from one encoding of the nine panels; 1 in paper and code."""
    target_positions: Literal["batch", "problem"]
    """Draw target positions once a batch (code) or for each problem."""
    always_bottom_right: bool
    """One of the targets is always the bottom-right panel."""
    decoded: Literal["targets", "all"]
    """Which panels are reconstructed: the targets (paper, code) or all nine."""
    optimizer: Literal["rmsprop", "adamw"]
    learning_rate: float
    learning_rate_schedule: Literal["constant", "linear", "cosine"]
    """``linear``: constant up to the knee, then linear; ``cosine``: from the start."""
    learning_rate_knee: float
    """Share of the run at full rate (``linear``)."""
    learning_rate_end: float
    """Rate at the end as a share of the full rate."""
    tau_start: float
    tau_end: float
    tau_fraction: float
    """Share of the run over which tau falls linearly from start to end."""


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
        decoded="targets",
        optimizer="rmsprop",
        learning_rate=3e-4,
        learning_rate_schedule="constant",
        learning_rate_knee=1.0,
        learning_rate_end=1.0,
        tau_start=1.0,
        tau_end=0.1,
        # 100 of 10,000 epochs
        tau_fraction=0.01,
    )


def paper_text() -> RaiseConfig:
    """The paper's formulas where its text and the code differ."""
    return replace(paper(), rule_net_target="zero", rule_sample="hard", label_loss="paper")


def lite() -> RaiseConfig:
    """32x32 panels, small networks, all nine positions as targets: an hour of one CPU thread."""
    return RaiseConfig(
        num_concepts=8,
        concept_size=8,
        num_rules=4,
        encoder_channels=(32, 64, 128),
        encoder_kernels=(4, 4, 4),
        encoder_strides=(2, 2, 2),
        encoder_paddings=(1, 1, 1),
        encoder_hidden=256,
        decoder_hidden=256,
        decoder_channels=(128, 64, 32),
        leaky_slope=0.02,
        rule_net_hidden=128,
        rule_net_features=64,
        executor_channels=64,
        rule_net_target="zero",
        rule_sample="soft",
        test_rule="argmax",
        sigma_x=0.1,
        sigma_z=0.1,
        beta_prediction=5.0,
        beta_rule=20.0,
        beta_label=10.0,
        reconstruction_weight=4.0,
        label_loss="mean_log",
        batches="joint",
        labelled_steps=1,
        labelled_batch=12,
        unlabelled_batch=36,
        targets_per_problem=9,
        target_positions="batch",
        always_bottom_right=False,
        decoded="all",
        optimizer="rmsprop",
        learning_rate=1e-3,
        learning_rate_schedule="linear",
        learning_rate_knee=0.7,
        learning_rate_end=0.05,
        tau_start=1.0,
        tau_end=0.1,
        tau_fraction=0.4,
    )


def demo() -> RaiseConfig:
    """20x20 panels, patch convolutions: minutes of one CPU thread."""
    return replace(
        lite(),
        encoder_channels=(32, 128),
        encoder_kernels=(5, 2),
        encoder_strides=(5, 2),
        encoder_paddings=(0, 0),
        decoder_channels=(128, 32),
        rule_net_hidden=64,
        executor_channels=32,
        reconstruction_weight=10.24,
        labelled_batch=24,
        unlabelled_batch=24,
        targets_per_problem=3,
        always_bottom_right=True,
        optimizer="adamw",
        learning_rate=2e-3,
        learning_rate_schedule="cosine",
    )


def smoke() -> RaiseConfig:
    """Tiny: for tests of everything around it."""
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
        executor_channels=5,
        labelled_batch=4,
        unlabelled_batch=4,
    )
