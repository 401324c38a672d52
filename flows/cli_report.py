"""The command that makes the report of a store."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.presets import PRESETS

if TYPE_CHECKING:
    from artifacts.gaps import Gap


@click.command()
@click.option(
    "--preset", type=click.Choice(list(PRESETS)), default=None,
    help="Only its trainings; default: every one, the largest preset first.",
)  # fmt: skip
@click.option(
    "--store", "root", default=None,
    help="Folder or s3:// URI; default: RAISE_HOME/store (smoke: RAISE_HOME/smoke).",
)  # fmt: skip
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), default=Path("report"),
    show_default=True, help="Folder to write; files of the same names are replaced.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end.")
def report(preset: str | None, root: str | None, output: Path, as_json: bool) -> None:
    """Every number of the paper with ours beside it: HTML, Markdown, LaTeX, CSV.

    Reads the store alone; needs no service.  Cells without a number are listed with the command
    that fills them.
    """
    from rich.console import Console
    from rich.table import Table

    from artifacts.report import build_report, write_report
    from flows.services import default_store
    from flows.tables import store_parameter
    from raise_model.store import Store

    seeds = PRESETS[preset].seeds if preset else 0
    store = Store(root or default_store(preset or ""))
    made = build_report(
        store, preset=preset, seeds=seeds, store_parameter=store_parameter(store, preset or "")
    )
    write_report(made.files(), output)
    coverage = made.coverage()
    table = Table(*map(str, coverage.columns), box=None, pad_edge=False)
    for row in coverage.itertuples(index=False):
        table.add_row(*map(str, row))
    Console().print(table)
    if not made.records:
        which = f" of preset {preset}" if preset else ""
        click.echo(f"no finished training{which} in {made.root}: the paper's numbers alone")
    if made.others:
        click.echo(made.others_text())
    _print_missing([*made.gaps, *made.own_gaps])
    path = (output / "report.html").absolute()
    click.echo(str(output / "report.html"))
    if as_json:
        value = made.summary() | {"report": os.fspath(path)}
        click.echo(json.dumps(value, allow_nan=False))


def _print_missing(gaps: Sequence["Gap"]) -> None:
    commands = [gap for gap in gaps if gap.command]
    if commands:
        click.echo("missing; to fill it (services: raise-rpm up):")
    for gap in commands:
        click.echo(f"  # {gap.text}\n  {gap.command}")


COMMANDS: Sequence[click.Command] = (report,)
