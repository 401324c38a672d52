"""The flow ``raise``, deployed as ``raise/full-repro``: data, trainings, evaluations, table.

Every stage reads the store first and does what is missing, so the flow can be killed at any
moment and started again.  What a user can mend fails the run with one line, in its log and in
its state, without a traceback.
"""

import logging
import os
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import ray
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Completed
from pydantic import Field

from artifacts.tracking import Tracker
from flows.board import Board
from flows.costs import Costs
from flows.evaluate import evaluate
from flows.ingest import ingest
from flows.lowering import waves
from flows.plan import check_hours, make_plan
from flows.presets import Configuration, DataSource, PresetName, Study
from flows.progress import Progress
from flows.report import report
from flows.services import default_store
from flows.studies import Lowered, Request, lower
from flows.sweep import train
from raise_model.errors import UserError
from raise_model.store import Store
from raise_model.training.device import DeviceChoice
from tune_spaces.cluster import Resources, connect, preflight, resolve_resources


class _OneLine(logging.Filter):
    """Log records of a user's mistake lose their traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, UserError):
            record.exc_info = record.exc_text = None
            record.msg, record.args = f"error: {error}", ()
        return True


def _tracking_uri() -> str:
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    if not uri:
        raise UserError("MLFLOW_TRACKING_URI is not set; start the services by: raise-rpm up")
    return uri


def _resolve_preset(preset: str) -> str:
    if preset != "auto":
        return preset
    return "paper" if ray.cluster_resources().get("GPU", 0) > 0 else "lite"


def slots_of_cluster(resources: Resources) -> int:
    """Trials that fit into the cluster at once."""
    total = ray.cluster_resources()
    slots = int(total.get("CPU", 0) // resources.cpus_per_trial)
    if resources.gpus_per_trial:
        slots = min(slots, int(total.get("GPU", 0) / resources.gpus_per_trial))
    return max(1, min(slots, resources.max_concurrent or slots))


def _fail_if_incomplete(failed: Sequence[str], total: int) -> None:
    if failed:
        raise UserError(
            f"{len(failed)} of {total} trials and evaluations failed, the first: {failed[0]}; "
            "the same command again runs only these"
        )


def _stages(
    store: Store,
    request: Request,
    resources: Resources,
    tracker: Tracker,
    params: dict[str, Any],
    strict: bool,
) -> str:
    """Run the four stages; returns the run's closing line.

    Where there are several seeds, a first table is made of the first ones.
    """
    progress = Progress()
    digests = ingest(store, request, progress, strict)
    lowered = lower(request, lambda *split: digests[split])
    tracker.start_study(request.preset, lowered.trials, params)
    tracker.reconcile(store)
    costs = Costs(store, request.preset, resources.device)
    board = Board(lowered.trials, cost=lambda spec: costs.step(spec).seconds)
    ended: Counter[str] = Counter()
    trained = 0
    failed: dict[str, str] = {}
    parts = waves(store, lowered.trials, slots_of_cluster(resources))
    for number, part in enumerate(parts, start=1):
        swept = train(store, part, resources, tracker, progress, board, prunable=lowered.prunable)
        done = set(swept.done)
        pairs = [pair for pair in lowered.evaluations if pair[0] in done]
        total = len(lowered.evaluations)
        evaluated = evaluate(store, pairs, resources, progress, ended, total)
        trained += len(done)
        failed |= {**swept.failed, **evaluated.failed}
        if number < len(parts):
            report(store, lowered, request.preset, tracker, progress, is_last=False)
    table = report(store, lowered, request.preset, tracker, progress, is_last=True)
    failures = [f"{name}: {why}" for name, why in failed.items()]
    _fail_if_incomplete(failures, len(lowered.trials) + len(lowered.evaluations))
    for row in table.to_rows():
        model, *cells = row.items()
        get_run_logger().info(
            "%s: %s", model[1], ", ".join(f"{name} {value}" for name, value in cells)
        )
    get_run_logger().info("MLflow: %s/%s", tracker.uri, tracker.experiment_path)
    return f"{trained} trials, {ended['done']} evaluations"


def _trials_to_check(request: Request) -> Lowered:
    """What the preflight needs to know of the trials, before there are data."""
    return lower(request, lambda *split: "0" * 64)


@flow(name="raise")
def full_repro(
    preset: PresetName = "auto",
    studies: list[Study] = [],  # noqa: B006
    models: list[str] = [],  # noqa: B006
    configurations: list[Configuration] = [],  # noqa: B006
    trials: Annotated[int, Field(ge=0, le=100)] = 0,
    label_ratio: Annotated[float, Field(ge=-1, le=1)] = -1.0,
    store: str = "",
    data: DataSource = "generated",
    device: DeviceChoice = "auto",
    cpus_per_trial: Annotated[int, Field(ge=1)] = 1,
    gpus_per_trial: Annotated[float, Field(ge=0)] = 0.0,
    max_concurrent: Annotated[int, Field(ge=0)] = 0,
    max_hours: Annotated[float, Field(gt=0)] = 24.0,
    strict: bool = False,
) -> State:
    """Reproduce the paper, or a part of it.

    Args:
        preset: Scale. auto is paper if the cluster has GPUs, else lite; demo takes minutes.
        studies: Parts of the paper; none means all of the preset.
        models: Solvers, e.g. raise; none means all of the preset.
        configurations: RAVEN configurations; none means all of the preset.
        trials: Seeds of each training; 0 means as many as the preset has.
        label_ratio: Share of training problems with rule labels, 0 to 1; -1 means the paper's.
        store: Folder or s3:// URI of data and results; empty means RAISE_HOME/store, for smoke
            RAISE_HOME/smoke.
        data: generated; published for files that raise-rpm ingest has read; paired or
            overlapping for other I-RAVEN tests: RAVEN's contexts, or a share of them.
        device: auto uses GPUs if the cluster has any.
        cpus_per_trial: CPUs, and threads, of a trial.
        gpus_per_trial: GPUs of a trial, e.g. 0.25; 0 on cuda means one.
        max_concurrent: Trials at once; 0 means as many as fit.
        max_hours: A plan that takes longer is refused before it starts.
        strict: Refuse test problems that training shows, instead of reporting them apart.
    """
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        _silence_tracebacks(logging.getLogger(name))
    connect()
    request = Request(
        preset=_resolve_preset(preset), studies=studies, models=models,
        configurations=configurations, trials=trials, label_ratio=label_ratio, data=data,
    )  # fmt: skip
    resources = resolve_resources(
        Resources(
            device=device, cpus_per_trial=cpus_per_trial, gpus_per_trial=gpus_per_trial,
            max_concurrent=max_concurrent,
        )
    )  # fmt: skip
    target = Store(store or default_store(request.preset))
    plan = make_plan(
        request, target, device=resources.device, slots=slots_of_cluster(resources),
        share=resources.gpus_per_trial or resources.cpus_per_trial,
    )  # fmt: skip
    get_run_logger().info("%s", plan.line())
    check_hours(plan, request, target, max_hours)
    if plan.has_work:
        preflight(resources, target, _trials_to_check(request).trials)
    target = Store(target.root, patient=True)
    with Tracker(_tracking_uri()) as tracker:
        params = {"preset": request.preset, "data": data, "device": resources.device}
        return Completed(message=_stages(target, request, resources, tracker, params, strict))


def _silence_tracebacks(logger: logging.Logger) -> None:
    if not any(isinstance(known, _OneLine) for known in logger.filters):
        logger.addFilter(_OneLine())
