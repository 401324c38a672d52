"""What is recorded beside a result and is not part of its identity."""

import platform
from typing import Any

import numpy
import torch

from raise_model.training.device import device_name
from raise_model.version import commit, package_version


def provenance(device: torch.device) -> dict[str, Any]:
    """Hardware, threads, versions and commit of this process."""
    return {
        "device": device_name(device),
        "machine": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "raise_rpm": package_version(),
        "commit": commit(),
    }
