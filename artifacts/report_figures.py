"""The figures of a report, each with its caption."""

from collections.abc import Sequence
from functools import partial

from artifacts import plots, plots_training
from artifacts.numbers import Number
from artifacts.paper_cells import Extension, PaperCell
from artifacts.plots_training import GOAL, Curve
from artifacts.report_figure import ReportFigure
from artifacts.report_tables import seeds_text


def report_figures(
    cells: Sequence[PaperCell],
    extensions: Sequence[Extension],
    ratios: Sequence[Sequence[Number]],
    curves: Sequence[Curve],
) -> list[ReportFigure]:
    """Those of numbers and curves that have something to show; see also ``concept_figures``.

    :param ratios: as of :func:`artifacts.studies.ratio_groups`.
    """
    return [
        *_positions(cells, extensions),
        *([_label_ratio(ratios)] if ratios else []),
        *([_training(curves)] if curves else []),
    ]


def _positions(cells: Sequence[PaperCell], extensions: Sequence[Extension]) -> list[ReportFigure]:
    made = []
    for dataset in ("RAVEN", "I-RAVEN"):
        ours = [
            each.ours
            for each in cells
            if each.ours and each.cell.table == "arbitrary_position"
            and each.cell.dataset == dataset
        ]  # fmt: skip
        ours += [
            each.number
            for each in extensions
            if each.cell.table == "arbitrary_position" and each.cell.dataset == dataset
        ]
        if ours:
            what = _seeds(ours)
        else:
            what = "Nothing of it is reproduced yet: the paper's lines alone."
        made.append(
            ReportFigure(
                key=f"arbitrary_position_{dataset.lower().replace('-', '')}",
                title=f"Selection at arbitrary positions, {dataset}",
                caption="Accuracy against the number of wrong candidates (N_c), where |T| panels "
                "are missing, on test problems. Lines are ours, bars their sample standard "
                "deviation over seeds; dashes the paper's numbers, in the colour of the model "
                f"(RAISE plus extends RAISE); dots chance. {what}",
                draw=partial(plots.accuracy_by_distractors, cells, dataset, extensions),
            )
        )
    return made


def _label_ratio(groups: Sequence[Sequence[Number]]) -> ReportFigure:
    numbers = [number for group in groups for number in group]
    return ReportFigure(
        key="label_ratio",
        title="Accuracy by share of labelled problems",
        caption="Bottom-right selection on test problems, at the shares that were trained; bars "
        f"are the sample standard deviation over seeds. {_seeds(numbers)}",
        draw=partial(plots.label_ratio_curves, groups),
    )


def _training(curves: Sequence[Curve]) -> ReportFigure:
    return ReportFigure(
        key="training_curves",
        title="Training curves",
        caption="Bottom-right selection on validation problems, a line a seed and a colour a "
        "setting, with the paper's share of labels unless its name says another; against optimiser "
        "steps and against minutes by the clock of the machine that trained (validations "
        "included; the time of the whole training spread evenly over its steps). A circle is the "
        f"first validation of {100 * GOAL:g} % or more, a star the first that reaches the paper's "
        "accuracy on test problems; dotted lines are those two. The times are in the table "
        "Accuracy against time.",
        draw=partial(plots_training.training_curves, curves),
    )


def _seeds(numbers: Sequence[Number]) -> str:
    seeds = sorted({number.spreads["seeds"] for number in numbers})
    presets = dict.fromkeys("/".join(number.presets) for number in numbers)
    *others, last = map(str, seeds)
    count = " or ".join([*others, seeds_text(int(last))])
    return f"Ours: {count}, preset {', '.join(presets)}."
