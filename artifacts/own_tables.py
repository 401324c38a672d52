"""Results that the paper has no cell for: tables of their own.

Every selection accuracy on test problems stands in the paper's tables or in one of these.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from artifacts import published
from artifacts.measures import measure_numbers
from artifacts.numbers import Number, interval, percent
from artifacts.paper_cells import PAPER_MODELS, PaperCell
from artifacts.paper_tables import LABELS
from artifacts.records import TrialRecord
from artifacts.report_tables import (
    NOTHING,
    Cell,
    ReportTable,
    name_cell,
    number_cell,
    value_cell,
)
from artifacts.settings import differences, setting
from raise_model.specs import TrialSpec, canonical_json

_PAIRED = ("iraven_paired", "iraven_overlapping")
_PROTOCOLS: Mapping[str, str] = {
    "odd_one_out": "Odd-one-out",
    "rule_accuracy": "Rule accuracy",
    "concept_alignment": "Concepts and attributes",
    "multi_answer": "Several answers to one problem",
}


def own_tables(
    records: Sequence[TrialRecord], numbers: Sequence[Number], cells: Sequence[PaperCell]
) -> list[ReportTable]:
    """Those that have rows."""
    specs = {record.name: record.spec for record in records}
    tests = [number for number in numbers if number.setting["split"] == "test"]
    curves = label_ratio_groups(tests, specs)
    shown = {each.ours.key for each in cells if each.ours is not None}
    shown |= {number.key for group in curves for number in group}
    rest = [number for number in tests if number.key not in shown]
    models = [n for n in rest if n.setting["model"] not in PAPER_MODELS]
    others = [n for n in rest if n.setting["model"] in PAPER_MODELS]
    drawn = [n for n in others if _is_other_test(n)]
    settings = [n for n in others if not _is_other_test(n)]
    tables = [
        _details(
            "own-models", "Models of this project alone", models, _compared,
            ["Beside the paper's number of the model that they extend."],
        ),
        _label_ratios(curves),
        _details(
            "other-tests", "Other test sets and other ways to draw candidates", drawn,
            _compared,
            ["iraven_paired has RAVEN's contexts, iraven_overlapping a share of its training "
             "contexts; at arbitrary positions, masks are drawn by problem, or candidates that "
             "equal the answer are left out."],
        ),
        _details(
            "other-settings", "Other settings (ablations)", settings, _differs(specs, cells),
            ["In brackets what the training has whose number stands in the paper's table."],
            extra="Differs in",
        ),
        *_measure_tables(records),
    ]  # fmt: skip
    return [table for table in tables if table.rows]


def _is_other_test(number: Number) -> bool:
    options = published.options_of(number.setting["options"])
    is_drawn = options.get("masks", "batch") != "batch" or options.get("duplicates") == "leave_out"
    dataset = number.setting["dataset"]
    # The paper has held-out results on RAVEN alone.
    is_other_set = dataset in _PAIRED or dataset in ("iraven_held_out", "iraven_published_held_out")
    return is_other_set or is_drawn


def label_ratio_groups(
    numbers: Sequence[Number], specs: Mapping[str, TrialSpec]
) -> list[list[Number]]:
    """Numbers that differ in nothing but the share of labelled problems, smallest first.

    Two at least; bottom-right selection only.
    """
    groups: dict[str, list[Number]] = {}
    for number in numbers:
        if number.setting["protocol"] != "bottom_right":
            continue
        values = setting(specs[number.seeds[0]["trial"]])
        del values["label_ratio"]
        key = canonical_json([values, number.setting["dataset"], number.setting["evaluation"]])
        groups.setdefault(key, []).append(number)
    return [
        sorted(group, key=lambda number: number.setting["label_ratio"])
        for group in groups.values()
        if len({number.setting["label_ratio"] for number in group}) > 1
    ]


def _label_ratios(groups: Sequence[Sequence[Number]]) -> ReportTable:
    ratios = sorted({number.setting["label_ratio"] for group in groups for number in group})
    rows = []
    for group in groups:
        by_ratio = {number.setting["label_ratio"]: number for number in group}
        first = group[0]
        names = [name_cell(text) for text in (*_names(first)[:3], "/".join(first.presets))]
        rows.append([*names, *(number_cell(by_ratio.get(ratio)) for ratio in ratios)])
    return ReportTable(
        key="label-ratio",
        title="Share of labelled training problems",
        columns=["Model", "Configuration", "Test", "Preset", *(f"{100 * r:g} %" for r in ratios)],
        rows=rows,
        notes=["Steps and problems seen are the same at every ratio."],
        name_columns=4,
    )


def _names(number: Number) -> tuple[str, str, str, str]:
    s = number.setting
    options = published.options_of(s["options"])
    what = "bottom right"
    if s["protocol"] == "arbitrary_position":
        what = f"T={s['num_targets']} Nc={s['num_distractors']}"
    what = ", ".join([what, *(str(value) for _, value in sorted(options.items()))])
    model = published.model_label(s["model"])
    configuration = LABELS.get(s["configuration"], s["configuration"])
    return model, configuration, s["dataset"], what


Extra = Callable[[Number], Cell]


def _compared(number: Number) -> Cell:
    """The paper's number of the same thing, by the model that ours is compared with."""
    s = number.setting
    if s["protocol"] != "bottom_right":
        return Cell(text=NOTHING, sort=-math.inf)
    paper = published.bottom_right(
        model=s["model"],
        dataset="iraven" if s["dataset"] in _PAIRED else s["dataset"],
        configuration=s["configuration"],
        label_ratio=s["label_ratio"],
        space=published.options_of(s["options"]).get("space", "latent"),
    )
    return value_cell(paper.accuracy if paper else None)


