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
    assert texts == ["RAISE, 2 seeds", "first of 95 %", "first of the paper's"]


def test_a_setting_has_one_style_in_every_panel_and_no_other_has_it():
    labels = [f"RAISE, {steps} steps" for steps in range(6)]
    figure = training_curves(
        [
            *(curve(label=label) for label in labels),
            *(curve("left_right", label=label) for label in reversed(labels)),
            curve("up_down", label=labels[5]),
        ]
    )
    styles = [
        {
            line.get_label(): line._unscaled_dash_pattern
            for line in axes.get_lines()
            if len(line.get_xdata()) == 3
        }
        for axes in figure.axes
    ]
    assert len({repr(style) for style in styles[0].values()}) == 6
    assert all(styles[0][name] == style for each in styles for name, style in each.items())


def test_marks_stand_where_the_values_were_reached():
    marks = {
        line.get_marker(): list(line.get_xydata()[0])
        for line in training_curves([curve(paper=0.955)]).axes[1].get_lines()
        if line.get_marker() in ("o", "*")
    }
    assert marks == {"o": [1.0, 96.0], "*": [1.0, 96.0]}
    alone = training_curves([curve(paper=0.99)]).axes[0].get_lines()
    assert [line.get_marker() for line in alone].count("*") == 0
