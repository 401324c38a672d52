"""Results that are no selection accuracy: odd-one-out, rules, concepts, several answers.

Every number of such a result is one measure: those at its top by their own names, those in
lists and mappings below it by the name of the list and the place.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from artifacts import aggregate
from artifacts.numbers import Number
from artifacts.records import EvaluationRecord, TrialRecord
from artifacts.run_fields import top_numbers
from raise_model.specs import EvaluationSpec, canonical_json

SELECTION = ("bottom_right", "arbitrary_position")
"""Protocols whose results are accuracies over rounds."""
TITLES: Mapping[str, str] = {
    "odd_one_out": "Odd-one-out",
    "rule_accuracy": "Rule accuracy",
    "concept_alignment": "Concepts and attributes",
    "latent_traversal": "Latent traversal",
    "multi_answer": "Several answers to one problem",
}
"""Of protocols."""
ODD: Mapping[str, str] = {
    "any": "any panel",
    "bottom_right": "last panel",
    "candidate": "wrong candidate",
}
"""What is odd, in short."""
ODD_PANELS: Mapping[str, str] = {
    "any": "any of the nine, one attribute changed",
    "bottom_right": "the last one, one attribute changed",
    "candidate": "the last one, a wrong candidate, as in the paper",
}
"""The same, and what makes it odd."""
_OF_PROBLEMS = ("panel_accuracy", "attribute_accuracy")
"""Measures that are shares of the problems, so that Wilson's interval is theirs."""
_NO_PARTS = (
    "provenance",
    "seen",
    "correct",
    "matrix",
    "options",
    "examples",
    "concept_of",
    "binary",
)
"""Parts of a result that are not measures of their own."""
_SETTINGS = ("targets", "steps", "panels", "measured_problems")
"""Numbers at the top that say what was run."""


def measured(result: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Measures by group: ``""`` for those at the top, then each list or mapping of numbers."""
    top = top_numbers(result)
    groups = {"": {name: value for name, value in top.items() if name not in _SETTINGS}}
    for key, value in result.items():
        if key not in _NO_PARTS and (part := _flat(value)):
            groups[key] = part
    return {name: group for name, group in groups.items() if group}


def _flat(value: Any) -> dict[str, float]:
    """Numbers of a list, a mapping, or a mapping of mappings; of anything else none."""
    if isinstance(value, list | tuple):
        value = {str(place): each for place, each in enumerate(value, 1)}
    if not isinstance(value, Mapping):
        return {}
    found: dict[str, float] = {}
    for key, each in value.items():
        if isinstance(each, Mapping):
            found |= {f"{key} {name}": number for name, number in top_numbers(each).items()}
        elif isinstance(each, int | float) and not isinstance(each, bool):
            found[str(key)] = float(each)
    return found


def title_of(protocol: str) -> str:
    """Name of a protocol for people."""
    return TITLES.get(protocol, protocol.replace("_", " ").capitalize())


def option_text(name: str, value: Any) -> str:
    """An option of an evaluation in words."""
    if name == "odd":
        return ODD.get(value, str(value))
    if name in ("targets", "samples"):
        noun = "missing panel" if name == "targets" else "answer"
        return f"{value} {noun}{'' if value == 1 else 's'}"
    return f"{name} {value}"


def measure_name(spec: EvaluationSpec) -> str:
    """An evaluation in words, with its options."""
    options = [option_text(name, value) for name, value in sorted(spec.options.items())]
    return ": ".join([title_of(spec.protocol), *([", ".join(options)] if options else [])])


def measure_numbers(
    records: Sequence[TrialRecord],
) -> dict[str, list[dict[str, dict[str, Number]]]]:
    """By protocol, one entry a training setting and evaluation: group, measure, number."""
    groups: dict[tuple[str, str, str], list[tuple[TrialRecord, EvaluationRecord]]] = {}
    for record in records:
        for evaluation in record.evaluations:
            protocol = evaluation.spec.protocol
            if protocol not in SELECTION:
                key = (protocol, record.study_cell, evaluation.name)
                groups.setdefault(key, []).append((record, evaluation))
    made: dict[str, list[dict[str, dict[str, Number]]]] = {}
    for (protocol, _, _), seeds in groups.items():
        made.setdefault(protocol, []).append(_numbers(seeds))
    return made


def _numbers(
    seeds: Sequence[tuple[TrialRecord, EvaluationRecord]],
) -> dict[str, dict[str, Number]]:
    seeds = sorted(seeds, key=lambda pair: pair[0].spec.seed)
    values = [measured(evaluation.result) for _, evaluation in seeds]
    return {
        group: {
            name: _number(seeds, group, name, [value[group][name] for value in values])
            for name in names
            if all(name in value.get(group, {}) for value in values)
        }
        for group, names in values[0].items()
    }


def _number(
    seeds: Sequence[tuple[TrialRecord, EvaluationRecord]],
    group: str,
    name: str,
    values: Sequence[float],
) -> Number:
    spec, evaluation = seeds[0][0].spec, seeds[0][1]
    problems = int(evaluation.result["problems"])
    is_share_of_problems = group == "" and name in _OF_PROBLEMS
    spreads = aggregate.over_seeds(values, problems if is_share_of_problems else None)
    spreads |= {"rounds": int(evaluation.result.get("rounds", 1)), "rounds_std": math.nan}
    what = " ".join(part for part in (group, name) if part).replace("_", " ")
    return Number(
        key="-".join((seeds[0][0].study_cell, evaluation.name, group, name.replace(" ", "_"))),
        title=f"{measure_name(evaluation.spec)} · {what}",
        setting={
            "model": spec.model,
            "configuration": spec.data.configuration,
            "label_ratio": spec.data.label_ratio,
            "label_map": spec.data.label_map,
            "dataset": evaluation.spec.dataset,
            "split": evaluation.spec.split,
            "protocol": evaluation.spec.protocol,
            "options": canonical_json(dict(evaluation.spec.options)),
            "measure": what,
        },
        presets=seeds[0][0].presets,
        spreads=spreads | {"problems": problems},
        seeds=[
            {
                "trial": record.name,
                "seed": record.spec.seed,
                "evaluation": each.name,
                "accuracy": value,
                "problems": int(each.result["problems"]),
            }
            for (record, each), value in zip(seeds, values, strict=True)
        ],
        is_share=False,
    )
