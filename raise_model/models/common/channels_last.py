"""Convolutional layers over images stored as (batch, height, width, channels).

Kept in this order from end to end, a convolution whose windows do not overlap is one matrix
product over patches, one that sees the whole map is a linear layer, and BatchNorm runs over a
flat (pixels, channels) view: on a CPU that is several times faster than the same layers in
the (batch, channels, height, width) order.  Where no windows overlap in a whole stack,
:class:`NestedPatches` saves even the copies from map to patches.  Parameters have the shapes
and initial distribution of ``torch.nn.Conv2d``, ``ConvTranspose2d`` and ``BatchNorm1d``.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class Convolution(nn.Module):
    """2-d convolution; output side (size + 2 padding - kernel) / stride + 1."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__()
        self.layer = nn.Conv2d(inputs, outputs, kernel, stride, padding)
        self.patches = kernel == stride and padding == 0
        self.kernel = kernel

    def forward(
        self, images: Float[Tensor, "batch height width inputs"]
    ) -> Float[Tensor, "batch out_height out_width outputs"]:
        k = self.kernel
        batch, height, width, inputs = images.shape
        whole = height == width == k and self.layer.padding == (0, 0)
        if not (whole or self.patches):
            moved = self.layer(images.permute(0, 3, 1, 2))
            return moved.permute(0, 2, 3, 1)
        rows, columns = (1, 1) if whole else (height // k, width // k)
        patches = images.reshape(batch, rows, k, columns, k, inputs).transpose(2, 3)
        flat = patches.reshape(batch * rows * columns, k * k * inputs)
        return self.of_patches(flat).view(batch, rows, columns, -1)

    def of_patches(
        self, patches: Float[Tensor, "patches window"]
    ) -> Float[Tensor, "patches outputs"]:
        """Outputs of windows that are flat already: row by row, channels innermost."""
        weight = self.layer.weight
        return F.linear(
            patches, weight.permute(0, 2, 3, 1).reshape(len(weight), -1), self.layer.bias
        )


class TransposedConvolution(nn.Module):
    """2-d transposed convolution; output side (size - 1) * stride - 2 padding + kernel."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__()
        self.layer = nn.ConvTranspose2d(inputs, outputs, kernel, stride, padding)
        self.patches = kernel == stride and padding == 0
        self.kernel = kernel

    def forward(
        self, images: Float[Tensor, "batch height width inputs"]
    ) -> Float[Tensor, "batch out_height out_width outputs"]:
        k = self.kernel
        batch, height, width, inputs = images.shape
        point = height == width == 1 and self.layer.padding == (0, 0)
        if not (point or self.patches):
            moved = self.layer(images.permute(0, 3, 1, 2))
            return moved.permute(0, 2, 3, 1)
        flat = self.to_patches(images.reshape(-1, inputs))
        patches = flat.view(batch, height, width, k, k, -1).transpose(2, 3)
        return patches.reshape(batch, height * k, width * k, -1)

    def to_patches(self, pixels: Float[Tensor, "pixels inputs"]) -> Float[Tensor, "pixels window"]:
        """The window that each pixel becomes, flat: row by row, channels innermost."""
        weight, bias = self.layer.weight, self.layer.bias
        assert bias is not None
        matrix = weight.permute(0, 2, 3, 1).reshape(len(weight), -1)
        return torch.addmm(bias.repeat(self.kernel**2), pixels, matrix)


class Normalization(nn.Module):
    """BatchNorm over all but the last axis."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layer = nn.BatchNorm1d(channels)

    def forward(self, values: Float[Tensor, "*axes channels"]) -> Float[Tensor, "*axes channels"]:
        normalized = self.layer(values.reshape(-1, values.shape[-1]))
        # Autograd copies a view as a whole where an activation changes it in place.
        return normalized if values.ndim == 2 else normalized.view(values.shape)


class NestedPatches:
    """Pixels in the order in which convolutions without overlap see them.

    Windows of windows are contiguous: of panels of ``side`` maps, first the map's cells, then
    in each the pixels of the last convolution's window, and so on down to the first one's.
    Every layer's windows are then a view of the layer before.

    :param kernels: of the convolutions, first to last, each with a stride of its own size.
    :param side: of the map that is left.
    """

    def __init__(self, kernels: Sequence[int], side: int) -> None:
        self._sizes = (side, *reversed(kernels))

    def of_panels(self, panels: Float[Tensor, "n 1 size size"]) -> Float[Tensor, "pixels 1"]:
        levels = len(self._sizes)
        axes = [axis for level in range(1, levels + 1) for axis in (level, level + levels)]
        split = panels.reshape(len(panels), *self._sizes, *self._sizes)
        return split.permute(0, *axes).reshape(-1, 1)

    def to_panels(self, pixels: Float[Tensor, "pixels 1"]) -> Float[Tensor, "n 1 size size"]:
        levels, size = len(self._sizes), math.prod(self._sizes)
        pairs = [length for length in self._sizes for _ in range(2)]
        axes = range(1, 2 * levels + 1)
        nested = pixels.view(-1, *pairs).permute(0, *axes[::2], *axes[1::2])
        return nested.reshape(-1, 1, size, size)
