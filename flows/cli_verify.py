"""Commands that check data, and write them as other people's programs read them."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli_data import (
    Place,
    configurations_option,
    open_store,
    store_option,
    with_bar,
    workers_option,
)

if TYPE_CHECKING:
    from raise_model.data.verify import SetReport

SPLITS = ("train", "val", "test")
_COLUMNS = {
    "problems": "problems",
    "panels": "panels",
    "differing_pixels": "differing pixels",
    "differing_panels": "panels that differ",
    "redrawn_panels": "of these at edges only",
    "rule_violations": "rule violations",
    "wrong_answers": "wrong answers",
    "ambiguous_answers": "ambiguous answers",
    "bad_annotations": "bad annotations",
    "unreadable": "unreadable",
}


@click.command()
@click.argument("path", type=Place())
@click.option("--exact", is_flag=True, help="Fail on panels that differ at edges only, too.")
@workers_option
def verify(path: str, exact: bool, workers: int) -> None:
    """Check data against their annotations.

    PATH is a store, a part of it, or published RAVEN or I-RAVEN problems (folder, zip, tar, hub
    Parquet).  Every panel is drawn again and compared by pixel, every rule is checked, and
    exactly one candidate must obey the rules.  Prints totals, and one JSON object last.  Exit
    status 1 if anything is wrong.
    """
    from raise_model.data.verify import verify as check

    reports: list[SetReport] = []

    def work(report: Callable[[int, int], None]) -> None:
        reports.extend(check(path, workers=workers, progress=report))

    with_bar("checking", work)
    _print(reports)
    violations = sum(found.totals.violations(exact=exact) for found in reports)
    value = _sums(reports) | {
        "path": path,
        "ok": violations == 0,
        "exact": exact,
        "violations": violations,
        "sets": [asdict(found) for found in reports],
    }
    click.echo(json.dumps(value, allow_nan=False))
    if violations:
        sys.exit(1)


def _sums(reports: "Sequence[SetReport]") -> dict[str, int]:
    return {name: sum(getattr(r.totals, name) for r in reports) for name in _COLUMNS}


def _print(reports: "Sequence[SetReport]") -> None:
    for found in reports:
        _print_line(f"{found.dataset}/{found.configuration}", asdict(found.totals))
    _print_line("all", _sums(reports))
    for found in reports:
        for text in found.examples:
            click.echo(f"violation: {text}")
        for text in found.notes:
            click.echo(f"note: {text}; shape, place and fill agree")


def _print_line(title: str, counts: dict[str, int]) -> None:
    click.echo(f"{title}: " + ", ".join(f"{counts[key]} {text}" for key, text in _COLUMNS.items()))


@click.command("export-published")
@click.argument("folder", type=Place(file_okay=False, path_type=Path))
@click.option("--dataset", default="raven", show_default=True, help="Name of a data set.")
@configurations_option
@click.option(
    "--split", "splits", type=click.Choice(SPLITS), multiple=True, default=SPLITS,
    show_default=True, help="May be given several times.",
)  # fmt: skip
@store_option
def export_published(
    folder: Path,
    dataset: str,
    configurations: Sequence[str],
    splits: Sequence[str],
    root: str | None,
) -> None:
    """Write problems as RAVEN_<index>_<split>.npz and .xml.

    Into FOLDER.  Files that are there with the same content are kept; others are never
    overwritten.
    """
    from raise_model.data.published_export import export

    store = open_store(root)
    for configuration, split in product(configurations, splits):
        name = f"{dataset}/{configuration}/{split}"

        def work(
            report: Callable[[int, int], None],
            configuration: str = configuration,
            split: str = split,
            name: str = name,
        ) -> None:
            written = export(
                store, folder, dataset=dataset, configuration=configuration, split=split,
                progress=report,
            )  # fmt: skip
            click.echo(f"{name}: {written} problems in {folder}")

        with_bar(name, work)


COMMANDS: Sequence[click.Command] = (verify, export_published)
