"""The paper's tables: its rows and columns, each cell with the published number and ours."""

from collections.abc import Mapping, Sequence

from artifacts import published
from artifacts.numbers import Number
from artifacts.paper_cells import Extension, PaperCell
from artifacts.report_tables import (
    Cell,
    ReportTable,
    Tag,
    name_cell,
    number_cell,
    paper_cell,
    told_apart,
)
from artifacts.tables import CONFIGURATIONS, UNIFORM
from raise_model.models import registry

TITLES: Mapping[str, str] = {
    "bottom_right_selection": "Bottom-right selection",
    "bottom_right_selection_no_labels": "Bottom-right selection without rule labels",
    "bottom_right_selection_uni": "Bottom-right selection on the -Uni configurations",
    "held_out": "Held-out rules",
    "answer_selection_strategy": "Candidates compared as latents or as pixels",
    "arbitrary_position": "Selection at arbitrary positions",
}
"""Of the paper's tables, in the paper's order of importance."""
LABELS: Mapping[str, str] = {
    "average": "Average",
    **CONFIGURATIONS,
    **UNIFORM,
    "center_held_out": "Center-Held-Out",
    "out_in_center_held_out": "O-IC-Held-Out",
}
"""Of configurations, as the paper prints them."""
SETTINGS = [(targets, wrong) for targets in (1, 2) for wrong in (1, 3, 7, 15)]
"""|T| and N_c of arbitrary positions."""
Beside = dict[str, dict[str, dict[int, Extension]]]
"""By the paper's model, the name of the own one, and row of published.csv."""


def paper_tables(
    cells: Sequence[PaperCell], extensions: Sequence[Extension] = ()
) -> list[ReportTable]:
    """Two tables (RAVEN, I-RAVEN) for each of the paper's; every cell stands in one of them.

    :param extensions: rows of their own below the models that they extend.
    """
    beside: Beside = {}
    for each in extensions:
        beside.setdefault(each.cell.model, {}).setdefault(each.name, {})[each.cell.place] = each
    made = []
    for table in TITLES:
        of_table = [each for each in cells if each.cell.table == table]
        for dataset in dict.fromkeys(each.cell.dataset for each in of_table):
            part = [each for each in of_table if each.cell.dataset == dataset]
            make = _positions if table == "arbitrary_position" else _selection
            title = f"{TITLES[table]}, {dataset}"
            made.append(make(f"{table}-{dataset.lower()}", title, part, beside))
    return made


def _told(part: Sequence[PaperCell], beside: Beside) -> tuple[str, Tag]:
    """As of :func:`artifacts.report_tables.told_apart`, of every number of ours in a table."""
    ours = [each.ours for each in part if each.ours is not None]
    places = {each.cell.place for each in part}
    extended = [
        each.number
        for of_model in beside.values()
        for found in of_model.values()
        for place, each in found.items()
        if place in places
    ]
    return told_apart([*ours, *extended])


def _added(part: Sequence[PaperCell], beside: Beside, tag: Tag) -> dict[str, list[Cell]]:
    """Rows of models that extend the one of a row's cells, by name."""
    places = [each.cell.place for each in part]
    return {
        name: [
            number_cell(found[place].number, tag=tag(found[place].number))
            if place in found
            else number_cell(None)
            for place in places
        ]
        for name, found in beside.get(part[0].cell.model, {}).items()
        if found.keys() & set(places)
    }


def _selection(key: str, title: str, cells: Sequence[PaperCell], beside: Beside) -> ReportTable:
    """Rows are models, columns configurations."""
    present = {each.cell.configuration for each in cells}
    configurations = [name for name in LABELS if name in present]
    shared, tag = _told(cells, beside)
    found = {(each.cell.model, each.cell.configuration): each for each in cells}
    rows: list[list[Cell]] = []
    own: list[Cell] = []
    for model in dict.fromkeys(each.cell.model for each in cells):
        part = [found[model, name] for name in configurations]
        rows.append([name_cell(model), *(paper_cell(each, tag) for each in part)])
        for name, row in _added(part, beside, tag).items():
            rows.append([name_cell(name), *row])
            own += row
    notes = _notes(cells, _numbers(own), shared)
    if "average" in present:
        notes.append("Average: of seeds that all seven configurations have.")
    if "CLAP-NP" in {each.cell.model for each in cells}:
        notes.append("CLAP-NP is the paper's name of CLAP in this table.")
    return ReportTable(
        key=key,
        title=title,
        columns=["Model", *(LABELS[name] for name in configurations)],
        rows=rows,
        notes=notes,
    )


