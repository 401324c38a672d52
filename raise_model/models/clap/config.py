"""Settings of CLAP: every choice that changes its numbers, and the named settings."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from raise_model.errors import UserError
from raise_model.models.lite_panels import compared_image_size, compared_patch, pixel_weight
from raise_model.problem import NUM_PANELS


@dataclass(frozen=True, kw_only=True)
class ClapConfig:
    """Every field is part of a trial's identity."""

    num_concepts: int
    """Latent concepts of a panel."""
    concept_size: int
    """Size of one concept."""
    encoder_channels: tuple[int, ...]
    """Outputs of each convolution of the encoder."""
    encoder_kernels: tuple[int, ...]
    """Kernel of each convolution; reversed, the decoder's."""
    encoder_strides: tuple[int, ...]
    """Stride of each convolution."""
    encoder_paddings: tuple[int, ...]
    """Padding of each convolution."""
    encoder_hidden: int
    """Outputs of the layer over the whole remaining map."""
    encoder_linear: int
    """Outputs of the linear layer between that layer and the codes."""
    decoder_hidden: int
    """Outputs of the decoder's first layer."""
    decoder_channels: tuple[int, ...]
    """Inputs of each transposed convolution."""
    embedding_hidden: int
    """Width of the embeddings of a concept's value and of a cell's coordinates."""
    embedding_size: int
    """Size of either embedding."""
    point_hidden: tuple[int, ...]
    """Widths of the networks that join value and place."""
    point_features: int
    """Features of a cell, averaged over cells."""
    function_hidden: tuple[int, ...]
    """Widths of the networks from the average to a concept's function."""
    function_size: int
    """Size of the latent that stands for a concept's function."""
    target_hidden: tuple[int, ...]
    """Widths of the networks from function and place to the concept there."""
    sigma_x: float
    """Standard deviation of a pixel."""
    sigma_z: float
    """Standard deviation of an entry of a concept."""
    reconstruction_weight: float
    """Factor on the reconstruction; (64 / image size) squared keeps its balance."""
    beta_target: float
    """beta_t, weight of the divergence of target concepts from their prediction."""
    beta_function: float
    """beta_f, weight of the divergence of functions: all panels known from some known."""
    beta_total_correlation: float
    """beta_TC, weight of the concepts' total correlation."""
    correlation_samples: int
    """Codes at which the total correlation is measured; never more than problems in a step."""
    masks_per_problem: int
    """Masks predicted from one encoding of the nine panels, 1 (authors' code) to 9."""
    max_missing: int
    """A mask hides 1 to so many panels."""
    functions_from: Literal["all", "known"]
    """Cells whose functions predict in training: all nine (authors' code), pulled together with
    those of the known cells by their divergence; or the known ones, as when answering."""
    decoded_panels: Literal["targets", "all"]
    """Panels reconstructed in a step: each mask's (authors' code), or all nine in their place."""
    batch_size: int
    """Problems in a step."""
    learning_rate: float
    """Highest rate of Adam."""
    learning_rate_warmup: float
    """Share of the run over which the rate rises linearly."""
    learning_rate_end: float
    """Rate at the end of its cosine fall as a share of the highest; 1 = constant."""

    def __post_init__(self) -> None:
        if not 1 <= self.masks_per_problem <= NUM_PANELS:
            raise UserError(f"masks_per_problem must lie in 1 to 9, not {self.masks_per_problem}")
        if not 1 <= self.max_missing < NUM_PANELS:
            raise UserError(f"max_missing must lie in 1 to 8, not {self.max_missing}")


@dataclass(frozen=True, kw_only=True)
class _Row:
    """What the paper's table gives for one configuration."""

    num_concepts: int
    beta_target: float
    beta_function: float
    beta_total_correlation: float
    sigma_z: float


def _row(concepts: int, betas: tuple[float, float, float], sigma_z: float) -> _Row:
    target, function, correlation = betas
    return _Row(
        num_concepts=concepts,
        beta_target=target,
        beta_function=function,
        beta_total_correlation=correlation,
        sigma_z=sigma_z,
    )


_HALVES = _row(10, (50.0, 50.0, 50.0), 0.1)
_OUT_IN_GRID = _row(8, (30.0, 30.0, 30.0), 0.1)
_GRID_2X2 = _row(8, (30.0, 30.0, 30.0), 0.3)
_GRID_3X3 = _row(10, (80.0, 80.0, 80.0), 0.3)

