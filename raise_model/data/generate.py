"""The project's own RAVEN and I-RAVEN: deterministic, in parallel, straight to Parquet.

Problem ``i`` of a seed and configuration depends on nothing else: not on the number of
problems, of workers, or on which others are made.  The data sets:

* ``raven``: RAVEN's candidates;
* ``iraven``: I-RAVEN's candidates, from another seed, so that no context is ``raven``'s but by
  chance;
* ``iraven_paired``: the contexts of ``raven``, problem by problem, with I-RAVEN's candidates:
  what the candidates alone change;
* ``iraven_overlapping``: ``iraven``, but a share of the test problems
  (:data:`LEAKED`) repeats the context of a training problem of ``raven`` a few indices before,
  as in the data that both published generators make from one seed.  It models that leak.
"""

import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt8

from raise_model.data import answer_sets, schema
from raise_model.data.grammar import CONFIGURATIONS, configuration
from raise_model.data.processes import map_in_processes
from raise_model.data.render import render_panels
from raise_model.data.rules import Entity, Matrix, Rule, sample_matrix
from raise_model.data.schema import (
    PANEL_SIZE,
    PANELS_PER_PROBLEM,
    Chunk,
    Manifest,
    Problem,
)
from raise_model.data.splits import SPLITS, split_of
from raise_model.errors import UserError
from raise_model.matrix import NUM_PANELS
from raise_model.store import Store
from raise_model.version import package_version

SEEDS: Mapping[str, int] = {
    "raven": 1234,
    "iraven": 4321,
    "iraven_paired": 1234,
    "iraven_overlapping": 4321,
}
"""Standard seed of each generated data set."""
LEAKED: Mapping[str, float] = {
    "center": 0.43,
    "left_right": 0.51,
    "up_down": 0.51,
    "out_in_center": 0.69,
    "out_in_grid": 0.58,
    "grid_2x2": 0.05,
    "grid_3x3": 0.01,
}
"""Share of the test problems of ``iraven_overlapping`` whose context is in ``raven``'s training
split, as measured over the published generators."""
REVISION = 1
"""Raised whenever the same seed gives other problems."""
FILE_PROBLEMS = 512
"""Problems of one file, written by one worker in one go."""

Progress = Callable[[int, int], None]


def leak_source(name: str, index: int) -> int | None:
    """Training problem of ``raven`` whose context a problem of ``iraven_overlapping`` repeats.

    Of the first n test problems ``LEAKED`` * n, rounded down, repeat one; no two the same.
    """
    tens, digit = divmod(index, 10)
    if split_of(index) != "test":
        return None
    place = 2 * tens + digit - 8
    if math.floor((place + 1) * LEAKED[name]) == math.floor(place * LEAKED[name]):
        return None
    # The six training problems of the ten, three for each of the two test problems.
    return 10 * tens + 3 * (digit - 8) + tens % 3


def make_problem(
    dataset: str,
    name: str,
    seed: int,
    index: int,
    out: UInt8[np.ndarray, "16 160 160"] | None = None,
) -> Problem:
    """One problem of a generated data set (a key of :data:`SEEDS`).

    :param out: memory of its panels; fresh memory costs as much as drawing.
    """
    made = configuration(name)
    number = list(CONFIGURATIONS).index(name)
    drawn = seed, index
    if dataset == "iraven_overlapping" and (source := leak_source(name, index)) is not None:
        drawn = SEEDS["raven"], source
    generator = np.random.default_rng(np.random.SeedSequence([drawn[0], number, drawn[1]]))
    matrices = [
        sample_matrix(i, component, uniform=made.uniform, generator=generator)
        for i, component in enumerate(made.components)
    ]
    draw = answer_sets.raven if dataset == "raven" else answer_sets.iraven
    candidates = draw(matrices, generator)
    order = generator.permutation(len(candidates))
    offered = [candidates[i] for i in order]
    panels = [[matrix.panels[i] for matrix in matrices] for i in range(NUM_PANELS - 1)]
    panels += [candidate.entities for candidate in offered]
    entities = [[_by_slot(part) for part in panel] for panel in panels]
    flat = [[entity for part in panel for entity in part] for panel in entities]
    return Problem(
        index=index,
        panels=render_panels(made, flat, out),
        target=int(np.flatnonzero(order == 0)[0]),
        rules=[
            {"component": matrix.number, **_rule(rule)}
            for matrix in matrices
            for rule in matrix.rules.values()
        ],
        layouts=[
            [_layout(*part) for part in zip(matrices, panel, strict=True)] for panel in entities
        ],
        entities=flat,
        modified=[
            sorted(f"{attribute}{number}" for number, attribute in candidate.modified)
            for candidate in offered
        ],
    )


def _rule(rule: Rule) -> dict[str, Any]:
    return {"attribute": rule.attribute, "rule": rule.name, "value": rule.value}


def _by_slot(entities: Sequence[Entity]) -> Sequence[Entity]:
    return sorted(entities, key=lambda entity: entity["slot"])


def _layout(matrix: Matrix, entities: Sequence[Entity]) -> dict[str, Any]:
    return {
        "component": matrix.number,
        "number": len(entities) - 1,
        "position": [entity["slot"] for entity in entities],
        "uniformity": matrix.uniformity,
    }


