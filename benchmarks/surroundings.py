"""Where and on what a benchmark ran, for its JSON object."""

import os
from typing import Any

import torch

from raise_model.training.device import device_name
from raise_model.version import commit


def surroundings() -> dict[str, Any]:
    """Processor, its number of CPUs, version of torch, load, and commit."""
    return {
        "hardware": device_name(torch.device("cpu")),
        "cpus": os.cpu_count(),
        "torch": torch.__version__,
        "load": round(os.getloadavg()[0], 1),
        "commit": commit(),
    }
