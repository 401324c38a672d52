"""Results that the paper has no cell for: tables of their own.

Every selection accuracy on test problems stands in the paper's tables or in one of these.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from artifacts import published
from artifacts.measure_tables import measure_tables
from artifacts.numbers import Number, interval, percent
from artifacts.paper_cells import PAPER_MODELS, Extension, PaperCell
from artifacts.paper_tables import LABELS
from artifacts.published import Published, dataset_title, mark
from artifacts.records import TrialRecord
from artifacts.report_tables import (
    NOT_EVALUATED,
    NOT_TRAINED,
    NOTHING,
    WHAT,
    Cell,
    ReportTable,
    Tag,
    absent_cell,
    condensed,
    name_cell,
    number_cell,
    published_text,
    told_apart,
    value_cell,
)
from artifacts.settings import differences, is_ablation, setting
from artifacts.studies import ABLATION_CONFIGURATIONS, RATIOS, WAYS, ratio_groups, trained_ratios
from raise_model.presets import LABEL_RATIOS
from raise_model.specs import TrialSpec

_PAIRED = ("iraven_paired", "iraven_overlapping")
_FIRST = ("raven", "raven_published")
"""Test sets that stand before the others."""


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
    curves = ratio_groups([n for n in tests if not is_ablation(n.presets)], specs)
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
        _label_ratios(curves, specs),
        _ablation(ablations, records),
        _details(
            "other-tests", "Other test sets and other ways to draw candidates", drawn,
            _compared,
            ["I-RAVEN (paired) has RAVEN's contexts, I-RAVEN (overlapping) a share of its training "
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


def _label_ratios(
    groups: Sequence[Sequence[Number]], specs: Mapping[str, TrialSpec]
) -> ReportTable:
    """One row a setting and test set; the study's ratios, and others that were trained."""
    found = {number.setting["label_ratio"] for group in groups for number in group}
    ratios = sorted({*RATIOS, *found})
    shared, tag = told_apart([number for group in groups for number in group], with_preset=False)
    rows = []
    for group in sorted(groups, key=lambda group: _rank(group[0])):
        by_ratio = {number.setting["label_ratio"]: number for number in group}
        first = group[0]
        trained = trained_ratios(group, specs)
        model, configuration, test, _ = _names(first)
        names = map(name_cell, (model, configuration, test, "/".join(first.presets)))
        rows.append([*names, *(
            _beside_paper(number, tag) if (number := by_ratio.get(ratio))
            else absent_cell(NOT_EVALUATED if ratio in trained else NOT_TRAINED)
            for ratio in ratios
        )])  # fmt: skip
    table = ReportTable(
        key="label-ratio",
        title="Share of labelled training problems",
        columns=["Model", "Configuration", "Test", "Preset", *(f"{100 * r:g} %" for r in ratios)],
        rows=rows,
        notes=[
            f"Steps and problems seen are the same at every share{shared and '; all: '}{shared}.",
            "The paper has numbers for no labels and for its own share of each configuration; "
            "they stand below ours.",
            *([f"{NOT_TRAINED}: see Missing for the command."]
              if any(cell.text == NOT_TRAINED for row in rows for cell in row) else []),
        ],
        name_columns=4,
    )  # fmt: skip
    return condensed(table, ["Preset"])


def _beside_paper(number: Number, tag: Tag) -> Cell:
    """A number with the paper's, where it has one of that share of labels and that model."""
    s = number.setting
    is_papers = s["label_ratio"] in (0.0, LABEL_RATIOS.get(s["configuration"]))
    paper = _published(number) if is_papers and s["model"] in PAPER_MODELS else None
    cell = number_cell(number, tag=tag(number))
    if paper is None:
        return cell
    found = mark(number.mean, number.half_width, number.spreads["seeds"], paper)
    return replace(cell, paper=published_text(paper), mark=found)


