"""Tables of results that are no selection accuracy, with what each measure means."""

from collections.abc import Mapping, Sequence

from artifacts import published
from artifacts.measures import measure_numbers
from artifacts.numbers import Number
from artifacts.paper_tables import LABELS
from artifacts.records import TrialRecord
from artifacts.report_tables import NOTHING, ReportTable, name_cell, number_cell

_TITLES: Mapping[str, str] = {
    "odd_one_out": "Odd-one-out",
    "rule_accuracy": "Rule accuracy",
    "concept_alignment": "Concepts and attributes",
    "latent_traversal": "Latent traversal",
    "multi_answer": "Several answers to one problem",
}
_ORDER: Mapping[str, Sequence[str]] = {
    "odd_one_out": (
        "panel_accuracy", "attribute_accuracy", "chance_panel", "chance_attribute",
        "constant_answer", "constant_attribute", "ceiling", "detected", "false_alarms",
    ),
    "multi_answer": ("share_valid", "share_solved", "distinct_valid", "share_with_other"),
}  # fmt: skip
"""What comes first; the rest follows as it is stored."""
_COMPONENTS = "A number behind an attribute is its component, from 0."
_NOTES: Mapping[tuple[str, str], Sequence[str]] = {
    ("odd_one_out", ""): (
        "Shares of problems. What is odd: any, one of the nine panels with one ruled attribute "
        "changed; bottom_right, the last panel changed so; candidate, a wrong candidate in its "
        "place, as in the paper.",
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
        "not the data's; decoded valid: the data's own answer, encoded and decoded. targets: "
        "missing panels; noise: its deviation on predicted latents; samples: answers a problem.",
    ),
    ("multi_answer", "by_attribute"): (
        f"Share of answers that keep the attribute's rule. {_COMPONENTS}",
    ),
}


def measure_tables(records: Sequence[TrialRecord]) -> list[ReportTable]:
    """For each protocol a table of its numbers, and one for each list of numbers in them."""
    tables = []
    for protocol, entries in measure_numbers(records).items():
        groups = dict.fromkeys(group for entry in entries for group in entry)
        title = _TITLES.get(protocol, protocol.replace("_", " ").capitalize())
        for group in groups:
            of_group = [entry[group] for entry in entries if entry.get(group)]
            if not of_group:
                continue
            name = f"{title}: {group.replace('_', ' ')}" if group else title
            notes = _NOTES.get((protocol, group), ())
            tables.append(
                _table(
                    f"{protocol}-{group}".strip("-"),
                    name,
                    of_group,
                    _ORDER.get(protocol, ()),
                    notes,
                )
            )
    return tables


def _table(
    key: str,
    title: str,
    entries: Sequence[Mapping[str, Number]],
    order: Sequence[str],
    notes: Sequence[str],
) -> ReportTable:
    found = dict.fromkeys(name for entry in entries for name in entry)
    names = [*(name for name in order if name in found), *(n for n in found if n not in order)]
    places = {name: place for place, name in enumerate(LABELS)}
    rows = []
    for entry in sorted(entries, key=lambda entry: _rank(entry, places)):
        first = next(iter(entry.values()))
        s = first.setting
        seeds = first.spreads["seeds"]
        texts = [
            published.model_label(s["model"]),
            LABELS.get(s["configuration"], s["configuration"]),
            _what(first),
        ]
        said = [
            f"{s['dataset']}, {s['split']}, {first.spreads['problems']}",
            f"{'/'.join(first.presets)}, {seeds} seed{'s' if seeds > 1 else ''}",
        ]
        numbers = (number_cell(entry.get(name)) for name in names)
        rows.append([*map(name_cell, texts), *numbers, *map(name_cell, said)])
    is_whole = all(name in entry for entry in entries for name in names)
    gaps = () if is_whole else (f"{NOTHING} not measured, or no such case.",)
    return ReportTable(
        key=key.replace("_", "-"),
        title=title,
        columns=[
            "Model",
            "Configuration",
            "What",
            *(name.replace("_", " ") for name in names),
            "Problems",
            "Preset",
        ],
        rows=rows,
        notes=[*notes, *gaps],
        name_columns=3,
    )


def _rank(entry: Mapping[str, Number], places: Mapping[str, int]) -> tuple[str | int, ...]:
    s = next(iter(entry.values())).setting
    place = places.get(s["configuration"], len(places))
    return s["model"], place, s["dataset"], s["options"]


def _what(number: Number) -> str:
    """The evaluation's options by name."""
    options = published.options_of(number.setting["options"])
    return ", ".join(f"{name} {value}" for name, value in sorted(options.items()))
