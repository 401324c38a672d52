"""Pictures of problems: what is drawn where, and rules in words."""

import dataclasses

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from artifacts.problem_pictures import (
    ANSWER_COLOR,
    Shown,
    changes_in_words,
    draw_gallery,
    draw_problem,
    rules_in_words,
)
from raise_model.data.generate import make_problem
from raise_model.data.grammar import CONFIGURATIONS
from raise_model.data.schema import Manifest

mpl.use("Agg")


def manifest(configuration):
    return Manifest(
        dataset="raven", configuration=configuration, split="train", problems=1, digest="",
        files={}, recipe={}, version="",
    )  # fmt: skip


def images(figure):
    return [axes.get_images()[0].get_array() for axes in figure.axes if axes.get_images()]


def framed(figure):
    color = mpl.colors.to_rgba(ANSWER_COLOR)
    axes = [axes for axes in figure.axes if axes.get_images()]
    return [i for i, a in enumerate(axes) if a.spines["top"].get_edgecolor() == color]


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def test_matrix_and_candidates_are_drawn_in_order_with_the_answer_framed():
    problem = make_problem("iraven", "out_in_grid", 1, 3)
    figure = draw_problem(manifest("out_in_grid"), problem)
    drawn = images(figure)
    assert len(drawn) == 17
    wanted = [*problem.panels[:8], problem.panels[8 + problem.target], *problem.panels[8:]]
    assert all(np.array_equal(a, b) for a, b in zip(drawn, wanted, strict=True))
    assert framed(figure) == [8, 9 + problem.target]


def test_hidden_answer_is_nowhere():
    problem = make_problem("iraven", "center", 1, 3)
    figure = draw_problem(manifest("center"), problem, answer=False)
    assert (images(figure)[8] == 255).all()
    assert framed(figure) == [8]
    titles = [axes.get_title() for axes in figure.axes]
    assert not any("answer" in title for title in titles)
    assert {axes.get_xlabel() for axes in figure.axes} == {""}
    captions = [axes.get_xlabel() for axes in draw_problem(manifest("center"), problem).axes]
    assert captions[9 + problem.target] == ""
    assert all(captions[9 + i] for i in range(8) if i != problem.target)
    assert len(images(draw_problem(manifest("center"), problem, candidates=False))) == 9


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_rule_and_change_has_words(name):
    for index in range(5):
        problem = make_problem("raven", name, 1, index)
        lines = rules_in_words(problem, name)
        assert len(lines) == len(CONFIGURATIONS[name].components)
        assert sum(line.count(";") + 1 for line in lines) == len(problem.rules)
        changes = changes_in_words(problem, name)
        assert [text == "" for text in changes] == [i == problem.target for i in range(8)]


def test_steps_and_signs_are_told_apart():
    problem = make_problem("raven", "center", 1, 3)
    rules = [
        {"component": 0, "attribute": "number_position", "rule": "constant", "value": 0},
        {"component": 0, "attribute": "type", "rule": "progression", "value": -2},
        {"component": 0, "attribute": "size", "rule": "arithmetic", "value": 1},
        {"component": 0, "attribute": "color", "rule": "distribute_three", "value": None},
    ]

    changed = dataclasses.replace(problem, rules=rules)
    assert rules_in_words(changed, "center") == [
        "entities: Number/Position constant; Type progression -2; Size arithmetic plus; "
        "Color distribute three"
    ]


def test_gallery_shows_nine_panels_a_problem():
    problems = [
        Shown(manifest=manifest("center"), problem=make_problem("raven", "center", 1, index))
        for index in range(5)
    ]
    figure = draw_gallery(problems)
    assert len(images(figure)) == 45
    assert framed(figure) == [8, 17, 26, 35, 44]
