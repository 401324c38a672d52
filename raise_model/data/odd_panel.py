"""Odd versions of problems: one panel of the nine breaks one rule (paper, section 4.3).

The scene of one panel is changed in exactly one ruled attribute of one component, so that the
matrix no longer obeys that rule, and drawn anew by the renderer that drew the others: of each
of the nine panels with equal probability (``any``), or of the last one (``bottom_right``).  The
paper's own version (``candidate``) puts a wrong candidate of the problem at the bottom right, any
of them with equal probability; in I-RAVEN it may break several rules.

A ruled attribute is one with a label under the merged label map: Number/Position where there
are several slots, Type, Size, and Color where it has more than one level.  One that is constant
by rule but noise in fact cannot break its rule, and is left as it is.  Another number or other
slots also change which levels stand where; that is one change, though the rule checker may name
constant attributes of the same component as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int, UInt8

from raise_model.data import schema
from raise_model.data.grammar import configuration
from raise_model.data.loader import resize_panels
from raise_model.data.render import render_panels
from raise_model.data.rule_checker import violations
from raise_model.data.schema import SCHEMA, Manifest, Problem
from raise_model.matrix import BOTTOM_RIGHT, NUM_PANELS
from raise_model.specs import Resize
from raise_model.store import Store

Odd = Literal["any", "bottom_right", "candidate"]
Place = tuple[int, str]
"""Component and ruled attribute, as the merged label map names them."""
Entities = Sequence[Mapping[str, int]]
"""Of one panel, components ascending."""

_LAYOUT = "number_position"
_LAYOUT_RULES = ("number", "position", _LAYOUT)
_TRIES = 20
"""How often unequal levels are drawn: all fail where they are noise, hardly any elsewhere."""


@dataclass(frozen=True, kw_only=True)
class OddPanel:
    """What was changed in one problem."""

    position: int
    """The odd panel, 0 to 8, row by row."""
    places: tuple[Place, ...]
    """Whose rules are broken: one, or by a candidate one or more."""
    changed: str
    """``number``, ``position``, ``type``, ``size`` or ``color``; or ``candidate``."""
    entities: Entities
    """Of the odd panel, after the change."""
    picture: UInt8[np.ndarray, "160 160"] = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class OddPanels:
    """The odd panels of a split, in the order of its rows."""

    places: Sequence[Place]
    """Every ruled attribute of the configuration."""
    position: Int[np.ndarray, " problems"]
    broken: Bool[np.ndarray, "problems places"]
    """Which of ``places`` have their rules broken."""
    suspects: Int[np.ndarray, " problems"]
    """How many panels could each be the odd one; see :func:`count_suspects`."""
    panels: UInt8[np.ndarray, "problems size size"]


def make_odd(problem: Problem, name: str, *, odd: Odd, seed: int) -> OddPanel:
    """The odd version of a problem, a function of ``seed`` and the problem's index.

    The position is drawn first, then the attribute among those that can be broken there, then
    the new value among those that break it.

    :param name: the problem's configuration.
    :raises ValueError: if no change of that panel breaks a rule.
    """
    generator = np.random.default_rng(np.random.SeedSequence([seed, problem.index]))
    if odd == "candidate":
        return _candidate(problem, name, generator)
    position = int(generator.integers(NUM_PANELS)) if odd == "any" else BOTTOM_RIGHT
    places = configuration(name).merged_labels
    for number in generator.permutation(len(places)):
        place = places[number]
        for changed, entities in _changes(problem, name, position, place, generator):
            if _breaks_only(problem, name, position, entities, place):
                (picture,) = render_panels(configuration(name), [entities])
                # Squares of two sizes look the same in the smallest slots.
                if np.array_equal(picture, problem.panels[_row(problem, position)]):
                    continue
                return OddPanel(
                    position=position, places=(place,), changed=changed, entities=entities,
                    picture=picture,
                )  # fmt: skip
    raise ValueError(f"problem {problem.index}: no change of panel {position} breaks a rule")


def _candidate(problem: Problem, name: str, generator: np.random.Generator) -> OddPanel:
    """A wrong candidate at the bottom right; one that looks right or breaks nothing is none."""
    first = _row(problem, BOTTOM_RIGHT) - problem.target
    right = problem.panels[first + problem.target]
    for row in (first + generator.permutation(len(problem.entities) - first)).tolist():
        entities, picture = problem.entities[row], problem.panels[row]
        broken = broken_places(with_panel(problem, BOTTOM_RIGHT, entities), name)
        places = tuple(place for place in configuration(name).merged_labels if place in broken)
        if places and not np.array_equal(picture, right):
            return OddPanel(
                position=BOTTOM_RIGHT, places=places, changed="candidate", entities=entities,
                picture=picture,
            )  # fmt: skip
    raise ValueError(f"problem {problem.index}: no candidate breaks a rule")


def with_panel(problem: Problem, position: int, entities: Entities) -> Problem:
    """The problem with another scene in one of the nine cells; its pictures stay."""
    scenes = list(problem.entities)
    scenes[_row(problem, position)] = entities
    return replace(problem, entities=scenes)


def odd_panels(
    store: Store,
    manifest: Manifest,
    *,
    image_size: int,
    resize: Resize,
    odd: Odd,
    seed: int,
    limit: int | None = None,
) -> OddPanels:
    """Odd panels of the first ``limit`` problems of a split, as small as the solver's panels.

    :raises UserError: if the split cannot be read, or the size is not possible.
    """
    name = manifest.configuration
    places = configuration(name).merged_labels
    positions: list[int] = []
    broken: list[list[bool]] = []
    suspects: list[int] = []
    panels: list[np.ndarray] = []
    for problems in read_problems(store, manifest, limit):
        found = [make_odd(problem, name, odd=odd, seed=seed) for problem in problems]
        positions += [one.position for one in found]
        broken += [[place in one.places for place in places] for one in found]
        suspects += [
            count_suspects(problem, name, one) for problem, one in zip(problems, found, strict=True)
        ]
        drawn = np.stack([one.picture for one in found])
        panels.append(resize_panels(drawn, image_size, resize))
    return OddPanels(
        places=places,
        position=np.array(positions),
        broken=np.array(broken),
        suspects=np.array(suspects),
        panels=np.concatenate(panels),
    )


def read_problems(
    store: Store, manifest: Manifest, limit: int | None
) -> Iterator[Sequence[Problem]]:
    """The first ``limit`` problems of a split, some at a time.

    :raises UserError: if the split cannot be read.
    """
    left = manifest.problems if limit is None else min(limit, manifest.problems)
    for chunk in schema.read_chunks(store, manifest, SCHEMA.names):
        if left <= 0:
            return
        yield schema.problems_of(chunk.slice(0, left))
        left -= len(chunk)


def broken_places(problem: Problem, name: str) -> set[Place]:
    """Ruled attributes (of any level count) whose rule the nine panels do not obey."""
    found = set()
    for text in violations(problem, name, problem.target):
        component, attribute = text.split(", ")[:2]
        group = _LAYOUT if attribute in _LAYOUT_RULES else attribute
        found.add((int(component.removeprefix("component ")), group))
    return found


def _breaks_only(
    problem: Problem, name: str, position: int, entities: Entities, place: Place
) -> bool:
    """Whether the change breaks the rule of ``place``, and of levels no other."""
    broken = broken_places(with_panel(problem, position, entities), name)
    return place in broken and (place[1] == _LAYOUT or len(broken) == 1)


def count_suspects(problem: Problem, name: str, odd: OddPanel) -> int:
    """Panels of the odd version whose change in the broken attributes alone would mend it, 1 to 3.

    Under arithmetic any panel of the row may do, if levels allow; under the other rules only
    the odd one itself does, since the other rows say what step or values there are.
    """
    spoiled = with_panel(problem, odd.position, odd.entities)
    first = odd.position - odd.position % 3
    others = [position for position in range(first, first + 3) if position != odd.position]
    return 1 + sum(
        all(_can_mend(problem, spoiled, name, position, place) for place in odd.places)
        for position in others
    )


def _can_mend(problem: Problem, spoiled: Problem, name: str, position: int, place: Place) -> bool:
    """Whether another panel's change in an attribute makes the row obey its rule again."""
    rule = _rule(problem, place)
    return rule["rule"] == "arithmetic" and any(
        place not in broken_places(with_panel(spoiled, position, scene), name)
        for scene in _mended(spoiled, name, position, place, rule["attribute"])
    )


