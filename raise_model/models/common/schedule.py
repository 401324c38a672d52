"""Learning-rate schedule of the compared solvers."""

import math


def warm_cosine(step: int, steps: int, *, warmup: float, end: float) -> float:
    """Share of the highest learning rate at a step (0-based) of a run.

    It rises linearly over the share ``warmup`` of the run while it falls along a half cosine
    to ``end`` at the run's last step; ``warmup=0, end=1`` is constant.
    """
    rising = min(1.0, (step + 1) / max(1.0, warmup * steps))
    return rising * (end + (1 - end) * (1 + math.cos(math.pi * step / steps)) / 2)
