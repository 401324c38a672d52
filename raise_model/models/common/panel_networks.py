"""Convolutional encoder and decoder of single panels, in the widths that a model's Config names.

A panel goes through strided convolutions (BatchNorm and ReLU after each), one convolution over
the whole remaining map, and a linear layer; the decoder is built as the mirror.  RAISE's
encoder and decoder (paper, appendix C.1) have this form, and so do those of the compared
solvers that have any.
"""

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from raise_model.errors import UserError
from raise_model.models.common.channels_last import (
    Convolution,
    NestedPatches,
    Normalization,
    TransposedConvolution,
)


@dataclass(frozen=True, kw_only=True)
class Convolutions:
    """Shapes of the strided convolutions, first to last."""

    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    paddings: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.kernels) == len(self.strides) == len(self.paddings):
            raise UserError("kernels, strides and paddings must have the same number of entries")
        for kernel, stride, padding in zip(self.kernels, self.strides, self.paddings, strict=True):
            if kernel - stride != 2 * padding:
                raise UserError(
                    f"an encoder kernel of {kernel} with stride {stride} needs padding "
                    f"{(kernel - stride) / 2:g}, not {padding}"
                )

    def nested(self, image_size: int) -> NestedPatches | None:
        """The order of pixels in which every window is a view; None where windows overlap."""
        if self.kernels != self.strides:
            return None
        return NestedPatches(self.kernels, self.map_size(image_size))

    def check(self, channels: tuple[int, ...]) -> None:
        """:raises UserError: unless there is one number for each convolution."""
        if len(channels) != len(self.kernels):
            raise UserError(
                f"{len(self.kernels)} convolutions need {len(self.kernels)} numbers of channels, "
                f"not {len(channels)}"
            )

    def map_size(self, image_size: int) -> int:
        """Side of the map that is left of a panel.

        :raises UserError: if the panel does not divide into the strides.
        """
        if image_size % math.prod(self.strides):
            raise UserError(
                f"image size {image_size} is no multiple of the encoder's strides "
                f"{self.strides}; choose another image size"
            )
        return image_size // math.prod(self.strides)


class PanelFeatures(nn.Module):
    """Non-negative features of single panels: everything of the encoder but its linear layer.

    :param channels: outputs of each strided convolution.
    :param features: outputs of the convolution over the whole remaining map.
    """

    def __init__(
        self,
        convolutions: Convolutions,
        channels: tuple[int, ...],
        features: int,
        image_size: int,
    ) -> None:
        super().__init__()
        convolutions.check(channels)
        self._nested = convolutions.nested(image_size)
        # Maps that are views of others are not to be changed in place.
        in_place = self._nested is not None
        layers: list[nn.Module] = []
        inputs = 1
        for outputs, kernel, stride, padding in zip(
            channels,
            convolutions.kernels,
            convolutions.strides,
            convolutions.paddings,
            strict=True,
        ):
            layers += [
                Convolution(inputs, outputs, kernel, stride, padding),
                Normalization(outputs),
                nn.ReLU(inplace=in_place),
            ]
            inputs = outputs
        layers += [
            Convolution(inputs, features, convolutions.map_size(image_size)),
            Normalization(features),
            nn.ReLU(inplace=in_place),
        ]
        self.layers = nn.Sequential(*layers)

    def forward(self, panels: Float[Tensor, "n 1 size size"]) -> Float[Tensor, "n features"]:
        if self._nested is None:
            return self.layers(panels.permute(0, 2, 3, 1)).flatten(1)
        flat = self._nested.of_panels(panels)
        for layer in self.layers:
            if isinstance(layer, Convolution):
                flat = layer.of_patches(flat.view(-1, layer.kernel**2 * flat.shape[1]))
            else:
                flat = layer(flat)
        return flat


class PanelEncoder(PanelFeatures):
    """Codes of single panels: a linear layer on :class:`PanelFeatures`."""

    def __init__(
        self,
        convolutions: Convolutions,
        channels: tuple[int, ...],
        features: int,
        codes: int,
        image_size: int,
    ) -> None:
        super().__init__(convolutions, channels, features, image_size)
        self.codes = nn.Linear(features, codes)

    def forward(self, panels: Float[Tensor, "n 1 size size"]) -> Float[Tensor, "n codes"]:
        return self.codes(super().forward(panels))


class PanelDecoder(nn.Module):
    """Logits of the means of a panel's pixels, from one code.

    The sigmoid is left to the caller, who takes it in full precision: white, most of a panel,
    is where bf16 would round it worst.

    :param convolutions: those of the encoder; their transposes run in reverse order.
    :param features: outputs of the first layer.
    :param channels: inputs of each strided transposed convolution, first to last.
    :param leaky_slope: of the LeakyReLU after every layer but the last; 0 = ReLU.
    """

    def __init__(
        self,
        convolutions: Convolutions,
        codes: int,
        features: int,
        channels: tuple[int, ...],
        leaky_slope: float,
        image_size: int,
    ) -> None:
        super().__init__()
        convolutions.check(channels)
        self._nested = convolutions.nested(image_size)
        # Maps that are views of others are not to be changed in place.
        in_place = self._nested is not None
        layers: list[nn.Module] = [
            TransposedConvolution(codes, features, 1),
            Normalization(features),
            nn.LeakyReLU(leaky_slope, inplace=in_place),
            TransposedConvolution(features, channels[0], convolutions.map_size(image_size)),
        ]
        mirrored = zip(
            channels,
            (*channels[1:], 1),
            reversed(convolutions.kernels),
            reversed(convolutions.strides),
            reversed(convolutions.paddings),
            strict=True,
        )
        for inputs, outputs, kernel, stride, padding in mirrored:
            layers += [
                Normalization(inputs),
                nn.LeakyReLU(leaky_slope, inplace=in_place),
                TransposedConvolution(inputs, outputs, kernel, stride, padding),
            ]
        self.layers = nn.Sequential(*layers)

    def forward(self, codes: Float[Tensor, "n codes"]) -> Float[Tensor, "n 1 size size"]:
        if self._nested is None:
            return self.layers(codes[:, None, None, :]).permute(0, 3, 1, 2)
        flat = codes
        for layer in self.layers:
            if isinstance(layer, TransposedConvolution):
                windows = layer.to_patches(flat)
                flat = windows.view(-1, windows.shape[1] // layer.kernel**2)
            else:
                flat = layer(flat)
        return self._nested.to_panels(flat)
