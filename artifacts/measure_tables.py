"""Tables of results that are no selection accuracy, with what each measure means."""

from collections.abc import Iterable, Mapping, Sequence

from artifacts import published
from artifacts.measures import measure_numbers, option_text, title_of
from artifacts.numbers import Number
from artifacts.paper_tables import LABELS
from artifacts.records import TrialRecord
from artifacts.report_tables import (
    NOT_EVALUATED,
    NOTHING,
    WHAT,
    Cell,
    ReportTable,
    absent_cell,
    condensed,
    name_cell,
    number_cell,
    seeds_text,
)
from artifacts.studies import Unmeasured, unmeasured

_ORDER: Mapping[str, Sequence[str]] = {
    "odd_one_out": (
        "panel_accuracy", "attribute_accuracy", "chance_panel", "chance_attribute",
        "constant_answer", "constant_attribute", "ceiling", "detected", "false_alarms",
    ),
    "rule_accuracy": ("prior", "posterior"),
    "multi_answer": ("share_valid", "share_solved", "distinct_valid", "share_with_other"),
}  # fmt: skip
"""What comes first; the rest follows as it is stored."""
_COMPONENTS = "The number behind an attribute is its component, from 0."
_SAID = ("Model", "Problems", "Preset")
"""Columns that a note says where they are the same in every row."""
_ATTRIBUTES = "by_attribute"
"""Group whose measures have attributes in their names."""
_NOTES: Mapping[tuple[str, str], Sequence[str]] = {
    ("odd_one_out", ""): (
        "Shares of problems. What is odd: any panel, one of the nine with one ruled attribute "
        "changed; last panel, the last one changed so; wrong candidate, one of the problem's in "
        "its place, as in the paper.",
        "panel accuracy: the panel of the largest prediction error, over matched concepts, is the "
        "odd one (all: over all concepts); attribute accuracy: the concept of the largest error "
        "there is that of a broken attribute. Chance guesses, constant always gives the most "
        "frequent answer, ceiling knows the rules (under arithmetic several panels may be odd). "
        "detected and false alarms: odd and intact matrices whose largest error is above the "
        "threshold, the 95 % quantile on intact problems of another split.",
    ),
    ("odd_one_out", "by_position"): ("Panel accuracy where the odd panel is the 1st to the 9th.",),
    ("odd_one_out", "by_attribute"): (f"By the attribute that is broken. {_COMPONENTS}",),
    ("odd_one_out", "repair"): (
        "Not in the paper: odd is the panel whose replacement by its own prediction leaves the "
        "least error in the other eight.",
    ),
    ("rule_accuracy", ""): (
        "Share of labelled rules that are the likeliest: prior, without the missing panel; "
        "posterior, with it.",
    ),
    ("rule_accuracy", "by_attribute"): (_COMPONENTS,),
    ("concept_alignment", ""): (
        "disentanglement: mutual information gap over concepts (Chen et al., 2018), on the panels "
        "of 1,000 training problems; 0 to 1.",
    ),
    ("latent_traversal", ""): (
        "purity: of each attribute, the share of pictures in which moving one concept changes it, "
        "for the concept that changes it most less the second; mean over attributes.",
    ),
    ("multi_answer", ""): (
        "Answers are read back from the picture by nearest rendering and held against the rules. "
        "share valid: of all answers; share solved: of problems with a valid one; distinct valid: "
        "different valid ones a problem; share with other: of problems with a valid one that is "
        "not the data's; decoded valid: the data's own answer, encoded and decoded. noise: its "
        "deviation on predicted latents.",
    ),
    ("multi_answer", "by_attribute"): (
        f"Share of answers that keep the attribute's rule. {_COMPONENTS}",
    ),
}


_Entry = Mapping[str, Number]
"""Measures of one training setting and evaluation, by name."""


def measure_tables(records: Sequence[TrialRecord]) -> list[ReportTable]:
    """For each protocol a table of its numbers, and one for each list of numbers in them."""
    tables = []
    lacking = unmeasured(records)
    for protocol, entries in measure_numbers(records).items():
        groups = dict.fromkeys(group for entry in entries for group in entry)
        for group in groups:
            of_group = [entry[group] for entry in entries if entry.get(group)]
            if not of_group:
                continue
            title = title_of(protocol)
            table = _table(
                f"{protocol}-{group}".strip("-").replace("_", "-"),
                f"{title}: {group.replace('_', ' ')}" if group else title,
                of_group,
                _parted(of_group, _ORDER.get(protocol, ()), has_attributes=group == _ATTRIBUTES),
                _NOTES.get((protocol, group), ()),
                [each for each in lacking if each.protocol == protocol and not group],
            )
            tables.append(table)
    return tables


