"""What a file of ``store export`` holds: one finished trial, parsed and checked as a whole.

A record of the store is built by the same parser, so that what is exported can be imported.
"""

import dataclasses
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeGuard, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from raise_model.errors import UserError
from raise_model.specs import DataSpec, EvaluationSpec, TrialSpec
from raise_model.store import TrialFolder

SPLITS = ("train", "val", "test")
_FAULTS = (ValueError, TypeError, OverflowError, RecursionError, UserError)
"""What the parser raises for a faulty value: checks of its own, of the specs and of Arrow."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One finished trial."""

    spec: TrialSpec
    done: Mapping[str, Any]
    curve: pa.Table
    evaluations: Sequence[tuple[EvaluationSpec, Mapping[str, Any]]]
    weights: Mapping[str, str]
    """SHA-256 of the files of weights by their names; empty without any, and in the records of
    versions that did not write it."""

    def encode(self) -> bytes:
        value = {
            "spec": self.spec.to_json(),
            "done": dict(self.done),
            "curve": self.curve.to_pydict(),
            "evaluations": [
                {"spec": spec.to_json(), "result": dict(result)}
                for spec, result in self.evaluations
            ],
        }
        if self.weights:
            value["weights"] = dict(self.weights)
        return json.dumps(value, allow_nan=False).encode()


def read_record(path: Path) -> Record:
    """:raises UserError: if the file cannot be read, or is no whole record of the trial that its
    name names.
    """
    try:
        return _parse(path.stem, path.read_bytes())
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}; make it a readable file, or remove it"
        ) from error
    except _FAULTS as error:
        raise UserError(
            f"{path} is no trial record: {_line(error)}; export it again, or remove the file"
        ) from error


def stored_record(trial: TrialFolder) -> Record:
    """The record of a finished trial of the store, without weights.

    :raises UserError: if something of it is missing or damaged.
    """
    try:
        data = trial.store.read(trial.file("curve.parquet"))
        curve = pq.read_table(io.BytesIO(data)).to_pydict()
    except (OSError, pa.ArrowException) as error:
        raise UserError(
            f"{trial.store.path(trial.file('curve.parquet'))} is missing or damaged "
            f"({_line(error)}); restore it, or move the trial's folder away"
        ) from error
    value = {
        "spec": trial.spec().to_json(),
        "done": trial.done(),
        "curve": curve,
        "evaluations": [
            {"spec": folder.spec().to_json(), "result": folder.result()}
            for folder in trial.evaluations()
        ],
    }
    try:
        return _parse(trial.name, json.dumps(value, allow_nan=False).encode())
    except _FAULTS as error:
        raise _damaged(trial, error) from error


def contradiction(trial: TrialFolder, record: Record) -> str | None:
    """How a record contradicts the same trial of the store, None if it does not.

    :raises UserError: if the trial of the store is damaged.
    """
    where = trial.store.path(trial.path)
    begun = trial.store.exists(trial.file("spec.json"))
    if begun and trial.spec().fingerprint != record.spec.fingerprint:
        return f"{where} holds another spec than the record"
    if not trial.is_done:
        return None
    ours = trial.done()
    try:
        _check_done(ours)
    except _FAULTS as error:
        raise _damaged(trial, error) from error
    for name in ("validation_accuracy", "best_step"):
        if not math.isclose(ours[name], record.done[name]):
            shown = name.replace("_", " ")
            return f"{where}: {shown} {ours[name]:.6g} there, {record.done[name]:.6g} in the record"
    for name, difference, is_of_same_weights in _differences(trial, record):
        if is_of_same_weights:
            return f"{where}/evaluations/{name}: another {difference} there than in the record"
    return None


def of_other_weights(trial: TrialFolder, record: Record) -> Sequence[str]:
    """Names of evaluations that a trial of the store and its record both have, with different
    results, since one was made of the training's weights and the other of rounded ones.

    :raises UserError: if an evaluation of the store is damaged.
    """
    return [name for name, _, is_of_same_weights in _differences(trial, record)
            if not is_of_same_weights]  # fmt: skip


