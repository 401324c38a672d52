"""Published RAVEN and I-RAVEN files to Parquet.

Expected are folders of pairs ``RAVEN_<i>_<train|val|test>.npz`` and ``.xml``, in a folder with
the published name of their configuration.  Files are input from anywhere: npz is read with
pickle forbidden, XML with document types refused (no entity expansion).  A damaged or unpaired
problem is left out and reported with its reason.
"""

import json
import multiprocessing
import re
import uuid
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np

from raise_model.data import grammar, schema
from raise_model.data.schema import PANEL_SIZE, PANELS_PER_PROBLEM, Manifest, Problem
from raise_model.data.splits import split_of
from raise_model.errors import UserError
from raise_model.problem import NUM_CANDIDATES, RULES
from raise_model.provenance import package_version
from raise_model.store import Store

FILE_PROBLEMS = 512
_NAME = re.compile(r"RAVEN_(\d+)_(train|val|test)\.(npz|xml)")
_LEVELS = ("Type", "Size", "Color", "Angle")
Progress = Callable[[int, int], None]


class BadFile(ValueError):
    """Why a problem cannot be read, without its path."""


@dataclass(frozen=True, kw_only=True)
class Rejected:
    path: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class IngestReport:
    manifests: Sequence[Manifest]
    rejected: Sequence[Rejected]


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """The files of one problem."""

    configuration: str
    index: int
    split: str
    stem: str


def parse_xml(data: bytes) -> ElementTree.Element:
    """Parse without document types, so that no entity can be declared or expanded.

    :raises BadFile: if the text is no XML or declares a document type.
    """
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate()

    def refuse(name: str, *_: Any) -> None:
        raise BadFile(f"XML declares a document type ({name}), which is refused")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise BadFile(f"XML is damaged: {error}") from None
    return builder.close()


def read_problem(npz: Path, xml: Path, configuration: str, index: int) -> Problem:
    """One published problem in canonical form.

    :raises BadFile: naming what is wrong.
    """
    panels, target = _read_npz(npz)
    root = parse_xml(xml.read_bytes())
    found = root.findall("./Panels/Panel")
    if len(found) != PANELS_PER_PROBLEM:
        raise BadFile(f"XML has {len(found)} panels, not {PANELS_PER_PROBLEM}")
    made = grammar.configuration(configuration)
    read = [_read_panel(panel, len(made.components)) for panel in found]
    return Problem(
        index=index,
        panels=panels,
        target=target,
        rules=_read_rules(root),
        layouts=[layouts for layouts, _ in read],
        entities=[entities for _, entities in read],
        modified=_read_modified(root),
    )


def _read_npz(path: Path) -> tuple[np.ndarray, int]:
    try:
        with np.load(path, allow_pickle=False) as file:
            panels, target = file["image"], int(file["target"])
    except KeyError as error:
        raise BadFile(f"npz has no array {error}") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BadFile(f"npz is damaged: {error}") from None
    shape = (PANELS_PER_PROBLEM, PANEL_SIZE, PANEL_SIZE)
    if panels.shape != shape or panels.dtype != np.uint8:
        raise BadFile(f"image is {panels.dtype} {panels.shape}, not uint8 {shape}")
    if not 0 <= target < NUM_CANDIDATES:
        raise BadFile(f"target is {target}, not 0 to {NUM_CANDIDATES - 1}")
    return np.ascontiguousarray(panels), target


