"""The eight candidates of a problem: RAVEN's and I-RAVEN's.

What may be changed in the answer: the number of entities where there are several slots; their
positions, unless the rule is on Number; Type, Size and Color unless they have one level only,
or are constant by rule but noise in fact.

RAVEN's distractors differ from the answer in one attribute each, so that the answer is the
candidate closest to the others: a known shortcut.  I-RAVEN's are all combinations of one
change each of three attributes, so that every value is held by half of the candidates.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from raise_model.data.grammar import UNIFORM_LEVEL
from raise_model.data.rules import ATTRIBUTES, Entity, Matrix, Slots, draw_slots

Place = tuple[int, str]
"""Component and attribute."""
Entities = Sequence[Entity]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One offered answer."""

    entities: Sequence[Entities]
    """By component."""
    modified: tuple[Place, ...] = ()
    """What differs from the answer."""


@dataclass(frozen=True, kw_only=True)
class _NewNumber:
    """Another number of entities, made of the old ones."""

    sources: tuple[int, ...]
    """For each new entity the old one that it repeats."""
    slots: Slots
    moved_slots: Slots
    """Slots where the positions are changed too."""


_Change = Sequence[int] | _NewNumber
"""New levels, or new slots, one an entity; or a new number."""


def modifiable(matrices: Sequence[Matrix]) -> list[Place]:
    """What a distractor may change."""
    places: list[Place] = []
    for matrix in matrices:
        slots, occupied = len(matrix.component.slots), len(matrix.panels[8])
        if slots > 1:
            places.append((matrix.number, "number"))
        if occupied < slots and matrix.rules["number_position"].attribute != "number":
            places.append((matrix.number, "position"))
        for attribute in ATTRIBUTES:
            low, high = matrix.component.levels(attribute)
            is_noise = matrix.is_noisy and matrix.rules[attribute].name == "constant"
            if high > low and not is_noise:
                places.append((matrix.number, attribute))
    return places


def _other_levels(matrix: Matrix, attribute: str, entity: Entity) -> list[int]:
    low, high = matrix.component.levels(attribute)
    return [level for level in range(low, high + 1) if level != entity[attribute]]


def _other_slots(matrix: Matrix) -> list[Slots]:
    """All other sets of as many slots as the answer occupies."""
    occupied = {entity["slot"] for entity in matrix.panels[8]}
    every = combinations(range(len(matrix.component.slots)), len(occupied))
    return [slots for slots in every if set(slots) != occupied]


def _look(entities: Iterable[Entity]) -> frozenset[tuple[int, ...]]:
    """What tells panels apart: all but the angle, which symmetric shapes do not show."""
    names = ("slot", *ATTRIBUTES)
    return frozenset(tuple(entity[name] for name in names) for entity in entities)


def raven(matrices: Sequence[Matrix], generator: np.random.Generator) -> Sequence[Candidate]:
    """The answer and seven distractors, each with one attribute changed.

    A changed level or position is one that no candidate had so far, for every entity by
    itself; a changed number brings entirely new entities.
    """
    answer = [matrix.panels[8] for matrix in matrices]
    candidates = [Candidate(entities=answer)]
    unused = {place: _unused(matrices[place[0]], place[1]) for place in modifiable(matrices)}
    while len(candidates) < 8:
        places = [place for place, values in unused.items() if values and values[0]]
        place = places[generator.integers(len(places))]
        number, attribute = place
        matrix = matrices[number]
        if attribute == "number":
            taken = {_look(candidate.entities[number]) for candidate in candidates}
            entities = _new_entities(matrix, generator)
            while _look(entities) in taken:
                entities = _new_entities(matrix, generator)
        elif attribute == "position":
            slots = unused[place].pop(generator.integers(len(unused[place])))
            moved = generator.permutation(slots).tolist()
            entities = _with(answer[number], "slot", moved)
        else:
            levels = [values.pop(generator.integers(len(values))) for values in unused[place]]
            if _only_swaps(answer[number], attribute, levels):
                continue
            entities = _with(answer[number], attribute, levels)
        changed = [*answer[:number], entities, *answer[number + 1 :]]
        candidates.append(Candidate(entities=changed, modified=(place,)))
    return candidates


def _unused(matrix: Matrix, attribute: str) -> list:
    """Values that no candidate has: sets of slots, or levels for each entity.

    Numbers are drawn without memory, so that their list is never used up.
    """
    if attribute == "number":
        return [True]
    if attribute == "position":
        return _other_slots(matrix)
    return [_other_levels(matrix, attribute, entity) for entity in matrix.panels[8]]


def _only_swaps(entities: Entities, attribute: str, levels: Sequence[int]) -> bool:
    """Whether new levels are the old ones on other entities.

    Such a panel could pass for an answer: nothing but the angles says which entity is which.
    """
    return sorted(levels) == sorted(entity[attribute] for entity in entities)


