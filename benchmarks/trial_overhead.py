"""Cost of a trial outside its training, in a real sweep.

    python benchmarks/trial_overhead.py [--trials 20] [--slots 2] [--steps 20] [--json]

Each trial's slot is busy from the moment the trial before it ended (for the first of a slot:
from the start of the sweep) to the moment the driver knows that this one is done.  What of
that is not spent in training steps is its cost.  The driver notes when trials end; the trial
itself records the seconds of its steps and writes the files whose times split the cost:

=========  =====================================================================
process    slot free -> spec.json: Tune, and the process of the trial
prepare    spec.json -> first step: data, solver, claim (and the one validation)
finish     last checkpoint -> done.json: curve, log, provenance
report     done.json -> the driver knows: the process ends, Tune's last messages
=========  =====================================================================
"""

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import ray
from surroundings import surroundings

from raise_model.data.generate import generate
from raise_model.presets import trial_spec
from raise_model.specs import TrialSpec
from raise_model.store import Store
from tune_spaces import cluster
from tune_spaces.cluster import Resources
from tune_spaces.sweep import sweep

PARTS = ("process", "prepare", "finish", "report")
GOAL_SECONDS = 3.0
LITE_SECONDS = 2_000.0
"""Median training of preset lite, of which the cost is to be less than a twentieth."""


def _specs(store: Store, trials: int, steps: int) -> list[TrialSpec]:
    manifests = generate(store, dataset="raven", configuration="center", problems=500, workers=1)
    specs = []
    for seed in range(trials):
        spec = trial_spec(
            model="raise",
            preset="smoke",
            dataset="raven",
            configuration="center",
            train_digest=manifests["train"].digest,
            validation_digest=manifests["val"].digest,
            seed=seed,
        )
        changes = {"steps": steps, "validate_every": steps, "validation_problems": 1}
        specs.append(dataclasses.replace(spec, **changes))
    return specs


def _measure(store: Store, specs: list[TrialSpec], slots: int, cache: Path) -> list[dict]:
    """One record a trial, in seconds, in the order of their start."""
    times: dict[str, dict[str, float]] = {spec.name: {} for spec in specs}
    started = time.time()
    outcome = sweep(
        store,
        specs,
        resources=Resources(device="cpu", max_concurrent=slots),
        cache=cache,
        on_report=lambda trial, row: None,
        on_state=lambda trial, state, detail: times[trial].update({state: time.time()}),
    )
    if outcome.failed:
        raise SystemExit(f"error: {next(iter(outcome.failed.values()))}")
    free = [started] * slots
    records = []
    for name in sorted(times, key=lambda name: times[name]["running"]):
        before = min(free)
        free[free.index(before)] = times[name]["done"]
        records.append(_record(store, name, before, times[name]["done"]))
    return records


def _record(store: Store, name: str, free: float, known: float) -> dict:
    folder = Path(store.path(store.trial(name).path))
    seconds = store.trial(name).done()["seconds"]
    spec, done = ((folder / file).stat().st_mtime for file in ("spec.json", "done.json"))
    checkpoint = next(folder.glob("last-*.pt")).stat().st_mtime
    parts = (spec - free, checkpoint - seconds - spec, done - checkpoint, known - done)
    cost = known - free - seconds
    return dict(zip(PARTS, parts, strict=True)) | {"training": seconds, "cost": cost}


def main() -> None:
    """Print the table, and with ``--json`` one JSON object last."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="raise-overhead-") as folder:
        home = Path(folder)
        cluster.connect("local", home=home / "home", num_cpus=arguments.slots, dashboard=False)
        store = Store(str(home / "store"))
        specs = _specs(store, arguments.trials, arguments.steps)
        began = time.monotonic()
        records = _measure(store, specs, arguments.slots, home / "cache")
        wall = time.monotonic() - began
        ray.shutdown()
    first, later = records[: arguments.slots], records[arguments.slots :]
    columns = [*PARTS, "cost", "training"]
    print(f"{'':24}" + "".join(f"{column:>10}" for column in columns))
    for label, group in (("first of each slot", first), ("later trials", later), ("all", records)):
        medians = [statistics.median(record[column] for record in group) for column in columns]
        print(f"{label + ', median s':24}" + "".join(f"{value:10.2f}" for value in medians))
    result = {
        "benchmark": "trial_overhead",
        "median_cost_seconds": round(statistics.median(r["cost"] for r in records), 3),
        "highest_cost_seconds": round(max(r["cost"] for r in records), 3),
        "goal_seconds": GOAL_SECONDS,
        "share_of_lite_trial": round(
            statistics.median(r["cost"] for r in records) / LITE_SECONDS, 5
        ),
        "parts": {p: round(statistics.median(r[p] for r in records), 3) for p in PARTS},
        "trials": len(records),
        "slots": arguments.slots,
        "steps": arguments.steps,
        "wall_seconds": round(wall, 1),
        **surroundings(),
    }
    print(
        f"median cost {result['median_cost_seconds']} s (goal {GOAL_SECONDS:g} s), "
        f"{result['share_of_lite_trial']:.2%} of a lite trial (goal 5 %); {result['trials']} "
        f"trials on {arguments.slots} slots in {wall:.0f} s; {result['hardware']}, "
        f"load {result['load']}"
    )
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
