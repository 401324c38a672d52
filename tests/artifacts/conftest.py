"""Finished trainings and evaluations in a store, written by hand."""

import io

import pandas as pd
import pytest

from raise_model.presets import trial_spec
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
        done["provenance"] = {"commit": "abc123", "device": "H100", "threads": 1, "torch": "2"}
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


def _training(seed=0, *, model="raise", configuration="center", ratio=None, preset="demo"):
    return trial_spec(
        model=model, preset=preset, dataset="raven", configuration=configuration,
        train_digest="a", validation_digest="b", seed=seed, label_ratio=ratio,
    )  # fmt: skip


def _evaluation(dataset="raven", *, protocol="bottom_right", split="test", **options):
    return EvaluationSpec(
        protocol=protocol, options=options or {"space": "latent"}, dataset=dataset,
        configuration="center", split=split, digest="c" * 64, rounds=2, seed=0, revision=1,
    )  # fmt: skip


@pytest.fixture(scope="session")
def training():
    """A training of a preset."""
    return _training


@pytest.fixture(scope="session")
def evaluation():
    """An evaluation on Center."""
    return _evaluation


_PROVENANCE = {"device": "Test CPU", "threads": 1, "commit": "abcdef0123456789", "torch": "2.0"}
_ARBITRARY = {"space": "latent", "masks": "batch", "duplicates": "keep"}


def _put(store, spec, evaluation, accuracy, **more):
    """A finished training of 2,000 seconds with one evaluation."""
    folder = store.trial(spec)
    if not folder.is_done:
        folder.put_spec(spec)
        buffer = io.BytesIO()
        rows = [{"step": 1000.0, "validation_accuracy": 0.5}]
        pd.DataFrame(rows).to_parquet(buffer)
        store.write(folder.file("curve.parquet"), buffer.getvalue())
        done = {"step": 1000, "best_step": 1000, "validation_accuracy": 0.5, "seconds": 2000.0}
        store.create_json(folder.file("done.json"), done)
    result = {"problems": 2000, "accuracy": accuracy, "correct": [], "rule_accuracy": 0.75}
    folder.evaluation(evaluation).create_result(evaluation, result | more)


@pytest.fixture(scope="session")
def filled(tmp_path_factory):
    """Three seeds of RAISE on Center, one of raise_plus, and results that are no accuracies."""
    store = Store(str(tmp_path_factory.mktemp("filled")))
    for seed in range(3):
        spec = _training(seed)
        for place, dataset in enumerate(("raven", "iraven")):
            rounds = [0.8 + seed / 50 + place / 20 + error for error in (-0.001, 0.001)]
            _put(store, spec, _evaluation(dataset), rounds, provenance=_PROVENANCE)
        _put(store, spec, _evaluation("iraven", split="val"), [0.111])
        settings = [
            {"targets": t, "distractors": n, "accuracy": [0.9 - t / 20 - n / 100 - seed / 70] * 2,
             "problems": 2000}
            for t in (1, 2) for n in (1, 3, 7, 15)
        ]  # fmt: skip
        _put(
            store, spec, _evaluation("raven", protocol="arbitrary_position", **_ARBITRARY), [],
            settings=settings,
        )  # fmt: skip
        _put(
            store, spec, _evaluation("raven", protocol="odd_one_out", odd="any"), [],
            panel_accuracy=0.4 + seed / 10, chance_panel=1 / 9,
            by_position=[0.1 * k for k in range(9)],
            by_attribute={"type": 0.25 + seed / 10, "size": 0.5},
        )  # fmt: skip
    plus = _training(model="raise_plus", preset="lite")
    _put(store, plus, _evaluation("iraven"), [0.987])
    return store
