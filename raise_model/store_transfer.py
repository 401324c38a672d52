"""Carry finished work between stores: small records, and weights in bf16 where wanted.

``<folder>/<trial>.json`` holds spec, done, curve and every evaluation of one finished
trial, and the SHA-256 of its files of weights; ``<folder>/<trial>.bf16.safetensors`` its best
weights, floating point ones rounded to bf16 (``.bf16-00001-of-00002.safetensors`` and so on
where they are larger than 15 MiB).  A store that imports a record skips that training from
then on.
"""

import dataclasses
import hashlib
import io
import logging
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import safetensors
import safetensors.torch
import torch

from raise_model.claims import Claim, Held
from raise_model.errors import UserError
from raise_model.store import Store, TrialFolder
from raise_model.training import checkpoint
from raise_model.trial_record import (
    Record,
    contradiction,
    of_other_weights,
    read_record,
    stored_record,
)

_log = logging.getLogger(__name__)
SHARD_BYTES = (15 << 20) - (1 << 16)
"""Largest sum of the tensors of one file; its header needs the rest of 15 MiB."""


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    imported: Sequence[str]
    """Trials that the store did not have, or had unfinished."""
    present: Sequence[str]
    """Trials that were there already; evaluations that were missing were added."""
    weights_added: Sequence[str]
    """Those of :attr:`present` whose weights were missing or damaged, and were added."""


def _has_weights(trial: TrialFolder, step: int) -> bool:
    """Whether anything of the best checkpoint is there, be it damaged."""
    names = trial.store.list(trial.path)
    return any(name.startswith(f"best-{step:08d}.") for name in names)


def _bf16_weights(trial: TrialFolder, step: int) -> dict[str, torch.Tensor]:
    best = checkpoint.load(trial, "best", step=step)
    if best is None:
        raise UserError(
            f"{trial.store.path(trial.file(f'best-{step:08d}.pt'))} or its .json is missing or "
            "damaged; restore both, or remove both to export without them"
        )
    return {
        name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
        for name, tensor in best.tensors["solver"].items()
    }


def _write_weights(folder: Path, trial: TrialFolder, step: int) -> dict[str, str]:
    """One file, or numbered shards where the weights are larger than :data:`SHARD_BYTES`;
    their SHA-256 by name.
    """
    target = Store(str(folder))
    shards = _shards(_bf16_weights(trial, step))
    digests: dict[str, str] = {}
    for place, part in enumerate(shards, 1):
        number = f"-{place:05d}-of-{len(shards):05d}" if len(shards) > 1 else ""
        name = f"{trial.name}.bf16{number}.safetensors"
        data = safetensors.torch.save(part)
        target.write(name, data)
        digests[name] = hashlib.sha256(data).hexdigest()
    for path in _weight_files(folder, trial.name):
        if path.name not in digests:  # shards of another size
            path.unlink()
    return digests


def _weight_files(folder: Path, name: str) -> Sequence[Path]:
    return sorted(folder.glob(f"{name}.bf16*.safetensors"))


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


def _read_weights(folder: Path, record: Record) -> dict[str, torch.Tensor] | None:
    """Weights beside a record, None if there are none.

    :raises UserError: if a file is damaged or of another trial, or a shard is missing.
    """
    name = record.spec.name
    cure = f"copy them again, or remove {name}.bf16* to go without weights"
    tensors: dict[str, torch.Tensor] = {}
    paths = _weight_files(folder, name)
    for path in paths:
        count = re.fullmatch(r".*-(\d{5})", path.name.removesuffix(".safetensors"))
        if count and len(paths) != int(count[1]):
            raise UserError(f"{path}: {len(paths)} of its {int(count[1])} shards are there; {cure}")
        try:
            data = path.read_bytes()
            tensors |= safetensors.torch.load(data)
        except (OSError, safetensors.SafetensorError) as error:
            raise UserError(f"{path} cannot be read: {error}; {cure}") from error
        # Records of older versions name no files.
        if record.weights and record.weights.get(path.name) != hashlib.sha256(data).hexdigest():
            raise UserError(f"{path} holds other weights than its record names; {cure}")
    if not paths:
        return None
    if sum(tensor.numel() for tensor in tensors.values()) < record.done.get("parameters", 0):
        raise UserError(f"{paths[0]} holds fewer weights than {name} has parameters; {cure}")
    return tensors


def export_trials(store: Store, folder: Path, *, weights: bool = False) -> Sequence[str]:
    """Write every finished trial of ``store`` into ``folder``; return their names.

    Evaluations of a record that is there and that the store lacks are kept.  With ``weights``,
    those of one seed of each (model, configuration, label ratio, label map, steps) go along:
    the smallest whose weights the store has.  Settings without any are named in the log.

    :raises UserError: if a trial is damaged, or contradicts its record in ``folder``; nothing
        is written then.
    """
    if folder.parts[:1] == ("s3:",):
        raise UserError(f"{folder}: records are written into a folder of this machine; give one")
    target = Store(str(folder))
    trials = {trial.name: trial for trial in store.trials() if trial.is_done}
    records = {name: _merged(trial, folder) for name, trial in trials.items()}
    chosen = _one_of_each_setting(trials, records) if weights else []
    steps = {name: records[name].done["best_step"] for name in chosen}
    for name, step in steps.items():
        _bf16_weights(trials[name], step)  # a damaged one is found before anything is written
    for name, step in steps.items():
        digests = _write_weights(folder, trials[name], step)
        records[name] = dataclasses.replace(records[name], weights=digests)
    for name, record in records.items():
        target.write(f"{name}.json", record.encode())
    return list(trials)


