"""What can be wrong with one problem: its annotations, its pixels, its answer.

A panel whose pixels are not those drawn from its annotations is *redrawn* if the difference may
come from another version of the drawing library, which differs at edges.  That is, if

* at most 1 % of its pixels differ;
* every such pixel is near an edge: the 5 x 5 pixels around it, in the panel drawn here, are not
  all of one grey; and
* type, size, fill and angle agree: no other level of one attribute of one entity makes a panel
  with fewer differing pixels.

Any other panel that differs is *wrong*.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np
from jaxtyping import Bool, UInt8

from raise_model.data import rule_checker
from raise_model.data.grammar import (
    ANGLES,
    COLORS,
    SIZES,
    TYPES,
    UNIFORM_LEVEL,
    Configuration,
    configuration,
)
from raise_model.data.render import render_panels
from raise_model.data.schema import PANEL_SIZE, PANELS_PER_PROBLEM, Problem
from raise_model.matrix import NUM_CANDIDATES

REDRAWN_PIXELS = PANEL_SIZE * PANEL_SIZE // 100
_LEVELS: Mapping[str, range] = {
    "type": range(1, len(TYPES)),
    "size": range(len(SIZES)),
    "color": range(len(COLORS)),
    "angle": range(len(ANGLES)),
}
_NEIGHBOURHOOD = np.ones((5, 5), np.uint8)

Panel = UInt8[np.ndarray, "160 160"]


@dataclass(kw_only=True)
class Findings:
    """What is wrong with a problem; each text is one line without its id."""

    annotations: list[str] = field(default_factory=list)
    """Levels out of range, layouts that contradict the entities; then nothing else is checked."""
    differing_pixels: int = 0
    wrong_panels: list[str] = field(default_factory=list)
    redrawn_panels: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    """Rules that the matrix completed by the target breaks."""
    wrong_answer: list[str] = field(default_factory=list)
    """The target does not obey the rules."""
    ambiguous_answer: list[str] = field(default_factory=list)
    """The target obeys them, and other candidates do too."""


def examine(problem: Problem, name: str) -> Findings:
    """Check one problem of the configuration ``name``."""
    found = Findings(annotations=list(_annotations(problem, configuration(name))))
    if found.annotations:
        return found
    _examine_panels(problem, configuration(name), found)
    found.rules = rule_checker.violations(problem, name, problem.target)
    satisfying = rule_checker.satisfying(problem, name)
    if problem.target not in satisfying:
        what = ", ".join(map(str, satisfying)) or "none"
        found.wrong_answer.append(f"target is {problem.target}; candidates that obey: {what}")
    elif len(satisfying) > 1:
        found.ambiguous_answer.append(f"candidates {', '.join(map(str, satisfying))} all obey")
    return found


def _annotations(problem: Problem, made: Configuration) -> Iterator[str]:
    if not 0 <= problem.target < NUM_CANDIDATES:
        yield f"target is {problem.target}, not 0 to {NUM_CANDIDATES - 1}"
    if len(problem.entities) != PANELS_PER_PROBLEM or len(problem.layouts) != PANELS_PER_PROBLEM:
        yield f"not {PANELS_PER_PROBLEM} panels annotated"
        return
    components = range(len(made.components))
    strangers = {rule["component"] for rule in problem.rules} - set(components)
    if strangers:
        yield f"rules of unknown components {sorted(strangers)}"
    uniformity: dict[int, int] = {}
    for panel, layouts in enumerate(problem.layouts):
        by_component = {layout["component"]: layout for layout in layouts}
        entities = problem.entities[panel]
        if sorted(by_component) != list(components) or len(layouts) != len(components):
            yield f"panel {panel}: not one layout for each component"
            return
        if any(entity["component"] not in components for entity in entities):
            yield f"panel {panel}: an entity of an unknown component"
            return
        for number, component in enumerate(made.components):
            layout = by_component[number]
            slots = sorted(e["slot"] for e in entities if e["component"] == number)
            place = f"panel {panel}, component {number}"
            if not slots or len(set(slots)) != len(slots):
                yield f"{place}: no entity, or two in one slot"
            elif not 0 <= slots[0] <= slots[-1] < len(component.slots):
                yield f"{place}: a slot is not 0 to {len(component.slots) - 1}"
            if layout["number"] != len(slots) - 1:
                yield f"{place}: number is {layout['number']} but {len(slots)} entities are there"
            if sorted(layout["position"]) != slots:
                yield f"{place}: position is {layout['position']} but slots {slots} are occupied"
            if layout["uniformity"] not in range(UNIFORM_LEVEL + 1):
                yield f"{place}: uniformity is {layout['uniformity']}"
            elif uniformity.setdefault(number, layout["uniformity"]) != layout["uniformity"]:
                yield f"{place}: uniformity is not that of panel 0"
        for entity in entities:
            for attribute, levels in _LEVELS.items():
                if entity[attribute] not in levels:
                    yield f"panel {panel}: {attribute} is {entity[attribute]}"


def _examine_panels(problem: Problem, made: Configuration, found: Findings) -> None:
    drawn = render_panels(made, problem.entities)
    differs = drawn != problem.panels
    if not differs.any():
        return
    found.differing_pixels = int(differs.sum())
    for panel in np.flatnonzero(differs.any(axis=(1, 2))).tolist():
        number = int(differs[panel].sum())
        entities = problem.entities[panel]
        reason = _why_wrong(made, entities, problem.panels[panel], drawn[panel], differs[panel])
        text = f"panel {panel}: {number} pixels differ"
        if reason:
            found.wrong_panels.append(f"{text}, {reason}")
        else:
            found.redrawn_panels.append(f"{text}, all at edges")


def _why_wrong(
    made: Configuration,
    entities: Sequence[Mapping[str, int]],
    stored: Panel,
    drawn: Panel,
    differs: Bool[np.ndarray, "160 160"],
) -> str:
    """Why a panel is not the annotated one drawn by another library; empty if it may be."""
    number = int(differs.sum())
    if number > REDRAWN_PIXELS:
        return "more than 1 %"
    flat = cv2.dilate(drawn, _NEIGHBOURHOOD) == cv2.erode(drawn, _NEIGHBOURHOOD)
    if (differs & flat).any():
        return "some away from any edge"
    for i, entity in enumerate(entities):
        for attribute, levels in _LEVELS.items():
            others = [level for level in levels if level != entity[attribute]]
            changed = [
                [*entities[:i], {**entity, attribute: o}, *entities[i + 1 :]] for o in others
            ]
            fewer = (render_panels(made, changed) != stored).sum(axis=(1, 2))
            best = int(fewer.argmin())
            if fewer[best] < number:
                where = f"component {entity['component']}, slot {entity['slot']}"
                return f"fewer with {attribute} {others[best]} than {entity[attribute]} ({where})"
    return ""
