"""What the studies ask of protocols: options, data sets, splits; and of whom."""

from types import SimpleNamespace

import pytest

from flows.studies import Request, lower
from raise_model.errors import UserError
from raise_model.evaluation import evaluate
from raise_model.models import registry

NAMES = (
    "bottom_right",
    "arbitrary_position",
    "odd_one_out",
    "rule_accuracy",
    "concept_alignment",
    "latent_traversal",
    "multi_answer",
)


@pytest.fixture(autouse=True)
def stubs(monkeypatch):
    """Protocols of revision 7, and a solver that supports them all beside one that does not."""
    protocols = {name: SimpleNamespace(revision=7) for name in NAMES}
    monkeypatch.setattr(evaluate, "PROTOCOLS", protocols)
    everything = frozenset({*NAMES, "latent", "pixel"})
    monkeypatch.setattr(registry.solver_class("raise"), "supports", everything)
    few = frozenset({"bottom_right", "arbitrary_position", "multi_answer", "pixel"})
    monkeypatch.setattr(registry.solver_class("anp"), "supports", few)
    return protocols


def evaluations(study, **options):
    request = Request(
        preset="lite",
        studies=[study],
        trials=1,
        configurations=["center"],
        **{"models": ["raise", "anp"], **options},
    )
    lowered = lower(request, lambda *split: "-".join(split))
    models = {trial.name: trial.model for trial in lowered.trials}
    return [(models[name], spec) for name, spec in lowered.evaluations]


def test_every_evaluation_names_its_data_its_rounds_and_the_protocols_revision():
    for study in ("main_table", "answer_selection", "arbitrary_position", "latent_concepts"):
        for _, spec in evaluations(study):
            assert spec.digest == f"{spec.dataset}-{spec.configuration}-{spec.split}"
            assert (spec.rounds, spec.seed, spec.revision) == (3, 0, 7)


def test_answers_are_selected_in_every_space_that_a_solver_has():
    found = [(m, s.options["space"], s.dataset) for m, s in evaluations("answer_selection")]
    assert found == [
        ("raise", "latent", "raven"),
        ("raise", "latent", "iraven"),
        ("raise", "pixel", "raven"),
        ("raise", "pixel", "iraven"),
        ("anp", "pixel", "raven"),
        ("anp", "pixel", "iraven"),
    ]


def test_positions_are_arbitrary_in_three_ways_in_each_solvers_own_space():
    ways = [("batch", "keep"), ("problem", "keep"), ("batch", "leave_out")]
    found = [
        (m, s.options["space"], (s.options["masks"], s.options["duplicates"]), s.dataset)
        for m, s in evaluations("arbitrary_position")
    ]
    assert found == [
        (model, space, way, dataset)
        for model, space in (("raise", "latent"), ("anp", "pixel"))
        for way in ways
        for dataset in ("raven", "iraven")
    ]


def test_positions_are_not_tested_twice_on_the_same_contexts():
    found = evaluations("arbitrary_position", data="paired")
    assert {spec.dataset for _, spec in found} == {"raven"}


def test_what_a_solver_does_not_support_is_left_out():
    assert [(m, s.options["odd"]) for m, s in evaluations("odd_one_out")] == [
        ("raise", "any"),
        ("raise", "candidate"),
    ]
    assert evaluations("odd_one_out", models=["anp"]) == []


def test_concepts_are_aligned_over_the_training_problems():
    found = [(m, s.protocol, s.dataset, s.split) for m, s in evaluations("latent_concepts")]
    assert found == [
        ("raise", "rule_accuracy", "raven", "test"),
        ("raise", "concept_alignment", "raven", "train"),
        ("raise", "latent_traversal", "raven", "test"),
    ]


def test_answers_are_drawn_with_raises_own_noise_and_without_for_others():
    found = [(m, s.options["targets"], s.options["noise"]) for m, s in evaluations("multi_answer")]
    assert found == [("raise", 1, 0.1), ("raise", 2, 0.1), ("anp", 1, 0.0), ("anp", 2, 0.0)]


def test_a_protocol_that_does_not_exist_is_one_line(stubs):
    del stubs["odd_one_out"]
    with pytest.raises(UserError, match="unknown protocol 'odd_one_out'; known protocols: bottom"):
        evaluations("odd_one_out")
