"""The plan of a run on this machine, from the parameters of the flow; no service is needed."""

import logging
import os
from collections.abc import Mapping
from typing import Any

import torch
from prefect.exceptions import ParameterTypeError

from flows.full_repro import full_repro
from flows.plan import Plan, check_hours, make_plan
from flows.services import default_store
from flows.studies import Request
from raise_model.errors import UserError
from raise_model.store import Store
from raise_model.training.device import resolve_device


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
        raise UserError("; ".join(lines[1:])) from error
    finally:
        logger.disabled = False


def plan_here(parameters: Mapping[str, Any]) -> tuple[Plan, str]:
    """The plan with this machine's cores and GPUs as slots, and why the flow would refuse it.

    The reason is empty where it would not.
    """
    values = validated(parameters)
    device = resolve_device(values["device"]).type
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
    slots = (os.cpu_count() or 1) // values["cpus_per_trial"]
    if device == "cuda":
        slots = min(slots, int(torch.cuda.device_count() / (values["gpus_per_trial"] or 1.0)))
    slots = max(1, min(slots, values["max_concurrent"] or slots))
    store = Store(values["store"] or default_store(preset))
    plan = make_plan(request, store, device=device, slots=slots)
    try:
        check_hours(plan, request, store, values["max_hours"])
    except UserError as refusal:
        return plan, str(refusal)
    return plan, ""
