"""A solver of known answers for Center: it reads panels by their pixels and remembers problems.

Its four concepts are numbers: size, nothing, color, type.
"""

import numpy as np
import torch

from raise_model.data.grammar import CONFIGURATIONS
from raise_model.data.loader import resize_panels
from raise_model.data.render import render_panels
from raise_model.evaluation.nearest_rendering import NearestRendering
from raise_model.models.solver import Needs, Prediction, Solver
from raise_model.problem import UNLABELLED

SIZE = 20
CONCEPTS = ("size", None, "color", "type")
CONCEPT_OF = {"type0": 3, "size0": 0, "color0": 2}


class SceneOracle(Solver):
    supports = frozenset({"bottom_right", "latent", "pixel", "decode"})
    needs = Needs()
    num_concepts = 4

    def __init__(self, splits):
        super().__init__()
        self.reader = NearestRendering("center", SIZE, "area")
        cpu = torch.device("cpu")
        every = [split.batch(torch.arange(split.num_problems), cpu).panels for split in splits]
        self.memory = self.encode(torch.cat(every))
        labels = torch.cat([torch.from_numpy(s.rule_labels("merged")) for s in splits])
        assert not (labels == UNLABELLED).any()
        self.rules = torch.full((len(labels), 4, 4), 0.25)
        for attribute, concept in enumerate(CONCEPT_OF.values()):
            self.rules[:, concept] = torch.nn.functional.one_hot(labels[:, attribute], 4).float()

    def optimizers(self):
        return {}

    def set_step(self, step, steps):
        return {}

    def training_steps(self, batches, generator):
        return iter(())

    def encode(self, panels):
        kind, size, color, _ = self.reader.read(panels[:, :, 0].flatten(0, 1))[:, 0].T
        codes = np.stack([size, np.zeros_like(size), color, kind], 1)
        return torch.from_numpy(codes).float().unflatten(0, panels.shape[:2])

    def recall(self, codes, missing):
        """The remembered problem that differs in the fewest values of the known panels."""
        differs = (codes[:, None] != self.memory).any(3) & ~missing[:, None]
        return differs.sum(2).argmin(1)

    def predict_encoded(self, codes, missing, generator):
        found = self.recall(codes, missing)
        latents = self.memory[found][missing].unflatten(0, (len(codes), -1))
        return Prediction(latents=latents, rules=self.rules[found])

    def decode(self, latents):
        levels = latents.round().int().flatten(0, 1)
        entities = [
            [
                {
                    "component": 0, "slot": 0, "type": min(max(kind, 1), 5),
                    "size": min(max(size, 0), 5), "color": min(max(color, 0), 9), "angle": 3,
                }
            ]
            for size, _, color, kind in levels.tolist()
        ]  # fmt: skip
        drawn = resize_panels(render_panels(CONFIGURATIONS["center"], entities), SIZE, "area")
        return torch.from_numpy(drawn).float().div(255).view(*latents.shape[:2], 1, SIZE, SIZE)


class Guessing(SceneOracle):
    """Predicts random values and names random rules."""

    def predict_encoded(self, codes, missing, generator):
        rules = torch.rand(len(codes), 4, 4, generator=generator)
        number = int(missing[0].sum())
        latents = 5 * torch.rand(len(codes), number, 4, generator=generator)
        return Prediction(latents=latents, rules=rules.softmax(-1))


class Dull(SceneOracle):
    """Has neither concepts nor rules."""

    num_concepts = None

    def predict_encoded(self, codes, missing, generator):
        return Prediction(latents=super().predict_encoded(codes, missing, generator).latents)
