"""The results table from the store, for the terminal."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from artifacts import aggregate
from artifacts.tables import ResultsTable, results_table
from flows.cli_data import check_exists
from flows.services import default_store
from flows.studies import Request, lower
from raise_model.data.schema import open_manifest
from raise_model.specs import EvaluationSpec
from raise_model.store import Store
from raise_model.training.device import resolve_device


def table_of(
    store: Store, preset: str, pairs: Sequence[tuple[str, EvaluationSpec]] | None = None
) -> ResultsTable:
    """The table of these (trial, evaluation) pairs, or of everything in the store."""
    results = aggregate.results(store, pairs)
    summary = aggregate.summarise(results)
    return results_table(summary, preset=preset, expected=pairs or (), results=results)


def requested_table(store: Store, preset: str, values: Mapping[str, Any]) -> ResultsTable:
    """The table of a run with these parameters of the flow.

    :param preset: that of the parameters, with ``auto`` resolved.
    """
    fields = ("studies", "models", "configurations", "trials", "label_ratio", "data")
    request = Request(preset=preset, **{name: values[name] for name in fields})
    lowered = lower(request, lambda *split: open_manifest(store, *split).digest)
    return table_of(store, request.preset, lowered.evaluations)


def store_parameter(store: Store, preset: str) -> str:
    """What the flow's parameter ``store`` must say for a run of a preset to use a store.

    Empty where it is the one that the run takes anyway.
    """
    return "" if store.root == Store(default_store(preset)).root else store.root


def _resolved(values: Mapping[str, Any]) -> str:
    """The preset of a run, as the plan on this machine resolves ``auto``."""
    if values["preset"] != "auto":
        return values["preset"]
    return "paper" if resolve_device(values["device"]).type == "cuda" else "lite"


def print_results(
    root: str | None, values: Mapping[str, Any] | None = None, *, as_json: bool = False
) -> None:
    """Print the table of a run, or of everything in the store.

    :raises UserError: if there is no such store.
    """
    preset = _resolved(values) if values else ""
    store = Store(root or default_store(preset))
    check_exists(store)
    table = requested_table(store, preset, values) if values else table_of(store, "all")
    Console().print(table.to_rich())
    if as_json:
        details = json.loads(table.details.to_json(orient="records") or "[]")
        print(
            json.dumps({"title": table.title, "details": details, "missing": list(table.missing)})
        )
