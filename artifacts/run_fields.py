"""What a tracking run shows of a trial and its evaluations: name, parameters, metrics."""

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import pandas as pd

from raise_model.specs import EvaluationSpec, TrialSpec

MAX_METRICS = 20
"""Keys of a run: the compare view draws a chart for each."""


def readable_name(spec: TrialSpec) -> str:
    """Name of a trial's run: what differs within a study, for people."""
    ratio = f"{100 * spec.data.label_ratio:g}%"
    return f"{spec.model} {spec.data.configuration} {ratio} seed {spec.seed}"


def parameters(spec: TrialSpec) -> dict[str, str]:
    """The spec, flat: the model's Config under its own names, then data and budget."""
    data = spec.to_json()["data"]
    flat: dict[str, Any] = {f"config.{key}": value for key, value in spec.config.items()}
    flat |= {"model": spec.model, "revision": spec.revision, "precision": spec.precision}
    flat |= {key: data[key] for key in ("dataset", "configuration", "image_size", "resize")}
    flat |= {key: data[key] for key in ("label_map", "label_ratio", "label_seed")}
    flat |= {key: data[key][:16] for key in ("train_digest", "validation_digest")}
    flat |= {"seed": spec.seed, "steps": spec.steps, "validate_every": spec.validate_every}
    flat["validation_problems"] = spec.validation_problems
    return {key: str(value) for key, value in flat.items()}


def provenance_tags(provenance: Mapping[str, Any]) -> dict[str, str]:
    """What trained a trial, and which code: no parameters, since they change no number."""
    names = ("commit", "device", "threads", "torch")
    return {f"raise.{name}": str(provenance[name]) for name in names if provenance.get(name)}


def evaluation_metrics(spec: EvaluationSpec, result: Mapping[str, Any]) -> dict[str, float]:
    """Metrics of one evaluation, e.g. ``raven.accuracy``; what is not the default is named.

    Of protocols that measure other things than accuracy: every number at the result's top.
    """
    parts = [spec.dataset]
    if spec.protocol != "bottom_right":
        parts.append(spec.protocol)
    parts += [str(value) for _, value in sorted(spec.options.items()) if value != "latent"]
    if spec.split != "test":
        parts.append(spec.split)
    prefix = ".".join(parts)
    if spec.protocol == "arbitrary_position":
        return {
            f"{prefix}.T{s['targets']}.N{s['distractors']}": fmean(s["accuracy"])
            for s in result["settings"]
        }
    if spec.protocol == "bottom_right":
        metrics = {f"{prefix}.accuracy": fmean(result["accuracy"])}
        if result.get("rule_accuracy") is not None:
            metrics[f"{prefix}.rule_accuracy"] = float(result["rule_accuracy"])
        return metrics
    return {f"{prefix}.{key}": value for key, value in top_numbers(result).items()}


NOT_MEASURED = ("problems", "best_step", "samples", "rounds")
"""Numbers of a result that say what was run, not what came out."""


def top_numbers(result: Mapping[str, Any]) -> dict[str, float]:
    """The measured numbers of a result that stand by themselves, in its order."""
    return {
        key: float(value)
        for key, value in result.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and key not in NOT_MEASURED
    }


def curve_metrics(row: Mapping[str, float]) -> list[tuple[str, float]]:
    """The metrics of a row that MLflow gets: finite, without the axis, not too many."""
    axis = ("step", "steps")
    return [(k, v) for k, v in row.items() if k not in axis and math.isfinite(v)][:MAX_METRICS]


def summary_metrics(rows: pd.DataFrame) -> dict[str, float]:
    """Means and spreads over seeds, of the rows of one training setting."""
    values: dict[str, float] = {}
    for row in rows.to_dict("records"):
        prefix = str(row["dataset"]) + (".pixel" if '"pixel"' in str(row["options"]) else "")
        if row["protocol"] == "arbitrary_position":
            prefix += f".T{row['num_targets']}.N{row['num_distractors']}"
        values[f"{prefix}.accuracy"] = float(row["mean"])
        values[f"{prefix}.std"] = float(row["std"])
        values[f"{prefix}.rule_accuracy"] = float(row["rule_accuracy"])
    return dict(list(values.items())[:MAX_METRICS])