@dataclass(frozen=True, kw_only=True)
class _File:
    """One file to be written by a worker."""

    root: str
    dataset: str
    configuration: str
    split: str
    seed: int
    indices: tuple[int, ...]
    name: str

    @property
    def path(self) -> str:
        return f"{schema.folder(self.dataset, self.configuration, self.split)}/{self.name}"


def _write(file: _File) -> tuple[_File, list[bytes]]:
    shape = (schema.ROW_GROUP, PANELS_PER_PROBLEM, PANEL_SIZE, PANEL_SIZE)
    panels = np.empty(shape, np.uint8)

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(file.indices), schema.ROW_GROUP):
            indices = file.indices[start : start + schema.ROW_GROUP]
            problems = [
                make_problem(file.dataset, file.configuration, file.seed, index, out)
                for index, out in zip(indices, panels, strict=False)
            ]
            yield Chunk(problems=problems, panels=panels[: len(problems)])

    prefix = f"{file.dataset}/{file.configuration}"
    return file, schema.write_file(Store(file.root), file.path, chunks(), prefix)


def generate(
    store: Store,
    *,
    dataset: str,
    configuration: str,
    problems: int = 10_000,
    seed: int | None = None,
    splits: Sequence[str] = SPLITS,
    workers: int = 1,
    progress: Progress | None = None,
) -> dict[str, Manifest]:
    """Make the splits of a data set that are not there yet; return all their manifests.

    :param problems: size of the whole data set, of which 60 % are train and 20 % each val, test.
    :param seed: None for the data set's standard seed.
    :param progress: called with problems written and problems to write.
    :raises UserError: for an unknown data set or configuration, or if a complete split of the
        same name was made otherwise.
    """
    check_request(dataset, configuration, problems)
    recipe = {
        "generator": "raise-rpm",
        "revision": REVISION,
        "seed": SEEDS[dataset] if seed is None else seed,
        "problems": problems,
    }
    manifests, files = {}, []
    for split in splits:
        found = schema.find_manifest(store, dataset, configuration, split)
        if found is None:
            indices = [i for i in range(problems) if split_of(i) == split]
            files += _files(store, dataset, configuration, split, recipe["seed"], indices)
        elif dict(found.recipe) != recipe:
            differ = [key for key in recipe if found.recipe.get(key) != recipe[key]]
            theirs, ours = (
                ", ".join(f"{key} {made.get(key, 'unknown')}" for key in differ)
                for made in (found.recipe, recipe)
            )
            raise UserError(
                f"{store.path(found.folder)} was made with {theirs}, not {ours}; delete that "
                "folder, or use another store"
            )
        else:
            schema.check_files(store, found)
            manifests[split] = found
    digests = _write_all(store, files, workers, progress)
    try:
        for split in splits:
            if split not in manifests:
                own = [file for file in files if file.split == split]
                digest = schema.combine_digests(d for file in own for d in digests[file.name])
                manifest = Manifest(
                    dataset=dataset,
                    configuration=configuration,
                    split=split,
                    problems=sum(len(file.indices) for file in own),
                    digest=digest,
                    files={file.name: len(file.indices) for file in own},
                    recipe=recipe,
                    version=package_version(),
                )
                manifests[split] = schema.create_manifest(store, manifest)
    except BaseException:
        schema.discard(store, [file.path for file in files if file.split not in manifests])
        raise
    return manifests


def check_request(dataset: str, name: str, problems: int) -> None:
    """:raises UserError: for what the generator does not make."""
    if dataset not in SEEDS:
        raise UserError(f"unknown data set {dataset!r}; the generator makes {', '.join(SEEDS)}")
    configuration(name)
    if dataset == "iraven_overlapping" and name not in LEAKED:
        raise UserError(
            f"iraven_overlapping has no {name}: its leak was measured for {', '.join(LEAKED)}"
        )
    if problems < 10:
        raise UserError(f"problems must be at least 10 (one split each), not {problems}")


def _files(
    store: Store, dataset: str, name: str, split: str, seed: int, indices: Sequence[int]
) -> list[_File]:
    """Files of one split, in order of index, under names that no other writer uses."""
    token = uuid.uuid4().hex[:8]
    return [
        _File(
            root=store.root,
            dataset=dataset,
            configuration=name,
            split=split,
            seed=seed,
            indices=tuple(indices[start : start + FILE_PROBLEMS]),
            name=f"part-{token}-{start // FILE_PROBLEMS:05d}.parquet",
        )
        for start in range(0, len(indices), FILE_PROBLEMS)
    ]


def _write_all(
    store: Store, files: Sequence[_File], workers: int, progress: Progress | None
) -> dict[str, list[bytes]]:
    """Write every file; on any failure none of them stays."""
    total, done = sum(len(file.indices) for file in files), 0
    digests: dict[str, list[bytes]] = {}

    try:
        for file, found in map_in_processes(_write, files, workers):
            digests[file.name] = found
            done += len(found)
            if progress is not None:
                progress(done, total)
    except BaseException:
        schema.discard(store, [file.path for file in files])
        raise
    return digests