def _merged(trial: TrialFolder, folder: Path) -> Record:
    """Record of a trial, with what only its record in ``folder`` has."""
    record = stored_record(trial)
    path = folder / f"{trial.name}.json"
    if not path.exists():
        return record
    old = read_record(path)
    if problem := contradiction(trial, old):
        raise UserError(f"{problem} {path}; nothing was exported, remove one of them")
    kept = of_other_weights(trial, old)
    _say_kept([f"{path}: {name}" for name in kept])
    evaluations = {spec.name: (spec, result) for spec, result in old.evaluations}
    evaluations |= {
        spec.name: (spec, result) for spec, result in record.evaluations if spec.name not in kept
    }
    merged = [evaluations[name] for name in sorted(evaluations)]
    return dataclasses.replace(record, evaluations=merged, weights=old.weights)


def _say_kept(results: Sequence[str]) -> None:
    if results:
        _log.warning(
            "%d result%s kept as before: the one offered is of weights of another precision (as "
            "trained, or rounded to bf16); the first: %s",
            len(results), "" if len(results) == 1 else "s", results[0],
        )  # fmt: skip


def _one_of_each_setting(
    trials: Mapping[str, TrialFolder], records: Mapping[str, Record]
) -> Sequence[str]:
    """Of each setting the trial of the smallest seed whose weights the store has."""
    settings: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for name, record in sorted(records.items(), key=lambda item: item[1].spec.seed):
        spec, data = record.spec, record.spec.data
        key = (spec.model, data.configuration, data.label_ratio, data.label_map, spec.steps)
        settings[key].append(name)
    chosen = []
    for names in settings.values():
        found = [n for n in names if _has_weights(trials[n], records[n].done["best_step"])]
        chosen += found[:1]
        if not found:
            where = trials[names[0]].store.root
            _log.warning("%s has no weights of %s or its other seeds: none exported; a store "
                         "where one was trained has them", where, names[0])  # fmt: skip
    return chosen


def import_trials(store: Store, folder: Path) -> ImportReport:
    """Take the records of ``folder`` into ``store``, by fingerprint.

    Of a trial that is there, missing weights and evaluations are added; an evaluation that is
    there stays, and is named in the log where the record's is another one of weights of another
    precision.  Cut short (full disk, another process), the same call takes the rest.

    :raises UserError: if there is no record, or one is damaged or contradicts the store:
        nothing is imported then; or if another process holds a trial.
    """
    records = _read_records(folder)
    for name, record in records.items():
        if problem := contradiction(store.trial(name), record):
            path = folder / f"{name}.json"
            raise UserError(f"{problem} {path}; nothing was imported, remove one of them")
        _read_weights(folder, record)
    imported, present, weights_added = [], [], []
    kept = [
        f"{name}/{evaluation}"
        for name, record in records.items()
        for evaluation in of_other_weights(store.trial(name), record)
    ]
    for name, record in records.items():
        trial = store.trial(name)
        try:
            taken = _import_training(trial, record, folder)
            added = not taken and _add_weights(trial, record, folder)
        except Held as error:
            raise UserError(
                f"another process holds {name} in {store.root}; run the same command again when "
                f"it has ended ({len(imported)} trials were taken)"
            ) from error
        (imported if taken else present).append(name)
        weights_added += [name] if added else []
        for spec, result in record.evaluations:
            evaluation = trial.evaluation(spec)
            if not evaluation.is_done:
                evaluation.create_result(spec, result)
    _say_kept(kept)
    return ImportReport(imported=imported, present=present, weights_added=weights_added)


def _read_records(folder: Path) -> Mapping[str, Record]:
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    if not paths:
        problem = "holds no trial record" if folder.is_dir() else "is not a folder"
        raise UserError(f"{folder} {problem}; give a folder that `store export` wrote")
    return {path.stem: read_record(path) for path in paths}


def _import_training(trial: TrialFolder, record: Record, folder: Path) -> bool:
    """False if the training is there already; done.json is written last."""
    if trial.is_done:
        return False
    trial.put_spec(record.spec)
    with _outwaited_claim(trial):
        if trial.is_done:  # finished by another process since the look above
            return False
        if (weights := _read_weights(folder, record)) is not None:
            _save_weights(trial, record, weights)
        buffer = io.BytesIO()
        pq.write_table(record.curve, buffer)
        trial.store.write(trial.file("curve.parquet"), buffer.getvalue())
        trial.store.create_json(trial.file("done.json"), dict(record.done))
    return True


def _outwaited_claim(trial: TrialFolder) -> AbstractContextManager[Claim]:
    """A claim, once it is known whether another machine's owner lives."""
    trial.outwait(lambda reason: _log.warning("%s: %s", trial.name, reason))
    return trial.claim()


def _save_weights(trial: TrialFolder, record: Record, weights: Mapping[str, torch.Tensor]) -> None:
    accuracy, step = record.done["validation_accuracy"], record.done["best_step"]
    meta = {"validation_accuracy": accuracy, "rounded_to": "bf16"}
    checkpoint.save(trial, "best", step, {"solver": weights}, meta)


def _add_weights(trial: TrialFolder, record: Record, folder: Path) -> bool:
    """Give a finished trial the record's weights if its own are missing or damaged."""
    weights = _read_weights(folder, record)
    step = record.done["best_step"]
    if weights is None or checkpoint.load(trial, "best", step=step) is not None:
        return False
    with _outwaited_claim(trial):
        _save_weights(trial, record, weights)
    return True
