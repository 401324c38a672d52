"""Figures show the numbers they are given."""

import pytest

from artifacts import plots
from artifacts.numbers import Number
from artifacts.paper_cells import Extension, paper_cells


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
    # In a page figures have their own size: one panel is no wider than a telephone's screen.
    assert plots.label_ratio_curves([group]).get_size_inches()[0] * 96 <= 340


def test_positions_show_models_that_the_paper_lacks():
    cells = paper_cells([])
    (cell,) = [
        c.cell for c in cells
        if (c.cell.table, c.cell.dataset, c.cell.configuration, c.cell.model)
        == ("arbitrary_position", "RAVEN", "up_down", "RAISE")
        and (c.cell.num_targets, c.cell.num_distractors) == (2, 3)
    ]  # fmt: skip
    added = [Extension(cell=cell, number=number("raise_plus", mean=0.75))]
    figure = plots.accuracy_by_distractors(cells, "RAVEN", added)
    (panel,) = [axes for axes in figure.axes if axes.get_title() == "U-D, |T| = 2"]
    (drawn,) = [each.lines[0] for each in panel.containers]
    assert list(drawn.get_xydata()[0]) == [1, 75.0]
    assert not any(axes.containers for axes in figure.axes if axes is not panel)
    assert "RAISE plus" in [text.get_text() for text in figure.legends[0].get_texts()]
    other = plots.accuracy_by_distractors(cells, "I-RAVEN", added)
    assert not any(axes.containers for axes in other.axes)


def test_a_figure_has_the_same_bytes_every_time():
    def drawn():
        group = [number(label_ratio=0.0), number(label_ratio=1.0)]
        return plots.to_svg(plots.label_ratio_curves([group]))

    first = drawn()
    assert first.startswith(b"<?xml")
    assert first == drawn()
    png = plots.to_png(plots.label_ratio_curves([[number(label_ratio=0.0)]]))
    assert png.startswith(b"\x89PNG")
