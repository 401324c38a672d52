"""Checks of whole data sets against their own annotations.

Every problem is looked at by :func:`raise_model.data.problem_checks.examine`; of the project's
own data sets the manifest's digest and counts are checked too.  Problems are read a few at a
time, so memory does not grow with the data.
"""

import hashlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raise_model.data import schema, sources
from raise_model.data.annotations import read_annotations
from raise_model.data.bad_file import BadFile
from raise_model.data.problem_checks import Findings, examine
from raise_model.data.processes import map_in_processes
from raise_model.data.published import as_problem
from raise_model.data.schema import Manifest
from raise_model.data.sources import Found
from raise_model.errors import UserError

MANIFEST = "_manifest.json"
CHUNK_PROBLEMS = 64
EXAMPLES = 10
"""Violations named of each data set and configuration."""

Progress = Callable[[int, int], None]


@dataclass(kw_only=True)
class Totals:
    """Counts of one data set and configuration."""

    problems: int = 0
    panels: int = 0
    differing_pixels: int = 0
    differing_panels: int = 0
    redrawn_panels: int = 0
    """Of the differing: as another version of the drawing library may have drawn them."""
    rule_violations: int = 0
    wrong_answers: int = 0
    ambiguous_answers: int = 0
    bad_annotations: int = 0
    unreadable: int = 0
    """Problems or files, and manifests that say something else than their files."""

    def add(self, other: "Totals") -> None:
        for count in fields(other):
            setattr(self, count.name, getattr(self, count.name) + getattr(other, count.name))

    def violations(self, *, exact: bool) -> int:
        """:param exact: whether redrawn panels are violations."""
        return (
            self.differing_panels
            - (0 if exact else self.redrawn_panels)
            + self.rule_violations
            + self.wrong_answers
            + self.ambiguous_answers
            + self.bad_annotations
            + self.unreadable
        )


@dataclass(kw_only=True)
class SetReport:
    """What was found in one data set and configuration."""

    dataset: str
    configuration: str
    totals: Totals = field(default_factory=Totals)
    examples: list[str] = field(default_factory=list)
    """The first violations: problem or file, and what."""
    notes: list[str] = field(default_factory=list)
    """The first redrawn panels."""

    def see(self, problem: str, findings: Findings) -> None:
        totals = self.totals
        totals.problems += 1
        totals.panels += schema.PANELS_PER_PROBLEM
        totals.differing_pixels += findings.differing_pixels
        totals.differing_panels += len(findings.wrong_panels) + len(findings.redrawn_panels)
        totals.redrawn_panels += len(findings.redrawn_panels)
        totals.rule_violations += len(findings.rules)
        totals.wrong_answers += len(findings.wrong_answer)
        totals.ambiguous_answers += len(findings.ambiguous_answer)
        totals.bad_annotations += len(findings.annotations)
        self._name(
            f"{problem}: {text}"
            for texts in (
                findings.annotations, findings.wrong_panels, findings.rules,
                findings.wrong_answer, findings.ambiguous_answer,
            )
            for text in texts
        )  # fmt: skip
        _extend(self.notes, (f"{problem}: {text}" for text in findings.redrawn_panels))

    def fail(self, place: str, reason: str) -> None:
        """Something that cannot be read, or is not what its manifest says."""
        self.totals.unreadable += 1
        self._name([f"{place}: {reason}"])

    def add(self, other: "SetReport") -> None:
        self.totals.add(other.totals)
        self._name(other.examples)
        _extend(self.notes, other.notes)

    def _name(self, texts: Iterable[str]) -> None:
        _extend(self.examples, texts)


def _extend(kept: list[str], texts: Iterable[str]) -> None:
    for text in texts:
        if len(kept) == EXAMPLES:
            return
        kept.append(text)


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """One Parquet file of a split."""

    folder: str
    manifest: Manifest
    file: str

    @property
    def dataset(self) -> str:
        return self.manifest.dataset

    @property
    def configuration(self) -> str:
        return self.manifest.configuration

    @property
    def size(self) -> int:
        return self.manifest.files[self.file]


@dataclass(frozen=True, kw_only=True)
class _Published:
    """Some published problems of one configuration."""

    dataset: str
    configuration: str
    problems: tuple[Found, ...]

    @property
    def size(self) -> int:
        return len(self.problems)


_Piece = _Stored | _Published


@dataclass(frozen=True, kw_only=True)
class _Checked:
    piece: _Piece
    report: SetReport
    digests: bytes
    """Of the problems, in order; empty for published files."""


