"""Stage 1: the splits that a run reads, made by the generator or checked to be there."""

import os
from collections.abc import Mapping, Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from flows.lowering import tests_of
from flows.presets import DATASETS
from flows.progress import Progress
from flows.studies import Request, Split, needed_splits
from raise_model.data.audit import CHANCE_SHARE, overlap
from raise_model.data.held_out import held_out_name, hold_out
from raise_model.data.schema import Manifest, open_manifest
from raise_model.data.splits import SPLITS
from raise_model.errors import UserError
from raise_model.store import Store
from tune_spaces.cluster import default_cache


@task(name="problems", cache_policy=NO_CACHE, description="Make or check the data sets.")
def ingest(store: Store, request: Request, progress: Progress, strict: bool) -> Mapping[Split, str]:
    """Digest of every split that the request reads; complete splits are not made again.

    :param strict: refuse test splits that repeat training problems.
    :raises UserError: if a published split was not ingested, or if ``strict`` refuses one.
    """
    if request.data != "published":
        _generate(store, request, progress)
    for dataset, configuration in _held_out_sources(request):
        _hold_out(store, dataset, configuration, progress)
    manifests = {split: open_manifest(store, *split) for split in needed_splits(request)}
    if strict:
        _refuse_leaks(store, list(manifests.values()))
    digests = {split: manifest.digest for split, manifest in manifests.items()}
    progress.update("problems", 1.0, f"{len(digests)} splits are there", now=True)
    return digests


def _refuse_leaks(store: Store, manifests: Sequence[Manifest]) -> None:
    """:raises UserError: for a test split of which training shows more than chance explains."""
    for test in manifests:
        trains = [m for m in manifests if m.split == "train"]
        for train in (m for m in trains if m.configuration == test.configuration):
            # Held-out training problems are tests of the usual splits, and are not tried there.
            apart = _is_held_out(train) != _is_held_out(test)
            if test.split != "test" or apart:
                continue
            found = overlap(store, [train], [test], default_cache())
            if found.share > CHANCE_SHARE:
                raise UserError(
                    f"strict: {len(found.seen)} of {found.problems} test problems of "
                    f"{test.dataset}/{test.configuration} are training problems of "
                    f"{train.dataset}; without strict they are reported apart"
                )


def _is_held_out(manifest: Manifest) -> bool:
    return manifest.dataset.endswith(held_out_name(""))


def _hold_out(store: Store, dataset: str, configuration: str, progress: Progress) -> None:
    name = f"{held_out_name(dataset)}/{configuration}"
    hold_out(
        store,
        dataset,
        configuration,
        lambda done, total: progress.update("problems", 1.0, f"{name}: {done} of {total}"),
    )


def _held_out_sources(request: Request) -> Sequence[tuple[str, str]]:
    """Data sets and configurations whose problems are split again by rule, each once."""
    names = {held_out_name(name): name for name in (DATASETS[request.data][0], *tests_of(request))}
    needed = {(d, c): None for d, c, _ in needed_splits(request) if d in names}
    return [(names[dataset], configuration) for dataset, configuration in needed]


def _splits_to_make(request: Request) -> Mapping[tuple[str, str], Sequence[str]]:
    """Splits by data set and configuration; all of those that are split again."""
    whole = _held_out_sources(request)
    groups: dict[tuple[str, str], list[str]] = {}
    for dataset, configuration, split in needed_splits(request):
        if dataset in (DATASETS[request.data][0], *tests_of(request)):
            groups.setdefault((dataset, configuration), []).append(split)
    return {**groups, **dict.fromkeys(whole, SPLITS)}


def _generate(store: Store, request: Request, progress: Progress) -> None:
    from raise_model.data.generate import generate

    groups = _splits_to_make(request)
    for place, ((dataset, configuration), splits) in enumerate(groups.items()):
        name = f"{dataset}/{configuration}"

        def report(done: int, total: int, name: str = name, place: int = place) -> None:
            fraction = (place + done / max(total, 1)) / len(groups)
            progress.update("problems", fraction, f"{name}: {done} of {total}")

        generate(
            store,
            dataset=dataset,
            configuration=configuration,
            problems=request.scale.problems,
            seed=None,
            splits=splits,
            workers=os.cpu_count() or 1,
            progress=report,
        )
