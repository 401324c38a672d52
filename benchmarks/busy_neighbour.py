"""Training steps of RAISE beside other busy processes, by number of threads.

    python benchmarks/busy_neighbour.py [--preset lite] [--seconds 10] [--repeats 2] [--json]

One process or two, of one thread or two, train on random problems of Center at the same time on
all CPUs of this process; steps a second of each, and of all together against one process of one
thread.  Threads that wait for one another on a core that another process uses cost more than
they bring: this is why a trial on a CPU has one.  Cases take turns; medians over repeats.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from multiprocessing.synchronize import Barrier

import torch
from surroundings import surroundings

from raise_model.data.splits import label_attributes
from raise_model.models import registry
from raise_model.models.cost import RandomBatches
from raise_model.models.solver import config_to_json
from raise_model.presets import LABEL_RATIOS, PRESETS, training_preset

CONFIGURATION, PROBLEMS, WARM_UP = "center", 6_000, 3
CASES = ((1, 1), (1, 2), (2, 1), (2, 2))
"""Threads of a process, and processes."""


def train(
    preset: str, threads: int, seconds: float, start: Barrier, rates: "multiprocessing.Queue[float]"
) -> None:
    """Train for some seconds once all are ready; steps a second."""
    torch.set_num_threads(threads)
    ratio = LABEL_RATIOS[CONFIGURATION]
    setting = training_preset("raise_plus", preset, CONFIGURATION, ratio)
    size = setting.image_size
    solver = registry.build("raise_plus", config_to_json(setting.config), size, seed=0)
    attributes = len(label_attributes(CONFIGURATION, setting.label_map))
    batches = RandomBatches(
        size, attributes, problems=PROBLEMS, labelled=int(ratio * PROBLEMS)
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    optimizers = solver.optimizers()
    solver.train()
    solver.set_step(0, 100)

    def step() -> None:
        for loss in solver.training_steps(batches, generator):
            optimizer = optimizers[loss.optimizer]
            optimizer.zero_grad(set_to_none=True)
            loss.total.backward()
            optimizer.step()

    for _ in range(WARM_UP):
        step()
    start.wait()
    began, steps = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        step()
        steps += 1
    rates.put(steps / passed)


def rates_of(preset: str, threads: int, processes: int, seconds: float) -> list[float]:
    """Steps a second of each process.

    :raises RuntimeError: if one of them ends without a figure.
    """
    context = multiprocessing.get_context("spawn")
    start, rates = context.Barrier(processes), context.Queue()
    running = [
        context.Process(target=train, args=(preset, threads, seconds, start, rates))
        for _ in range(processes)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join()
    if any(process.exitcode for process in running):
        raise RuntimeError("a training process ended with an error, see above")
    return [rates.get() for _ in running]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--preset", choices=PRESETS, default="lite")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    measured: dict[tuple[int, int], list[list[float]]] = {case: [] for case in CASES}
    for _ in range(arguments.repeats):
        for threads, processes in CASES:
            measured[threads, processes].append(
                rates_of(arguments.preset, threads, processes, arguments.seconds)
            )
    rows = [
        {
            "threads": threads,
            "processes": processes,
            "steps_per_second": statistics.median(rate for rates in found for rate in rates),
            "all_together": statistics.median(sum(rates) for rates in found),
        }
        for (threads, processes), found in measured.items()
    ]
    alone = rows[0]["all_together"]
    for row in rows:
        row["times_one"] = row["all_together"] / alone
        print(
            f"{row['processes']} process(es) of {row['threads']} thread(s): "
            f"{row['steps_per_second']:.2f} steps/s each, {row['times_one']:.2f} times one alone"
        )
    if arguments.json:
        print(json.dumps({"rows": rows, "seconds": arguments.seconds} | surroundings()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
