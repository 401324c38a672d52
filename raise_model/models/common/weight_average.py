"""Exponential moving average of a module's parameters and buffers."""

import copy

import torch
from torch import Tensor, nn


def _as_buffers(module: nn.Module) -> nn.Module:
    """Turn every parameter into a buffer: kept in the state, never optimised."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, parameter.detach())
    return module


class WeightAverage(nn.Module):
    """A copy of ``source`` whose tensors follow it; ``update`` after every optimiser step.

    The decay starts lower, (1 + n) / (10 + n) after n updates, so that the first weights are
    soon forgotten.  Integer buffers are copied.
    """

    updates: Tensor

    def __init__(self, source: nn.Module, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self.module = _as_buffers(copy.deepcopy(source))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def update(self, source: nn.Module) -> None:
        """Move every tensor towards that of ``source``."""
        self.updates += 1
        ramp = (1 + self.updates) / (10 + self.updates)
        weight = 1 - ramp.clamp_max(self.decay)
        current = source.state_dict()
        for name, tensor in self.module.state_dict().items():
            if tensor.is_floating_point():
                tensor.lerp_(current[name], weight.to(tensor.dtype))
            else:
                tensor.copy_(current[name])
