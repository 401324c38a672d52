"""The encoder block of the Transformer (Vaswani et al., 2017), normalised before its parts.

Normalised after them, as in the first paper, it needs a lower learning rate to train at all.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class AttentionBlock(nn.Module):
    """Self-attention, then a feed-forward network; each reads its input normalised and adds to it.

    Dropout is on the output of both parts, as in the first paper's text, and drawn from the
    explicit generator; evaluation mode has none.  The output is not normalised.
    """

    def __init__(self, size: int, heads: int, feed_forward: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(size, heads, batch_first=True)
        self.feed_forward = nn.Sequential(
            nn.Linear(size, feed_forward), nn.ReLU(inplace=True), nn.Linear(feed_forward, size)
        )
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])
        self.dropout = dropout

    def forward(
        self, tokens: Float[Tensor, "n tokens size"], generator: torch.Generator
    ) -> Float[Tensor, "n tokens size"]:
        normalised = self.norms[0](tokens)
        attended, _ = self.attention(normalised, normalised, normalised, need_weights=False)
        tokens = tokens + self._drop(attended, generator)
        return tokens + self._drop(self.feed_forward(self.norms[1](tokens)), generator)

    def _drop(self, values: Tensor, generator: torch.Generator) -> Tensor:
        if not self.training or self.dropout == 0.0:
            return values
        kept = torch.empty(values.shape, device=values.device, dtype=values.dtype)
        kept.bernoulli_(1 - self.dropout, generator=generator)
        return values * kept / (1 - self.dropout)