def _with(entities: Entities, name: str, values: Iterable[int]) -> Entities:
    return [{**entity, name: value} for entity, value in zip(entities, values, strict=True)]


def _new_entities(matrix: Matrix, generator: np.random.Generator) -> Entities:
    slots, occupied = len(matrix.component.slots), len(matrix.panels[8])
    others = [number for number in range(1, slots + 1) if number != occupied]
    number = others[generator.integers(len(others))]
    return matrix.draw_entities(draw_slots(slots, number, generator), {}, generator)


def iraven(matrices: Sequence[Matrix], generator: np.random.Generator) -> Sequence[Candidate]:
    """All combinations of one new value for each of three attributes (bisection tree).

    With two attributes one has one new value and the other three; with one it has seven.
    Number and Position alone are not combined: one has one new value, the other six.
    """
    places = modifiable(matrices)
    chosen = [places[i] for i in generator.permutation(len(places))[:3]]
    # Number comes last, so that it is the attribute with several values.
    chosen.sort(key=lambda place: place[1] == "number")
    is_pair = [attribute for _, attribute in chosen] == ["position", "number"]
    num_values = {1: (7,), 2: (1, 6) if is_pair else (1, 3), 3: (1, 1, 1)}[len(chosen)]
    options: list[list[_Change | None]] = []
    for (number, attribute), values in zip(chosen, num_values, strict=True):
        moves = (number, "position") in chosen and not is_pair
        changes = _changes(matrices[number], attribute, values, moves, generator)
        options.append([None, *changes])
    combined = [
        dict(zip(chosen, changes, strict=True))
        for changes in product(*options)
        if not (is_pair and None not in changes)
    ]
    return [_apply(matrices, changes) for changes in combined]


def _changes(
    matrix: Matrix, attribute: str, count: int, moves: bool, generator: np.random.Generator
) -> list[_Change]:
    """``count`` different changes of one attribute.

    :param moves: whether a change of number must be combined with one of positions.
    """
    if attribute == "number":
        return list(_new_numbers(matrix, count, moves, generator))
    if attribute == "position":
        others = _other_slots(matrix)
        return [
            generator.permutation(others[i]).tolist()
            for i in generator.permutation(len(others))[:count]
        ]
    answer = matrix.panels[8]
    differ = matrix.rules[attribute].name == "constant" and matrix.uniformity != UNIFORM_LEVEL
    while True:
        levels = []
        for entity in answer if differ else answer[:1]:
            others = _other_levels(matrix, attribute, entity)
            levels.append(others[generator.integers(len(others))])
        levels = levels if differ else levels * len(answer)
        if not _only_swaps(answer, attribute, levels):
            return [levels]


def _new_numbers(
    matrix: Matrix, count: int, moves: bool, generator: np.random.Generator
) -> list[_NewNumber]:
    answer, slots = matrix.panels[8], len(matrix.component.slots)
    # Where positions must change too, a full grid leaves no others.
    others = [n for n in range(1, slots + 1 - moves) if n != len(answer)]
    made: list[_NewNumber] = []
    looks = set()
    pool: list[int] = []
    while len(made) < count:
        # Every number once before any comes again; one that gives nothing new is passed over.
        pool = pool or generator.permutation(others).tolist()
        number = pool.pop()
        places = draw_slots(slots, number, generator)
        moved = draw_slots(slots, number, generator)
        while moves and set(moved) == set(places):
            moved = draw_slots(slots, number, generator)
        new = _NewNumber(
            sources=_sources(len(answer), number, generator), slots=places, moved_slots=moved
        )
        look = _look(_renumbered(answer, new, False))
        if look not in looks:
            looks.add(look)
            made.append(new)
    return made


def _sources(old: int, new: int, generator: np.random.Generator) -> tuple[int, ...]:
    """Old entities that become the new ones: some of them, or all and some again."""
    some = generator.permutation(old)[:new].tolist()
    return (*some, *generator.integers(old, size=max(new - old, 0)).tolist())


def _renumbered(entities: Entities, new: _NewNumber, moved: bool) -> Entities:
    slots = new.moved_slots if moved else new.slots
    return _with([entities[i] for i in new.sources], "slot", slots)


def _apply(matrices: Sequence[Matrix], changes: Mapping[Place, _Change | None]) -> Candidate:
    changed: list[Entities] = [matrix.panels[8] for matrix in matrices]
    modified = tuple(place for place, change in changes.items() if change is not None)
    for (number, attribute), change in changes.items():
        if isinstance(change, _NewNumber):
            moved = (number, "position") in modified
            changed[number] = _renumbered(changed[number], change, moved)
        elif change is not None:
            name = "slot" if attribute == "position" else attribute
            changed[number] = _with(changed[number], name, change)
    return Candidate(entities=changed, modified=modified)