def _parted(
    entries: Sequence[_Entry], order: Sequence[str], *, has_attributes: bool
) -> dict[str, dict[str, str]]:
    """By row of an entry, and column, the name of a measure.

    Several measures of each attribute are a row each, since their columns would be too many.
    """
    found = dict.fromkeys(name for entry in entries for name in entry)
    if not has_attributes:
        return {"": {name.replace("_", " "): name for name in _ordered(found, order)}}
    split = {name: name.partition(" ") for name in found}
    measures = dict.fromkeys(measure for _, _, measure in split.values())
    parts: dict[str, dict[str, str]] = {
        measure.replace("_", " "): {} for measure in _ordered(measures, order)
    }
    for name in sorted(found, key=lambda name: (split[name][0][-1], split[name][0])):
        attribute, _, measure = split[name]
        words = attribute.replace("number_position", "number/position")
        label = f"{words[:-1]} {words[-1]}" if words[-1].isdigit() else words
        parts[measure.replace("_", " ")][label] = name
    return parts


def _ordered(names: Iterable[str], order: Sequence[str]) -> list[str]:
    """Those of the order first, the rest as they come."""
    return sorted(names, key=lambda n: order.index(n) if n in order else len(order))


def _table(
    key: str,
    title: str,
    entries: Sequence[_Entry],
    parts: Mapping[str, Mapping[str, str]],
    notes: Sequence[str],
    lacking: Sequence[Unmeasured],
) -> ReportTable:
    """One row an entry and part."""
    columns = list(dict.fromkeys(column for part in parts.values() for column in part))
    settings = [_options(next(iter(entry.values()))) for entry in entries]
    alike = {
        name: value
        for name, value in settings[0].items()
        if all(other.get(name) == value for other in settings)
    }
    rows: list[tuple[tuple[object, ...], list[Cell]]] = []
    for entry, options in zip(entries, settings, strict=True):
        first = next(iter(entry.values()))
        said = [_problems(first), _preset(first)]
        for part, names in parts.items():
            texts = [*_names(first.setting), _what(options, alike), part]
            numbers = (number_cell(entry.get(names.get(column, ""))) for column in columns)
            rows.append((_rank(first.setting, options), [
                *map(name_cell, texts), *numbers, *map(name_cell, said),
            ]))  # fmt: skip
    # A row without results says the same of its problems and preset as all others, or nothing.
    said = [{row[-2].text for _, row in rows}, {row[-1].text for _, row in rows}]
    ends = [name_cell(found.pop() if len(found) == 1 else "") for found in said]
    for each in lacking:
        data = each.trials[0].spec.data
        place = {"model": each.trials[0].spec.model, "configuration": data.configuration}
        place |= {"dataset": each.like.spec.dataset}
        texts = [*_names(place), _what(each.options, alike), ""]
        numbers = [absent_cell(NOT_EVALUATED), *map(absent_cell, [NOTHING] * (len(columns) - 1))]
        rows.append((_rank(place, each.options), [*map(name_cell, texts), *numbers, *ends]))
    has_holes = any(cell.text == NOTHING for _, row in rows for cell in row)
    common = ", ".join(option_text(name, value) for name, value in alike.items())
    table = ReportTable(
        key=key,
        title=title,
        columns=["Model", "Configuration", WHAT, "Measure", *columns, "Problems", "Preset"],
        rows=[row for _, row in sorted(rows, key=lambda pair: pair[0])],
        notes=[
            *notes,
            *([f"All: {common}."] if common else []),
            *([f"{NOTHING} not measured, or no such case."] if has_holes else []),
        ],
        name_columns=4,
    )
    return condensed(table, _SAID)


def _names(setting: Mapping[str, object]) -> list[str]:
    model, configuration = str(setting["model"]), str(setting["configuration"])
    return [published.model_label(model), LABELS.get(configuration, configuration)]


def _problems(number: Number) -> str:
    s = number.setting
    return f"{published.dataset_title(s['dataset'])}, {s['split']}, {number.spreads['problems']}"


def _preset(number: Number) -> str:
    return f"{'/'.join(number.presets)}, {seeds_text(number.spreads['seeds'])}"


def _rank(setting: Mapping[str, object], options: Mapping[str, object]) -> tuple[object, ...]:
    places = list(LABELS)
    name = setting["configuration"]
    place = places.index(str(name)) if name in places else len(places)
    return str(setting["model"]), place, str(setting["dataset"]), sorted(map(str, options.items()))


def _options(number: Number) -> Mapping[str, object]:
    return published.options_of(number.setting["options"])


def _what(options: Mapping[str, object], alike: Mapping[str, object]) -> str:
    """Those of the evaluation's options that are not the same in all rows, in words."""
    return ", ".join(
        option_text(name, value) for name, value in sorted(options.items()) if name not in alike
    )