def _mended(
    problem: Problem, name: str, position: int, place: Place, attribute: str
) -> Iterator[Entities]:
    """Scenes of a panel with an attribute changed; one obeys arithmetic if any change does."""
    component = configuration(name).components[place[0]]
    own = [e for e in scene_of(problem, position) if e["component"] == place[0]]
    if attribute == "number":
        for number in range(1, len(component.slots) + 1):
            yield _placed([own[0]] * number, range(number))
    elif attribute == "position":
        # The smallest sets that the two others of the row can make, and all that they leave.
        start, every = position - position % 3, set(range(len(component.slots)))
        one, two = (
            {e["slot"] for e in scene_of(problem, other) if e["component"] == place[0]}
            for other in range(start, start + 3)
            if other != position
        )
        for slots in (one | two, one - two, two - one, one, two, every - one, every - two):
            if slots:
                yield _placed([own[0]] * len(slots), sorted(slots))
    else:
        low, high = component.levels(attribute)
        for level in range(low, high + 1):
            yield [{**entity, attribute: level} for entity in own]


def _rule(problem: Problem, place: Place) -> Mapping[str, Any]:
    component, attribute = place
    names = _LAYOUT_RULES if attribute == _LAYOUT else (attribute,)
    return next(
        rule
        for rule in problem.rules
        if rule["component"] == component and rule["attribute"] in names
    )


