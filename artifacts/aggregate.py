"""From the store to numbers: one row a (trial, evaluation), then means over seeds.

Three spreads that are never mixed:

* over **seeds** (trainings): sample standard deviation (n - 1) and Student's t interval;
* over **test problems**: Wilson's interval at the number of problems of one seed;
* over **rounds** (stochastic passes over one checkpoint): their standard deviation, averaged
  over the seeds; reported, never an error of the method.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from artifacts.records import EvaluationRecord, TrialRecord, read_records
from raise_model.specs import EvaluationSpec, canonical_json
from raise_model.store import Store

CONFIDENCE = 0.95

RESULT_COLUMNS = (
    "trial", "study_cell", "preset", "model", "configuration", "train_dataset", "label_ratio",
    "label_map",
    "image_size", "precision", "steps", "seed", "protocol", "options", "dataset", "split",
    "evaluation", "num_targets", "num_distractors", "model_revision", "protocol_revision",
    "problems", "rounds", "accuracy", "rounds_std", "rule_accuracy", "validation_accuracy",
    "best_step", "train_seconds",
    "seen_problems", "seen_accuracy", "unseen_accuracy",
)  # fmt: skip
_CELL = (
    "study_cell", "preset", "model", "configuration", "train_dataset", "label_ratio", "label_map",
    "image_size", "precision", "steps", "protocol", "options", "dataset", "split", "evaluation",
    "num_targets", "num_distractors", "model_revision", "protocol_revision",
)  # fmt: skip
_SPREADS = (
    "seeds", "mean", "std", "t_low", "t_high", "lowest", "problems", "wilson_low", "wilson_high",
    "rounds", "rounds_std", "rule_accuracy", "seen_problems", "seen_accuracy", "unseen_accuracy",
)  # fmt: skip
_BOTTOM_RIGHT = {"targets": 1, "distractors": 7}
"""How many panels are missing, and wrong candidates there are, in the data set's own problems."""
Row = dict[str, Any]


def results(
    store: Store, pairs: Sequence[tuple[str, EvaluationSpec]] | None = None
) -> pd.DataFrame:
    """One row for each selection accuracy, of ``pairs`` (trial name, spec) or of all.

    An evaluation of bottom-right selection has one; of arbitrary positions one for each number
    of targets and distractors.  Accuracies are shares in [0, 1], means over the rounds.

    :raises UserError: naming the file, if one is damaged.
    """
    return selection_rows(read_records(store, pairs))


def selection_rows(records: Sequence[TrialRecord]) -> pd.DataFrame:
    """:func:`results` of records that are read already."""
    rows = [
        _row(record, evaluation, setting)
        for record in records
        for evaluation in record.evaluations
        for setting in _settings(evaluation)
    ]
    return pd.DataFrame(rows, columns=pd.Index(RESULT_COLUMNS))


def _settings(evaluation: EvaluationRecord) -> Sequence[Mapping[str, Any]]:
    """Each accuracy over rounds that an evaluation has, with what it is of."""
    result = evaluation.result
    if evaluation.spec.protocol == "arbitrary_position":
        return result["settings"]
    return [{**result, **_BOTTOM_RIGHT}] if evaluation.spec.protocol == "bottom_right" else []


def _row(record: TrialRecord, evaluation: EvaluationRecord, setting: Mapping[str, Any]) -> Row:
    spec, done = record.spec, record.done
    rounds = np.array(setting["accuracy"], dtype=float)
    rule_accuracy = setting.get("rule_accuracy")
    return {
        "trial": record.name,
        "study_cell": record.study_cell,
        "preset": "/".join(record.presets),
        "model": spec.model,
        "configuration": spec.data.configuration,
        "train_dataset": spec.data.dataset,
        "label_ratio": spec.data.label_ratio,
        "label_map": spec.data.label_map,
        "image_size": spec.data.image_size,
        "precision": spec.precision,
        "steps": spec.steps,
        "seed": spec.seed,
        "protocol": evaluation.spec.protocol,
        "options": canonical_json(dict(evaluation.spec.options)),
        "dataset": evaluation.spec.dataset,
        "split": evaluation.spec.split,
        "evaluation": evaluation.name,
        "num_targets": int(setting["targets"]),
        "num_distractors": int(setting["distractors"]),
        "model_revision": spec.revision,
        "protocol_revision": evaluation.spec.revision,
        "problems": int(setting["problems"]),
        "rounds": len(rounds),
        "accuracy": float(rounds.mean()),
        "rounds_std": float(rounds.std(ddof=1)) if len(rounds) > 1 else math.nan,
        "rule_accuracy": math.nan if rule_accuracy is None else float(rule_accuracy),
        "validation_accuracy": done["validation_accuracy"],
        "best_step": done["best_step"],
        "train_seconds": done["seconds"],
    } | _seen(setting.get("seen"))


