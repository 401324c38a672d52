"""The report as one HTML page that needs nothing beside it."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from artifacts.numbers import Number, interval, percent, rounded
from artifacts.paper_tables import LABELS, TITLES
from artifacts.published import PublishedCell, dataset_title, model_label
from artifacts.records import EvaluationRecord, TrialRecord
from artifacts.report_tables import (
    COVERAGE,
    MODELS,
    NOTHING,
    ROUNDING,
    SIGNS,
    ReportTable,
    published_text,
)
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
    environment.filters |= {"code": _code, "key": _key}
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
        missing=[
            {"anchor": f"missing-{place}", "title": heading, "gaps": found}
            for place, (heading, found) in enumerate(report.missing(), 1)
        ],
        coverage_note=COVERAGE,
        models_note=MODELS,
        rounding=ROUNDING,
        nothing=NOTHING,
        signs=SIGNS,
        meanings=_MEANINGS,
        made_by=f"raise-rpm {package_version()}, commit {(commit() or 'unknown')[:12]}",
    )


def _key(value: float) -> str:
    """A number as scripts read it."""
    return str(value).replace("inf", "Infinity")


def _code(text: str) -> Markup:
    """What stands between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


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
    trials = " over ten trials" if cell.value.std is not None else ""
    meaning = f"; {_MEANINGS[mark]}" if mark else ""
    return f"{published_text(cell.value)}{trials} ({TITLES[cell.table]}){meaning}"


def _origin(
    number: Number,
    anchor: str,
    evaluations: Mapping[tuple[str, str], tuple[TrialRecord, EvaluationRecord]],
) -> dict[str, Any]:
    s = number.spreads
    scale = percent if number.is_share else lambda value: rounded(value, 3)
    shown = interval if number.is_share else lambda low, high: f"{scale(low)} to {scale(high)}"
    spans = []
    if s["seeds"] > 1:
        spans.append(
            f"over {s['seeds']} seeds: standard deviation {scale(s['std'])}, Student's 95 % "
            f"interval {shown(s['t_low'], s['t_high'])}, lowest {scale(s['lowest'])}"
        )
    else:
        spans.append("one seed: nothing is known of the spread over seeds")
    if s["wilson_low"] == s["wilson_low"]:
        spans.append(
            f"over {s['problems']} test problems: Wilson's 95 % interval "
            f"{shown(s['wilson_low'], s['wilson_high'])}"
        )
    if s["rounds_std"] == s["rounds_std"]:
        spans.append(f"over {s['rounds']} rounds: standard deviation {scale(s['rounds_std'])}")
    spans += _rules_and_seen(s)
    return {
        "anchor": anchor,
        "title": _title(number),
        "text": number.text(),
        "presets": "/".join(number.presets),
        "spans": spans,
        "published": [],
        "seeds": [
            _seed(row, scale(row["accuracy"]), *evaluations[row["trial"], row["evaluation"]])
            for row in number.seeds
        ],
    }


def _title(number: Number) -> str:
    """What a number is of; an average says it itself."""
    s = number.setting
    if "dataset" not in s:
        return number.title
    configuration = LABELS.get(s["configuration"], s["configuration"])
    parts = [model_label(s["model"]), configuration, dataset_title(s["dataset"]), number.title]
    return " · ".join(parts)


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
        "configuration": LABELS.get(spec.data.configuration, spec.data.configuration),
        "preset": "/".join(record.presets),
        "labels": f"{100 * spec.data.label_ratio:g} %",
        "label_ratio": spec.data.label_ratio,
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
