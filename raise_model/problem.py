"""The problem as every part of the package sees it, and the axis legend.

A Raven's Progressive Matrix is a 3x3 matrix of grey panels.  Panels are numbered
0..8 row by row; panel 8 (bottom right) is the answer that the published files ask for.

Axis legend, used in every shape annotation of the package:

=============  ==============================================================
axis           meaning
=============  ==============================================================
``batch``      problems
``panels``     the nine cells of the matrix, row-major
``targets``    the missing cells of a problem, in ascending order
``candidates`` the offered answers
``attributes`` ruled attributes of a configuration under a label map
``concepts``   latent concepts of a solver (C in the paper)
``dims``       size of one concept (d_z in the paper)
``rules``      atomic rules (K in the paper)
``size``       height and width of a square panel in pixels
=============  ==============================================================
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from raise_model.matrix import BOTTOM_RIGHT, NUM_CANDIDATES, NUM_PANELS, RULES, UNLABELLED

__all__ = [
    "BOTTOM_RIGHT",
    "NUM_CANDIDATES",
    "NUM_PANELS",
    "RULES",
    "UNLABELLED",
    "Batch",
    "concatenate",
]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some problems of one split, on one device."""

    index: Int[Tensor, " batch"]
    """Row of each problem in its split."""
    panels: Float[Tensor, "batch 9 1 size size"]
    """Grey values in [0, 1], white = 1; panel 8 is the right answer."""
    rule_labels: Int[Tensor, "batch attributes"]
    """Rule ids, -1 where a problem (or attribute) is not labelled."""
    candidates: Float[Tensor, "batch 8 1 size size"] | None = None
    """The eight offered answers; None where they were not asked for."""
    answer: Int[Tensor, " batch"] | None = None
    """Index of the right candidate; None where candidates were not asked for."""

    def __len__(self) -> int:
        return len(self.index)


def concatenate(first: Batch, second: Batch) -> Batch:
    """Join two batches without candidates, ``first`` before ``second``."""
    return Batch(
        index=torch.cat([first.index, second.index]),
        panels=torch.cat([first.panels, second.panels]),
        rule_labels=torch.cat([first.rule_labels, second.rule_labels]),
    )
