"""``raise-rpm demo``: start a run, follow it in the terminal, print the table."""

from collections.abc import Mapping
from typing import Any

from prefect.client.orchestration import get_client
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from flows.runs import follow, start_run
from flows.services import Services


def run_demo(parameters: Mapping[str, Any]) -> bool:
    """Run the deployment and show its progress; True if it completed."""
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
            for moment in follow(client, run.id):
                for line in moment.lines:
                    bar.console.print(line)
                if moment.percent is not None:
                    bar.update(task, completed=moment.percent)
                state = moment.state
    assert state is not None
    if not state.is_completed():
        console.print(f"the run ended as {state.name}: {state.message}")
        return False
    _print_table(parameters)
    return True


def _print_table(parameters: Mapping[str, Any]) -> None:
    from flows.local_plan import validated
    from flows.tables import print_results

    values = validated(parameters)
    print_results(values["store"] or None, values)
