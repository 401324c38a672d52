"""Commands on data, trials and results."""

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.parameters import ParametersCommand
from flows.presets import CONFIGURATIONS
from raise_model.errors import UserError

if TYPE_CHECKING:
    from raise_model.data.schema import Manifest
    from raise_model.store import Store, TrialFolder

POLL_SECONDS = 1.0

store_option = click.option(
    "--store", "root", default=None, envvar="RAISE_STORE",
    help="Folder or s3:// URI.  [default: RAISE_STORE, else RAISE_HOME/store; preset smoke has "
    "RAISE_HOME/smoke]",
)  # fmt: skip
configurations_option = click.option(
    "--configuration", "configurations", type=click.Choice(CONFIGURATIONS), multiple=True,
    metavar="NAME", default=["center"],
    help=f"May be given several times: {', '.join(CONFIGURATIONS)}.",
)  # fmt: skip
workers_option = click.option(
    "--workers", default=os.cpu_count() or 1, show_default=True, type=click.IntRange(1),
    help="Processes at once.",
)  # fmt: skip


class Place(click.Path):
    """A path or URI that is not empty: a shell's variable that is not set means no folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty; is a variable of the shell not set?", param, ctx)
        return super().convert(value, param, ctx)


def open_store(root: str | None) -> "Store":
    """The store of an option, or that of this home."""
    from flows.services import default_store
    from raise_model.store import Store

    return Store(root or default_store())


def open_existing_store(root: str | None) -> "Store":
    """The same for commands that only read.

    :raises UserError: if there is no such store; it names that of smoke runs, where it is.
    """
    from raise_model.store import check_exists

    store = open_store(root)
    try:
        check_exists(store)
    except UserError as error:
        raise UserError(f"{error}{smoke_hint(store)}") from error
    return store


def smoke_hint(store: "Store") -> str:
    """Where this home's smoke runs are, if not in ``store``; empty without any."""
    from flows.services import default_store

    smoke = default_store("smoke")
    is_other = store.root != smoke and os.path.isdir(smoke)
    return f"; runs of preset smoke are in --store {smoke}" if is_other else ""


