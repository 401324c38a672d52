"""When each training reached 95 % and the paper's accuracy, on validation problems."""

from collections.abc import Sequence

from artifacts.numbers import percent
from artifacts.paper_tables import LABELS
from artifacts.plots_training import GOAL, Curve
from artifacts.published import bottom_right, model_label
from artifacts.records import TrialRecord, read_curve
from artifacts.report_tables import NOTHING, Cell, ReportTable, name_cell, trial_cell, value_cell
from raise_model.presets import LABEL_RATIOS
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
    held_out = ", held out" if data.dataset.endswith("_held_out") else ""
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
        label=f"{model_label(spec.model)}, {'/'.join(record.presets)}{held_out}, "
        f"{100 * data.label_ratio:g} % labels, {spec.steps} steps",
        rows=rows,
        steps=spec.steps,
        seconds=record.done["seconds"],
        paper=paper.accuracy if paper else None,
    )


def training_table(pairs: Sequence[tuple[TrialRecord, Curve]]) -> ReportTable:
    """One row a training."""
    order = {name: place for place, name in enumerate(LABELS)}
    ranked = sorted(
        pairs,
        key=lambda pair: (
            order.get(pair[1].configuration, len(order)), pair[1].label, pair[0].spec.seed,
        ),
    )  # fmt: skip
    goal = f"{100 * GOAL:g} %"
    return ReportTable(
        key="accuracy-against-time",
        title="Accuracy against time",
        columns=[
            "Configuration", "Model", "Preset", "Labels", "Seed", "Best", f"Steps to {goal}",
            f"Minutes to {goal}", "Paper (test)", "Steps to paper's", "Minutes to paper's",
            "Minutes in all", "Problems", "Training", "Hardware",
        ],
        rows=[_row(record, curve) for record, curve in ranked],
        notes=[
            "Bottom-right selection on validation problems of the data that was trained on, with "
            "the weights that are validated in training; the step of the first validation that "
            "reaches the value, and its share of the training's time by the clock. The paper "
            "prints accuracies of test problems; on other hardware, or where other processes ran "
            "beside it, a training takes another time.",
            f"{NOTHING} not reached, or nothing published for that share of labels.",
        ],
        name_columns=2,
    )  # fmt: skip


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
        Cell(text=NOTHING) if curve.paper is None else Cell(text=percent(curve.paper)),
        *_reached(curve, curve.paper),
        Cell(text=f"{minutes:.1f}", sort=minutes),
        Cell(text=f"{spec.data.dataset} val, {spec.validation_problems}"),
        trial_cell(record.name),
        Cell(
            text=hardware + (f", {threads} thread{'' if threads == 1 else 's'}" if threads else "")
        ),
    ]


def _reached(curve: Curve, goal: float | None) -> tuple[Cell, Cell]:
    found = curve.reached(goal)
    if found is None:
        nothing = Cell(text=NOTHING, sort=float("inf"))
        return nothing, nothing
    step, seconds = found
    return _number(step), Cell(text=f"{seconds / 60:.1f}", sort=seconds)


def _number(value: int) -> Cell:
    return Cell(text=str(value), sort=float(value))
