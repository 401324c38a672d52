"""Commands on trials and what they leave: a live table, a clean-up, the server's watch."""

import json
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flows.board import duration
from flows.cli_data import open_existing_store, smoke_hint, store_option

if TYPE_CHECKING:
    from rich.table import Table

    from flows.clean import Item
    from flows.trial_states import TrialState

FOLLOW_SECONDS = 5.0
SILENT_SECONDS = 60.0
"""A claim's counter stands still for a third of this at most while its trial lives."""


@click.command()
@click.option("--all", "everything", is_flag=True, help="Those that are done, too.")
@click.option("--follow", is_flag=True, help="Go on until no trial runs any more.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end.")
@store_option
def trials(everything: bool, follow: bool, as_json: bool, root: str | None) -> None:
    """A table of the store's trials.

    How far each is, how good, and how long it still trains at its mean speed.  Works from any
    machine that reaches the store.
    """
    from rich.console import Console
    from rich.live import Live

    from flows.trial_states import Observer

    observer = Observer(open_existing_store(root))
    found = observer.look()
    if follow:
        with Live(_table(found, everything), console=Console(stderr=True)) as live:
            while any(state.state == "running" for state in found):
                time.sleep(FOLLOW_SECONDS)
                found = observer.look()
                live.update(_table(found, everything))
    Console().print(_table(found, everything))
    if not found:
        click.echo(f"no trial in {observer.store.root}{smoke_hint(observer.store)}", err=True)
    failed = [state.name for state in found if state.state == "failed"]
    if failed:
        place = f" --store {root}" if root else ""
        click.echo(f"why one failed: raise-rpm logs {failed[0]}{place}", err=True)
    if as_json:
        click.echo(json.dumps({"trials": [asdict(state) for state in found]}, allow_nan=False))


def _table(states: "Sequence[TrialState]", everything: bool) -> "Table":
    from rich.table import Table

    counts = Counter(state.state for state in states)
    title = ", ".join(f"{number} {state}" for state, number in counts.items()) or "no trial yet"
    table = Table(title=f"trials: {title}", title_justify="left", box=None, pad_edge=False)
    table.add_column("trial", overflow="fold")
    for column in ("state", "step", "accuracy", "attempt", "time left"):
        table.add_column(column, justify="left" if column == "state" else "right")
    table.add_column("", overflow="fold")
    for state in states:
        if everything or state.state != "done":
            left, silent = state.seconds_left, state.silent_seconds
            table.add_row(
                state.name, state.state, f"{state.step:,}/{state.steps:,}",
                "" if state.accuracy is None else f"{state.accuracy:.3f}", str(state.attempt),
                "" if left is None else duration(left),
                f"silent for {duration(silent)}" if silent > SILENT_SECONDS else state.detail,
            )  # fmt: skip
    return table


@click.command()
@click.option("--days", default=7.0, show_default=True, type=click.FloatRange(0, min_open=True),
              help="Age of half-written files, arrays and logs to delete.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Delete what is listed.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end.")
@store_option
def clean(days: float, yes: bool, as_json: bool, root: str | None) -> None:
    """List what nobody needs any more, and with --yes delete it.

    Checkpoints of finished trials that only a resumed training would read; files that a killed
    process left half-written; derived arrays of data sets that the store does not have; logs of
    services that are down.  Results, best weights, unfinished trials and whatever somebody holds
    stay.
    """
    from rich.console import Console

    from flows.clean import DAYS, delete, find_items
    from flows.services import Services

    store, services = open_existing_store(root), Services()
    items = find_items(store, services.home, days=days, services=services.alive())
    Console().print(_items_table(items))
    total = f"{len(items)} items, {sum(item.size for item in items) / 1e6:.1f} MB"
    if yes:
        delete(store, items)
        click.echo(f"{total} deleted")
    else:
        again = "raise-rpm clean --yes" + (f" --days {days:g}" if days != DAYS else "")
        again += f" --store {shlex.quote(root)}" if root else ""
        click.echo(f"{total}; delete them by: {again}" if items else "nothing to do")
    if as_json:
        value = {"deleted": yes, "items": [asdict(item) for item in items]}
        click.echo(json.dumps(value, allow_nan=False))


def _items_table(items: "Sequence[Item]") -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("kind", "MB"):
        table.add_column(column, justify="right" if column == "MB" else "left", no_wrap=True)
    for column in ("path", "why"):
        table.add_column(column, overflow="fold")
    for item in items:
        table.add_row(item.kind, f"{item.size / 1e6:.2f}", item.path, item.why)
    return table


@click.command()
def watch() -> None:
    """Have Prefect mark runs whose process was lost.

    They read Crashed then.  `serve` does this too.
    """
    from flows.services import Services

    Services().reach_prefect()
    from prefect.client.orchestration import get_client

    from flows.runs import FLOW
    from flows.zombies import NAME, ensure_automation

    with get_client(sync_client=True) as client:
        ensure_automation(client, FLOW)
        click.echo(f"{client.api_url} has the automation {NAME!r}")


COMMANDS: Sequence[click.Command] = (trials, clean, watch)
