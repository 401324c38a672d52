"""The command that shows the models."""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from flows.presets import CONFIGURATIONS, PRESETS

if TYPE_CHECKING:
    from rich.table import Table

    from artifacts.model_card import ModelCard


@click.command()
@click.option(
    "--preset", default="paper", show_default=True, type=click.Choice(list(PRESETS)),
    help="Whose sizes and costs to show.",
)  # fmt: skip
@click.option(
    "--configuration", default="center", show_default=True, type=click.Choice(CONFIGURATIONS),
    metavar="NAME", help=f"Whose panels: {', '.join(CONFIGURATIONS)}.",
)  # fmt: skip
@click.option(
    "--model", "models", multiple=True, metavar="NAME",
    help="May be given several times.  [default: every registered one]",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end.")
def models(preset: str, configuration: str, models: Sequence[str], as_json: bool) -> None:
    """Size, cost, protocols and presets of each model.

    GFLOP are those of one problem: of a training step, forwards and backwards, and of filling
    one panel.
    """
    from rich.console import Console

    from artifacts.model_card import make_model_card
    from flows.cli_data import with_bar
    from raise_model.models import registry

    names = models or registry.names()
    for name in names:
        registry.solver_class(name)
    cards: list[ModelCard] = []

    def work(report: Callable[[int, int], None]) -> None:
        for name in names:
            cards.append(make_model_card(name, preset, configuration))
            report(len(cards), len(names))

    with_bar("models", work)
    for table in (_costs(cards), _protocols(cards)):
        Console().print(table, "")
    if as_json:
        found = [card.to_json() for card in cards]
        click.echo(json.dumps({"models": found}, allow_nan=False))


def _costs(cards: "Sequence[ModelCard]") -> "Table":
    from rich.table import Table

    title = f"preset {cards[0].preset}, {cards[0].configuration}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("model", no_wrap=True)
    for column in ("parameters", "training GFLOP", "prediction GFLOP", "steps", "panels"):
        table.add_column(column, justify="right")
    table.add_column("reads")
    for card in cards:
        known = card.parameters is not None
        table.add_row(
            card.model,
            f"{card.parameters:,}" if known else "n/a",
            _gflop(card.training_gflop),
            _gflop(card.prediction_gflop),
            f"{card.steps[card.preset]:,}" if known else "n/a",
            f"{card.image_size}px" if known else "n/a",
            ", ".join(card.reads),
        )
    return table


def _protocols(cards: "Sequence[ModelCard]") -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("model", "presets", "supports"):
        table.add_column(column, overflow="fold")
    for card in cards:
        table.add_row(card.model, ", ".join(card.steps) or "none", ", ".join(card.supports))
    return table


def _gflop(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3g}"


COMMANDS: Sequence[click.Command] = (models,)
