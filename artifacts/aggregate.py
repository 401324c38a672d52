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

from raise_model.specs import EvaluationSpec, TrialSpec, canonical_json, fingerprint
from raise_model.store import Store

CONFIDENCE = 0.95

RESULT_COLUMNS = (
    "trial", "study_cell", "model", "configuration", "train_dataset", "label_ratio", "label_map",
    "image_size", "precision", "steps", "seed", "protocol", "options", "dataset", "split",
    "evaluation", "problems", "rounds", "accuracy", "rounds_std", "rule_accuracy",
    "validation_accuracy", "best_step", "train_seconds", "seen_problems", "seen_accuracy",
    "unseen_accuracy",
)  # fmt: skip
_CELL = (
    "study_cell", "model", "configuration", "train_dataset", "label_ratio", "label_map",
    "image_size", "precision", "steps", "protocol", "options", "dataset", "split", "evaluation",
)  # fmt: skip
_SPREADS = (
    "seeds", "mean", "std", "t_low", "t_high", "lowest", "problems", "wilson_low", "wilson_high",
    "rounds", "rounds_std", "rule_accuracy", "seen_problems", "seen_accuracy", "unseen_accuracy",
)  # fmt: skip


def study_cell(spec: TrialSpec) -> str:
    """16 digits that trainings share which differ in nothing but the seed."""
    value = spec.to_json()
    del value["seed"]
    return fingerprint("study_cell", value)[:16]


def results(
    store: Store, pairs: Sequence[tuple[str, EvaluationSpec]] | None = None
) -> pd.DataFrame:
    """One row for each evaluation with a result, of ``pairs`` (trial name, spec) or of all.

    Accuracies are shares in [0, 1], means over the rounds.
    """
    if pairs is None:
        folders = [folder for trial in store.trials() for folder in trial.evaluations()]
    else:
        folders = [store.trial(name).evaluation(spec) for name, spec in pairs]
    rows = [_row(folder) for folder in folders if folder.is_done]
    return pd.DataFrame(rows, columns=pd.Index(RESULT_COLUMNS))


def _row(folder: Any) -> dict[str, Any]:
    spec: TrialSpec = folder.trial.spec()
    evaluation: EvaluationSpec = folder.spec()
    result = folder.result()
    done = folder.trial.done()
    rounds = np.array(result["accuracy"], dtype=float)
    rule_accuracy = result.get("rule_accuracy")
    return {
        "trial": folder.trial.name,
        "study_cell": study_cell(spec),
        "model": spec.model,
        "configuration": spec.data.configuration,
        "train_dataset": spec.data.dataset,
        "label_ratio": spec.data.label_ratio,
        "label_map": spec.data.label_map,
        "image_size": spec.data.image_size,
        "precision": spec.precision,
        "steps": spec.steps,
        "seed": spec.seed,
        "protocol": evaluation.protocol,
        "options": canonical_json(dict(evaluation.options)),
        "dataset": evaluation.dataset,
        "split": evaluation.split,
        "evaluation": evaluation.name,
        "problems": int(result["problems"]),
        "rounds": len(rounds),
        "accuracy": float(rounds.mean()),
        "rounds_std": float(rounds.std(ddof=1)) if len(rounds) > 1 else math.nan,
        "rule_accuracy": math.nan if rule_accuracy is None else float(rule_accuracy),
        "validation_accuracy": done["validation_accuracy"],
        "best_step": done["best_step"],
        "train_seconds": done["seconds"],
    } | _seen(result.get("seen"))


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
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in frame.to_dict("records"):
        seed = {str(key): value for key, value in row.items()}
        groups.setdefault(tuple(seed[column] for column in _CELL), []).append(seed)
    rows = [dict(zip(_CELL, cell, strict=True)) | _spreads(group) for cell, group in groups.items()]
    return pd.DataFrame(rows, columns=pd.Index([*_CELL, *_SPREADS]))


def _spreads(seeds: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The spreads of one cell, whose rows are its seeds."""
    accuracy = np.array([seed["accuracy"] for seed in seeds])
    mean = float(accuracy.mean())
    std = float(accuracy.std(ddof=1)) if len(seeds) > 1 else math.nan
    problems = int(seeds[0]["problems"])
    values = (
        len(seeds), mean, std, *t_interval(mean, std, len(seeds)), float(accuracy.min()),
        problems, *wilson_interval(mean, problems), int(seeds[0]["rounds"]),
        float(np.mean([seed["rounds_std"] for seed in seeds])),
        *(float(np.mean([seed[name] for seed in seeds])) for name in _SPREADS[11:]),
    )  # fmt: skip
    return dict(zip(_SPREADS, values, strict=True))


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
