"""The command that makes the report of a store."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli_data import store_option
from flows.presets import PRESETS

if TYPE_CHECKING:
    from artifacts.gaps import Gap


@click.command()
@click.option(
    "--preset", type=click.Choice(list(PRESETS)), default=None,
    help="Only its trainings (smoke: of RAISE_HOME/smoke).  [default: every one, the largest "
    "preset first]",
)  # fmt: skip
@store_option
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), default=Path("report"),
    show_default=True, help="Folder to write; files of the same names are replaced.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end.")
def report(preset: str | None, root: str | None, output: Path, as_json: bool) -> None:
    """Every number of the paper with ours beside it.

    As HTML, Markdown, LaTeX and CSV.  Reads the store alone; needs no service.  Cells without a
    number are listed with the command that fills them.
    """
    from rich.console import Console
    from rich.table import Table

    from artifacts.report import build_report, write_report
    from flows.services import default_store
    from flows.tables import store_parameter
    from raise_model.store import Store, check_exists

    seeds = PRESETS[preset].seeds if preset else 0
    store = Store(root or default_store(preset or ""))
    check_exists(store)
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
