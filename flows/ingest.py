"""Stage 1: the splits that a run reads, made by the generator or checked to be there."""

import os
from collections.abc import Mapping

from prefect import task
from prefect.cache_policies import NO_CACHE

from flows.progress import Progress
from flows.studies import Request, Split, needed_splits
from raise_model.data.schema import open_manifest
from raise_model.store import Store


@task(name="ingest", cache_policy=NO_CACHE, description="Make or check the data sets.")
def ingest(store: Store, request: Request, progress: Progress) -> Mapping[Split, str]:
    """Digest of every split that the request reads; complete splits are not made again.

    :raises UserError: if a published split was not ingested.
    """
    if request.data == "generated":
        _generate(store, request, progress)
    digests = {split: open_manifest(store, *split).digest for split in needed_splits(request)}
    progress.update("ingest", 1.0, f"{len(digests)} splits are there", now=True)
    return digests


def _generate(store: Store, request: Request, progress: Progress) -> None:
    from raise_model.data.generate import generate

    groups: dict[tuple[str, str], list[str]] = {}
    for dataset, configuration, split in needed_splits(request):
        groups.setdefault((dataset, configuration), []).append(split)
    for place, ((dataset, configuration), splits) in enumerate(groups.items()):
        name = f"{dataset}/{configuration}"

        def report(done: int, total: int, name: str = name, place: int = place) -> None:
            fraction = (place + done / max(total, 1)) / len(groups)
            progress.update("ingest", fraction, f"{name}: {done} of {total} problems")

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
