"""Flow runs whose process was lost without a word: the server ends them by itself.

A flow run sends a heartbeat every few minutes; a self-hosted server does nothing with them
until an automation is made.  The one here marks a run of this flow Crashed when three
heartbeats in a row are missing.  It proposes the state and does not force it: a server refuses
to make a run Crashed that has ended, so a lost or late "Completed" event undoes nothing; and a
run that was only cut off for a while still ends as what it ends as.
"""

from datetime import timedelta

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.settings import get_current_settings

NAME = "raise: end lost runs"
HEARTBEAT = "prefect.flow-run.heartbeat"
ENDED = [f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")]
MISSED = 3
DEFAULT_SECONDS = 180
MESSAGE = "no heartbeat: its process or machine was lost; the same parameters again go on"


def automation(flow: str) -> AutomationCore:
    """The automation for the runs of a flow."""
    seconds = get_current_settings().flows.heartbeat_frequency or DEFAULT_SECONDS
    return AutomationCore(
        name=NAME,
        description=f"Runs of {flow} that send no heartbeat any more are marked Crashed.",
        enabled=True,
        trigger=EventTrigger(
            match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
            match_related=ResourceSpecification(
                {"prefect.resource.role": "flow", "prefect.resource.name": flow}
            ),
            for_each={"prefect.resource.id"},
            after={HEARTBEAT},
            expect={HEARTBEAT, *ENDED},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=MISSED * seconds),
        ),
        actions=[
            ChangeFlowRunState(name=None, state=StateType.CRASHED, message=MESSAGE, force=False)
        ],
    )


def ensure_automation(client: SyncPrefectClient, flow: str) -> None:
    """Make the automation, or bring the one that is there up to date; there is never a second."""
    known = client.read_automations_by_name(NAME)
    wanted = automation(flow)
    if not known:
        client.create_automation(wanted)
        return
    # Two that were made in the same moment become one again.
    for extra in known[1:]:
        client.delete_automation(extra.id)
    same = ("trigger", "actions")
    if known[0].model_dump(include=set(same)) != wanted.model_dump(include=set(same)):
        client.update_automation(known[0].id, wanted)
