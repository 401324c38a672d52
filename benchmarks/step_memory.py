"""Memory of RAISE's training steps at paper size.

    python benchmarks/step_memory.py [--batch 512] [--steps 3] [--targets 1] [--json]

Forward, backward and optimiser (RMSprop, fp32, one thread) on panels of 64 x 64 pixels.  After
each step: the highest resident memory of the process so far, and what it holds now.  A step
that keeps something shows as growth from the second step on.
"""

import argparse
import json
import os
import resource
import sys
from dataclasses import replace
from pathlib import Path

import torch

from raise_model.models import registry
from raise_model.models.raise_net.config import paper
from raise_model.models.solver import config_to_json
from raise_model.problem import Batch
from raise_model.training.device import device_name
from raise_model.version import commit

SIZE, ATTRIBUTES = 64, 3


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main() -> None:
    """Print a line a step, and with ``--json`` one JSON object last."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--targets", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    batch = Batch(
        index=torch.arange(arguments.batch),
        panels=torch.rand(arguments.batch, 9, 1, SIZE, SIZE, generator=generator),
        rule_labels=torch.randint(4, (arguments.batch, ATTRIBUTES), generator=generator),
    )
    config = replace(paper(), targets_per_problem=arguments.targets)
    solver = registry.build("raise", config_to_json(config), SIZE, seed=0)
    (optimizer,) = solver.optimizers().values()
    rows = [{"step": 0, "resident_mib": round(_resident_mib()), "peak_mib": round(_peak_mib())}]
    for step in range(1, arguments.steps + 1):
        solver.set_step(step, 100)
        optimizer.zero_grad()
        solver.loss(batch, generator).total.backward()  # type: ignore[operator]
        optimizer.step()
        rows.append(
            {"step": step, "resident_mib": round(_resident_mib()), "peak_mib": round(_peak_mib())}
        )
        print("after step {step}: {resident_mib} MiB, peak {peak_mib} MiB".format(**rows[-1]))
    result = {
        "benchmark": "step_memory",
        "rows": rows,
        "batch": arguments.batch,
        "targets": arguments.targets,
        "hardware": device_name(torch.device("cpu")),
        "torch": torch.__version__,
        "load": round(os.getloadavg()[0], 1),
        "commit": commit(),
    }
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
