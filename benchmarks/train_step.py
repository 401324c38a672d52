"""Training step of RAISE at paper size: the package against a literal implementation.

    python benchmarks/train_step.py [--batch 32] [--repeats 5] [--threads 1 2] [--json]

One step is forward, backward and optimiser (RMSprop), on panels of 64 x 64 pixels.  The
contestants take turns within every repeat; medians of problems a second, and medians of the
ratios to the literal step of the same repeat.  ``positions/s`` counts predicted target
positions: several targets share one encoding of the nine panels.  The matrix-product peak is
that of the largest product of 1024 x 1024 in the same repeat.  The run fails if the literal
implementation is a straw man: slower than 30 % of the fp32 peak.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from literal_raise import ATTRIBUTES, LiteralRaise
from surroundings import surroundings

from raise_model.models import registry
from raise_model.models.raise_net.config import paper
from raise_model.models.solver import config_to_json
from raise_model.problem import Batch

SIZE, PARAMETERS = 64, 9_001_965
GFLOP = 6.2
"""Of one problem and step with one target: forward and backward of nine encodings, one
decoding, the rule networks and 32 executions."""
STRAW_MAN = 0.3


def random_batch(problems: int) -> Batch:
    """Labelled problems of noise."""
    generator = torch.Generator().manual_seed(0)
    return Batch(
        index=torch.arange(problems),
        panels=torch.rand(problems, 9, 1, SIZE, SIZE, generator=generator),
        rule_labels=torch.randint(4, (problems, ATTRIBUTES), generator=generator),
    )


def _literal(batch: Batch) -> Callable[[], None]:
    torch.manual_seed(0)
    model = LiteralRaise()
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS
    optimizer = torch.optim.RMSprop(model.parameters(), 3e-4)

    def step() -> None:
        optimizer.zero_grad()
        position = int(torch.randint(9, ()))
        model.loss(batch.panels, batch.rule_labels, position).backward()
        optimizer.step()

    return step


def training_step(batch: Batch, targets: int, precision: str) -> Callable[[], None]:
    """The package's step, in ``fp32`` or ``bf16``."""
    config = replace(paper(), targets_per_problem=targets)
    solver = registry.build("raise", config_to_json(config), SIZE, seed=0)
    assert sum(p.numel() for p in solver.parameters()) == PARAMETERS
    (optimizer,) = solver.optimizers().values()
    generator = torch.Generator().manual_seed(0)
    solver.set_step(0, 100)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = solver.loss(batch, generator)  # type: ignore[operator]
        loss.total.backward()
        optimizer.step()

    return step


def _peak(precision: torch.dtype) -> float:
    """GFLOP/s of matrix products."""
    left, right = (torch.rand(1024, 1024).to(precision) for _ in range(2))
    left @ right
    times = []
    for _ in range(5):
        began = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - began)
    return 2 * 1024**3 / min(times) / 1e9


def _measure(batch: Batch, repeats: int, targets: int, bf16: bool) -> Mapping[str, list[float]]:
    """Seconds of a step by contestant, and the peaks, one a repeat."""
    steps = {
        "literal, fp32": _literal(batch),
        "ours, fp32, 1 target": training_step(batch, 1, "fp32"),
        f"ours, fp32, {targets} targets": training_step(batch, targets, "fp32"),
    }
    if bf16:
        steps |= {
            "ours, bf16, 1 target": training_step(batch, 1, "bf16"),
            f"ours, bf16, {targets} targets": training_step(batch, targets, "bf16"),
        }
    found: dict[str, list[float]] = {name: [] for name in (*steps, "peak fp32")}
    for step in steps.values():
        step()
    for _ in range(repeats):
        found["peak fp32"].append(_peak(torch.float32))
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            found[name].append(time.perf_counter() - began)
    return found


def _row(name: str, found: Mapping[str, list[float]], problems: int, targets: int) -> dict:
    times, literal, peak = found[name], found["literal, fp32"], found["peak fp32"]
    number = targets if name.endswith("targets") else 1
    rate = [problems / seconds for seconds in times]
    pairs = list(zip(times, literal, peak, strict=True))
    return {
        "problems_per_second": statistics.median(rate),
        "positions_per_second": number * statistics.median(rate),
        "times_literal": statistics.median(other / own for own, other, _ in pairs),
        "times_literal_per_position": number * statistics.median(o / own for own, o, _ in pairs),
        "share_of_peak": statistics.median(GFLOP * problems / own / p for own, _, p in pairs),
    }


def main() -> None:
    """Print one table a number of threads, and with ``--json`` one JSON object last."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--targets", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--bf16", action="store_true", help="also bf16 (native ones only)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    batch, tables, slow = random_batch(arguments.batch), {}, []
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        found = _measure(batch, arguments.repeats, arguments.targets, arguments.bf16)
        peak = statistics.median(found["peak fp32"])
        print(f"{threads} thread(s), fp32 peak {peak:.0f} GFLOP/s")
        print(f"{'':26}{'problems/s':>12}{'positions/s':>12}{'x literal':>11}{'of peak':>9}")
        rows = {
            name: _row(name, found, arguments.batch, arguments.targets)
            for name in found
            if not name.startswith("peak")
        }
        for name, row in rows.items():
            print(
                f"{name:26}{row['problems_per_second']:12.2f}{row['positions_per_second']:12.2f}"
                f"{row['times_literal_per_position']:11.2f}{row['share_of_peak']:9.0%}"
            )
        tables[threads] = {"peak_gflops": round(peak, 1), "rows": rows}
        if rows["literal, fp32"]["share_of_peak"] < STRAW_MAN:
            slow.append(threads)
    result = {
        "benchmark": "train_step",
        "threads": tables,
        "batch": arguments.batch,
        "repeats": arguments.repeats,
        **surroundings(),
    }
    if arguments.json:
        print(json.dumps(result))
    if slow:
        raise SystemExit(f"error: the literal step reaches less than 30 % of the peak on {slow}")


if __name__ == "__main__":
    sys.exit(main())