def _ablation(numbers: Sequence[Number], records: Sequence[TrialRecord]) -> ReportTable:
    """One row a test set and way to train; with those of the study that have no number yet."""
    shared, tag = told_apart(numbers, with_preset=False)
    given = {number.setting["configuration"] for number in numbers}
    configurations = [name for name in LABELS if name in given.union(ABLATION_CONFIGURATIONS)]
    tests: dict[tuple[str, ...], list[Number]] = {}
    for number in sorted(numbers, key=_rank):
        tests.setdefault(_names(number)[2:], []).append(number)
    rows = []
    for test, of_test in tests.items():
        for way in WAYS:
            cells = []
            for name in configurations:
                found = [
                    number for number in of_test
                    if number.setting["configuration"] == name
                    and way.is_of(number.setting["model"], number.presets)
                ]  # fmt: skip
                is_trained = any(
                    record.spec.data.configuration == name
                    and way.is_of(record.spec.model, record.presets)
                    for record in records
                )
                if found:
                    cells.append(number_cell(found[-1], tag=tag(found[-1])))
                elif way.has(name):
                    cells.append(absent_cell(NOT_EVALUATED if is_trained else NOT_TRAINED))
                else:
                    cells.append(absent_cell(NOTHING))
            rows.append([name_cell(way.name), *map(name_cell, test), *cells])
    table = ReportTable(
        key="ablation",
        title="Ablation: ways to train one network",
        columns=["Training", "Test", WHAT, *(LABELS[name] for name in configurations)],
        rows=rows,
        notes=[
            f"Preset lite with a third of its steps{shared and ', '}{shared}; shorter than the "
            "trainings of the tables above.",
            "Networks, panels and labelled problems of a configuration are the same in each row. "
            "Steps are chosen so that all take about the same time on an idle core: the authors' "
            "way has the more, as each is cheaper. What a training really took is in the table of "
            "accuracy against time.",
            "RAISE has the authors' label map, RAISE plus a label each for Number and Position. "
            f"Where the two have the same labels it is one training, in the row of RAISE plus: "
            f"{NOTHING}.",
            *([f"{NOT_TRAINED}: see Missing for the command."]
              if any(cell.text == NOT_TRAINED for row in rows for cell in row) else []),
        ],
        name_columns=3,
    )  # fmt: skip
    return condensed(table, [WHAT])


def _rank(number: Number) -> tuple[Any, ...]:
    """By configuration and model, RAVEN before I-RAVEN."""
    s = number.setting
    order = list(LABELS)
    name = s["configuration"]
    place = order.index(name) if name in order else len(order)
    return place, s["model"], number.presets, s["dataset"] not in _FIRST, s["dataset"], number.key


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
    return model, configuration, dataset_title(s["dataset"]), what


_OPTIONS: Mapping[tuple[str, str], str] = {
    ("masks", "batch"): "",
    ("masks", "problem"): "missing panels of each problem's own",
    ("duplicates", "keep"): "",
    ("duplicates", "leave_out"): "without candidates like the answer",
    ("space", "latent"): "",
    ("space", "pixel"): "compared as pixels",
}
"""In words; empty for what the authors do."""
Extra = Callable[[Number], Cell]


def _compared(number: Number) -> Cell:
    """The paper's number of the same thing, by the model that ours is compared with."""
    paper = _published(number)
    return value_cell(paper.accuracy if paper else None)


def _published(number: Number) -> Published | None:
    s = number.setting
    if s["protocol"] != "bottom_right":
        return None
    return published.bottom_right(
        model=s["model"],
        dataset="iraven" if s["dataset"] in _PAIRED else s["dataset"],
        configuration=s["configuration"],
        label_ratio=s["label_ratio"],
        space=published.options_of(s["options"]).get("space", "latent"),
    )


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
    table = ReportTable(
        key=key,
        title=title,
        columns=[
            "Model", "Configuration", "Test", WHAT, "Preset", "Labels", "Ours", extra,
            "Seeds", "t 95 % (seeds)", "Wilson 95 % (problems)", "Std of rounds", "Lowest seed",
            "Rules", "Seen in training",
        ],
        rows=[_detail_row(number, extra_of) for number in ranked],
        notes=notes,
        name_columns=4,
    )  # fmt: skip
    return condensed(table, [WHAT])


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
