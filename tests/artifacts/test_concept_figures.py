"""Figures of the pictures that results hold."""

import torch

from artifacts.report import build_report
from raise_model.evaluation.pictures import png_of
from raise_model.specs import EvaluationSpec


def evaluation(protocol, split="test", **options):
    return EvaluationSpec(
        protocol=protocol, options=options, dataset="raven", configuration="center", split=split,
        digest="c" * 64, rounds=1, seed=0, revision=1,
    )  # fmt: skip


def test_pictures_of_results_become_figures_of_the_smallest_seed(store, evaluated, make_spec):
    png = png_of(torch.rand(3, 3, 6, 6, generator=torch.Generator().manual_seed(0)))
    steps = png_of(torch.rand(2, 12, 6, 6, generator=torch.Generator().manual_seed(0)))
    odd = {
        "problem": 7, "odd": 4, "broken": ["color0"], "called": 5, "named": "type0",
        "errors": [[0.0, float(panel)] for panel in range(9)], "png": png,
    }  # fmt: skip
    answer = {"problem": 0, "missing": [2, 8], "broken": ["type0"], "png": png}
    attributes = ["type0", "color0"]
    for seed in (1, 2):
        spec = make_spec(seed)
        evaluated(
            spec, evaluation("odd_one_out", odd="candidate"), [], examples=[odd],
            concept_of={"type0": 1, "color0": None}, by_attribute={"type0": {}, "color0": {}},
        )  # fmt: skip
        evaluated(
            spec, evaluation("multi_answer", targets=2, samples=1, noise=0.0), [],
            examples=[answer], by_attribute=dict.fromkeys(attributes, 0.5),
        )  # fmt: skip
        evaluated(
            spec, evaluation("latent_traversal"), [], png=steps, steps=12,
            attributes=attributes, changed=[[0.1, 0.9], [0.2, 0.3]],
        )  # fmt: skip
        evaluated(
            spec, evaluation("concept_alignment", split="train"), [],
            attributes=attributes, matrix=[[0.6, 0.4], [0.0, 1.0]], concept_of=[0, 1],
        )  # fmt: skip
    # Results of earlier versions have no pictures.
    evaluated(make_spec(0), evaluation("odd_one_out", odd="candidate"), [])
    report = build_report(store)
    figures = {figure.key: figure for figure in report.figures}
    name = make_spec(1).name
    for kind in ("odd_one_out_candidate", "answers_2", "latent_traversal"):
        assert f"{kind}_{name}" in figures
        assert f"{kind}_{make_spec(2).name}" not in figures
        caption = figures[f"{kind}_{name}"].caption
        assert "RAVEN, split test" in caption
        assert f"{name} (preset custom, seed 1)" in caption
    matrix, errors = figures[f"odd_one_out_candidate_{name}"].draw().axes
    assert "called odd: panel 6, type" in matrix.get_title(loc="left")
    labels = [label.get_text() for label in errors.get_xticklabels()]
    assert labels == ["1", "2 type"]
    answers = figures[f"answers_2_{name}"].draw()
    assert [axes.get_title() for axes in answers.axes] == ["breaks type"]
    assert len(answers.axes[0].patches) == 2
    _, beside = figures[f"latent_traversal_{name}"].draw().axes
    assert beside.images[0].get_array().tolist() == [[0.6, 0.0], [0.4, 1.0]]
    # Pictures and error maps are no measures of their own.
    assert not [t.key for t in report.own if "examples" in t.key]
