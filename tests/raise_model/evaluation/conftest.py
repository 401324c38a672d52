"""A small world of Center, and solvers that know everything about it."""

import importlib.util
from pathlib import Path

import pytest

from raise_model.data.generate import generate
from raise_model.data.loader import load
from raise_model.specs import DataSpec, EvaluationSpec, TrialSpec
from raise_model.store import Store


class World:
    """90 training and 30 validation problems, and the specs to evaluate on them."""

    def __init__(self, root, size):
        self.store, self.cache = Store(str(root / "store")), root / "cache"
        generate(self.store, dataset="raven", configuration="center", problems=150, seed=3)
        self.train, self.val = (
            load(
                self.store, "raven", "center", split,
                image_size=size, resize="area", cache=self.cache,
            )
            for split in ("train", "val")
        )  # fmt: skip
        data = DataSpec(
            dataset="raven", configuration="center", train_digest="", validation_digest="",
            image_size=size, resize="area", label_map="official", label_ratio=1.0,
        )  # fmt: skip
        self.trial = TrialSpec(
            model="raise", config={}, revision=1, precision="fp32", data=data, seed=0, steps=1,
            validate_every=1, validation_problems=1,
        )  # fmt: skip

    def evaluation(self, protocol, *, rounds=1, seed=0, **options):
        return EvaluationSpec(
            protocol=protocol, options=options, dataset="raven", configuration="center",
            split="val", digest="", rounds=rounds, seed=seed, revision=1,
        )  # fmt: skip


@pytest.fixture(scope="session")
def scene_oracle():
    """The module of the solvers."""
    path = Path(__file__).parent / "scene_oracle.py"
    spec = importlib.util.spec_from_file_location("scene_oracle", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def world(tmp_path_factory, scene_oracle):
    return World(tmp_path_factory.mktemp("world"), scene_oracle.SIZE)


@pytest.fixture(scope="session")
def oracle(world, scene_oracle):
    return scene_oracle.SceneOracle([world.train, world.val])
