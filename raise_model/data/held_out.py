"""Held-out configurations: other splits of the same problems, by their rules (paper, section 4.5).

The test split has the problems with certain pairs of attribute and rule, which training and
validation then never show:

* ``center``: a constant size;
* ``out_in_center``: any of arithmetic or distribute three on the type, size or color of the
  inner component.  (Arithmetic on a type does not occur.)  The paper lists the pairs and does
  not say whether one or all of them make a test problem; all together hardly ever occur.

Of the other problems, in order of index, every fourth is for validation.
"""

import heapq
import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa

from raise_model.data import schema
from raise_model.data.schema import Chunk, Manifest, Problem
from raise_model.data.splits import SPLITS
from raise_model.errors import UserError
from raise_model.store import Store
from raise_model.version import package_version

HELD_OUT: Mapping[str, frozenset[tuple[int, str, str]]] = {
    "center": frozenset({(0, "size", "constant")}),
    "out_in_center": frozenset(
        (1, attribute, rule)
        for attribute in ("type", "size", "color")
        for rule in ("arithmetic", "distribute_three")
    ),
}
"""(component, attribute, rule): a problem with any of them is a test problem."""

Progress = Callable[[int, int], None]


def held_out_name(dataset: str) -> str:
    """Name of the data set with held-out splits."""
    return f"{dataset}_held_out"


def check_held_out(configuration: str) -> None:
    """:raises UserError: for a configuration without held-out pairs."""
    if configuration not in HELD_OUT:
        known = ", ".join(HELD_OUT)
        raise UserError(f"no held-out splits are defined for {configuration}, only for {known}")


def assign_splits(
    rules: Iterable[tuple[int, Iterable[Mapping[str, object]]]], configuration: str
) -> dict[int, str]:
    """Split of each problem, given its index and rules."""
    held = HELD_OUT[configuration]
    assigned, others = {}, 0
    for index, problem in sorted(rules, key=lambda row: row[0]):
        if any((r["component"], r["attribute"], r["rule"]) in held for r in problem):
            assigned[index] = "test"
        else:
            others += 1
            assigned[index] = "val" if others % 4 == 0 else "train"
    return assigned


def hold_out(
    store: Store, dataset: str, configuration: str, progress: Progress | None = None
) -> dict[str, Manifest]:
    """Write ``<dataset>_held_out`` from the three splits of a data set; return its manifests.

    What is complete is not written again.

    :param progress: called with problems written and problems to write.
    :raises UserError: for a configuration without held-out pairs, or if the data set is not
        there, or if the store cannot be written.
    """
    check_held_out(configuration)
    sources = [schema.open_manifest(store, dataset, configuration, split) for split in SPLITS]
    rules = [
        row
        for source in sources
        for chunk in schema.read_chunks(store, source, ["index", "rules"], rows=4096)
        for row in zip(*(chunk.column(n).to_pylist() for n in ("index", "rules")), strict=True)
    ]
    assigned = assign_splits(rules, configuration)
    recipe = {"held_out_of": {source.split: source.digest for source in sources}}
    found = {
        split: schema.find_manifest(store, held_out_name(dataset), configuration, split)
        for split in SPLITS
    }
    total = sum(found[split] is None for split in assigned.values())
    done, manifests = 0, {}
    for split in SPLITS:
        if (manifest := found[split]) is None:
            manifest = _write(store, sources, configuration, split, assigned, recipe)
            done += manifest.problems
            if progress is not None:
                progress(done, total)
        elif dict(manifest.recipe) != recipe:
            raise UserError(
                f"{store.path(manifest.folder)} was made from other problems than {dataset} has "
                "now; delete that folder"
            )
        manifests[split] = manifest
    return manifests


def _write(
    store: Store,
    sources: list[Manifest],
    configuration: str,
    split: str,
    assigned: Mapping[int, str],
    recipe: Mapping[str, object],
) -> Manifest:
    dataset = held_out_name(sources[0].dataset)
    wanted = sorted(index for index, name in assigned.items() if name == split)
    if not wanted:
        raise UserError(
            f"{sources[0].dataset}/{configuration} has no problem for the held-out split {split}; "
            "make more problems"
        )
    token = uuid.uuid4().hex[:8]
    path = f"{schema.folder(dataset, configuration, split)}/part-{token}-00000.parquet"
    chunks = _chunks(store, sources, set(wanted))
    digests = schema.write_file(store, path, chunks, f"{dataset}/{configuration}")
    manifest = Manifest(
        dataset=dataset,
        configuration=configuration,
        split=split,
        problems=len(digests),
        digest=schema.combine_digests(digests),
        files={path.rsplit("/", 1)[-1]: len(digests)},
        recipe=recipe,
        version=package_version(),
    )
    return schema.create_manifest(store, manifest)


def _chunks(store: Store, sources: list[Manifest], wanted: set[int]) -> Iterator[Chunk]:
    """The wanted problems of all sources in order of index, a row group at a time."""

    def stream(source: Manifest) -> Iterator[Problem]:
        names = [name for name in schema.SCHEMA.names if name != "problem_id"]
        for chunk in schema.read_chunks(store, source, names):
            keep = [index in wanted for index in chunk.column("index").to_pylist()]
            yield from schema.problems_of(chunk.filter(pa.array(keep)))

    merged = heapq.merge(*map(stream, sources), key=lambda problem: problem.index)
    while chunk := list(itertools.islice(merged, schema.ROW_GROUP)):
        yield Chunk.stack(chunk)
