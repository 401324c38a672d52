"""Problems in the layout of the published files, for programs that read those.

``<folder>/<published configuration>/RAVEN_<index>_<split>.npz`` and ``.xml``.  An npz has the
arrays of the published ones: ``image`` (16, 160, 160) uint8, ``target`` and ``predict`` int64
(here both the answer), ``meta_matrix`` (8, 9) and ``meta_target`` (9,) uint8 (which rule acts on
which attributes, a row a rule, and their union), ``structure`` (unicode text) and
``meta_structure`` (21,) uint8 (the nodes of the configuration's tree).

The layout has no place for steps and signs of rules, so these are lost, as are the modified
attributes of RAVEN's candidates, which only I-RAVEN's files name.
"""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from xml.etree import ElementTree

import cv2
import numpy as np
from jaxtyping import UInt8

from raise_model import atomic_write
from raise_model.data import schema
from raise_model.data.grammar import ANGLES, COLORS, CONFIGURATIONS, SIZES, TYPES, Slot
from raise_model.data.render import OUTLINE, polygon, render_panels
from raise_model.data.schema import PANEL_SIZE, PANELS_PER_PROBLEM, Problem
from raise_model.errors import UserError
from raise_model.store import Store

Progress = Callable[[int, int], None]

_RULES = ("Constant", "Progression", "Arithmetic", "Distribute_Three")
_ATTRIBUTES = ("Number", "Position", "Type", "Size", "Color")
_META_RULES = 8
_NODES = (
    "Singleton", "Left_Right", "Up_Down", "Out_In", "Left", "Right", "Up", "Down", "Out", "In",
    "Grid", "Center_Single", "Distribute_Four", "Distribute_Nine", "Left_Center_Single",
    "Right_Center_Single", "Up_Center_Single", "Down_Center_Single", "Out_Center_Single",
    "In_Center_Single", "In_Distribute_Four",
)  # fmt: skip
"""Of all trees, in the order of ``meta_structure``."""


@dataclass(frozen=True)
class _Tree:
    """How the published files call a configuration's parts."""

    structure: str
    components: tuple[tuple[str, str], ...]
    """Name and layout of each."""

    def nodes(self) -> Sequence[str]:
        """The tree from its root, each leaf and then each end of a branch closed by ``/``."""
        branches = [node for name, layout in self.components for node in (name, layout, "/", "/")]
        return ["Scene", self.structure, *branches, "/", "/"]


_TREES: Mapping[str, _Tree] = {
    "center": _Tree("Singleton", (("Grid", "Center_Single"),)),
    "left_right": _Tree(
        "Left_Right", (("Left", "Left_Center_Single"), ("Right", "Right_Center_Single"))
    ),
    "up_down": _Tree("Up_Down", (("Up", "Up_Center_Single"), ("Down", "Down_Center_Single"))),
    "out_in_center": _Tree("Out_In", (("Out", "Out_Center_Single"), ("In", "In_Center_Single"))),
    "out_in_grid": _Tree("Out_In", (("Out", "Out_Center_Single"), ("In", "In_Distribute_Four"))),
    "grid_2x2": _Tree("Singleton", (("Grid", "Distribute_Four"),)),
    "grid_3x3": _Tree("Singleton", (("Grid", "Distribute_Nine"),)),
}


def export(
    store: Store,
    folder: Path,
    *,
    dataset: str,
    configuration: str,
    split: str,
    progress: Progress | None = None,
) -> int:
    """Write every problem of a split; return how many.

    Files are complete or absent, and those that are there with the same content are kept, so
    that an interrupted export goes on where it stopped.

    :raises UserError: if there is no such split, a file is there with other content, or the
        folder cannot be written.
    """
    manifest = schema.open_manifest(store, dataset, configuration, split)
    target = folder / CONFIGURATIONS[configuration].folder
    names_modified = not dataset.startswith("raven")
    done = 0
    try:
        target.mkdir(parents=True, exist_ok=True)
        for chunk in schema.read_chunks(store, manifest, schema.SCHEMA.names):
            for problem in schema.problems_of(chunk):
                stem = f"RAVEN_{problem.index}_{split}"
                _write(target / f"{stem}.npz", npz(problem, configuration))
                text = xml(problem, configuration, names_modified=names_modified)
                _write(target / f"{stem}.xml", text)
            done += len(chunk)
            if progress is not None:
                progress(done, manifest.problems)
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or target}: {error.strerror or error}; free space or "
            "choose another folder"
        ) from error
    return done


def _write(path: Path, data: bytes) -> None:
    """:raises UserError: if the file is there with other content."""
    if path.exists():
        if path.read_bytes() != data:
            raise UserError(f"{path} is there with other content; export to another folder")
        return
    atomic_write.replace(path, data, durable=False)


def npz(problem: Problem, configuration: str) -> bytes:
    """The arrays of a problem."""
    tree = _TREES[configuration.removesuffix("_uni")]
    nodes = {tree.structure, *(node for component in tree.components for node in component)}
    matrix = _meta_matrix(problem)
    file = io.BytesIO()
    np.savez(
        file,
        image=problem.panels,
        target=np.int64(problem.target),
        predict=np.int64(problem.target),
        meta_matrix=matrix,
        meta_target=matrix.max(axis=0),
        structure=np.array(tree.nodes()),
        meta_structure=np.array([node in nodes for node in _NODES], np.uint8),
    )
    return file.getvalue()


