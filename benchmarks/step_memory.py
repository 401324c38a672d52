"""Memory of RAISE's training steps at paper size.

    python benchmarks/step_memory.py [--batch 512] [--steps 3] [--targets 1] [--json]

Forward, backward and optimiser (RMSprop, fp32, one thread) on panels of 64 x 64 pixels.  After
each step: the highest resident memory of the process so far, and what it holds now.  A step
that keeps something shows as growth from the second step on.
"""

import argparse
import json
import resource
import sys
from pathlib import Path

import torch
from surroundings import surroundings
from train_step import random_batch, training_step


def _memory(step: int) -> dict[str, int]:
    """MiB that the process holds after a step, and the most it ever held."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "step": step,
        "resident_mib": round(pages * resource.getpagesize() / 2**20),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10),
    }


def main() -> None:
    """Print a line a step, and with ``--json`` one JSON object last."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--targets", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    step = training_step(random_batch(arguments.batch), arguments.targets, "fp32")
    rows = [_memory(0)]
    for number in range(1, arguments.steps + 1):
        step()
        rows.append(_memory(number))
        print("after step {step}: {resident_mib} MiB, peak {peak_mib} MiB".format(**rows[-1]))
    result = {
        "benchmark": "step_memory",
        "rows": rows,
        "batch": arguments.batch,
        "targets": arguments.targets,
        **surroundings(),
    }
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
