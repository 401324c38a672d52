"""``raise-rpm demo``: start a run, follow it in the terminal, print the table."""

from collections.abc import Mapping
from typing import Any

import httpx
from prefect.client.orchestration import get_client
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from flows.runs import follow, start_run
from flows.services import Services
from raise_model.errors import UserError


def run_demo(parameters: Mapping[str, Any]) -> bool:
    """Run the deployment and show its progress; True if it completed.

    :raises UserError: if the server refuses the run, or goes away.
    """
    services = Services()
    services.reach_prefect()
    console = Console(stderr=True, highlight=False, markup=False)
    with get_client(sync_client=True) as client:
        run = start_run(client, parameters)
        url = f"{services.known()['prefect'].url}/runs/flow-run/{run.id}"
        console.print(f"flow run {run.name}: {url}", soft_wrap=True)
        percent = TextColumn("{task.percentage:.0f} %")
        columns = (TextColumn("{task.description}"), BarColumn(), percent, TimeElapsedColumn())
        state = None
        with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task(run.name, total=100)
            try:
                for moment in follow(client, run.id):
                    for line in moment.lines:
                        bar.console.print(line)
                    if moment.percent is not None:
                        bar.update(task, completed=moment.percent)
                    state = moment.state
            except httpx.HTTPError as error:
                raise UserError(
                    f"the Prefect server of {url} went away ({error!r}); what is left of it and "
                    "of the run: raise-rpm status"
                ) from error
            except KeyboardInterrupt:
                _say_no_longer_watched(console, services, run.name)
                raise
    assert state is not None
    if not state.is_completed():
        console.print(f"the run ended as {state.name}: {state.message}")
        return False
    _print_table(parameters)
    return True


def _say_no_longer_watched(console: Console, services: Services, name: str) -> None:
    """The run is a process of the services, which an interrupt of this one does not reach."""
    if "runner" in services.alive():
        console.print(f"{name} goes on in the services; stop it by: raise-rpm cancel {name}")
    else:
        console.print(f"{name} has stopped with its runner; the same command goes on with it")


def _print_table(parameters: Mapping[str, Any]) -> None:
    from flows.local_plan import validated
    from flows.tables import print_results

    values = validated(parameters)
    print_results(values["store"] or None, values)