_TABLE: Mapping[str, _Row] = {
    "center": _row(5, (100.0, 100.0, 100.0), 0.1),
    "left_right": _HALVES,
    "up_down": _HALVES,
    "out_in_center": _row(6, (30.0, 60.0, 50.0), 0.4),
    "out_in_grid": _OUT_IN_GRID,
    "grid_2x2": _GRID_2X2,
    "grid_3x3": _GRID_3X3,
    # Not in the table: as the same layout with noise.
    "out_in_grid_uni": _OUT_IN_GRID,
    "grid_2x2_uni": _GRID_2X2,
    "grid_3x3_uni": _GRID_3X3,
}
"""Hyperparameters of CLAP by configuration (RAISE's appendix D.3)."""


def paper(configuration: str) -> ClapConfig:
    """Hyperparameters of RAISE's appendix D.3, everything else as in CLAP's code."""
    row = _TABLE[configuration]
    return ClapConfig(
        num_concepts=row.num_concepts,
        concept_size=8,
        encoder_channels=(32, 32, 64, 128),
        encoder_kernels=(4, 4, 4, 4),
        encoder_strides=(2, 2, 2, 2),
        encoder_paddings=(1, 1, 1, 1),
        encoder_hidden=256,
        encoder_linear=512,
        decoder_hidden=128,
        decoder_channels=(64, 32, 32, 32),
        embedding_hidden=32,
        embedding_size=16,
        point_hidden=(256, 256),
        point_features=128,
        function_hidden=(128,),
        function_size=64,
        target_hidden=(128, 128),
        sigma_x=0.1,
        sigma_z=row.sigma_z,
        reconstruction_weight=1.0,
        beta_target=row.beta_target,
        beta_function=row.beta_function,
        beta_total_correlation=row.beta_total_correlation,
        correlation_samples=2048,
        masks_per_problem=1,
        max_missing=2,
        functions_from="all",
        decoded_panels="targets",
        batch_size=256,
        learning_rate=5e-4,
        learning_rate_warmup=0.0,
        learning_rate_end=1.0,
    )


def lite(configuration: str) -> ClapConfig:
    """Concepts of one number, small networks, nine masks a step: ten to fifteen minutes of one
    CPU thread.

    A concept is one number, as in the authors' setting for matrices, and there are two more than
    in the table: of eight numbers each, all concepts hold a little of every attribute, and no
    process can tell what follows.  Functions come from the known cells, and the divergence of
    targets weighs a fiftieth of the table's.
    """
    row = _TABLE[configuration]
    patch = compared_patch(configuration)
    return replace(
        paper(configuration),
        num_concepts=row.num_concepts + 2,
        concept_size=1,
        encoder_channels=(32, 64),
        encoder_kernels=(patch, 2),
        encoder_strides=(patch, 2),
        encoder_paddings=(0, 0),
        encoder_hidden=128,
        encoder_linear=128,
        decoder_hidden=128,
        decoder_channels=(64, 32),
        point_hidden=(128, 128),
        function_hidden=(128,),
        reconstruction_weight=pixel_weight(compared_image_size(configuration)),
        beta_target=row.beta_target / 50,
        masks_per_problem=9,
        functions_from="known",
        decoded_panels="all",
        batch_size=32,
        learning_rate=3e-3,
        learning_rate_warmup=0.02,
        learning_rate_end=0.05,
    )


def demo(configuration: str) -> ClapConfig:
    """20x20 panels: minutes of one CPU thread."""
    return replace(
        lite(configuration),
        encoder_kernels=(5, 2),
        encoder_strides=(5, 2),
        reconstruction_weight=pixel_weight(20),
    )


def smoke(configuration: str) -> ClapConfig:
    """Tiny: for tests of everything around it; it learns nothing."""
    return replace(
        demo(configuration),
        num_concepts=4,
        concept_size=3,
        encoder_channels=(4,),
        encoder_kernels=(10,),
        encoder_strides=(10,),
        encoder_paddings=(0,),
        encoder_hidden=16,
        encoder_linear=14,
        decoder_hidden=16,
        decoder_channels=(4,),
        embedding_hidden=9,
        embedding_size=5,
        point_hidden=(8,),
        point_features=7,
        function_hidden=(11,),
        function_size=6,
        target_hidden=(10,),
        masks_per_problem=2,
        batch_size=4,
    )
