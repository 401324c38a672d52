"""Flow runs of the deployment: serve it, start a run, follow it, cancel it."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psutil
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    LogFilter,
    LogFilterFlowRunId,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort, LogSort
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.states import Cancelled, Cancelling, Crashed

from flows.credentials import check_prefect
from flows.processes import MARK
from flows.zombies import ensure_automation
from raise_model.errors import UserError
from tune_spaces.home import raise_home

FLOW = "raise"
DEPLOYMENT = "full-repro"
FULL_NAME = f"{FLOW}/{DEPLOYMENT}"
POLL_SECONDS = 1.0
CANCEL_SECONDS = 90.0
SETTLE_SECONDS = 10.0
UNFINISHED = [
    StateType.SCHEDULED,
    StateType.PENDING,
    StateType.RUNNING,
    StateType.CANCELLING,
]

_SERVER_WAIT_SECONDS = 180.0


def serve() -> None:
    """Register the deployment and run its flow runs, one at a time, until stopped."""
    from prefect.deployments.runner import RunnerDeployment
    from prefect.runner import Runner
    from prefect.types.entrypoint import EntrypointType

    from flows.full_repro import full_repro

    _wait_for_server()
    runner = Runner(name=DEPLOYMENT, limit=1, pause_on_shutdown=False)
    deployment = RunnerDeployment.from_flow(
        full_repro,
        name=DEPLOYMENT,
        description="The paper's tables: data, trainings, evaluations, report.",
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    runner.add_deployment(deployment)
    with get_client(sync_client=True) as client:
        ensure_automation(client, FLOW)
        if MARK in os.environ:
            # The only runner of an embedded server: whatever still says Running is not.
            end_lost_runs(client)
    _say_ready(raise_home() / "runner.ready")
    asyncio.run(runner.start())


def _say_ready(path: Path) -> None:
    """Unless the runner that ``up`` started has said so: it is the one that is asked about."""
    other = int(path.read_text() or 0) if path.exists() else 0
    if MARK in os.environ or not psutil.pid_exists(other):
        path.write_text(str(os.getpid()))


def _wait_for_server() -> None:
    deadline = time.monotonic() + _SERVER_WAIT_SECONDS
    with get_client(sync_client=True) as client:
        while (error := client.api_healthcheck()) is not None:
            if time.monotonic() > deadline:
                raise UserError(
                    f"no Prefect server answers at {client.api_url} ({error}); "
                    "start one by: raise-rpm up"
                )
            time.sleep(0.3)
        check_prefect(str(client.api_url))


def deployment_id(client: SyncPrefectClient) -> UUID:
    """:raises UserError: if the server has no such deployment, or none answers."""
    try:
        return client.read_deployment_by_name(FULL_NAME).id
    except ObjectNotFound as error:
        raise UserError(
            f"the Prefect server at {client.api_url} has no deployment {FULL_NAME}; "
            "serve it by: raise-rpm up"
        ) from error
    except httpx.HTTPError as error:
        raise UserError(
            f"no Prefect server answers at {client.api_url}; start one by: raise-rpm up"
        ) from error


def unfinished_runs(client: SyncPrefectClient) -> list[FlowRun]:
    """Runs of the deployment that have not ended, newest first."""
    return client.read_flow_runs(
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment_id(client)])),
        flow_run_filter=FlowRunFilter(
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=UNFINISHED))
        ),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
    )


def end_lost_runs(client: SyncPrefectClient) -> list[str]:
    """Runs whose runner was killed never say so themselves; returns their names."""
    ended = []
    for run in unfinished_runs(client):
        if run.state is None or run.state.type == StateType.SCHEDULED:
            continue
        message = "its runner was killed; the same parameters again go on where it stopped"
        state: State = Crashed(message=message)
        if run.state.type == StateType.CANCELLING:
            state = Cancelled(message="its runner was killed")
        client.set_flow_run_state(run.id, state, force=True)
        ended.append(run.name)
    return ended


def start_run(client: SyncPrefectClient, parameters: Mapping[str, Any]) -> FlowRun:
    """What ``prefect deployment run raise/full-repro`` does."""
    try:
        return client.create_flow_run_from_deployment(
            deployment_id(client), parameters=dict(parameters)
        )
    except PrefectHTTPStatusError as error:
        detail = error.response.json().get("detail")
        raise UserError(str(detail or error)) from error


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What is new of a flow run."""

    lines: list[str]
    percent: float | None
    """Of the run's progress artifact, None before there is one."""
    state: State | None


