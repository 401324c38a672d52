"""Finished trainings and evaluations in a store, written by hand."""

import io

import pandas as pd
import pytest

from raise_model.specs import DataSpec, EvaluationSpec, TrialSpec
from raise_model.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "store"))


@pytest.fixture
def make_spec():
    def make(seed=0, configuration="center", label_ratio=0.05, steps=1000, model="raise"):
        return TrialSpec(
            model=model,
            config={"num_concepts": 8, "label_loss": "code"},
            revision=1,
            precision="fp32",
            data=DataSpec(
                dataset="raven",
                configuration=configuration,
                train_digest="a" * 64,
                validation_digest="b" * 64,
                image_size=32,
                resize="area",
                label_map="official",
                label_ratio=label_ratio,
            ),
            seed=seed,
            steps=steps,
            validate_every=500,
            validation_problems=100,
        )

    return make


@pytest.fixture
def make_evaluation():
    def make(dataset="raven", configuration="center", space="latent", split="test"):
        return EvaluationSpec(
            protocol="bottom_right",
            options={"space": space},
            dataset=dataset,
            configuration=configuration,
            split=split,
            digest="c" * 64,
            rounds=2,
            seed=0,
            revision=1,
        )

    return make


CURVE = [
    {"step": 500.0, "validation_accuracy": 0.25, "loss": 3.0},
    {"step": 1000.0, "validation_accuracy": 0.5, "loss": 2.0},
]


@pytest.fixture
def finish(store):
    """Write a finished training."""

    def finish(spec):
        folder = store.trial(spec)
        folder.put_spec(spec)
        buffer = io.BytesIO()
        pd.DataFrame(CURVE).to_parquet(buffer)
        store.write(folder.file("curve.parquet"), buffer.getvalue())
        done = {"step": 1000, "best_step": 1000, "validation_accuracy": 0.5, "seconds": 12.5}
        store.create_json(folder.file("done.json"), done)
        return folder

    return finish


@pytest.fixture
def evaluated(finish, store):
    """Write a finished training with one evaluation of 2,000 problems."""

    def evaluated(spec, evaluation, accuracy, **more):
        folder = store.trial(spec)
        if not folder.is_done:
            finish(spec)
        result = {"problems": 2000, "accuracy": accuracy, "correct": [], "rule_accuracy": 0.75}
        result |= more
        folder.evaluation(evaluation).create_result(evaluation, result)

    return evaluated