def _number(element: ElementTree.Element, name: str) -> int:
    value = element.get(name)
    try:
        return int(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise BadFile(f"XML: {element.tag} has {name}={value!r}, not a whole number") from None


def _read_panel(
    panel: ElementTree.Element, components: int
) -> tuple[list[dict[str, Any]], list[dict[str, int]]]:
    """Layouts and entities of one panel; slots are places in the layout's list of boxes."""
    layouts, entities = [], []
    found = panel.findall("./Struct/Component")
    if len(found) != components:
        raise BadFile(f"XML: a panel has {len(found)} components, not {components}")
    for component in found:
        layout = component.find("Layout")
        if layout is None:
            raise BadFile("XML: a component has no Layout")
        number = _number(component, "id")
        try:
            boxes = json.loads(layout.get("Position", ""))
            slots = [boxes.index(json.loads(e.get("bbox", ""))) for e in layout.findall("Entity")]
        except ValueError:
            raise BadFile("XML: an entity's bbox is not in its layout's Position") from None
        layouts.append(
            {
                "component": number,
                "number": _number(layout, "Number"),
                "position": sorted(slots),
                "uniformity": _number(layout, "Uniformity"),
            }
        )
        for slot, entity in zip(slots, layout.findall("Entity"), strict=True):
            levels = {name.lower(): _number(entity, name) for name in _LEVELS}
            entities.append({"component": number, "slot": slot, **levels})
    return layouts, entities


def _read_rules(root: ElementTree.Element) -> list[dict[str, Any]]:
    rules = []
    for group in root.findall("./Rules/Rule_Group"):
        for rule in group.findall("Rule"):
            name, attribute = rule.get("name", "").lower(), rule.get("attr", "").lower()
            if name not in RULES:
                raise BadFile(f"XML: unknown rule {rule.get('name')!r}")
            rules.append(
                {
                    "component": _number(group, "id"),
                    "attribute": attribute.replace("/", "_"),
                    "rule": name,
                    "value": None,
                }
            )
    if not rules:
        raise BadFile("XML has no rules")
    return rules


def _read_modified(root: ElementTree.Element) -> list[list[str]] | None:
    """I-RAVEN says which attributes each candidate changes; RAVEN does not."""
    candidates = root.findall("./Modified_attributes/Candidate")
    if not candidates:
        return None
    return [
        sorted(
            f"{attribute.get('name', '').lower()}{_number(attribute, 'component_id')}"
            for attribute in candidate.findall("Attribute")
        )
        for candidate in candidates
    ]


def find_pairs(root: Path) -> tuple[list[_Pair], list[Rejected]]:
    """Problems below a folder, and files that belong to none."""
    seen: dict[str, set[str]] = defaultdict(set)
    rejected: list[Rejected] = []
    for file in sorted(root.rglob("*")):
        if file.suffix in (".npz", ".xml") and file.is_file():
            if _NAME.fullmatch(file.name):
                seen[str(file.with_suffix(""))].add(file.suffix)
            else:
                reason = "name is not RAVEN_<index>_<train|val|test>.npz or .xml"
                rejected.append(Rejected(path=str(file), reason=reason))
    pairs: list[_Pair] = []
    for stem, suffixes in seen.items():
        pair = _pair(stem, suffixes)
        (pairs if isinstance(pair, _Pair) else rejected).append(pair)  # type: ignore[arg-type]
    return pairs, rejected


def _pair(stem: str, suffixes: set[str]) -> _Pair | Rejected:
    path = Path(stem)
    found = _NAME.fullmatch(path.name + ".npz")
    assert found is not None
    index, split = int(found[1]), found[2]
    configuration = grammar.by_folder(path.parent.name)
    if configuration is None:
        return Rejected(path=stem, reason=f"folder {path.parent.name} is no configuration's")
    if suffixes != {".npz", ".xml"}:
        (missing,) = {".npz", ".xml"} - suffixes
        (present,) = suffixes
        return Rejected(path=stem + present, reason=f"its {missing} is missing")
    if split_of(index) != split:
        return Rejected(
            path=stem, reason=f"index {index} belongs to {split_of(index)}, not {split}"
        )
    return _Pair(configuration=configuration, index=index, split=split, stem=stem)


@dataclass(frozen=True, kw_only=True)
class _File:
    """One Parquet file to be written by a worker."""

    path: str
    prefix: str
    pairs: tuple[_Pair, ...]


@dataclass(frozen=True, kw_only=True)
class _Written:
    file: _File
    digests: Sequence[bytes]
    rejected: Sequence[Rejected]


def _write(root: str, file: _File) -> _Written:
    rejected: list[Rejected] = []

    def chunks() -> Iterator[list[Problem]]:
        for start in range(0, len(file.pairs), schema.ROW_GROUP):
            chunk = []
            for pair in file.pairs[start : start + schema.ROW_GROUP]:
                npz, xml = Path(f"{pair.stem}.npz"), Path(f"{pair.stem}.xml")
                try:
                    problem = read_problem(npz, xml, pair.configuration, pair.index)
                except BadFile as error:
                    rejected.append(Rejected(path=pair.stem, reason=str(error)))
                    continue
                chunk.append(problem)
            if chunk:
                yield chunk

    digests = schema.write_file(Store(root), file.path, chunks(), file.prefix)
    return _Written(file=file, digests=digests, rejected=rejected)


def _is_iraven(pairs: Sequence[_Pair]) -> bool:
    """I-RAVEN's files name the modified attributes of each candidate."""
    for pair in pairs:
        try:
            return _read_modified(parse_xml(Path(f"{pair.stem}.xml").read_bytes())) is not None
        except (BadFile, OSError):
            continue
    return False


def ingest(
    store: Store,
    paths: Sequence[Path],
    *,
    dataset: str | None = None,
    strict: bool = False,
    workers: int = 1,
    progress: Progress | None = None,
) -> IngestReport:
    """Read every problem under ``paths`` into Parquet, one data set for each path.

    :param dataset: name of the data set; None for ``raven_published`` or
        ``iraven_published``, as the files of each path say.
    :param strict: fail, and leave nothing, if any file is rejected.
    :raises UserError: for paths without RAVEN files, a data set of that name with other
        content, or rejected files under ``strict``.
    """
    groups: dict[tuple[str, str, str], list[_Pair]] = defaultdict(list)
    rejected: list[Rejected] = []
    for root in _roots(paths):
        pairs, bad = find_pairs(root)
        rejected += bad
        name = dataset or ("iraven_published" if _is_iraven(pairs) else "raven_published")
        for pair in pairs:
            groups[name, pair.configuration, pair.split].append(pair)
    if not groups and not rejected:
        where = ", ".join(str(path) for path in paths)
        raise UserError(f"no RAVEN_<index>_<split>.npz and .xml under {where}")
    files = [file for key, pairs in groups.items() for file in _files(key, pairs)]
    written = _write_all(store, files, workers, progress)
    rejected += [bad for done in written for bad in done.rejected]
    if strict and rejected:
        _delete(store, files)
        first = rejected[0]
        raise UserError(
            f"{len(rejected)} files rejected, nothing ingested (--strict); first: "
            f"{first.path}: {first.reason}"
        )
    manifests = [
        _complete(store, key, [d for d in written if d.file.path.startswith(_folder(key))])
        for key in groups
    ]
    return IngestReport(manifests=[m for m in manifests if m is not None], rejected=rejected)


def _roots(paths: Sequence[Path]) -> Sequence[Path]:
    """The folders that hold configuration folders, so that data sets side by side stay apart.

    :raises UserError: if a path is no folder, or none holds a configuration.
    """
    roots: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path} is not a folder; give a folder of published RAVEN files")
        if grammar.by_folder(path.resolve().name):
            roots[path] = None
            continue
        inner = [p for p in sorted(path.rglob("*")) if p.is_dir() and grammar.by_folder(p.name)]
        if not inner:
            raise UserError(
                f"{path} holds no folder of a RAVEN configuration (center_single, ...); "
                "give the folder that does"
            )
        roots |= dict.fromkeys(p.parent for p in inner)
    return list(roots)