def follow(client: SyncPrefectClient, run_id: UUID) -> Iterator[Moment]:
    """New log lines, progress and state, about every second until the run has ended."""
    seen = 0
    while True:
        run = client.read_flow_run(run_id)
        logs = client.read_logs(
            LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run_id])),
            limit=200, offset=seen, sort=LogSort.TIMESTAMP_ASC,
        )  # fmt: skip
        seen += len(logs)
        ended = run.state is not None and run.state.is_final()
        percent, _ = read_progress(client, [run_id]).get(run_id, (None, ""))
        yield Moment(lines=[log.message for log in logs], percent=percent, state=run.state)
        if ended and not logs:
            return
        if not logs:
            time.sleep(POLL_SECONDS)


def read_progress(
    client: SyncPrefectClient, run_ids: Sequence[UUID]
) -> dict[UUID, tuple[float | None, str]]:
    """Percent and description of the newest progress artifact of each run that has one."""
    from flows.progress import ARTIFACT_KEY

    if not run_ids:
        return {}
    found = client.read_artifacts(
        artifact_filter=ArtifactFilter(
            flow_run_id=ArtifactFilterFlowRunId(any_=list(run_ids)),
            key=ArtifactFilterKey(any_=[ARTIFACT_KEY]),
        )
    )
    by_age = sorted(found, key=lambda artifact: artifact.created.timestamp())  # type: ignore[union-attr]
    return {
        artifact.flow_run_id: (
            None if artifact.data is None else float(artifact.data),  # type: ignore[arg-type]
            artifact.description or "",
        )
        for artifact in by_age
        if artifact.flow_run_id is not None
    }


def cancel(name: str | None, say: Callable[[str], None]) -> State:
    """Cancel a run, by name or id, else the newest unfinished one; waits until it has ended.

    :raises UserError: if there is none, or it does not end.
    """
    with get_client(sync_client=True) as client:
        runs = unfinished_runs(client)
        chosen = [run for run in runs if name in (None, run.name, str(run.id))]
        if not chosen:
            wanted = f"named {name} " if name else ""
            raise UserError(f"no unfinished run {wanted}of {FULL_NAME} at {client.api_url}")
        run = chosen[0]
        say(f"cancelling {run.name} ...")
        client.set_flow_run_state(run.id, Cancelling())
        return _wait_until_cancelled(client, run)


def _wait_until_cancelled(client: SyncPrefectClient, run: FlowRun) -> State:
    """Wait until a run that is cancelling has ended; its state then.

    The process that is told to stop says Crashed; its runner says Cancelled a moment later, or
    never if it was stopped too.  Who asked for the end knows better than either.
    """
    deadline = time.monotonic() + CANCEL_SECONDS
    settled = None
    while True:
        state = client.read_flow_run(run.id).state
        if state is not None and state.is_final():
            settled = settled or time.monotonic() + SETTLE_SECONDS
            if not state.is_crashed():
                return state
            if time.monotonic() >= settled:
                cancelled: State = Cancelled(message="cancelled by raise-rpm cancel")
                client.set_flow_run_state(run.id, cancelled, force=True)
                return cancelled
        elif time.monotonic() > deadline:
            raise UserError(
                f"{run.name} has not ended within {CANCEL_SECONDS:.0f} s; is its runner alive? "
                "see: raise-rpm status"
            )
        time.sleep(POLL_SECONDS)
