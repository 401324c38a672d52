"""Encoder and decoder of panels against torch's own layers in their own order."""

import math

import pytest
import torch
from torch import nn

from raise_model.models.common.channels_last import (
    Convolution,
    NestedPatches,
    Normalization,
    TransposedConvolution,
)
from raise_model.models.common.panel_networks import Convolutions, PanelDecoder, PanelEncoder

KERNELS = [
    {"kernels": (5, 2, 2), "strides": (5, 2, 2), "paddings": (0, 0, 0)},
    {"kernels": (3, 2), "strides": (3, 2), "paddings": (0, 0)},
    {"kernels": (4, 2), "strides": (2, 2), "paddings": (1, 0)},
]
SIDE = 2


def as_torch(layers):
    """The same layers, with the same parameters, on (batch, channels, height, width)."""
    literal = []
    for layer in layers:
        if isinstance(layer, Convolution | TransposedConvolution):
            literal.append(layer.layer)
        elif isinstance(layer, Normalization):
            norm = nn.BatchNorm2d(layer.layer.num_features, dtype=torch.float64)
            norm.load_state_dict(layer.layer.state_dict())
            literal.append(norm)
        else:
            slope = getattr(layer, "negative_slope", 0.0)
            literal.append(nn.LeakyReLU(slope))
    return nn.Sequential(*literal)


@pytest.mark.parametrize("shapes", KERNELS)
def test_encoder_and_its_gradient_are_those_of_torchs_layers(shapes):
    size = SIDE * math.prod(shapes["strides"])
    channels = (3, 4, 5)[: len(shapes["kernels"])]
    torch.manual_seed(0)
    encoder = PanelEncoder(Convolutions(**shapes), channels, 6, 7, size).double()
    literal = nn.Sequential(as_torch(encoder.layers), nn.Flatten(), encoder.codes)
    panels = torch.rand(8, 1, size, size, dtype=torch.float64)
    weights = torch.rand(8, 7, dtype=torch.float64)
    results = []
    for network in (literal, encoder):
        shown = panels.clone().requires_grad_()
        codes = network(shown)
        first = encoder.layers[0].layer.weight
        results.append((codes, *torch.autograd.grad((codes * weights).sum(), [shown, first])))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("shapes", KERNELS)
def test_decoder_and_its_gradient_are_those_of_torchs_layers(shapes):
    size = SIDE * math.prod(shapes["strides"])
    channels = (5, 4, 3)[: len(shapes["kernels"])]
    torch.manual_seed(0)
    decoder = PanelDecoder(Convolutions(**shapes), 7, 6, channels, 0.02, size).double()
    literal = nn.Sequential(nn.Unflatten(1, (7, 1, 1)), as_torch(decoder.layers))
    codes = torch.rand(8, 7, dtype=torch.float64)
    weights = torch.rand(8, 1, size, size, dtype=torch.float64)
    results = []
    for network in (literal, decoder):
        shown = codes.clone().requires_grad_()
        images = network(shown)
        last = decoder.layers[-1].layer.weight
        results.append((images, *torch.autograd.grad((images * weights).sum(), [shown, last])))
    torch.testing.assert_close(results[1], results[0])


def test_nested_patches_hold_windows_of_windows_side_by_side():
    """By hand: a 4x4 panel, windows of 2x2 pixels in a map of 2x2."""
    nested = NestedPatches([2], side=2)
    panels = torch.arange(16.0).view(1, 1, 4, 4)
    order = [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]
    assert nested.of_panels(panels).flatten().tolist() == order


def test_panels_come_back_from_nested_patches():
    nested = NestedPatches([5, 2, 3], side=2)
    panels = torch.rand(3, 1, 60, 60)
    assert torch.equal(nested.to_panels(nested.of_panels(panels)), panels)