def _differences(trial: TrialFolder, record: Record) -> Iterator[tuple[str, str, bool]]:
    """Evaluations with different results: name, what differs, and whether both are of weights of
    the same precision.  A result without ``rounded_to`` is of the training's own weights.
    """
    for spec, result in record.evaluations:
        folder = trial.evaluation(spec)
        if not folder.is_done:
            continue
        ours = folder.result()
        if (found := _difference(ours, result)) is not None:
            yield spec.name, found, ours.get("rounded_to") == result.get("rounded_to")


_BESIDE = ("provenance", "seen", "png", "examples", "rounded_to")
"""Parts of results that may differ between machines and stores: where it ran, which training
problems that store had, pictures and what is shown with them, the precision of the weights."""


def _difference(ours: Any, theirs: Any, where: str = "result") -> str | None:
    """Name of the first value that both have and that differs by more than rounding."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        both = [key for key in ours if key in theirs and key not in _BESIDE]
        pairs = [(ours[key], theirs[key], str(key)) for key in both]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = [(a, b, where) for a, b in zip(ours, theirs, strict=True)]
    else:
        return None if _equal(ours, theirs) else where
    found = (_difference(*pair) for pair in pairs)
    return next((name for name in found if name is not None), None)


def _equal(ours: Any, theirs: Any) -> bool:
    if _is_number(ours) and _is_number(theirs):
        return math.isclose(ours, theirs, rel_tol=1e-6, abs_tol=1e-9)
    return ours == theirs


def _damaged(trial: TrialFolder, error: BaseException) -> UserError:
    return UserError(
        f"{trial.store.path(trial.path)} is damaged: {_line(error)}; restore it, or move it away"
    )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:240]


def _parse(name: str, data: bytes) -> Record:
    value = json.loads(data.decode(), parse_constant=_refuse, parse_float=_finite)
    if not isinstance(value, Mapping):
        raise ValueError("it is no JSON object")
    fields = ("spec", "done", "curve", "evaluations")
    for field in fields:
        if value.get(field) is None:
            raise ValueError(f"{field} is missing")
    if unknown := sorted(value.keys() - {*fields, "weights"}):
        raise ValueError(_of_another_version("it", unknown[0]))
    spec = _trial_spec(value["spec"])
    if spec.name != name:
        raise ValueError(f"its spec is that of {spec.name}, so the spec or the name was changed")
    _check_done(value["done"])
    return Record(
        spec=spec,
        done=value["done"],
        curve=_curve(value["curve"]),
        evaluations=_evaluations(value["evaluations"], value["done"]["best_step"]),
        weights=_weights(value.get("weights", {})),
    )


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"it holds {constant}")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        _refuse(text)
    return number


def _of_another_version(what: str, field: str) -> str:
    return (
        f"{what} has the unknown field {field!r}, so it was written by another version of "
        "raise-rpm (a newer one can read it)"
    )


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float)


def _check_fields(kind: type[Any], value: Any, what: str) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is no JSON object")
    fields = dataclasses.fields(kind)
    if unknown := sorted(value.keys() - {field.name for field in fields}):
        raise ValueError(_of_another_version(what, unknown[0]))
    for field in fields:
        if field.name not in value and field.default is dataclasses.MISSING:
            raise ValueError(f"{what} lacks {field.name}")


def _trial_spec(value: Any) -> TrialSpec:
    """Values of other types than the fields have are found by the fingerprint in the name."""
    _check_fields(TrialSpec, value, "its spec")
    _check_fields(DataSpec, value["data"], "data of its spec")
    return TrialSpec.from_json(value)


def _check_done(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError("done is no JSON object")
    for name in ("step", "best_step"):
        if type(value.get(name)) is not int or value[name] < 0:
            raise ValueError(f"{name} of done must be a whole number, not {value.get(name)!r}")
    if type(value.get("parameters", 0)) is not int:
        raise ValueError(f"parameters of done must be a whole number, not {value['parameters']!r}")
    if value["best_step"] > value["step"]:
        raise ValueError("best_step of done lies after its step")
    for name, most in (("validation_accuracy", 1.0), ("seconds", 1e12)):
        number = value.get(name)
        if not _is_number(number) or not 0.0 <= number <= most:
            raise ValueError(f"{name} of done must be a number in [0, {most:g}], not {number!r}")


def _curve(value: Any) -> pa.Table:
    if not isinstance(value, Mapping):
        raise ValueError("curve is no JSON object")
    for name in ("step", "validation_accuracy"):
        if not value.get(name):
            raise ValueError(f"curve lacks {name}")
    rows = len(value["step"])
    for name, column in value.items():
        if not isinstance(column, list) or len(column) != rows:
            raise ValueError(f"column {name} of curve has not the {rows} rows of step")
        if not all(number is None or _is_number(number) for number in column):
            raise ValueError(f"column {name} of curve holds something else than numbers")
    return pa.table(dict(value))


def _evaluations(value: Any, best_step: int) -> Sequence[tuple[EvaluationSpec, Mapping[str, Any]]]:
    if not isinstance(value, list):
        raise ValueError("evaluations is no list")
    found: dict[str, tuple[EvaluationSpec, Mapping[str, Any]]] = {}
    for place, each in enumerate(value, 1):
        what = f"evaluation {place}"
        if not isinstance(each, Mapping) or each.keys() != {"spec", "result"}:
            raise ValueError(f"{what} must have spec and result, and nothing else")
        spec, result = _evaluation_spec(each["spec"], f"spec of {what}"), each["result"]
        if spec.name in found:
            raise ValueError(f"{what} is there twice")
        if not isinstance(result, Mapping) or not result:
            raise ValueError(f"result of {what} is no JSON object, or empty")
        if result.get("best_step", best_step) != best_step:
            raise ValueError(f"{what} is of other weights than those of step {best_step}")
        _check_accuracy(result, what)
        found[spec.name] = (spec, result)
    return list(found.values())


def _evaluation_spec(value: Any, what: str) -> EvaluationSpec:
    _check_fields(EvaluationSpec, value, what)
    for name, hint in get_type_hints(EvaluationSpec).items():
        kind = get_origin(hint) or hint
        if not isinstance(value[name], kind):
            raise ValueError(f"{name} of the {what} must be a {kind.__name__}")
    spec = EvaluationSpec.from_json(value)
    if spec.split not in SPLITS:
        raise ValueError(f"split of the {what} must be train, val or test, not {spec.split!r}")
    if not re.fullmatch(r"[^/\0]{1,200}", spec.name):  # it becomes the name of a folder
        raise ValueError(f"protocol or dataset of the {what} is no name")
    return spec


def _check_accuracy(result: Mapping[str, Any], what: str) -> None:
    """Where a result says which problems were answered correctly, its accuracy is their share."""
    if "correct" not in result or "accuracy" not in result:
        return
    correct, accuracy = result["correct"], result["accuracy"]
    if not isinstance(correct, list) or not isinstance(accuracy, list):
        raise ValueError(f"accuracy and correct of {what} must be lists")
    if len(correct) != len(accuracy):
        raise ValueError(f"accuracy and correct of {what} have different numbers of rounds")
    for answers, share in zip(correct, accuracy, strict=True):
        if not isinstance(answers, str) or not re.fullmatch("[01]+", answers):
            raise ValueError(f"correct of {what} must be strings of 0 and 1")
        if not _is_number(share) or abs(answers.count("1") / len(answers) - share) > 1e-6:
            raise ValueError(f"accuracy of {what} is {share!r}, but not by its correct answers")


def _weights(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("weights is no JSON object")
    for name, digest in value.items():
        if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
            raise ValueError(f"weights: {name} has no SHA-256")
    return value
