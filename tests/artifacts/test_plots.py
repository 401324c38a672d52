"""Figures show the numbers they are given."""

import pandas as pd
import pytest

from artifacts import plots
from artifacts.numbers import Number
from artifacts.paper_cells import paper_cells
from artifacts.plots import Curve


def number(model="raise", mean=0.5, std=0.1, **setting):
    setting = {"model": model, "configuration": "center", "dataset": "iraven"} | setting
    return Number(
        key=f"{setting}", title="", setting=setting, presets=("lite",),
        spreads={"mean": mean, "std": std}, seeds=(),
    )  # fmt: skip


def lines_of(axes):
    return [(line.get_linestyle(), list(line.get_ydata())) for line in axes.get_lines()]


def test_positions_show_the_paper_dashed_and_ours_where_there_is_some():
    cells = paper_cells([])
    figure = plots.accuracy_by_distractors(cells, "RAVEN")
    assert len(figure.axes) == 14
    center = figure.axes[0]
    assert center.get_title() == "Center, |T| = 1"
    paper = [values for style, values in lines_of(center) if style == "--"]
    assert len(paper) == 5
    # RAISE and LGPP on Center, one target (paper, table of arbitrary positions).
    assert pytest.approx([99.9, 99.6, 99.1, 98.1]) in paper
    assert pytest.approx([55.8, 30.8, 17.1, 9.1]) in paper
    chance = [values for style, values in lines_of(center) if style == ":"]
    assert chance == [[50.0, 25.0, 12.5, 6.25]]


def test_positions_of_the_two_data_sets_differ():
    cells = paper_cells([])
    first, second = (plots.accuracy_by_distractors(cells, d).axes[0] for d in ("RAVEN", "I-RAVEN"))
    assert lines_of(first) != lines_of(second)


def test_label_ratios_have_a_panel_a_configuration_and_a_line_a_group():
    group = [number(mean=0.2, label_ratio=0.0), number(mean=0.9, label_ratio=1.0)]
    other = [number(mean=0.4, label_ratio=r, configuration="left_right") for r in (0.0, 0.05)]
    figure = plots.label_ratio_curves([group, other])
    assert [axes.get_title() for axes in figure.axes] == ["Center", "L-R"]
    drawn = [container.lines[0].get_ydata() for container in figure.axes[0].containers]
    assert [list(values) for values in drawn] == [[20.0, 90.0]]
    ticks = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    assert ticks == ["0", "5"]


def test_training_curves_are_against_steps_and_seconds():
    rows = pd.DataFrame({"step": [500.0, 1000.0], "validation_accuracy": [0.25, 0.5]})
    curves = [
        Curve(model="raise", configuration=name, label="RAISE", rows=rows, steps=1000, seconds=60.0)
        for name in ("left_right", "center", "left_right")
    ]
    figure = plots.training_curves(curves)
    assert len(figure.axes) == 4
    assert figure.axes[0].get_ylabel().startswith("Center")
    by_step, by_second = (axes.get_lines()[0] for axes in figure.axes[:2])
    assert list(by_step.get_xdata()) == [500.0, 1000.0]
    assert list(by_second.get_xdata()) == [30.0, 60.0]
    assert list(by_second.get_ydata()) == [25.0, 50.0]
    # Two seeds: two lines, one name.
    assert len(figure.axes[2].get_lines()) == 2
    assert len(figure.axes[3].get_legend().get_texts()) == 1


def test_a_figure_has_the_same_bytes_every_time():
    def drawn():
        group = [number(label_ratio=0.0), number(label_ratio=1.0)]
        return plots.to_svg(plots.label_ratio_curves([group]))

    first = drawn()
    assert first.startswith(b"<?xml")
    assert first == drawn()
    png = plots.to_png(plots.label_ratio_curves([[number(label_ratio=0.0)]]))
    assert png.startswith(b"\x89PNG")
