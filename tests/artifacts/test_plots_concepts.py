"""Pictures of concepts show what they are given, framed where it is due."""

import numpy as np
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from artifacts.plots_concepts import (
    FRAME,
    OddExample,
    attribute_labels,
    draw_answers,
    draw_odd_one_out,
    draw_traversal,
)


def frames(axes):
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert all(to_hex(patch.get_edgecolor()) == FRAME for patch in found)
    return [(*patch.get_xy(), patch.get_width()) for patch in found]


def panels(*shape):
    return np.random.default_rng(0).random((*shape, 6, 6))


def test_traversal_has_a_row_a_concept_and_the_matrix_beside_it(tmp_path):
    images, matrix = panels(5, 12), np.random.default_rng(1).random((3, 5))
    figure = draw_traversal(images, matrix, ["type0", "size0", "color0"], [4, None, 1])
    grid, beside = figure.axes
    shown = grid.images[0].get_array()
    assert np.array_equal(shown[6:12, 18:24], images[1, 3])
    assert [label.get_text() for label in grid.get_yticklabels()][4] == "concept 5"
    assert np.array_equal(beside.images[0].get_array(), matrix.T)
    assert frames(beside) == [(0, 4, 1), (2, 1, 1)]
    for kind in ("png", "svg"):
        figure.savefig(tmp_path / f"traversal.{kind}")
        assert (tmp_path / f"traversal.{kind}").stat().st_size > 1000


def test_odd_one_out_frames_the_odd_panel_in_both_parts(tmp_path):
    generator = np.random.default_rng(1)
    examples = [
        OddExample(panels=panels(9), errors=generator.random((9, 4)), odd=odd, title=f"{odd}")
        for odd in (5, 0, 8)
    ]
    figure = draw_odd_one_out(examples, ["size", None, "colour", None])
    assert len(figure.axes) == 6
    for example, matrix, error_map in zip(
        examples, figure.axes[::2], figure.axes[1::2], strict=True
    ):
        row, column = divmod(example.odd, 3)
        shown = matrix.images[0].get_array()[6 * row : 6 * row + 6, 6 * column : 6 * column + 6]
        assert np.array_equal(shown, example.panels[example.odd])
        assert frames(matrix) == [(column, row, 1)]
        assert np.array_equal(error_map.images[0].get_array(), example.errors)
        assert frames(error_map) == [(0, example.odd, 4)]
        labels = [label.get_text() for label in error_map.get_xticklabels()]
        assert labels == ["1 size", "2", "3 colour", "4"]
    figure.savefig(tmp_path / "odd.png")


def test_attributes_say_their_component_where_there_are_several():
    assert attribute_labels(["number_position0", "color0"]) == ["number/position", "color"]
    assert attribute_labels(["type0", "color1"]) == ["type0", "color1"]


def test_answers_are_framed_where_panels_were_missing(tmp_path):
    missing = np.zeros((5, 9), dtype=bool)
    missing[:, 8] = True
    missing[3, 1] = True
    shown = panels(5, 9)
    figure = draw_answers(shown, missing, titles=list("abcde"))
    used = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in used] == list("abcde")
    assert frames(used[0]) == [(2, 2, 1)]
    assert frames(used[3]) == [(1, 0, 1), (2, 2, 1)]
    assert np.array_equal(used[4].images[0].get_array()[12:, 12:], shown[4, 8])
    figure.savefig(tmp_path / "answers.svg")


def test_slanted_names_are_not_cut(tmp_path):
    names = ["type0", "number/position0", None]
    example = OddExample(panels=panels(9), errors=np.ones((9, 3)), odd=2, title="one\ntwo")
    drawn = (
        draw_odd_one_out([example], names),
        draw_traversal(panels(3, 12), np.zeros((2, 3)), ["type0", "number/position0"], [0, 1]),
    )
    for figure in drawn:
        figure.canvas.draw()
        tops = [
            label.get_window_extent().y1 / figure.dpi
            for axes in figure.axes for label in axes.get_xticklabels() if label.get_text()
        ]  # fmt: skip
        height = figure.get_size_inches()[1]
        assert height - 0.5 < max(tops) <= height
