"""Runs of the deployment as the servers tell, from any machine that reaches them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
    DeploymentFilter,
    DeploymentFilterId,
)
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort

from flows.progress import ARTIFACT_KEY, STAGES
from flows.runs import deployment_id, unfinished_runs

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
    progress = _progress(client, list(runs.values()))
    defaults = client.read_deployment(deployment).parameter_openapi_schema or {}
    found = [
        _status(run, *progress.get(str(run.id), (None, "")), defaults.get("properties", {}))
        for run in runs.values()
    ]
    order = [str(run.id) for run in sorted(runs.values(), key=_expected, reverse=True)]
    return sorted(found, key=lambda status: order.index(status.id))


def _expected(run: FlowRun) -> float:
    time = run.expected_start_time or run.created
    return time.timestamp() if time else 0.0


def _progress(
    client: SyncPrefectClient, runs: Sequence[FlowRun]
) -> dict[str, tuple[float | None, str]]:
    """Percent and description of the newest progress artifact of each run that has one."""
    if not runs:
        return {}
    found = client.read_artifacts(
        artifact_filter=ArtifactFilter(
            flow_run_id=ArtifactFilterFlowRunId(any_=[run.id for run in runs]),
            key=ArtifactFilterKey(any_=[ARTIFACT_KEY]),
        )
    )
    by_age = sorted(found, key=lambda artifact: artifact.created.timestamp())  # type: ignore[union-attr]
    return {
        str(artifact.flow_run_id): (
            None if artifact.data is None else float(artifact.data),  # type: ignore[arg-type]
            artifact.description or "",
        )
        for artifact in by_age
    }


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
