"""Commands that show data: a problem, many problems, a data set."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli_data import open_store, store_option, with_bar
from flows.presets import CONFIGURATIONS
from raise_model.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from artifacts.data_card import DataCard
    from raise_model.data.schema import Manifest, Problem

dataset_option = click.option(
    "--dataset", default="raven", show_default=True, help="Name of a data set."
)
configurations_option = click.option(
    "--configuration", "configurations", type=click.Choice(CONFIGURATIONS), multiple=True,
    metavar="NAME", help=f"May be given several times: {', '.join(CONFIGURATIONS)}.  "
    "[default: every one that the store has]",
)  # fmt: skip
output_option = click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), default=None,
    help="Picture to write, .png, .svg or .pdf.  [default: a .png named after what it shows]",
)  # fmt: skip


def _present(root: str | None, dataset: str, configurations: Sequence[str]) -> Sequence[str]:
    """The given configurations, or those that the store has of a data set.

    :raises UserError: if the store has none.
    """
    store = open_store(root)
    names = [n.removeprefix("configuration=") for n in store.list(f"datasets/dataset={dataset}")]
    found = configurations or [name for name in CONFIGURATIONS if name in names]
    if not found:
        raise UserError(
            f"no data set {dataset} in {store.root}; make it with raise-rpm generate, or read your "
            "own files with raise-rpm ingest"
        )
    return found


def _checked(path: Path) -> Path:
    """:raises UserError: for a form that is not known."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"cannot write {path}: give --output a name in .png, .svg or .pdf")
    return path


def _save(figure: "Figure", path: Path) -> None:
    """:raises UserError: if the place cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; choose another --output"
        ) from error


@click.command()
@click.argument("problem_id")
@output_option
@click.option("--candidates/--no-candidates", default=True, help="Draw the eight candidates too.")
@click.option("--hide-answer", is_flag=True, help="A question mark in the last cell.")
@store_option
def show(
    problem_id: str, output: Path | None, candidates: bool, hide_answer: bool, root: str | None
) -> None:
    """A picture of a problem, and its rules.

    PROBLEM_ID is data set, configuration and index, e.g. raven/center/17.
    """
    import matplotlib

    matplotlib.use("Agg")
    from rich.console import Console

    from artifacts.problem_pictures import draw_problem, rules_in_words
    from raise_model.data.reader import read_problem

    path = _checked(output or Path(f"{problem_id.strip('/').replace('/', '-')}.png"))
    manifest, problem = read_problem(open_store(root), problem_id)
    for line in rules_in_words(problem, manifest.configuration):
        click.echo(line)
    if candidates:
        Console().print(_candidates(manifest, problem, hide_answer))
    figure = draw_problem(manifest, problem, candidates=candidates, answer=not hide_answer)
    _save(figure, path)
    click.echo(str(path))


def _candidates(manifest: "Manifest", problem: "Problem", hide_answer: bool) -> "Table":
    from rich.table import Table

    from artifacts.problem_pictures import changes_in_words

    table = Table("candidate", "changes", box=None, pad_edge=False)
    for number, text in enumerate(changes_in_words(problem, manifest.configuration)):
        is_answer = number == problem.target and not hide_answer
        words = ", ".join(text.split("\n")) or "not said"
        table.add_row(str(number), "the answer" if is_answer else "" if hide_answer else words)
    return table


@click.command()
@dataset_option
@configurations_option
@click.option(
    "--problems", default=1, show_default=True, type=click.IntRange(1, 100),
    help="Of each configuration.",
)  # fmt: skip
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="First index.")
@output_option
@store_option
def gallery(
    dataset: str,
    configurations: Sequence[str],
    problems: int,
    first: int,
    output: Path | None,
    root: str | None,
) -> None:
    """A page of problems with their answers."""
    import matplotlib

    matplotlib.use("Agg")
    from artifacts.problem_pictures import Shown, draw_gallery
    from raise_model.data.reader import names_from, read_problem

    path = _checked(output or Path(f"{dataset}-gallery.png"))
    store = open_store(root)
    shown = []
    for configuration in _present(root, dataset, configurations):
        for name in names_from(store, dataset, configuration, first, problems):
            manifest, problem = read_problem(store, name)
            shown.append(Shown(manifest=manifest, problem=problem))
    _save(draw_gallery(shown), path)
    click.echo(str(path))


@click.command("data-card")
@dataset_option
@configurations_option
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), default=Path("data-cards"),
    show_default=True, help="Folder; each data set has its own below.",
)  # fmt: skip
@click.option("--mlflow/--no-mlflow", default=True, help="Log it to MLflow, if a server answers.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end.")
@store_option
def data_card(
    dataset: str,
    configurations: Sequence[str],
    output: Path,
    mlflow: bool,
    as_json: bool,
    root: str | None,
) -> None:
    """What a data set holds.

    Counts, rules, levels, repeated problems, and how often the candidates alone give the answer
    away.
    """
    import matplotlib

    matplotlib.use("Agg")
    from artifacts.data_card import DataCard, make_card, write_card
    from tune_spaces.home import default_cache

    store = open_store(root)
    cards: list[DataCard] = []
    for configuration in _present(root, dataset, configurations):

        def work(report: Callable[[int, int], None], configuration: str = configuration) -> None:
            cards.append(make_card(store, dataset, configuration, report, default_cache()))

        with_bar(f"{dataset}/{configuration}", work)
        card = cards[-1]
        path = write_card(card, output / dataset / configuration)
        click.echo(
            f"{card.name}: {card.problems} problems, {card.ambiguous} ambiguous, shortcut "
            f"{100 * card.shortcut_attributes / card.problems:.1f} % by attributes, "
            f"{100 * card.shortcut_pixels / card.problems:.1f} % by pixels: {path}"
        )
        if mlflow:
            _log(card, path.parent)
    if as_json:
        click.echo(json.dumps({"cards": [card.to_json() for card in cards]}, allow_nan=False))


def _log(card: "DataCard", folder: Path) -> None:
    """To the server of this shell or home; without one, say so."""
    from artifacts.tracking import log_data_card
    from flows.services import Services
    from raise_model.specs import fingerprint

    splits = {m.split: m.digest for m in card.manifests}
    digest = fingerprint("data", {"name": card.name, "splits": splits})
    values = {
        "problems": float(card.problems),
        "ambiguous": float(card.ambiguous),
        "shortcut_pixels": card.shortcut_pixels / card.problems,
        "shortcut_attributes": card.shortcut_attributes / card.problems,
    }
    values |= {f"repeated_{key.replace(', ', '_')}": float(n) for key, n in card.repeated.items()}
    try:
        uri = os.environ.get("MLFLOW_TRACKING_URI") or Services().url("mlflow")
        click.echo(log_data_card(uri, card.name, digest, values, folder))
    except UserError as error:
        click.echo(f"not logged to MLflow: {error}", err=True)


COMMANDS: Sequence[click.Command] = (show, gallery, data_card)
