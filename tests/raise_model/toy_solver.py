"""A small solver with two optimisers, for tests of everything that runs solvers.

It predicts a missing panel's code from the mean code of the context.  It uses what real
solvers use: noise from the explicit generator, dropout (torch's global generator), BatchNorm
statistics and a step-dependent buffer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from raise_model.models.solver import (
    Batches,
    Loss,
    Needs,
    Prediction,
    Solver,
)


@dataclass(frozen=True, kw_only=True)
class ToyConfig:
    dims: int = 3
    batch_size: int = 5
    learning_rate: float = 0.01


class ToySolver(Solver):
    Config: ClassVar[type] = ToyConfig
    revision: ClassVar[int] = 1
    supports: ClassVar[frozenset[str]] = frozenset({"bottom_right", "arbitrary_position", "latent"})
    needs = Needs()
    temperature: torch.Tensor

    def __init__(self, config: ToyConfig, image_size: int) -> None:
        super().__init__()
        self.config = config
        self.encoder = nn.Sequential(
            nn.Flatten(), nn.Linear(image_size**2, config.dims), nn.BatchNorm1d(config.dims)
        )
        self.predictor = nn.Sequential(nn.Dropout(0.1), nn.Linear(config.dims, config.dims))
        self.decoder = nn.Linear(config.dims, image_size**2)
        self.register_buffer("temperature", torch.ones(()))

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        coder = [*self.encoder.parameters(), *self.predictor.parameters()]
        return {
            "coder": torch.optim.RMSprop(coder, lr=1.0),
            "decoder": torch.optim.Adam(self.decoder.parameters(), lr=1.0),
        }

    def set_step(self, step: int, steps: int) -> dict[str, float]:
        self.temperature.fill_(1 - step / steps)
        rate = self.config.learning_rate * (1 - 0.5 * step / steps)
        return {"coder": rate, "decoder": 2 * rate}

    def _encode(self, panels: torch.Tensor) -> torch.Tensor:
        return self.encoder(panels.flatten(0, 1)).unflatten(0, panels.shape[:2])

    def training_steps(self, batches: Batches, generator: torch.Generator) -> Iterator[Loss]:
        panels = batches.draw("all", self.config.batch_size).panels
        codes = self._encode(panels)
        noise = torch.randn(codes.shape, generator=generator, dtype=codes.dtype)
        codes = codes + 0.01 * self.temperature * noise
        target = int(torch.randint(9, (), generator=generator))
        context = torch.cat([codes[:, :target], codes[:, target + 1 :]], dim=1)
        error = (self.predictor(context.mean(1)) - codes[:, target]).square().mean()
        spread = (codes.flatten(0, 1).var(0) - 1).square().mean()
        yield Loss(optimizer="coder", total=error + spread, terms={"prediction": error.detach()})
        images = self.decoder(self._encode(panels).detach())
        rebuilt = (images - panels.flatten(2)).square().mean()
        yield Loss(optimizer="decoder", total=rebuilt, terms={"image": rebuilt.detach()})

    def encode(self, panels: torch.Tensor) -> torch.Tensor:
        return self._encode(panels)

    def predict_encoded(
        self, codes: torch.Tensor, missing: torch.Tensor, generator: torch.Generator
    ) -> Prediction:
        known = codes[~missing].unflatten(0, (len(codes), -1))
        latents = self.predictor(known.mean(1))[:, None]
        return Prediction(latents=latents.expand(-1, int(missing[0].sum()), -1))
