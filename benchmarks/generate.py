"""Speed of the generator: problems a second to Parquet, and what a problem costs.

    python benchmarks/generate.py [--problems 10000] [--dataset raven] [--workers 2] [--json]

Each configuration is generated twice.  First a sample on this core alone, with the processor
time of a problem split into

=========  ===========================================================
sampling   rules, the nine panels' entities, candidates, annotations
rendering  sixteen panels of 160 x 160 pixels
encoding   digest, Arrow table, compressed Parquet
=========  ===========================================================

(a new process first draws each shape once, which the sample does before it is timed), then
all ``--problems`` by ``--workers`` processes, timed from the call to the manifests, the start
of the processes included.  ``64px`` adds the reduction to 64 x 64 pixels, once a machine.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from raise_model.data import generate as generator
from raise_model.data.generate import LEAKED, SEEDS, generate, make_problem
from raise_model.data.grammar import CONFIGURATIONS
from raise_model.data.render import render_panels
from raise_model.data.schema import Chunk, write_file
from raise_model.store import Store
from raise_model.version import commit

SAMPLE = 256
GOAL_SECONDS = 360.0
"""For the 70,000 problems of seven configurations."""


def _cpu_ms(work: Callable[[], object]) -> float:
    """Processor time of one problem of a sample, in milliseconds."""
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began) / SAMPLE


def _costs(dataset: str, name: str, folder: Path) -> dict[str, float]:
    """Medians over three samples of the same problems, after one that is not counted."""
    seed, made = SEEDS[dataset], CONFIGURATIONS[name]
    problems = [make_problem(dataset, name, seed, index) for index in range(SAMPLE)]
    chunk = Chunk.stack(problems)
    costs: dict[str, list[float]] = {"sampling": [], "rendering": [], "encoding": []}
    store = Store(str(folder))
    for repeat in range(3):
        drawing = _cpu_ms(
            lambda: [
                render_panels(made, problem.entities, out)
                for problem, out in zip(problems, chunk.panels, strict=True)
            ]
        )
        making = _cpu_ms(
            lambda: [
                make_problem(dataset, name, seed, index, out)
                for index, out in enumerate(chunk.panels)
            ]
        )
        path = f"{name}-{repeat}.parquet"
        encoding = _cpu_ms(lambda path=path: write_file(store, path, [chunk], f"{dataset}/{name}"))
        costs["sampling"].append(making - drawing)
        costs["rendering"].append(drawing)
        costs["encoding"].append(encoding)
    return {part: statistics.median(values) for part, values in costs.items()}


def _whole(dataset: str, name: str, problems: int, workers: int, folder: Path) -> dict[str, float]:
    """Seconds to make a configuration and to reduce it, and its size in megabytes."""
    from raise_model.data.loader import load

    store = Store(str(folder / "store"))
    began = time.monotonic()
    manifests = generate(
        store, dataset=dataset, configuration=name, problems=problems, workers=workers
    )
    seconds = time.monotonic() - began
    for split in manifests:
        load(store, dataset, name, split, image_size=64, resize="bilinear", cache=folder / "cache")
    reducing = time.monotonic() - began - seconds
    size = sum(
        Path(store.path(f"{manifest.folder}/{file}")).stat().st_size
        for manifest in manifests.values()
        for file in manifest.files
    )
    return {"seconds": seconds, "seconds_64": seconds + reducing, "megabytes": size / 1e6}


def main() -> None:
    """Print the table, and with ``--json`` one JSON object last."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--dataset", default="raven", choices=SEEDS)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = {}
    columns = ("sampling", "rendering", "encoding", "seconds", "seconds_64", "megabytes")
    print(f"{'configuration':16}" + "".join(f"{c:>12}" for c in (*columns, "problems/s")))
    for name in LEAKED:  # the seven configurations of the paper
        with tempfile.TemporaryDirectory(prefix="raise-generate-") as folder:
            row = _costs(arguments.dataset, name, Path(folder)) | _whole(
                arguments.dataset, name, arguments.problems, arguments.workers, Path(folder)
            )
        row["problems_per_second"] = arguments.problems / row["seconds"]
        rows[name] = {key: round(value, 3) for key, value in row.items()}
        shown = [row[column] for column in (*columns, "problems_per_second")]
        print(f"{name:16}" + "".join(f"{value:12.2f}" for value in shown), flush=True)
    total, total_64 = (sum(row[key] for row in rows.values()) for key in ("seconds", "seconds_64"))
    made = arguments.problems * len(rows)
    scaled = total * 10_000 / arguments.problems
    result = {
        "benchmark": "generate",
        "dataset": arguments.dataset,
        "problems": made,
        "seconds": round(total, 1),
        "seconds_with_64px": round(total_64, 1),
        "seconds_for_70000": round(scaled, 1),
        "goal_seconds": GOAL_SECONDS,
        "goal_met": scaled <= GOAL_SECONDS,
        "configurations": rows,
        "revision": generator.REVISION,
        "workers": arguments.workers,
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "commit": commit(),
    }
    print(
        f"{made} problems in {total:.0f} s ({total_64:.0f} s with panels of 64 pixels); 70,000 "
        f"take {scaled:.0f} s, goal {GOAL_SECONDS:.0f} s; load {result['load']}"
    )
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
