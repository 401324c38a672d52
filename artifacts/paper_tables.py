"""The paper's tables: its rows and columns, each cell with the published number and ours."""

from collections.abc import Mapping, Sequence

from artifacts import published
from artifacts.paper_cells import PaperCell
from artifacts.report_tables import Cell, ReportTable, name_cell, paper_cell
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


def paper_tables(cells: Sequence[PaperCell]) -> list[ReportTable]:
    """Two tables (RAVEN, I-RAVEN) for each of the paper's; every cell stands in one of them."""
    made = []
    for table in TITLES:
        of_table = [each for each in cells if each.cell.table == table]
        for dataset in dict.fromkeys(each.cell.dataset for each in of_table):
            part = [each for each in of_table if each.cell.dataset == dataset]
            make = _positions if table == "arbitrary_position" else _selection
            made.append(make(f"{table}-{dataset.lower()}", f"{TITLES[table]}, {dataset}", part))
    return made


def _selection(key: str, title: str, cells: Sequence[PaperCell]) -> ReportTable:
    """Rows are models, columns configurations."""
    present = {each.cell.configuration for each in cells}
    configurations = [name for name in LABELS if name in present]
    tag = _needs_tags(cells)
    found = {(each.cell.model, each.cell.configuration): each for each in cells}
    return ReportTable(
        key=key,
        title=title,
        columns=["Model", *(LABELS[name] for name in configurations)],
        rows=[
            [
                name_cell(model),
                *(paper_cell(found[model, name], tag=tag) for name in configurations),
            ]
            for model in dict.fromkeys(each.cell.model for each in cells)
        ],
        notes=_notes(cells),
    )


def _positions(key: str, title: str, cells: Sequence[PaperCell]) -> ReportTable:
    """Rows are configurations and models, columns numbers of targets and distractors."""
    tag = _needs_tags(cells)
    found = {
        (c.cell.configuration, c.cell.model, c.cell.num_targets, c.cell.num_distractors): c
        for c in cells
    }
    models = dict.fromkeys(each.cell.model for each in cells)
    rows: list[list[Cell]] = []
    for configuration in CONFIGURATIONS:
        for model in models:
            row = [found[configuration, model, *setting] for setting in SETTINGS]
            names = [name_cell(LABELS[configuration]), name_cell(model)]
            rows.append([*names, *(paper_cell(each, tag=tag) for each in row)])
    return ReportTable(
        key=key,
        title=title,
        columns=["Configuration", "Model", *(f"T={t} Nc={n}" for t, n in SETTINGS)],
        rows=rows,
        notes=_notes(cells),
        name_columns=2,
    )


def _needs_tags(cells: Sequence[PaperCell]) -> bool:
    """Whether ours differ in preset or number of seeds, so that each cell must say its own."""
    return len({(n.presets, n.spreads["seeds"]) for c in cells if (n := c.ours) is not None}) > 1


def _notes(cells: Sequence[PaperCell]) -> list[str]:
    ours = [each.ours for each in cells if each.ours is not None]
    if not ours:
        return ["Nothing of this table is reproduced yet; see Missing."]
    presets = ", ".join(dict.fromkeys("/".join(number.presets) for number in ours))
    seeds = sorted({number.spreads["seeds"] for number in ours})
    lines = [
        f"{len(ours)} of {len(cells)} cells reproduced; preset {presets}; seeds "
        f"{'/'.join(map(str, seeds))}."
    ]
    details = {
        "Rule labels": {
            f"{_label(number.setting['configuration'])} {100 * number.setting['label_ratio']:g} %"
            for number in ours
            if number.setting and registry.solver_class(number.setting["model"]).needs.labels
        },
        "Label map": {number.setting["label_map"] for number in ours if number.setting},
        "Test sets": {number.setting["dataset"] for number in ours if number.setting},
    }
    lines.append("; ".join(f"{k}: {', '.join(sorted(v))}" for k, v in details.items() if v) + ".")
    if seeds[0] < published.MINIMUM_SEEDS:
        lines.append(f"No mark where there are fewer than {published.MINIMUM_SEEDS} seeds.")
    return lines


def _label(configuration: str) -> str:
    return LABELS.get(configuration, configuration)
