"""The report as one HTML page that needs nothing beside it."""

import base64
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined

from artifacts.gaps import OWN_MISSING
from artifacts.numbers import Number, interval, percent
from artifacts.published import PublishedCell, model_label
from artifacts.records import EvaluationRecord, TrialRecord
from artifacts.report_tables import SIGNS, ReportTable
from raise_model.version import commit, package_version

if TYPE_CHECKING:
    from artifacts.report import Report
    from artifacts.report_figure import ReportFigure

_MEANINGS = {
    "inside": "inside our interval",
    "above": "ours is above",
    "below": "ours is below",
}


def page(report: "Report", figures: Sequence[tuple["ReportFigure", bytes]]) -> str:
    """The page; pictures are in it as data.

    :param figures: each with its SVG.
    """
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    text = files("artifacts").joinpath("report_template.html").read_text()
    tables = [*report.paper, *report.own]
    origins = _origins(report, tables)
    return environment.from_string(text).render(
        report=report,
        coverage=report.coverage().to_dict("records"),
        tables=tables,
        anchors={key: origin["anchor"] for key, origin in origins.items()},
        origins=list(origins.values()),
        trials=[_trial(record) for record in report.records],
        figures=[
            {
                "key": each.key,
                "title": each.title,
                "caption": each.caption,
                "source": "data:image/svg+xml;base64," + base64.b64encode(svg).decode(),
            }
            for each, svg in figures
        ],
        own_missing=OWN_MISSING,
        signs=SIGNS,
        meanings=_MEANINGS,
        made_by=f"raise-rpm {package_version()}, commit {(commit() or 'unknown')[:12]}",
    )


def _origins(report: "Report", tables: Sequence[ReportTable]) -> dict[str, dict[str, Any]]:
    """What each linked number rests on, by its key, in order of appearance."""
    evaluations = {
        (record.name, evaluation.name): (record, evaluation)
        for record in report.records
        for evaluation in record.evaluations
    }
    published = {each.cell.place: each.cell for each in report.cells}
    found: dict[str, dict[str, Any]] = {}
    for cell in (cell for table in tables for cell in table.cells()):
        if cell.number is None:
            continue
        origin = found.setdefault(
            cell.number.key, _origin(cell.number, f"n{len(found)}", evaluations)
        )
        if cell.place is not None:
            compared = (published[cell.place], cell.mark)
            origin["published"].append(_published(*compared))
    return found


def _published(cell: PublishedCell, mark: str | None) -> str:
    value = cell.value
    std = f" ± {100 * value.std:.1f} over ten trials" if value.std is not None else ""
    meaning = f"; {_MEANINGS[mark]}" if mark else ""
    return f"{100 * value.accuracy:.1f}{std} ({cell.table.replace('_', ' ')}){meaning}"


def _origin(
    number: Number,
    anchor: str,
    evaluations: Mapping[tuple[str, str], tuple[TrialRecord, EvaluationRecord]],
) -> dict[str, Any]:
    s = number.spreads
    scale = percent if number.is_share else "{:.3f}".format
    spans = []
    if s["seeds"] > 1:
        shown = interval if number.is_share else lambda low, high: f"{low:.3f} to {high:.3f}"
        spans.append(
            f"over {s['seeds']} seeds: standard deviation {scale(s['std'])}, Student's 95 % "
            f"interval {shown(s['t_low'], s['t_high'])}, lowest {scale(s['lowest'])}"
        )
    else:
        spans.append("one seed: nothing is known of the spread over seeds")
    if s["wilson_low"] == s["wilson_low"]:
        shown = interval if number.is_share else lambda low, high: f"{low:.3f} to {high:.3f}"
        spans.append(
            f"over {s['problems']} test problems: Wilson's 95 % interval "
            f"{shown(s['wilson_low'], s['wilson_high'])}"
        )
    if s["rounds_std"] == s["rounds_std"]:
        spans.append(f"over {s['rounds']} rounds: standard deviation {scale(s['rounds_std'])}")
    spans += _rules_and_seen(s)
    return {
        "anchor": anchor,
        "title": number.title,
        "text": number.text(),
        "presets": "/".join(number.presets),
        "spans": spans,
        "published": [],
        "seeds": [
            _seed(row, scale(row["accuracy"]), *evaluations[row["trial"], row["evaluation"]])
            for row in number.seeds
        ],
    }


def _rules_and_seen(spreads: Mapping[str, Any]) -> list[str]:
    """Rule accuracy, and what training has shown of the test; nothing where it is no selection."""
    if "seen_problems" not in spreads:
        return []
    said = []
    if spreads["rule_accuracy"] == spreads["rule_accuracy"]:
        said.append(f"labelled rules named rightly: {percent(spreads['rule_accuracy'])}")
    seen = spreads["seen_problems"]
    if seen != seen:
        said.append("whether training shows contexts of the test is not known")
    elif seen:
        said.append(
            f"{seen:.0f} test problems have their nine panels in the training set: accuracy "
            f"{percent(spreads['seen_accuracy'])} on them, {percent(spreads['unseen_accuracy'])} "
            "on the others"
        )
    else:
        said.append("no test problem has its nine panels in the training set")
    return said


def _seed(
    row: Mapping[str, Any], value: str, record: TrialRecord, evaluation: EvaluationRecord
) -> dict[str, Any]:
    made = evaluation.result.get("provenance", {})
    return {
        "trial": record.name,
        "configuration": record.spec.data.configuration,
        "seed": row["seed"],
        "value": value,
        "evaluation": evaluation.name,
        "evaluation_spec": json.dumps(evaluation.spec.to_json(), indent=1, sort_keys=True),
        "trained": _where(record.done.get("provenance", {})),
        "evaluated": _where(made),
    }


def _where(provenance: Mapping[str, Any]) -> str:
    """Hardware and commit in one line."""
    if not provenance:
        return "not recorded"
    threads = provenance.get("threads", "?")
    return (
        f"{provenance.get('device', 'unknown device')}, {threads} "
        f"thread{'' if threads == 1 else 's'}, commit {str(provenance.get('commit'))[:12]}"
    )


def _trial(record: TrialRecord) -> dict[str, Any]:
    spec, done = record.spec, record.done
    provenance = done.get("provenance", {})
    return {
        "name": record.name,
        "model": model_label(spec.model),
        "configuration": spec.data.configuration,
        "preset": "/".join(record.presets),
        "labels": f"{100 * spec.data.label_ratio:g} %",
        "seed": spec.seed,
        "steps": spec.steps,
        "best_step": done["best_step"],
        "validation": percent(done["validation_accuracy"]),
        "seconds": round(done["seconds"]),
        "where": _where(provenance),
        "versions": ", ".join(f"{key} {value}" for key, value in sorted(provenance.items())),
        "spec": json.dumps(spec.to_json(), indent=1, sort_keys=True),
        "evaluations": [
            {
                "name": each.name,
                "result": _headline(each),
                "where": _where(each.result.get("provenance", {})),
            }
            for each in record.evaluations
        ],
    }


def _headline(evaluation: EvaluationRecord) -> str:
    """The first thing a result says."""
    result = evaluation.result
    if evaluation.spec.protocol == "bottom_right":
        rounds = [percent(value) for value in result["accuracy"]]
        return f"{' / '.join(rounds)} in {len(rounds)} round{'s' if len(rounds) > 1 else ''}"
    if evaluation.spec.protocol == "arbitrary_position":
        return f"{len(result['settings'])} settings"
    return f"{result['problems']} problems"
