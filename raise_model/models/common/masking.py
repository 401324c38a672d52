"""Which panels of a matrix training hides."""

import torch
from jaxtyping import Bool

from raise_model.problem import NUM_PANELS


def draw_masks(
    number: int, max_missing: int, generator: torch.Generator
) -> Bool[torch.Tensor, "masks 9"]:
    """Masks, True = missing, for all problems of a batch (CPU).

    Each hides 1 to ``max_missing`` panels, the number and the panels uniform; while ``number``
    is at most 9, no panel is the first of two masks.
    """
    device = generator.device
    firsts = torch.rand(NUM_PANELS, generator=generator, device=device).argsort()[:number]
    keys = torch.rand(number, NUM_PANELS, generator=generator, device=device)
    keys.scatter_(1, firsts[:, None], -1.0)
    missing = torch.randint(1, max_missing + 1, (number, 1), generator=generator, device=device)
    return (keys.argsort(1).argsort(1) < missing).cpu()
