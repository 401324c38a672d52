"""Carry finished work between stores: small records, and weights in bf16 where wanted.

``<folder>/<trial>.json`` holds spec, done, curve and every evaluation of one finished
trial; ``<folder>/<trial>.bf16.safetensors`` its best weights, floating point ones rounded to
bf16 (``.bf16-00001-of-00002.safetensors`` and so on where they are larger than 15 MiB).
A store that imports a record skips that training from then on.
"""

import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import safetensors
import safetensors.torch
import torch

from raise_model.errors import UserError
from raise_model.specs import EvaluationSpec, TrialSpec
from raise_model.store import Store, TrialFolder
from raise_model.training import checkpoint

SHARD_BYTES = (15 << 20) - (1 << 16)
"""Largest sum of the tensors of one file; its header needs the rest of 15 MiB."""


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    imported: Sequence[str]
    """Trials that the store did not have, or had unfinished."""
    present: Sequence[str]
    """Trials that were there already; evaluations that were missing were added."""


def _record(trial: TrialFolder) -> dict[str, Any]:
    curve = pq.read_table(io.BytesIO(trial.store.read(trial.file("curve.parquet"))))
    return {
        "spec": trial.spec().to_json(),
        "done": trial.done(),
        "curve": curve.to_pydict(),
        "evaluations": [
            {"spec": folder.spec().to_json(), "result": folder.result()}
            for folder in trial.evaluations()
        ],
    }


def _bf16_weights(trial: TrialFolder) -> dict[str, torch.Tensor]:
    step = trial.done()["best_step"]
    best = checkpoint.load(trial, "best", step=step)
    if best is None:
        raise UserError(f"{trial.name}: best-{step:08d}.pt is missing or damaged")
    return {
        name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
        for name, tensor in best.tensors["solver"].items()
    }


def _write_weights(target: Store, trial: TrialFolder) -> None:
    """One file, or numbered shards where the weights are larger than :data:`SHARD_BYTES`."""
    shards = _shards(_bf16_weights(trial))
    for place, part in enumerate(shards, 1):
        number = f"-{place:05d}-of-{len(shards):05d}" if len(shards) > 1 else ""
        target.write(f"{trial.name}.bf16{number}.safetensors", safetensors.torch.save(part))


def _shards(tensors: Mapping[str, torch.Tensor]) -> Sequence[dict[str, torch.Tensor]]:
    """The tensors, in their order, in parts of at most :data:`SHARD_BYTES`."""
    shards: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if shards[-1] and size + tensor.nbytes > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = tensor.contiguous()
        size += tensor.nbytes
    return shards


def _read_weights(folder: Path, name: str) -> dict[str, torch.Tensor] | None:
    """Weights beside a record, None if there are none.

    :raises UserError: if a file is damaged, or a shard is missing.
    """
    tensors: dict[str, torch.Tensor] = {}
    paths = sorted(folder.glob(f"{name}.bf16*.safetensors"))
    for path in paths:
        count = re.fullmatch(r".*-(\d{5})", path.name.removesuffix(".safetensors"))
        if count and len(paths) != int(count[1]):
            raise UserError(f"{path}: {len(paths)} of its {int(count[1])} shards are there")
        try:
            tensors |= safetensors.torch.load_file(path)
        except (OSError, safetensors.SafetensorError) as error:
            raise UserError(f"{path} cannot be read: {error}") from error
    return tensors or None


def export_trials(store: Store, folder: Path, *, weights: bool = False) -> Sequence[str]:
    """Write every finished trial of ``store`` into ``folder``; return their names.

    With ``weights``, those of the smallest seed of each (model, configuration, label ratio,
    label map) go along.
    """
    target = Store(str(folder))
    finished = [trial for trial in store.trials() if trial.is_done]
    first: dict[tuple[Any, ...], TrialFolder] = {}
    for trial in sorted(finished, key=lambda trial: trial.spec().seed):
        spec = trial.spec()
        data = spec.data
        key = (spec.model, data.configuration, data.label_ratio, data.label_map, spec.steps)
        first.setdefault(key, trial)
    for trial in finished:
        target.write(f"{trial.name}.json", json.dumps(_record(trial), allow_nan=False).encode())
    if weights:
        for trial in first.values():
            _write_weights(target, trial)
    return [trial.name for trial in finished]


def _read_records(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Records by trial name, each checked against its own fingerprint."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give one that `store export` wrote")
    records = {}
    for path in sorted(folder.glob("*.json")):
        try:
            record = json.loads(path.read_text())
            name = TrialSpec.from_json(record["spec"]).name
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is no trial record: {error}") from error
        if name != path.stem:
            raise UserError(f"{path} holds the record of {name}; its spec was changed")
        records[name] = record
    return records


def _check_conflicts(store: Store, records: Mapping[str, Mapping[str, Any]]) -> None:
    for name, record in records.items():
        trial = store.trial(name)
        if not trial.is_done:
            continue
        ours, theirs = trial.done(), record["done"]
        if not math.isclose(ours["validation_accuracy"], theirs["validation_accuracy"]):
            raise UserError(
                f"{name}: validation accuracy {ours['validation_accuracy']:.4f} in {store.root}, "
                f"{theirs['validation_accuracy']:.4f} in the record; nothing was imported, "
                "remove one of them"
            )


def import_trials(store: Store, folder: Path) -> ImportReport:
    """Take the records of ``folder`` into ``store``, by fingerprint.

    :raises UserError: if a record is damaged or contradicts a finished trial of the store;
        nothing is imported then.
    """
    records = _read_records(folder)
    _check_conflicts(store, records)
    weights = {name: _read_weights(folder, name) for name in records}
    imported, present = [], []
    for name, record in records.items():
        trial = store.trial(name)
        if trial.is_done:
            present.append(name)
        else:
            _import_training(trial, record, weights[name])
            imported.append(name)
        for evaluation in record["evaluations"]:
            spec = EvaluationSpec.from_json(evaluation["spec"])
            trial.evaluation(spec).create_result(spec, evaluation["result"])
    return ImportReport(imported=imported, present=present)


def _import_training(
    trial: TrialFolder, record: Mapping[str, Any], weights: Mapping[str, torch.Tensor] | None
) -> None:
    done = dict(record["done"])
    trial.put_spec(TrialSpec.from_json(record["spec"]))
    with trial.claim():
        if weights is not None:
            meta = {"validation_accuracy": done["validation_accuracy"], "rounded_to": "bf16"}
            checkpoint.save(trial, "best", done["best_step"], {"solver": weights}, meta)
        buffer = io.BytesIO()
        pq.write_table(pa.table(dict(record["curve"])), buffer)
        trial.store.write(trial.file("curve.parquet"), buffer.getvalue())
        trial.store.create_json(trial.file("done.json"), done)
