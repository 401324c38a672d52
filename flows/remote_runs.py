"""Runs of the deployment as the servers tell, from any machine that reaches them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
)
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort

from flows.progress import STAGES
from flows.runs import deployment_id, read_progress, unfinished_runs

SHOWN = 5
"""Newest runs to show; unfinished ones are shown all."""


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """One flow run."""

    name: str
    id: str
    state: str
    """Prefect's name of it, e.g. ``Running`` or ``Late``."""
    message: str
    seconds: float
    """Of running so far."""
    percent: float | None
    """None before the run has said."""
    stages: Mapping[str, str]
    """What each stage that has begun says of itself: trials done, running and failed, best
    accuracy, time left."""
    parameters: Mapping[str, Any]
    """Those that differ from the flow's defaults."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_runs(client: SyncPrefectClient, shown: int = SHOWN) -> list[RunStatus]:
    """Unfinished runs and the newest others, newest first.

    :raises UserError: if no server answers, or it lacks the deployment.
    """
    deployment = deployment_id(client)
    newest = client.read_flow_runs(
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment])),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
        limit=shown,
    )
    runs = {run.id: run for run in (*unfinished_runs(client), *newest)}
    progress = read_progress(client, list(runs))
    defaults = client.read_deployment(deployment).parameter_openapi_schema or {}
    found = [
        _status(run, *progress.get(run.id, (None, "")), defaults.get("properties", {}))
        for run in runs.values()
    ]
    order = [str(run.id) for run in sorted(runs.values(), key=_expected, reverse=True)]
    return sorted(found, key=lambda status: order.index(status.id))


def _expected(run: FlowRun) -> float:
    time = run.expected_start_time or run.created
    return time.timestamp() if time else 0.0


def _status(
    run: FlowRun, percent: float | None, description: str, known: Mapping[str, Any]
) -> RunStatus:
    state = run.state
    return RunStatus(
        name=run.name,
        id=str(run.id),
        state=state.name or state.type.value if state else "unknown",
        message=(state.message or "") if state else "",
        seconds=run.estimated_run_time.total_seconds(),
        percent=percent,
        stages=_stages(description),
        parameters={
            name: value
            for name, value in run.parameters.items()
            if value != known.get(name, {}).get("default")
        },
    )


def _stages(description: str) -> dict[str, str]:
    """Lines ``- stage: what it says`` of a progress artifact, of stages that have begun."""
    found = {}
    for line in description.splitlines():
        stage, _, text = line.removeprefix("- ").partition(": ")
        if stage in STAGES and text and text != "to come":
            found[stage] = text
    return found