def _meta_matrix(problem: Problem) -> UInt8[np.ndarray, "8 9"]:
    matrix = np.zeros((_META_RULES, len(_RULES) + len(_ATTRIBUTES)), np.uint8)
    for row, rule in zip(matrix, problem.rules, strict=False):
        row[_RULES.index(_published(rule["rule"]))] = 1
        for attribute in _published(rule["attribute"]).split("_"):
            row[len(_RULES) + _ATTRIBUTES.index(attribute)] = 1
    return matrix


def _published(name: str) -> str:
    return name.title()


def xml(problem: Problem, configuration: str, *, names_modified: bool) -> bytes:
    """The annotations of a problem.

    :param names_modified: with the attributes that each candidate changes, as in I-RAVEN.
    """
    root = ElementTree.Element("Data")
    panels = ElementTree.SubElement(root, "Panels")
    for panel in range(PANELS_PER_PROBLEM):
        _add_panel(panels, problem, panel, configuration)
    _add_rules(root, problem)
    if names_modified and problem.modified is not None:
        candidates = ElementTree.SubElement(root, "Modified_attributes")
        for number, places in enumerate(problem.modified):
            candidate = ElementTree.SubElement(candidates, "Candidate", id=str(number))
            for place in places:
                ElementTree.SubElement(
                    candidate, "Attribute", component_id=place[-1], name=_published(place[:-1])
                )
    return ElementTree.tostring(root)


def _add_panel(
    panels: ElementTree.Element, problem: Problem, panel: int, configuration: str
) -> None:
    tree = _TREES[configuration.removesuffix("_uni")]
    element = ElementTree.SubElement(panels, "Panel")
    struct = ElementTree.SubElement(element, "Struct", name=tree.structure)
    layouts = {layout["component"]: layout for layout in problem.layouts[panel]}
    for number, (name, layout_name) in enumerate(tree.components):
        slots = CONFIGURATIONS[configuration].components[number].slots
        component = ElementTree.SubElement(struct, "Component", id=str(number), name=name)
        layout = ElementTree.SubElement(
            component,
            "Layout",
            name=layout_name,
            Number=str(layouts[number]["number"]),
            Position=json.dumps([_box(slot) for slot in slots]),
            Uniformity=str(layouts[number]["uniformity"]),
        )
        for entity in problem.entities[panel]:
            if entity["component"] != number:
                continue
            kind, size, angle = entity["type"], entity["size"], entity["angle"]
            box, mask = _shape(configuration, number, entity["slot"], kind, size, angle)
            attributes = {
                "bbox": json.dumps(_box(slots[entity["slot"]])),
                "real_bbox": box,
                "mask": mask,
                "Type": str(kind),
                "Size": str(size),
                "Color": str(entity["color"]),
                "Angle": str(angle),
            }
            ElementTree.SubElement(layout, "Entity", attributes)


def _add_rules(root: ElementTree.Element, problem: Problem) -> None:
    rules = ElementTree.SubElement(root, "Rules")
    for component in sorted({rule["component"] for rule in problem.rules}):
        group = ElementTree.SubElement(rules, "Rule_Group", id=str(component))
        for rule in problem.rules:
            if rule["component"] == component:
                attribute = _published(rule["attribute"]).replace("_", "/")
                ElementTree.SubElement(group, "Rule", name=_published(rule["rule"]), attr=attribute)


def _box(slot: Slot) -> Sequence[float]:
    """Centre (y, x), height and width of a slot; whole numbers without a point."""
    y, x, side = (int(length) if length == int(length) else length for length in slot)
    return [y, x, side, side]


@lru_cache(maxsize=8192)
def _shape(
    configuration: str, component: int, slot: int, kind: int, size: int, angle: int
) -> tuple[str, str]:
    """Box around an entity with its outline, and the runs of pixels that it covers.

    Box: centre (y, x), height and width as fractions of the panel, four digits.  Runs: first
    pixel, counted from 1 along the rows, and length, of the pixels that are black all over when
    the entity is filled with black.
    """
    made = replace(CONFIGURATIONS[configuration], separator=None)
    black = {"color": len(COLORS) - 1, "type": kind, "size": size, "angle": angle}
    (panel,) = render_panels(made, [[{"component": component, "slot": slot} | black]])
    ends = np.flatnonzero(np.diff((panel.ravel() == 0).astype(np.int8), prepend=0, append=0))
    runs = np.stack([ends[::2] + 1, ends[1::2] - ends[::2]], 1).ravel().tolist()
    y, x, side = made.components[component].slots[slot]
    unit = side * PANEL_SIZE / 2
    centre = (int(x * PANEL_SIZE), int(y * PANEL_SIZE))
    if TYPES[kind] == "circle":
        corners = np.array([(-1, -1), (1, 1)]) * unit * SIZES[size] + centre
    else:
        turn = cv2.getRotationMatrix2D(centre, ANGLES[angle], 1)
        offsets = np.array(polygon(TYPES[kind], unit, SIZES[size])) + centre
        corners = offsets @ turn[:, :2].T + turn[:, 2]
    low, high = corners.min(axis=0), corners.max(axis=0)
    middle, extent = (low + high) / 2, high - low + OUTLINE + 1
    lengths = np.array([middle[1], middle[0], extent[1], extent[0]]) / PANEL_SIZE
    return json.dumps(lengths.round(4).tolist()), json.dumps(runs, separators=(",", ":"))
