"""The eight candidates: RAVEN's and I-RAVEN's, for components with one slot.

A candidate is a set of changes to the answer: (component, attribute) -> level.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

Place = tuple[int, str]
Change = Mapping[Place, int]


def raven(
    answer: Mapping[Place, int],
    levels: Mapping[Place, tuple[int, int]],
    generator: np.random.Generator,
) -> Sequence[Change]:
    """The answer and seven distractors, each with one attribute changed.

    A changed attribute takes a value that it has in no candidate so far; the closeness of the
    answer to all others is RAVEN's known shortcut.
    """
    unused = {
        place: [v for v in range(low, high + 1) if v != answer[place]]
        for place, (low, high) in levels.items()
        if high > low
    }
    candidates: list[Change] = [{}]
    while len(candidates) < 8:
        places = [place for place, values in unused.items() if values]
        place = places[generator.integers(len(places))]
        value = unused[place].pop(generator.integers(len(unused[place])))
        candidates.append({place: value})
    return candidates


def iraven(
    answer: Mapping[Place, int],
    levels: Mapping[Place, tuple[int, int]],
    generator: np.random.Generator,
) -> Sequence[Change]:
    """All combinations of one new value for each of three attributes.

    Every attribute value is held by half of the candidates, so that they do not betray the
    answer (attribute bisection tree).
    """
    places = [place for place, (low, high) in levels.items() if high > low]
    chosen = [places[i] for i in generator.permutation(len(places))[:3]]
    new = {}
    for place in chosen:
        low, high = levels[place]
        values = [v for v in range(low, high + 1) if v != answer[place]]
        new[place] = values[generator.integers(len(values))]
    return [
        {place: new[place] for place, changed in zip(chosen, mask, strict=True) if changed}
        for mask in product((False, True), repeat=3)
    ]