def _seen(seen: Mapping[str, Any] | None) -> dict[str, float]:
    """Problems whose panels training shows, and accuracies apart; NaN where it is not known."""
    if seen is None:
        return dict.fromkeys(("seen_problems", "seen_accuracy", "unseen_accuracy"), math.nan)
    means = {
        name: math.nan if seen[key] is None else float(np.mean(seen[key]))
        for name, key in (("seen_accuracy", "accuracy"), ("unseen_accuracy", "unseen_accuracy"))
    }
    return {"seen_problems": float(seen["problems"])} | means


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds of :func:`results`, one row for each training setting and evaluation.

    Columns beside the setting: ``seeds``, ``mean``, ``std`` (NaN for one seed), ``t_low``,
    ``t_high`` (NaN for one seed), ``problems``, ``wilson_low``, ``wilson_high``, ``rounds``,
    ``rounds_std``, ``lowest``, ``rule_accuracy``, ``seen_problems`` (whose nine panels training
    shows), ``seen_accuracy``, ``unseen_accuracy`` (NaN where it is not known).
    """
    rows = [cell | spreads(seeds) for cell, seeds in grouped(frame)]
    return pd.DataFrame(rows, columns=pd.Index([*_CELL, *_SPREADS]))


def grouped(frame: pd.DataFrame) -> list[tuple[Row, list[Row]]]:
    """Rows of :func:`results` by what they share, and the seeds of each in order."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in frame.to_dict("records"):
        seed = {str(key): value for key, value in row.items()}
        groups.setdefault(tuple(seed[column] for column in _CELL), []).append(seed)
    return [
        (dict(zip(_CELL, cell, strict=True)), sorted(seeds, key=lambda seed: seed["seed"]))
        for cell, seeds in groups.items()
    ]


def spreads(seeds: Sequence[Row]) -> Row:
    """Mean and the three spreads of one cell, whose rows are its seeds."""
    problems = int(seeds[0]["problems"])
    values = over_seeds([seed["accuracy"] for seed in seeds], problems)
    values |= {
        "rounds": int(seeds[0]["rounds"]),
        "rounds_std": float(np.mean([seed["rounds_std"] for seed in seeds])),
    }
    return values | {name: float(np.mean([seed[name] for seed in seeds])) for name in _SPREADS[11:]}


def over_seeds(accuracies: Sequence[float], problems: int | None) -> Row:
    """Mean, deviation and intervals of accuracies, one a seed, of so many problems each.

    :param problems: None for values that are no shares of problems: without Wilson's interval.
    """
    accuracy = np.array(accuracies)
    mean = float(accuracy.mean())
    std = float(accuracy.std(ddof=1)) if len(accuracy) > 1 else math.nan
    values = (
        len(accuracy), mean, std, *t_interval(mean, std, len(accuracy)), float(accuracy.min()),
        problems, *(wilson_interval(mean, problems) if problems else (math.nan, math.nan)),
    )  # fmt: skip
    return dict(zip(_SPREADS[:9], values, strict=True))


def t_interval(mean: float, std: float, seeds: int) -> tuple[float, float]:
    """Student's 95 % interval of a mean over seeds; NaN for a single one."""
    if seeds < 2:
        return math.nan, math.nan
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1)) * std / math.sqrt(seeds)
    return mean - half, mean + half


def wilson_interval(share: float, problems: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of ``problems``.

    scipy has it for whole numbers of right answers; a mean over seeds is none.
    """
    z = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    scale = 1 + z**2 / problems
    centre = (share + z**2 / (2 * problems)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / problems + z**2 / (4 * problems**2))
    return centre - half, centre + half
