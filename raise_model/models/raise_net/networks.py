"""Encoder g_enc and decoder g_dec of RAISE (paper, appendix C.1).

A panel becomes the means of its C concepts, C * d_z numbers; the standard deviation is the
constant sigma_z.  The decoder gives the mean of a panel's pixels from one code.
"""

import math

from jaxtyping import Float
from torch import Tensor, nn

from raise_model.errors import UserError
from raise_model.models.common.channels_last import (
    Convolution,
    Normalization,
    TransposedConvolution,
)
from raise_model.models.raise_net.config import RaiseConfig


def map_size(config: RaiseConfig, image_size: int) -> int:
    """Side of the encoder's last feature map.

    :raises UserError: if the image does not divide into the encoder's strides, or a convolution
        does not divide its map by its stride.
    """
    shapes = zip(
        config.encoder_kernels, config.encoder_strides, config.encoder_paddings, strict=True
    )
    for kernel, stride, padding in shapes:
        if kernel - stride != 2 * padding:
            raise UserError(
                f"an encoder kernel of {kernel} with stride {stride} needs padding "
                f"{(kernel - stride) / 2:g}, not {padding}"
            )
    if image_size % math.prod(config.encoder_strides):
        raise UserError(
            f"image size {image_size} is no multiple of the encoder's strides "
            f"{config.encoder_strides}; choose another image size"
        )
    return image_size // math.prod(config.encoder_strides)


class Encoder(nn.Module):
    """Means of the latent concepts of single panels."""

    def __init__(self, config: RaiseConfig, image_size: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 1
        for outputs, kernel, stride, padding in zip(
            config.encoder_channels,
            config.encoder_kernels,
            config.encoder_strides,
            config.encoder_paddings,
            strict=True,
        ):
            layers += [
                Convolution(inputs, outputs, kernel, stride, padding),
                Normalization(outputs),
                nn.ReLU(inplace=True),
            ]
            inputs = outputs
        layers += [
            Convolution(inputs, config.encoder_hidden, map_size(config, image_size)),
            Normalization(config.encoder_hidden),
            nn.ReLU(inplace=True),
        ]
        self.layers = nn.Sequential(*layers)
        self.codes = nn.Linear(config.encoder_hidden, config.num_concepts * config.concept_size)

    def forward(self, panels: Float[Tensor, "n 1 size size"]) -> Float[Tensor, "n codes"]:
        return self.codes(self.layers(panels.permute(0, 2, 3, 1)).flatten(1))


class Decoder(nn.Module):
    """Logits of the means of a panel's pixels.

    The sigmoid is left to the caller, who takes it in full precision: white, most of a panel,
    is where bf16 would round it worst.
    """

    def __init__(self, config: RaiseConfig, image_size: int) -> None:
        super().__init__()
        codes = config.num_concepts * config.concept_size
        first = config.decoder_channels[0]
        layers: list[nn.Module] = [
            TransposedConvolution(codes, config.decoder_hidden, 1),
            Normalization(config.decoder_hidden),
            nn.LeakyReLU(config.leaky_slope, inplace=True),
            TransposedConvolution(config.decoder_hidden, first, map_size(config, image_size)),
        ]
        outputs = (*config.decoder_channels[1:], 1)
        mirrored = zip(
            config.decoder_channels,
            outputs,
            reversed(config.encoder_kernels),
            reversed(config.encoder_strides),
            reversed(config.encoder_paddings),
            strict=True,
        )
        for inputs, channels, kernel, stride, padding in mirrored:
            layers += [
                Normalization(inputs),
                nn.LeakyReLU(config.leaky_slope, inplace=True),
                TransposedConvolution(inputs, channels, kernel, stride, padding),
            ]
        self.layers = nn.Sequential(*layers)

    def forward(self, codes: Float[Tensor, "n codes"]) -> Float[Tensor, "n 1 size size"]:
        return self.layers(codes[:, None, None, :]).permute(0, 3, 1, 2)