def scene_of(problem: Problem, position: int) -> Entities:
    """Entities of one of the nine panels, the right answer being the ninth."""
    return problem.entities[_row(problem, position)]


def _row(problem: Problem, position: int) -> int:
    """Of one of the nine panels among the problem's sixteen."""
    return position + (problem.target if position == BOTTOM_RIGHT else 0)


def _changes(
    problem: Problem, name: str, position: int, place: Place, generator: np.random.Generator
) -> Iterator[tuple[str, Entities]]:
    """What is changed and the panel's scene after it, in random order."""
    component, attribute = place
    scene = scene_of(problem, position)
    own = [entity for entity in scene if entity["component"] == component]
    if attribute == _LAYOUT:
        rule = _rule(problem, place)["attribute"]
        slots = len(configuration(name).components[component].slots)
        changes = _layouts(own, slots, rule, generator)
    else:
        low, high = configuration(name).components[component].levels(attribute)
        changes = ((attribute, new) for new in _levels(own, attribute, low, high, generator))
    for changed, new in changes:
        rest = [entity for entity in scene if entity["component"] != component]
        yield changed, sorted([*rest, *new], key=lambda e: (e["component"], e["slot"]))


def _levels(
    own: Entities, attribute: str, low: int, high: int, generator: np.random.Generator
) -> Iterator[Entities]:
    """Equal entities stay equal; of others each gets another level of its own."""
    levels = [entity[attribute] for entity in own]
    if len(set(levels)) == 1:
        others = [level for level in range(low, high + 1) if level != levels[0]]
        for level in generator.permutation(others).tolist():
            yield [{**entity, attribute: level} for entity in own]
        return
    for _ in range(_TRIES):
        # A shift by less than the number of levels, around, never gives the same level again.
        shifts = generator.integers(1, high - low + 1, size=len(own)).tolist()
        new = [
            low + (level - low + shift) % (high - low + 1)
            for level, shift in zip(levels, shifts, strict=True)
        ]
        yield [{**entity, attribute: level} for entity, level in zip(own, new, strict=True)]


def _layouts(
    own: Entities, slots: int, rule: str, generator: np.random.Generator
) -> Iterator[tuple[str, Entities]]:
    """Another number of entities, or as many in other slots, as the rule's attribute has it.

    Where Number and Position are constant together it may be either; a position that cannot be
    another, since every slot is taken, is changed by another number.
    """
    occupied = tuple(entity["slot"] for entity in own)
    numbers = [number for number in range(1, slots + 1) if number != len(own)]
    same = [new for new in combinations(range(slots), len(own)) if set(new) != set(occupied)]
    kinds = {"number": ["number"], "position": ["position"]}.get(rule, ["number", "position"])
    for kind in generator.permutation(kinds).tolist():
        if kind == "position" and same:
            for index in generator.permutation(len(same)):
                moved = generator.permutation(same[index]).tolist()
                yield "position", _placed(own, moved)
    for number in generator.permutation(numbers).tolist():
        kept = generator.permutation(len(own))[:number].tolist()
        again = generator.integers(len(own), size=max(number - len(own), 0)).tolist()
        new_slots = generator.permutation(slots)[:number].tolist()
        yield "number", _placed([own[i] for i in [*kept, *again]], new_slots)


def _placed(entities: Entities, slots: Sequence[int]) -> Entities:
    return [{**entity, "slot": slot} for entity, slot in zip(entities, slots, strict=True)]