def with_bar(title: str, work: Callable[[Callable[[int, int], None]], None]) -> None:
    """Run ``work`` with a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None)
        work(lambda done, total: bar.update(task, completed=done, total=total))


@click.command()
@click.option(
    "--dataset", default="raven", show_default=True,
    type=click.Choice(["raven", "iraven", "iraven_paired", "iraven_overlapping"]),
    metavar="NAME", help="raven, iraven, iraven_paired or iraven_overlapping.",
)  # fmt: skip
@configurations_option
@click.option(
    "--problems", default=10_000, show_default=True, type=click.IntRange(10),
    help="Of each configuration: six tenths train, two validate, two test.",
)  # fmt: skip
@click.option(
    "--held-out", is_flag=True,
    help="Also the data set <name>_held_out: the same problems, split by rule.",
)  # fmt: skip
@workers_option
@store_option
def generate(
    dataset: str,
    configurations: Sequence[str],
    problems: int,
    held_out: bool,
    workers: int,
    root: str | None,
) -> None:
    """Make problems with the project's own generator.

    Complete data are not made again.
    """
    from raise_model.data.generate import check_request
    from raise_model.data.generate import generate as make
    from raise_model.data.held_out import check_held_out, hold_out

    for configuration in configurations:
        check_request(dataset, configuration, problems)
        if held_out:
            check_held_out(configuration)
    store = open_store(root)
    store.probe()
    for configuration in configurations:

        def work(report: Callable[[int, int], None], configuration: str = configuration) -> None:
            manifests = make(
                store, dataset=dataset, configuration=configuration, problems=problems, seed=None,
                workers=workers, progress=report,
            )  # fmt: skip
            _echo_manifests(manifests.values())

        with_bar(f"problems {dataset}/{configuration}", work)
        if held_out:
            with_bar(
                f"problems {dataset}/{configuration} held out",
                lambda report, configuration=configuration: _echo_manifests(
                    hold_out(store, dataset, configuration, report).values()
                ),
            )


def _echo_manifests(manifests: "Iterable[Manifest]") -> None:
    for made in manifests:
        place = f"{made.dataset}/{made.configuration}/{made.split}"
        click.echo(f"{place}: {made.problems} problems, {made.digest[:16]}")


@click.command()
@click.argument("paths", nargs=-1, required=True, type=Place())
@click.option(
    "--dataset", default=None,
    help="Name of the data set.  [default: raven_published or iraven_published, as the files say]",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Fail if a file is damaged, missing or unpaired.")
@workers_option
@store_option
def ingest(
    paths: Sequence[str], dataset: str | None, strict: bool, workers: int, root: str | None
) -> None:
    """Read published RAVEN or I-RAVEN problems.

    What is damaged is listed and left out.  PATHS are folders, .zip, .tar or .tar.gz archives of
    them, or the hub's Parquet files, on this machine or at any URI that fsspec reads (s3://...);
    nothing is unpacked.
    """
    from raise_model.data.ingest import ingest as read

    store = open_store(root)
    store.probe()

    def work(report: Callable[[int, int], None]) -> None:
        outcome = read(
            store, paths, dataset=dataset, strict=strict, workers=workers, progress=report
        )
        for file in outcome.rejected:
            click.echo(f"rejected {file.path}: {file.reason}")
        if outcome.rejected:
            click.echo(f"{len(outcome.rejected)} files or problems rejected, the others read:")
        _echo_manifests(outcome.manifests)

    with_bar("reading", work)


def parse_parameters(pairs: Sequence[str]) -> dict[str, Any]:
    """``key=value`` pairs as ``prefect deployment run -p`` reads them: JSON, else text."""
    parameters: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"-p {pair}: write it as name=value")
        try:
            parameters[key] = json.loads(value)
        except ValueError:
            parameters[key] = value
    return parameters


def find_trial(store: "Store", prefix: str) -> "TrialFolder":
    """:raises UserError: if no trial, or more than one, has a name that begins so."""
    found = [name for name in store.list("trials") if name.startswith(prefix)]
    if not found:
        raise UserError(f"no trial {prefix} in {store.root}{smoke_hint(store)}")
    if len(found) > 1 and prefix not in found:
        raise UserError(f"{prefix} is short for {len(found)} trials, e.g. {', '.join(found[:3])}")
    return store.trial(prefix if prefix in found else found[0])


@click.command()
@click.argument("trial")
@click.option(
    "--lines", default=40, show_default=True, type=click.IntRange(1), help="Of the end of it."
)
@click.option("--follow", is_flag=True, help="Go on as the log grows, until the trial is done.")
@store_option
def logs(trial: str, lines: int, follow: bool, root: str | None) -> None:
    """The end of a trial's log.

    TRIAL may be the beginning of its name.
    """
    store = open_existing_store(root)
    folder = find_trial(store, trial)
    path = folder.file("log.txt")
    if not store.exists(path) and not follow:
        raise UserError(f"{folder.name} has no log yet")
    click.echo(f"{folder.name}: {store.path(path)}", err=True)
    shown = 0
    while True:
        done = folder.is_done
        text = store.read(path).decode(errors="replace") if store.exists(path) else ""
        # The first time only the end of it.
        fresh = text[shown:] if shown else "".join(text.splitlines(keepends=True)[-lines:])
        click.echo(fresh, nl=False)
        shown = len(text)
        if done or not follow:
            return
        time.sleep(POLL_SECONDS)


@click.command(cls=ParametersCommand)
@click.option(
    "-p", "--param", "pairs", multiple=True, metavar="NAME=VALUE",
    help="Only what fits these parameters of the flow; says what a run with them still lacks.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end.")
@store_option
def results(pairs: Sequence[str], as_json: bool, root: str | None) -> None:
    """The aggregated table from the store; needs no data set.  -p store=... goes before --store.

    A training is of a preset whose values it has; what is left out of the parameters leaves
    nothing out of the table.
    """
    from flows.tables import print_results

    values = None
    if pairs:
        from flows.local_plan import validated

        values = validated(parse_parameters(pairs))
        root = values["store"] or root
    print_results(root, values, as_json=as_json)
    if not (root or values) and (hint := smoke_hint(open_store(None))):
        click.echo(hint.removeprefix("; "), err=True)


@click.command()
@store_option
def sync(root: str | None) -> None:
    """Rebuild MLflow's runs from the store."""
    from artifacts.tracking import Tracker
    from flows.services import Services

    store = open_existing_store(root)
    uri = os.environ.get("MLFLOW_TRACKING_URI") or Services().url("mlflow")
    with Tracker(uri) as tracker:
        tracker.reconcile(store)
        tracker.sync(store)
    click.echo(f"{uri} has every finished trial of {store.root}")


@click.group()
def store() -> None:
    """Carry finished trials between stores."""


@store.command("export")
@click.argument("folder", type=Place(path_type=Path))
@click.option("--weights", is_flag=True, help="With bf16 weights of one seed of each setting.")
@store_option
def store_export(folder: Path, weights: bool, root: str | None) -> None:
    """Write every finished trial as a small record into FOLDER.

    Evaluations of a record that is there already and that the store lacks are kept.
    """
    from raise_model.store_transfer import export_trials

    source = open_existing_store(root)
    names = export_trials(source, folder, weights=weights)
    if not names:
        raise UserError(f"no finished trial in {source.root}{smoke_hint(source)}")
    click.echo(f"{len(names)} trials written to {folder}")


@store.command("import")
@click.argument("folder", type=Place(path_type=Path))
@store_option
def store_import(folder: Path, root: str | None) -> None:
    """Take the trials of FOLDER into the store.

    Of a trial that is there, missing evaluations and weights are added.  Nothing is taken if a
    record is damaged or contradicts the store.  Cut short (full disk, another process), the same
    command takes the rest.
    """
    from raise_model.store_transfer import import_trials

    report = import_trials(open_store(root), folder)
    added = len(report.weights_added)
    click.echo(
        f"{len(report.imported)} trials taken, {len(report.present)} were there"
        + (f"; weights added to {added} of these" if added else "")
    )


COMMANDS: Sequence[click.Command] = (generate, ingest, logs, results, sync, store)
