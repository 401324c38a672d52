"""Results that the paper has no cell for: tables of their own.

Every selection accuracy on test problems stands in the paper's tables or in one of these.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from artifacts import published
from artifacts.measure_tables import measure_tables
from artifacts.numbers import Number, interval, percent
from artifacts.paper_cells import PAPER_MODELS, Extension, PaperCell
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
from artifacts.settings import ABLATION_AS_PUBLISHED, differences, is_ablation, setting
from raise_model.specs import TrialSpec, canonical_json

_PAIRED = ("iraven_paired", "iraven_overlapping")


def own_tables(
    records: Sequence[TrialRecord],
    numbers: Sequence[Number],
    cells: Sequence[PaperCell],
    extensions: Sequence[Extension],
) -> list[ReportTable]:
    """Those that have rows; numbers of ``cells`` and ``extensions`` are shown elsewhere."""
    specs = {record.name: record.spec for record in records}
    tests = [number for number in numbers if number.setting["split"] == "test"]
    ablations = [n for n in tests if is_ablation(n.presets)]
    curves = label_ratio_groups([n for n in tests if not is_ablation(n.presets)], specs)
    shown = {each.ours.key for each in cells if each.ours is not None}
    shown |= {each.number.key for each in extensions}
    shown |= {number.key for group in [*curves, ablations] for number in group}
    rest = [number for number in tests if number.key not in shown]
    models = [n for n in rest if n.setting["model"] not in PAPER_MODELS]
    others = [n for n in rest if n.setting["model"] in PAPER_MODELS]
    drawn = [n for n in others if _is_other_test(n)]
    settings = [n for n in others if not _is_other_test(n)]
    tables = [
        _details(
            "own-models", "Models of this project alone", models, _compared,
            ["Beside the paper's number of the model that they extend; what is here has no row in "
             "the paper's tables above."],
        ),
        _label_ratios(curves),
        _ablation(ablations),
        _details(
            "other-tests", "Other test sets and other ways to draw candidates", drawn,
            _compared,
            ["iraven_paired has RAVEN's contexts, iraven_overlapping a share of its training "
             "contexts. At arbitrary positions the authors draw one set of missing panels a "
             "batch and keep wrong candidates that look like the answer; what is done otherwise "
             "is said."],
        ),
        _details(
            "other-settings", "Other settings (ablations)", settings, _differs(specs, cells),
            ["In brackets what the training has whose number stands in the paper's table."],
            extra="Differs in",
        ),
        *measure_tables(records),
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


def _ablation(numbers: Sequence[Number]) -> ReportTable:
    configurations = [
        name for name in LABELS if any(n.setting["configuration"] == name for n in numbers)
    ]
    rows: dict[tuple[str, str], dict[str, Number]] = {}
    for number in sorted(numbers, key=lambda n: (n.setting["model"], n.presets, n.key)):
        model, _, test, what = _names(number)
        way = "as the authors train" if ABLATION_AS_PUBLISHED in number.presets else "as here"
        name = f"{model}, {way}" if number.setting["model"] == "raise" else model
        rows.setdefault((name, f"{test}, {what}"), {})[number.setting["configuration"]] = number
    return ReportTable(
        key="ablation",
        title="Ablation: ways to train one network",
        columns=["Training", "Test", *(LABELS[name] for name in configurations)],
        rows=[
            [
                name_cell(name),
                name_cell(test),
                *(number_cell(found.get(each), tag=True) for each in configurations),
            ]
            for (name, test), found in sorted(rows.items(), key=lambda row: row[0][1])
        ],
        notes=["Networks, panels and labelled problems of a configuration are the same in each "
               "row. Steps are chosen so that all take about the same time on an idle core: the "
               "authors' way has the more, as each is cheaper. What a training really took is in "
               "the table of accuracy against time.",
               "Shorter than the trainings of the tables above."],
        name_columns=2,
    )  # fmt: skip


def _names(number: Number) -> tuple[str, str, str, str]:
    s = number.setting
    options = published.options_of(s["options"])
    what = "bottom right"
    if s["protocol"] == "arbitrary_position":
        what = f"T={s['num_targets']} Nc={s['num_distractors']}"
    given = (
        _OPTIONS.get((name, str(value)), str(value)) for name, value in sorted(options.items())
    )
    what = ", ".join([what, *(text for text in given if text)])
    model = published.model_label(s["model"])
    configuration = LABELS.get(s["configuration"], s["configuration"])
    return model, configuration, s["dataset"], what


_OPTIONS: Mapping[tuple[str, str], str] = {
    ("masks", "batch"): "",
    ("masks", "problem"): "missing panels of each problem's own",
    ("duplicates", "keep"): "",
    ("duplicates", "leave_out"): "without candidates like the answer",
    ("space", "latent"): "compared as latents",
    ("space", "pixel"): "compared as pixels",
}
"""In words; empty for what the authors do."""
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
            places.get(n.setting["configuration"], len(places)), n.setting["dataset"],
            n.setting["options"], n.setting["num_targets"], n.setting["num_distractors"], n.key,
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