def _folder(key: tuple[str, str, str]) -> str:
    return schema.folder(*key) + "/"


def _files(key: tuple[str, str, str], pairs: Sequence[_Pair]) -> Iterator[_File]:
    token = uuid.uuid4().hex[:8]
    ordered = sorted(pairs, key=lambda pair: pair.index)
    for start in range(0, len(ordered), FILE_PROBLEMS):
        yield _File(
            path=f"{_folder(key)}part-{token}-{start // FILE_PROBLEMS:05d}.parquet",
            prefix=f"{key[0]}/{key[1]}",
            pairs=tuple(ordered[start : start + FILE_PROBLEMS]),
        )


def _write_all(
    store: Store, files: Sequence[_File], workers: int, progress: Progress | None
) -> Sequence[_Written]:
    """Write every file, in order; on any failure none of them stays."""
    total, done = sum(len(file.pairs) for file in files), 0
    written: list[_Written] = []
    write = partial(_write, store.root)

    def collect(results: Iterable[_Written]) -> None:
        nonlocal done
        for result in results:
            written.append(result)
            done += len(result.file.pairs)
            if progress is not None:
                progress(done, total)

    try:
        if workers == 1 or len(files) == 1:
            collect(map(write, files))
        else:
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(min(workers, len(files)), context) as pool:
                collect(pool.map(write, files))
    except BaseException:
        _delete(store, files)
        raise
    return written


def _delete(store: Store, files: Iterable[_File]) -> None:
    for file in files:
        store.delete(file.path)


def _complete(
    store: Store, key: tuple[str, str, str], written: Sequence[_Written]
) -> Manifest | None:
    """The manifest of one split; None if every file of it was rejected."""
    problems = sum(len(result.digests) for result in written)
    if problems == 0:
        _delete(store, [result.file for result in written])
        return None
    recipe: Mapping[str, Any] = {"source": "published files", "problems": problems}
    manifest = Manifest(
        dataset=key[0],
        configuration=key[1],
        split=key[2],
        problems=problems,
        digest=schema.combine_digests(d for result in written for d in result.digests),
        files={result.file.path.rsplit("/", 1)[-1]: len(result.digests) for result in written},
        recipe=recipe,
        version=package_version(),
    )
    return schema.create_manifest(store, manifest)
