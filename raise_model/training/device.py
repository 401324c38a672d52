"""Which device a training uses, and which precisions it has."""

import platform
from pathlib import Path
from typing import Literal

import torch

from raise_model.errors import UserError
from raise_model.specs import Precision

DeviceChoice = Literal["auto", "cpu", "cuda"]


def resolve_device(choice: DeviceChoice) -> torch.device:
    """:raises UserError: for ``cuda`` on a machine without a usable GPU."""
    if choice == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda, but torch finds no GPU on this machine; use device=cpu")
    if choice == "auto":
        choice = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(choice)


def _cpu_has_bf16() -> bool:
    """Whether the processor multiplies bf16 itself (else torch emulates it, many times slower)."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return any(flag in flags for flag in ("avx512_bf16", "amx_bf16", " bf16"))


def check_precision(precision: Precision, device: torch.device) -> None:
    """:raises UserError: if the device lacks the precision; it never falls back."""
    if precision == "fp32":
        return
    has = torch.cuda.is_bf16_supported() if device.type == "cuda" else _cpu_has_bf16()
    if not has:
        raise UserError(f"precision {precision} is not native to {device_name(device)}; use fp32")


def device_name(device: torch.device) -> str:
    """Name of the processor or GPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
