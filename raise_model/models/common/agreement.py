"""How well candidates agree with a prediction."""

from jaxtyping import Float
from torch import Tensor


def agreement(
    predicted: Float[Tensor, "batch targets *value"],
    offered: Float[Tensor, "batch candidates targets *value"],
) -> Float[Tensor, "batch candidates"]:
    """Negative squared distance, summed over the targets: of codes, or of pixels."""
    return -(offered - predicted[:, None]).square().flatten(2).sum(2)
