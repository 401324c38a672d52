"""When each training reached 95 % and the paper's accuracy, on validation problems."""

import math
from collections.abc import Sequence

from artifacts.numbers import percent, rounded
from artifacts.paper_tables import LABELS
from artifacts.plots_training import GOAL, Curve
from artifacts.published import bottom_right, dataset_title, model_label
from artifacts.records import TrialRecord, read_curve
from artifacts.report_tables import (
    NOTHING,
    Cell,
    ReportTable,
    condensed,
    name_cell,
    trial_cell,
    value_cell,
)
from artifacts.settings import CUSTOM
from raise_model.models import registry
from raise_model.presets import LABEL_RATIOS
from raise_model.specs import TrialSpec
from raise_model.store import Store


def training_curve(store: Store, record: TrialRecord) -> Curve | None:
    """The curve of a training, None if it was never validated.

    :raises UserError: if it is damaged.
    """
    rows = read_curve(store, record.name)
    spec = record.spec
    if rows.empty:
        return None
    data = spec.data
    paper = None
    # Another share of labels than the paper's is not compared.
    if data.label_ratio in (0.0, LABEL_RATIOS.get(data.configuration)):
        paper = bottom_right(
            model=spec.model, dataset=data.dataset, configuration=data.configuration,
            label_ratio=data.label_ratio, space="latent",
        )  # fmt: skip
    return Curve(
        model=spec.model,
        configuration=data.configuration,
        label=_label(record),
        rows=rows,
        steps=spec.steps,
        seconds=record.done["seconds"],
        paper=paper.accuracy if paper else None,
    )


def _label(record: TrialRecord) -> str:
    """What tells the seeds of a setting from others of their configuration."""
    spec = record.spec
    parts = [model_label(spec.model), "/".join(record.presets)]
    if spec.data.dataset.endswith("_held_out"):
        parts.append("held out")
    if not _has_papers_labels(spec):
        parts.append(f"{100 * spec.data.label_ratio:g} % labels")
    if CUSTOM in record.presets:
        # A preset decides the steps, and everything else.
        parts += [f"{spec.steps} steps", f"setting {record.study_cell[:4]}"]
    return ", ".join(parts)


def _has_papers_labels(spec: TrialSpec) -> bool:
    """Whether a training has the paper's share of labels, or reads none."""
    known = spec.model in registry.names()
    return spec.data.label_ratio == LABEL_RATIOS.get(spec.data.configuration) or (
        known and not registry.solver_class(spec.model).needs.labels
    )


def ranked(record: TrialRecord) -> tuple[int, str, tuple[str, ...], float, int, str]:
    """What trainings are sorted by: shares of labels as numbers."""
    order = list(LABELS)
    data = record.spec.data
    place = order.index(data.configuration) if data.configuration in order else len(order)
    return (
        place, record.spec.model, record.presets, data.label_ratio, record.spec.seed, record.name
    )  # fmt: skip


def training_table(pairs: Sequence[tuple[TrialRecord, Curve]]) -> ReportTable:
    """One row a training."""
    goal = f"{100 * GOAL:g} %"
    table = ReportTable(
        key="accuracy-against-time",
        title="Accuracy against time",
        columns=[
            "Configuration", "Model", "Preset", "Labels", "Seed", "Best",
            f"Steps to {goal}", f"Minutes to {goal}", "Paper (test)", "Steps to paper's",
            "Minutes to paper's", "Minutes in all", "Problems", "Training", "Hardware",
        ],
        rows=[_row(*pair) for pair in sorted(pairs, key=lambda pair: ranked(pair[0]))],
        notes=[
            "Bottom-right selection on validation problems of the data that was trained on, with "
            "the weights that are validated in training: the best of them; the step of the first "
            "that reaches the value, and its share of the training's time by the clock. The paper "
            "prints accuracies of test problems; on other hardware, or where other processes ran "
            "beside it, a training takes another time.",
            f"{NOTHING} not reached, or nothing published for that share of labels.",
        ],
        name_columns=2,
    )  # fmt: skip
    return condensed(table, ["Preset", "Problems", "Hardware"])


def _row(record: TrialRecord, curve: Curve) -> list[Cell]:
    spec = record.spec
    provenance = record.done.get("provenance", {})
    threads = provenance.get("threads")
    hardware = str(provenance.get("device", "not recorded"))
    minutes = record.done["seconds"] / 60
    return [
        name_cell(LABELS.get(curve.configuration, curve.configuration)),
        name_cell(model_label(spec.model)),
        Cell(text="/".join(record.presets)),
        value_cell(spec.data.label_ratio, f"{100 * spec.data.label_ratio:g} %"),
        _number(spec.seed),
        value_cell(record.done["validation_accuracy"]),
        *_reached(curve, GOAL),
        Cell(text=NOTHING, sort=-math.inf) if curve.paper is None
        else Cell(text=percent(curve.paper), sort=curve.paper),
        *_reached(curve, curve.paper),
        Cell(text=rounded(minutes, 1), sort=minutes),
        Cell(text=f"{dataset_title(spec.data.dataset)} val, {spec.validation_problems}"),
        trial_cell(record.name),
        Cell(
            text=hardware + (f", {threads} thread{'' if threads == 1 else 's'}" if threads else "")
        ),
    ]  # fmt: skip


def _reached(curve: Curve, goal: float | None) -> tuple[Cell, Cell]:
    found = curve.reached(goal)
    if found is None:
        nothing = Cell(text=NOTHING, sort=float("inf"))
        return nothing, nothing
    step, seconds = found
    return _number(step), Cell(text=rounded(seconds / 60, 1), sort=seconds)


def _number(value: int) -> Cell:
    return Cell(text=str(value), sort=float(value))
