"""Convolutional layers over images stored as (batch, height, width, channels).

Kept in this order from end to end, a convolution whose windows do not overlap is one matrix
product over patches, one that sees the whole map is a linear layer, and BatchNorm runs over a
flat (pixels, channels) view: on a CPU that is several times faster than the same layers in
the (batch, channels, height, width) order.  Parameters have the shapes and initial
distribution of ``torch.nn.Conv2d``, ``ConvTranspose2d`` and ``BatchNorm1d``.
"""

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
        weight, bias, k = self.layer.weight, self.layer.bias, self.kernel
        batch, height, width, inputs = images.shape
        whole = height == width == k and self.layer.padding == (0, 0)
        if not (whole or self.patches):
            moved = self.layer(images.permute(0, 3, 1, 2))
            return moved.permute(0, 2, 3, 1)
        rows, columns = (1, 1) if whole else (height // k, width // k)
        patches = images.reshape(batch, rows, k, columns, k, inputs).transpose(2, 3)
        flat = patches.reshape(batch * rows * columns, k * k * inputs)
        matrix = weight.permute(0, 2, 3, 1).reshape(len(weight), -1)
        return F.linear(flat, matrix, bias).view(batch, rows, columns, -1)


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
        weight, bias, k = self.layer.weight, self.layer.bias, self.kernel
        batch, height, width, inputs = images.shape
        point = height == width == 1 and self.layer.padding == (0, 0)
        if not (point or self.patches):
            moved = self.layer(images.permute(0, 3, 1, 2))
            return moved.permute(0, 2, 3, 1)
        matrix = weight.permute(0, 2, 3, 1).reshape(inputs, -1)
        assert bias is not None
        flat = torch.addmm(bias.repeat(k * k), images.reshape(-1, inputs), matrix)
        patches = flat.view(batch, height, width, k, k, -1).transpose(2, 3)
        return patches.reshape(batch, height * k, width * k, -1)


class Normalization(nn.Module):
    """BatchNorm over all but the last axis."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layer = nn.BatchNorm1d(channels)

    def forward(self, values: Float[Tensor, "*axes channels"]) -> Float[Tensor, "*axes channels"]:
        return self.layer(values.reshape(-1, values.shape[-1])).view(values.shape)
