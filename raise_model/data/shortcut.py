"""The context-blind shortcut: answer with the candidate that is closest to the others.

RAVEN's distractors are made from the answer, each by one change, so that it needs no context to
be found; I-RAVEN's candidates are balanced, and the shortcut finds the answer by chance
(Hu et al., 2021).
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from jaxtyping import UInt8

from raise_model.matrix import NUM_CANDIDATES, NUM_PANELS

_Panel = Sequence[Mapping[str, int]]


def closest_by_pixels(panels: UInt8[np.ndarray, "16 160 160"]) -> int:
    """Candidate with the smallest squared distance to the other seven; the first of equals."""
    offered = panels[NUM_PANELS - 1 :].reshape(NUM_CANDIDATES, -1).astype(np.float32)
    products = offered @ offered.T
    squares = np.diag(products)
    return int((squares[:, None] + squares - 2 * products).sum(1).argmin())


def closest_by_attributes(entities: Sequence[_Panel]) -> int:
    """Candidate that shares the most attribute values with the others; the first of equals.

    Values of a component are the number and the slots of its entities, and the types, the
    sizes and the colors that they have.
    """
    looks = [_values(panel) for panel in entities[NUM_PANELS - 1 :]]
    votes = [Counter(values) for values in zip(*looks, strict=True)]
    scores = [sum(vote[value] for vote, value in zip(votes, look, strict=True)) for look in looks]
    return int(np.argmax(scores))


def _values(panel: _Panel) -> list[Hashable]:
    values: list[Hashable] = []
    for component in (0, 1):
        part = [entity for entity in panel if entity["component"] == component]
        values += [len(part), tuple(sorted(entity["slot"] for entity in part))]
        for attribute in ("type", "size", "color"):
            values.append(tuple(sorted(entity[attribute] for entity in part)))
    return values
