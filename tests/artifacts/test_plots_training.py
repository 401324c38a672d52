"""Training curves, and when they reached what was asked for."""

import pandas as pd
import pytest

from artifacts.plots_training import Curve, training_curves

ROWS = pd.DataFrame({"step": [250.0, 500.0, 1000.0], "validation_accuracy": [0.25, 0.96, 0.95]})


def curve(configuration="center", *, paper=0.992, rows=ROWS, label="RAISE"):
    return Curve(
        model="raise", configuration=configuration, label=label, rows=rows, steps=1000,
        seconds=120.0, paper=paper,
    )  # fmt: skip


def test_first_validation_of_a_value_counts():
    assert curve().reached(0.95) == (500, 60.0)
    assert curve().reached(0.25) == (250, 30.0)
    assert curve().reached(0.97) is None
    assert curve().reached(None) is None


def test_curves_are_against_steps_and_minutes_with_a_line_a_seed():
    figure = training_curves([curve("left_right"), curve(paper=0.955), curve("left_right")])
    assert len(figure.axes) == 4
    assert figure.axes[0].get_ylabel().startswith("Center")
    lines = [[line for line in axes.get_lines() if len(line.get_xdata()) == 3]
             for axes in figure.axes]  # fmt: skip
    assert [len(each) for each in lines] == [1, 1, 2, 2]
    assert list(lines[0][0].get_xdata()) == [250.0, 500.0, 1000.0]
    assert list(lines[1][0].get_xdata()) == pytest.approx([0.5, 1.0, 2.0])
    assert list(lines[1][0].get_ydata()) == [25.0, 96.0, 95.0]
    # Two seeds: one name; and the two marks.
    texts = [text.get_text() for text in figure.axes[3].get_legend().get_texts()]
    assert texts == ["RAISE, 2 seeds", "first with 95 %", "first with the paper's"]


def styles_of(axes):
    """Colour and line of each curve of a panel, by the name in the legend or of its seeds."""
    found, name = {}, None
    for line in axes.get_lines():
        if len(line.get_xdata()) == 3:
            name = name if line.get_label().startswith("_") else line.get_label()
            style = (line.get_color(), line.get_linestyle(), line._unscaled_dash_pattern)
            found.setdefault(name.partition(", ")[0], set()).add(style)
    return found


def test_a_setting_has_one_style_in_every_panel_and_no_other_has_it():
    labels = [f"setting {number}" for number in range(12)]
    figure = training_curves(
        [
            *(curve(label=label) for label in labels for _ in range(3)),
            *(curve("left_right", label=label) for label in reversed(labels)),
            curve("up_down", label=labels[5]),
        ]
    )
    panels = [styles_of(axes) for axes in figure.axes]
    # Three seeds have one style.
    assert all(len(styles) == 1 for styles in panels[0].values())
    assert len({repr(styles) for styles in panels[0].values()}) == 12
    assert len({next(iter(styles))[0] for styles in list(panels[0].values())[:10]}) == 10
    assert all(panels[0][name] == styles for each in panels for name, styles in each.items())


def test_the_legend_stands_beside_the_axes():
    figure = training_curves([curve(label=f"setting {number}") for number in range(9)])
    figure.canvas.draw()
    _, axes = figure.axes
    assert axes.get_legend().get_window_extent().x0 >= axes.get_window_extent().x1


def test_marks_stand_where_the_values_were_reached():
    marks = {
        line.get_marker(): list(line.get_xydata()[0])
        for line in training_curves([curve(paper=0.955)]).axes[1].get_lines()
        if line.get_marker() in ("o", "*")
    }
    assert marks == {"o": [1.0, 96.0], "*": [1.0, 96.0]}
    alone = training_curves([curve(paper=0.99)]).axes[0].get_lines()
    assert [line.get_marker() for line in alone].count("*") == 0