def _positions(key: str, title: str, cells: Sequence[PaperCell], beside: Beside) -> ReportTable:
    """Rows are configurations and models, columns numbers of targets and distractors."""
    shared, tag = _told(cells, beside)
    found = {
        (c.cell.configuration, c.cell.model, c.cell.num_targets, c.cell.num_distractors): c
        for c in cells
    }
    models = dict.fromkeys(each.cell.model for each in cells)
    rows: list[list[Cell]] = []
    own: list[Cell] = []
    for configuration in CONFIGURATIONS:
        for model in models:
            row = [found[configuration, model, *setting] for setting in SETTINGS]
            names = [name_cell(LABELS[configuration]), name_cell(model)]
            rows.append([*names, *(paper_cell(each, tag) for each in row)])
            for name, added in _added(row, beside, tag).items():
                rows.append([names[0], name_cell(name), *added])
                own += added
    return ReportTable(
        key=key,
        title=title,
        columns=["Configuration", "Model", *(f"T={t} Nc={n}" for t, n in SETTINGS)],
        rows=rows,
        notes=[
            "T: missing panels, at positions that are drawn; Nc: wrong candidates.",
            *_notes(cells, _numbers(own), shared),
        ],
        name_columns=2,
    )


def _numbers(cells: Sequence[Cell]) -> list[Number]:
    return [cell.number for cell in cells if cell.number is not None]


def _own_notes(numbers: Sequence[Number]) -> list[str]:
    """What each model of this project is, and what its trainings were given."""
    by_model: dict[str, list[Number]] = {}
    for number in numbers:
        by_model.setdefault(number.setting["model"], []).append(number)
    lines = []
    for model, found in by_model.items():
        name = published.model_label(model)
        settings = [number.setting for number in found if "configuration" in number.setting]
        given = dict.fromkeys(
            f"{_label(s['configuration'])} {100 * s['label_ratio']:g} % ({s['label_map']})"
            for s in settings
        )
        lines += [
            f"{name} is a model of this project, not of the paper: nothing is published for it.",
            f"Rule labels of {name}, in brackets how grids are labelled (the paper's way is "
            f"official): {', '.join(given)}.",
        ]
    return lines


def _notes(cells: Sequence[PaperCell], own: Sequence[Number], shared: str) -> list[str]:
    """What the rows rest on.

    :param own: numbers of this project's models.
    :param shared: what all numbers of ours have in common.
    """
    ours = [each.ours for each in cells if each.ours is not None]
    if not ours and not own:
        return ["Nothing of this table is reproduced yet; see Missing."]
    lines = [
        f"{len(ours)} of {len(cells)} cells reproduced"
        if ours
        else "Nothing of the paper's own models is reproduced yet; see Missing. The rows that "
        "have numbers of ours are of a model of this project"
    ]
    lines[0] += f"; all of ours: {shared}." if shared else "."
    given = [number.setting for number in ours if number.setting]
    details = {
        "Rule labels": [
            f"{_label(s['configuration'])} {100 * s['label_ratio']:g} %"
            for s in given
            if registry.solver_class(s["model"]).needs.labels
        ],
        "Label map": [s["label_map"] for s in given],
        "Test sets": [published.dataset_title(s["dataset"]) for s in given],
    }
    said = "; ".join(f"{k}: {', '.join(dict.fromkeys(v))}" for k, v in details.items() if v)
    lines += [f"{said}."] if said else []
    if any(number.spreads["seeds"] < published.MINIMUM_SEEDS for number in ours):
        lines.append(f"No mark where there are fewer than {published.MINIMUM_SEEDS} seeds.")
    return [*lines, *_own_notes(own)]


def _label(configuration: str) -> str:
    return LABELS.get(configuration, configuration)