def _differs(specs: Mapping[str, TrialSpec], cells: Sequence[PaperCell]) -> Extra:
    """In what a training differs from the one in the paper's table; else its preset."""
    tables: dict[tuple[str, str], TrialSpec] = {}
    for each in cells:
        if each.ours is not None and each.ours.setting:
            key = (each.ours.setting["model"], each.ours.setting["configuration"])
            tables.setdefault(key, specs[each.ours.seeds[0]["trial"]])

    def extra(number: Number) -> Cell:
        key = (number.setting["model"], number.setting["configuration"])
        spec = specs[number.seeds[0]["trial"]]
        if key not in tables:
            return Cell(text=NOTHING)
        changes = differences(setting(spec), setting(tables[key]))
        return Cell(text="; ".join(changes) or "the evaluation only")

    return extra


def _details(
    key: str,
    title: str,
    numbers: Sequence[Number],
    extra_of: Extra,
    notes: Sequence[str],
    extra: str = "Paper",
) -> ReportTable:
    """One row a number, with its three spreads."""
    order = list(LABELS)
    places = {name: place for place, name in enumerate(order)}
    ranked = sorted(
        numbers,
        key=lambda n: (
            n.setting["model"], n.setting["protocol"], n.presets,
            places.get(n.setting["configuration"], len(places)), n.setting["dataset"], n.key,
        ),
    )  # fmt: skip
    return ReportTable(
        key=key,
        title=title,
        columns=[
            "Model", "Configuration", "Test", "What", "Preset", "Labels", "Ours", extra,
            "Seeds", "t 95 % (seeds)", "Wilson 95 % (problems)", "Std of rounds", "Lowest seed",
            "Rules", "Seen in training",
        ],
        rows=[_detail_row(number, extra_of) for number in ranked],
        notes=notes,
        name_columns=4,
    )  # fmt: skip


def _detail_row(number: Number, extra_of: Extra) -> list[Cell]:
    s, spreads = number.setting, number.spreads
    return [
        *(name_cell(text) for text in _names(number)),
        Cell(text="/".join(number.presets)),
        value_cell(s["label_ratio"], f"{100 * s['label_ratio']:g} %"),
        number_cell(number),
        extra_of(number),
        Cell(text=str(spreads["seeds"]), sort=float(spreads["seeds"])),
        Cell(text=interval(spreads["t_low"], spreads["t_high"]) or NOTHING),
        Cell(text=interval(spreads["wilson_low"], spreads["wilson_high"])),
        value_cell(spreads["rounds_std"]),
        value_cell(spreads["lowest"]),
        value_cell(spreads["rule_accuracy"]),
        Cell(text=_seen(spreads)),
    ]


def _seen(spreads: Mapping[str, float]) -> str:
    """Share of test problems whose panels training shows, and accuracies apart."""
    if math.isnan(spreads["seen_problems"]):
        return "not known"
    share = spreads["seen_problems"] / spreads["problems"]
    if not share:
        return "0.0"
    apart = (percent(spreads["seen_accuracy"]), percent(spreads["unseen_accuracy"]))
    return f"{percent(share)}: {apart[0]}, others {apart[1]}"


def _measure_tables(records: Sequence[TrialRecord]) -> list[ReportTable]:
    """For each protocol a table of its numbers, and one for each list of numbers in them."""
    tables = []
    for protocol, entries in measure_numbers(records).items():
        groups = dict.fromkeys(group for entry in entries for group in entry)
        title = _PROTOCOLS.get(protocol, protocol.replace("_", " "))
        for group in groups:
            of_group = [entry[group] for entry in entries if entry.get(group)]
            name = f"{title}: {group.replace('_', ' ')}" if group else title
            tables.append(_measures(f"{protocol}-{group}".strip("-"), name, of_group))
    return tables


def _measures(key: str, title: str, entries: Sequence[Mapping[str, Number]]) -> ReportTable:
    names = list(dict.fromkeys(name for entry in entries for name in entry))
    rows = []
    for entry in entries:
        first = next(iter(entry.values()))
        s = first.setting
        options = published.options_of(s["options"])
        texts = [
            published.model_label(s["model"]),
            LABELS.get(s["configuration"], s["configuration"]),
            ", ".join([s["dataset"], s["split"], *(str(v) for _, v in sorted(options.items()))]),
            "/".join(first.presets),
        ]
        rows.append([*map(name_cell, texts), *(number_cell(entry.get(name)) for name in names)])
    return ReportTable(
        key=key.replace("_", "-"),
        title=title,
        columns=[
            "Model",
            "Configuration",
            "Problems",
            "Preset",
            *(n.replace("_", " ") for n in names),
        ],
        rows=rows,
        name_columns=4,
    )