def verify(path: str, *, workers: int = 1, progress: Progress | None = None) -> list[SetReport]:
    """Check every problem under a path.

    :param path: a store, a part of it (at least the folder of a split), or published RAVEN or
        I-RAVEN problems in any form of :mod:`raise_model.data.sources`.
    :param progress: called with problems checked and problems to check.
    :return: one report for each data set and configuration.
    :raises UserError: if there is nothing that can be checked.
    """
    with tempfile.TemporaryDirectory(prefix="raise-verify-") as scratch:
        reports: dict[tuple[str, str], SetReport] = {}
        pieces = list(_stored(path, reports)) or list(_published(path, Path(scratch), reports))
        total, done = sum(piece.size for piece in pieces), 0
        shas: dict[str, Any] = defaultdict(hashlib.sha256)
        manifests: dict[str, Manifest] = {}
        for checked in map_in_processes(_check, pieces, workers):
            piece = checked.piece
            _report(reports, piece.dataset, piece.configuration).add(checked.report)
            if isinstance(piece, _Stored):
                shas[piece.folder].update(checked.digests)
                manifests[piece.folder] = piece.manifest
            done += piece.size
            if progress is not None:
                progress(done, total)
        for folder, manifest in manifests.items():
            if shas[folder].hexdigest() != manifest.digest:
                _report(reports, manifest.dataset, manifest.configuration).fail(
                    f"{folder}/{MANIFEST}",
                    f"digest is {manifest.digest[:12]}, but the problems have "
                    f"{shas[folder].hexdigest()[:12]}",
                )
    return [reports[key] for key in sorted(reports)]


def _report(
    reports: dict[tuple[str, str], SetReport], dataset: str, configuration: str
) -> SetReport:
    fresh = SetReport(dataset=dataset, configuration=configuration)
    return reports.setdefault((dataset, configuration), fresh)


def _stored(path: str, reports: dict[tuple[str, str], SetReport]) -> Iterator[_Stored]:
    """Files of the splits below a path; manifests that cannot be read are reported."""
    try:
        filesystem, inner = fsspec.url_to_fs(path)
        files = filesystem.find(inner)
    except (ValueError, ImportError, OSError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    for name in files:
        folder, _, file_name = name.rpartition("/")
        if file_name != MANIFEST:
            continue
        if not sources.is_local(path):
            folder = filesystem.unstrip_protocol(folder)
        try:
            manifest = Manifest(**json.loads(filesystem.cat_file(name)))
        except (ValueError, TypeError, OSError) as error:
            _report(reports, "unknown", "unknown").fail(name, f"no manifest: {error}")
            continue
        if sum(manifest.files.values()) != manifest.problems or not manifest.files:
            _report(reports, manifest.dataset, manifest.configuration).fail(
                name, f"says {manifest.problems} problems, but lists others"
            )
        for file in manifest.files:
            yield _Stored(folder=folder, manifest=manifest, file=file)


def _published(
    path: str, scratch: Path, reports: dict[tuple[str, str], SetReport]
) -> Iterator[_Published]:
    if reports:
        return
    found, rejected = sources.find([path], scratch)
    groups: dict[tuple[str, str], list[Found]] = defaultdict(list)
    for problem in found:
        groups[_name(problem), problem.configuration].append(problem)
    for (dataset, name), problems in groups.items():
        for start in range(0, len(problems), CHUNK_PROBLEMS):
            yield _Published(
                dataset=dataset,
                configuration=name,
                problems=tuple(problems[start : start + CHUNK_PROBLEMS]),
            )
    for bad in rejected:
        _report(reports, "unknown", "unknown").fail(bad.path, bad.reason)


def _name(problem: Found) -> str:
    """Data sets of published files are called as the folder or archive that holds them."""
    return problem.root.rstrip("/").rpartition("/")[2] or problem.root


def _check(piece: _Piece) -> _Checked:
    report = SetReport(dataset=piece.dataset, configuration=piece.configuration)
    if isinstance(piece, _Stored):
        return _Checked(piece=piece, report=report, digests=_check_stored(piece, report))
    panels = np.empty((schema.PANELS_PER_PROBLEM, schema.PANEL_SIZE, schema.PANEL_SIZE), np.uint8)
    for found, source in sources.read(piece.problems):
        try:
            if isinstance(source, BadFile):
                raise source
            target = source.read_panels(panels)
            annotations = read_annotations(source.xml, found.configuration)
        except BadFile as error:
            report.fail(found.name, str(error))
            continue
        problem = as_problem(annotations, found.index, target, panels)
        report.see(found.name, examine(problem, piece.configuration))
    return _Checked(piece=piece, report=report, digests=b"")


def _check_stored(piece: _Stored, report: SetReport) -> bytes:
    """Check one Parquet file; return its problems' digests."""
    path = f"{piece.folder}/{piece.file}"
    digests: list[bytes] = []
    try:
        with fsspec.open(path, "rb") as source:
            file = pq.ParquetFile(source, page_checksum_verification=True)
            if not file.schema_arrow.equals(schema.SCHEMA):
                report.fail(path, "has other columns than a data set of raise-rpm")
                return b""
            for chunk in file.iter_batches(CHUNK_PROBLEMS):
                names = chunk.column("problem_id").to_pylist()
                for name, problem in zip(names, schema.problems_of(chunk), strict=True):
                    if name != f"{piece.dataset}/{piece.configuration}/{problem.index}":
                        report.fail(path, f"row {len(digests)} is called {name}")
                    digests.append(problem.digest())
                    report.see(
                        f"{name} ({piece.manifest.split})", examine(problem, piece.configuration)
                    )
    except (OSError, pa.ArrowException) as error:
        report.fail(path, f"cannot be read: {str(error).splitlines()[0]}")
    else:
        if len(digests) != piece.size:
            report.fail(path, f"has {len(digests)} problems, not {piece.size}")
    return b"".join(digests)
