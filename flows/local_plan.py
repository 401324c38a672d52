"""The plan of a run from the flow's parameters, here or on a given cluster; asks no service."""

import logging
import os
from collections.abc import Mapping
from typing import Any

import torch
from prefect.exceptions import ParameterTypeError

from flows.costs import GPUS
from flows.full_repro import full_repro
from flows.plan import Plan, check_hours, make_plan
from flows.services import default_store
from flows.studies import Request
from raise_model.errors import UserError
from raise_model.store import Store
from tune_spaces.cluster import Resources, check_placement, resolve_resources


def validated(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of the flow with their defaults.

    :raises UserError: in one line, if a name or a value is wrong.
    """
    known = full_repro.parameters.properties
    for name in parameters:
        if name not in known:
            raise UserError(f"unknown parameter {name!r}; known: {', '.join(known)}")
    defaults = {name: about["default"] for name, about in known.items()}
    # Prefect logs what it raises, values and all.
    logger = logging.getLogger("prefect.flows")
    logger.disabled = True
    try:
        return full_repro.validate_parameters(defaults | dict(parameters))
    except ParameterTypeError as error:
        lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
        mistake = "; ".join(lines[1:])
        form = "; write a list as '[\"...\"]'" if "valid list" in mistake else ""
        raise UserError(f"{mistake}{form}") from error
    finally:
        logger.disabled = False


def plan_here(
    parameters: Mapping[str, Any], *, gpus: int = 0, gpu: str = "", slots: int = 0
) -> tuple[Plan, str]:
    """The plan for this machine or a given cluster, and why the flow would refuse it there.

    The reason is empty where it would not.

    :param gpus: those of a cluster that is not at hand; 0: this machine's cores and GPUs.
    :param gpu: their kind, one of :data:`flows.costs.GPUS`.
    :param slots: trials at once; 0: as many as fit.
    :raises UserError: if a parameter, or the kind, is not known.
    """
    values = validated(parameters)
    if gpus and values["device"] == "cpu":
        raise UserError(f"device=cpu uses none of {gpus} GPUs; leave out --gpus or device")
    gpus_there = gpus or torch.cuda.device_count()
    resources = resolve_resources(
        Resources(
            **{
                name: values[name]
                for name in ("device", "cpus_per_trial", "gpus_per_trial", "max_concurrent")
            }
        ),
        gpus_there,
    )
    device = resources.device
    preset = values["preset"]
    if preset == "auto":
        preset = "paper" if device == "cuda" else "lite"
    request = Request(
        preset=preset,
        **{
            name: values[name]
            for name in ("studies", "models", "configurations", "trials", "label_ratio", "data")
        },
    )
    cpus = os.cpu_count() or 1
    share = float(resources.cpus_per_trial)
    fitting = cpus // resources.cpus_per_trial
    if device == "cuda":
        share = resources.gpus_per_trial
        fitting = int(gpus_there / share)
        gpu = gpu or _kind_here()
    fitting = max(1, min(slots or fitting, resources.max_concurrent or slots or fitting))
    store = Store(values["store"] or default_store(preset))
    plan = make_plan(request, store, device=device, slots=fitting, share=share, gpu=gpu)
    try:
        if not gpus:
            node = {"CPU": cpus, "GPU": gpus_there}
            check_placement(resources, [node], "this machine's Ray cluster")
        check_hours(plan, request, store, values["max_hours"])
    except UserError as refusal:
        return plan, str(refusal)
    return plan, ""


def _kind_here() -> str:
    """Of this machine's first GPU; empty if there is none, or one that is not known."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return next((kind for kind in GPUS if kind in name), "")
