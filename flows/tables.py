"""The results table from the store, for the terminal."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from artifacts import aggregate
from artifacts.tables import ResultsTable, results_table
from flows.services import default_store
from flows.studies import Request, lower
from raise_model.data.schema import open_manifest
from raise_model.specs import EvaluationSpec
from raise_model.store import Store


def table_of(
    store: Store, preset: str, pairs: Sequence[tuple[str, EvaluationSpec]] | None = None
) -> ResultsTable:
    """The table of these (trial, evaluation) pairs, or of everything in the store."""
    results = aggregate.results(store, pairs)
    summary = aggregate.summarise(results)
    return results_table(summary, preset=preset, expected=pairs or (), results=results)


def requested_table(store: Store, values: Mapping[str, Any]) -> ResultsTable:
    """The table of a run with these parameters of the flow."""
    fields = ("preset", "studies", "models", "configurations", "trials", "label_ratio", "data")
    request = Request(**{name: values[name] for name in fields})
    lowered = lower(request, lambda *split: open_manifest(store, *split).digest)
    return table_of(store, request.preset, lowered.evaluations)


def print_results(
    root: str | None, values: Mapping[str, Any] | None = None, *, as_json: bool = False
) -> None:
    """Print the table of a run, or of everything in the store."""
    store = Store(root or default_store(values["preset"] if values else ""))
    table = requested_table(store, values) if values else table_of(store, "all")
    Console().print(table.to_rich())
    if as_json:
        details = json.loads(table.details.to_json(orient="records") or "[]")
        print(
            json.dumps({"title": table.title, "details": details, "missing": list(table.missing)})
        )
