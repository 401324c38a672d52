"""The results table from the store, for the terminal."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

from artifacts import settings
from artifacts.records import EvaluationRecord, TrialRecord, read_records
from artifacts.results_table import results_table
from artifacts.tables import ResultsTable
from flows.presets import DATASETS
from flows.services import default_store
from flows.studies import Digest, Lowered, Request, lower
from raise_model.data.held_out import held_out_name
from raise_model.data.schema import find_manifest
from raise_model.errors import UserError
from raise_model.specs import EvaluationSpec, TrialSpec, canonical_json
from raise_model.store import Store, check_exists
from raise_model.training.device import resolve_device

UNKNOWN = ""
"""Digest of a split that a store does not have, e.g. one of imported records alone."""


def table_of(
    store: Store,
    preset: str | None = None,
    pairs: Sequence[tuple[str, EvaluationSpec]] | None = None,
) -> ResultsTable:
    """The table of these (trial, evaluation) pairs, or of everything in the store.

    :param preset: only its trainings stand beside the paper's; None: as the report chooses.
    """
    records = read_records(store, pairs)
    found = {(record.name, each.name) for record in records for each in record.evaluations}
    missing = [
        _text(name, spec)
        for name, spec in pairs or ()
        # Other protocols have tables of their own in the report.
        if spec.protocol == "bottom_right" and (name, spec.name) not in found
    ]
    return results_table(records, preset=preset, missing=missing)


def requested_table(store: Store, preset: str, values: Mapping[str, Any]) -> ResultsTable:
    """The table of what fits the parameters of the flow, and what a run would add to it.

    As in the report, a training is of a preset whose values it has, whatever its data's content,
    and a parameter that is not given leaves nothing out.  Of studies, only what they ask for fits:
    on the data that the store has; on any of the same name, where it has none.

    :param preset: that of the parameters, with ``auto`` resolved.
    :raises UserError: if nothing fits.
    """
    fields = ("studies", "models", "configurations", "trials", "label_ratio", "data")
    request = Request(preset=preset, **{name: values[name] for name in fields})
    asked = _asked(lower(request, _digests(store)))
    found = read_records(store)
    fits = _of_studies(asked) if request.studies else _of_request(request)
    records = [
        dataclasses.replace(record, evaluations=[e for e in record.evaluations if fits(record, e)])
        for record in found
    ]
    had = {name for record in found for each in record.evaluations for name in _names(record, each)}
    missing = [text for name, text in asked.items() if name not in had]
    table = results_table(records, preset=preset, missing=missing)
    if table.details.empty:
        concerns = _of_request(request)
        others = sum(
            each.spec.protocol != "bottom_right" and concerns(record, each)
            for record in found
            for each in record.evaluations
        )
        raise UserError(
            f"store {store.root} has no bottom-right selection of preset {preset} that fits these "
            "parameters; "
            + (
                f"raise-rpm report --preset {preset} shows other evaluations ({others})"
                if others
                else "raise-rpm results without -p shows all it has"
            )
        )
    return table


def _digests(store: Store) -> Digest:
    def digest(dataset: str, configuration: str, split: str) -> str:
        manifest = find_manifest(store, dataset, configuration, split)
        return manifest.digest if manifest else UNKNOWN

    return digest


Fits = Callable[[TrialRecord, EvaluationRecord], bool]


def _of_request(request: Request) -> Fits:
    source, tests = DATASETS[request.data]
    sources = (source, held_out_name(source))
    datasets = {*tests, *map(held_out_name, tests)}
    # Studies without labels, and models that read none, have the ratio 0 in any run.
    ratios = (request.label_ratio, 0.0)

    def fits(record: TrialRecord, evaluation: EvaluationRecord) -> bool:
        spec = record.spec
        return (
            request.preset in map(settings.root, record.presets)
            and spec.model in (request.models or [spec.model])
            and spec.data.configuration in (request.configurations or [spec.data.configuration])
            and spec.seed < (request.trials or spec.seed + 1)
            and (request.label_ratio < 0 or spec.data.label_ratio in ratios)
            and spec.data.dataset in sources
            and evaluation.spec.dataset in datasets
        )

    return fits


def _of_studies(asked: Mapping[str, str]) -> Fits:
    return lambda record, evaluation: any(name in asked for name in _names(record, evaluation))


def _asked(lowered: Lowered) -> dict[str, str]:
    """Every evaluation of bottom-right selection by its name, and how it is named to people."""
    trials = {trial.name: trial for trial in lowered.trials}
    asked = {}
    for name, spec in lowered.evaluations:
        if spec.protocol != "bottom_right":
            continue
        trial = trials[name]
        if UNKNOWN in (trial.data.train_digest, trial.data.validation_digest, spec.digest):
            # The end of a trial's name depends on its data.
            asked[_loose_name(trial, spec)] = _text(name.rpartition("-")[0], spec)
        else:
            asked[_exact_name(trial, spec)] = _text(name, spec)
    return asked


def _text(trial: str, spec: EvaluationSpec) -> str:
    """What is missing, for people."""
    return f"{trial} on {spec.dataset}" + (
        " (pixel)" if spec.options.get("space") == "pixel" else ""
    )


def _names(record: TrialRecord, evaluation: EvaluationRecord) -> list[str]:
    return [name(record.spec, evaluation.spec) for name in (_exact_name, _loose_name)]


def _exact_name(trial: TrialSpec, evaluation: EvaluationSpec) -> str:
    return f"{trial.name}/{evaluation.name}"


def _loose_name(trial: TrialSpec, evaluation: EvaluationSpec) -> str:
    """The same for any content of the data, and any revision of model and protocol."""
    test = dataclasses.replace(evaluation, digest=UNKNOWN, revision=0)
    return canonical_json([settings.setting(trial), trial.seed, test.to_json()])


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
    """Print the table of what fits the flow's parameters, or of everything in the store.

    :raises UserError: if there is no such store, or nothing in it fits.
    """
    preset = _resolved(values) if values else ""
    store = Store(root or default_store(preset))
    check_exists(store)
    table = requested_table(store, preset, values) if values else table_of(store)
    Console(highlight=False, markup=False, emoji=False).print(table)
    if as_json:
        details = json.loads(table.details.to_json(orient="records") or "[]")
        print(
            json.dumps({"title": table.title, "details": details, "missing": list(table.missing)})
        )
