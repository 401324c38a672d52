"""Settings of LGPP: every choice that changes its numbers, and the named settings."""

from dataclasses import dataclass, replace
from typing import Literal

from raise_model.errors import UserError
from raise_model.models.lite_panels import compared_image_size, compared_patch, pixel_weight
from raise_model.problem import NUM_PANELS


@dataclass(frozen=True, kw_only=True)
class LgppConfig:
    """Every field is part of a trial's identity."""

    num_concepts: int
    """Latent concepts of a panel, one number each."""
    encoder_channels: tuple[int, ...]
    """Outputs of each convolution of the panel encoder."""
    encoder_kernels: tuple[int, ...]
    """Kernel of each convolution, the same in the axis encoder and, reversed, the decoder."""
    encoder_strides: tuple[int, ...]
    """Stride of each convolution."""
    encoder_paddings: tuple[int, ...]
    """Padding of each convolution."""
    encoder_hidden: int
    """Outputs of the layer over the whole remaining map, before the codes."""
    axis_channels: tuple[int, ...]
    """Outputs of each convolution of the axis encoder."""
    axis_features: int
    """Features of a panel that the axes are inferred from."""
    axis_hidden: int
    """Width of the networks from all panels' features to row and column latents."""
    axis_latent_size: int
    """Size of the latent of one row or column of one concept."""
    axis_network_hidden: tuple[int, ...]
    """Widths of the networks from axis latents to axis representations."""
    axis_representation_size: int
    """Size of the representation of a row or column; a cell's coordinates are two of them."""
    kernel_network_hidden: tuple[int, ...]
    """Widths of the networks from a cell's coordinates to the kernel's inputs."""
    kernel_inputs: int
    """Inputs of the RBF kernel."""
    kernel_noise: float
    """The kernel's inputs are multiplied by 1 + noise, uniform in +- this, always."""
    jitter: float
    """Added to the diagonal of the known panels' kernel matrix."""
    decoder_hidden: int
    """Outputs of the decoder's first layer."""
    decoder_channels: tuple[int, ...]
    """Inputs of each transposed convolution."""
    sigma_x: float
    """Standard deviation of a pixel."""
    reconstruction_weight: float
    """Factor on the reconstruction; (64 / image size) squared keeps its balance."""
    beta: float
    """Weight of both divergences."""
    target_positions: Literal["random", "bottom_right"]
    """Panels that training hides: any, or always the last one (the authors' code)."""
    max_missing: int
    """Random positions: a step hides 1 to so many panels."""
    batch_size: int
    """Problems in a step."""
    learning_rate: float
    """Highest rate of Adam."""
    learning_rate_warmup: float
    """Share of the run over which the rate rises linearly."""
    learning_rate_end: float
    """Rate at the end of its cosine fall as a share of the highest; 1 = constant."""
    gradient_norm: float
    """Gradients are scaled down to this norm."""

    def __post_init__(self) -> None:
        if not 1 <= self.max_missing < NUM_PANELS:
            raise UserError(f"max_missing must lie in 1 to 8, not {self.max_missing}")
        if self.jitter <= 0.0:
            raise UserError(f"jitter must be above 0, not {self.jitter}")


def paper(configuration: str) -> LgppConfig:
    """Hyperparameters of RAISE's appendix D.3, everything else as in LGPP's code."""
    return LgppConfig(
        num_concepts=5 if configuration == "center" else 10,
        encoder_channels=(32, 32, 64, 128),
        encoder_kernels=(4, 4, 4, 4),
        encoder_strides=(2, 2, 2, 2),
        encoder_paddings=(1, 1, 1, 1),
        encoder_hidden=256,
        axis_channels=(32, 32, 32, 64),
        axis_features=64,
        axis_hidden=128,
        axis_latent_size=4,
        axis_network_hidden=(64, 64),
        axis_representation_size=4,
        kernel_network_hidden=(128, 128, 128, 128),
        kernel_inputs=8,
        kernel_noise=0.05,
        jitter=1e-4,
        decoder_hidden=256,
        decoder_channels=(64, 32, 32, 32),
        sigma_x=0.1353352832366127,  # exp(-2)
        reconstruction_weight=1.0,
        beta=10.0,
        target_positions="random",
        max_missing=2,
        batch_size=256,
        learning_rate=5e-4,
        learning_rate_warmup=0.0,
        learning_rate_end=1.0,
        gradient_norm=10.0,
    )


def lite(configuration: str) -> LgppConfig:
    """Patch convolutions, small networks: up to ten minutes of one CPU thread."""
    patch = compared_patch(configuration)
    return replace(
        paper(configuration),
        encoder_channels=(32, 128),
        encoder_kernels=(patch, 2),
        encoder_strides=(patch, 2),
        encoder_paddings=(0, 0),
        axis_channels=(32, 64),
        axis_features=32,
        axis_network_hidden=(32,),
        kernel_network_hidden=(32, 32),
        decoder_channels=(128, 32),
        reconstruction_weight=pixel_weight(compared_image_size(configuration)),
        batch_size=32,
        learning_rate=1e-3,
        learning_rate_warmup=0.02,
        learning_rate_end=0.05,
    )


def demo(configuration: str) -> LgppConfig:
    """20x20 panels: minutes of one CPU thread."""
    return replace(
        lite(configuration),
        encoder_kernels=(5, 2),
        encoder_strides=(5, 2),
        reconstruction_weight=pixel_weight(20),
    )


def smoke(configuration: str) -> LgppConfig:
    """Tiny: for tests of everything around it; it learns nothing."""
    return replace(
        demo(configuration),
        num_concepts=4,
        encoder_channels=(4,),
        encoder_kernels=(10,),
        encoder_strides=(10,),
        encoder_paddings=(0,),
        encoder_hidden=16,
        axis_channels=(3,),
        axis_features=7,
        axis_hidden=9,
        axis_latent_size=3,
        axis_network_hidden=(6,),
        axis_representation_size=2,
        kernel_network_hidden=(8,),
        kernel_inputs=5,
        decoder_hidden=16,
        decoder_channels=(4,),
        batch_size=4,
    )
