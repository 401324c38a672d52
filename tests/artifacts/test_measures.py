"""Results that are no selection accuracies, in tables and as metrics."""

import pytest

from artifacts.measures import measured
from artifacts.run_fields import evaluation_metrics
from raise_model.specs import EvaluationSpec

RESULT = {
    "problems": 100,
    "rounds": 1,
    "best_step": 5,
    "panel_accuracy": 0.5,
    "constant_answer": 0,
    "by_position": [0.1, 0.2],
    "by_attribute": {"type": {"prior": 0.7, "posterior": 0.8}, "size": 0.6},
    "matrix": [[1.0, 0.0]],
    "measure": "a word",
    "is_intact": True,
    "seen": None,
    "provenance": {"threads": 1},
}


def spec(protocol, **options):
    return EvaluationSpec(
        protocol=protocol, options=options, dataset="raven", configuration="center",
        split="test", digest="c", rounds=1, seed=0, revision=1,
    )  # fmt: skip


def test_every_number_of_a_result_is_a_measure_and_nothing_else():
    assert measured(RESULT) == {
        "": {"panel_accuracy": 0.5, "constant_answer": 0.0},
        "by_position": {"1": 0.1, "2": 0.2},
        "by_attribute": {"type prior": 0.7, "type posterior": 0.8, "size": 0.6},
    }


def test_metrics_of_a_protocol_without_accuracy_are_its_numbers():
    found = evaluation_metrics(spec("odd_one_out", odd="any"), RESULT)
    assert found == {
        "raven.odd_one_out.any.panel_accuracy": 0.5,
        "raven.odd_one_out.any.constant_answer": 0.0,
    }


def test_metrics_of_arbitrary_positions_are_by_setting():
    settings = [
        {"targets": 1, "distractors": 3, "accuracy": [0.5, 0.7], "problems": 9},
        {"targets": 2, "distractors": 15, "accuracy": [0.25], "problems": 9},
    ]
    found = evaluation_metrics(spec("arbitrary_position", space="latent"), {"settings": settings})
    assert found == {
        "raven.arbitrary_position.T1.N3": pytest.approx(0.6),
        "raven.arbitrary_position.T2.N15": 0.25,
    }
