"""Precision of what follows networks that run under the caller's autocast."""

import torch
from torch import Tensor


def full_precision(values: Tensor) -> Tensor:
    """At least fp32, whatever autocast computed in: for logits, divergences and losses."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
