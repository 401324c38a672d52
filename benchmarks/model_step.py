"""Training step of every model: problems a second, and where the time goes.

    python benchmarks/model_step.py [--preset lite] [--models raise clap] [--repeats 5]
                                    [--threads 1] [--json]

A round of training steps (forward, backward, optimiser) of each model under a preset, on random
problems of Center with the paper's share of labels.  *Encoder* is what reads pixels and
*decoder* what draws them: both are timed alone, forwards and backwards, on the inputs that they
had in a round.  *Optimiser* is timed within the round.  *Model* is the rest: reasoning and
losses.  Models take turns within every repeat; medians over repeats.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from surroundings import surroundings
from torch import Tensor, nn

from raise_model.data.splits import label_attributes
from raise_model.models import registry
from raise_model.models.cost import RandomBatches
from raise_model.models.solver import config_to_json
from raise_model.presets import LABEL_RATIOS, PRESETS, presets_of, training_preset

CONFIGURATION, PROBLEMS = "center", 6_000
PIXEL_READERS: Mapping[str, Sequence[str]] = {
    "raise": ("networks.encoder",),
    "raise_plus": ("networks.encoder",),
    "transformer": ("encoder",),
    "anp": ("deterministic.points", "latent_points.points"),
    "lgpp": ("encoder", "axes.panels"),
    "clap": ("encoder",),
}
PIXEL_WRITERS: Mapping[str, Sequence[str]] = {
    "raise": ("networks.decoder",),
    "raise_plus": ("networks.decoder",),
    "transformer": ("decoder",),
    "anp": ("decoder",),
    "lgpp": ("decoder",),
    "clap": ("decoder",),
}


@dataclass(frozen=True)
class Times:
    """Seconds of one round."""

    total: float
    encoder: float
    decoder: float
    optimizer: float


class Contestant:
    """One model, and the calls that its encoder and decoder get in a round."""

    def __init__(self, model: str, preset: str) -> None:
        ratio = LABEL_RATIOS[CONFIGURATION]
        setting = training_preset(model, preset, CONFIGURATION, ratio)
        size = setting.image_size
        self.solver = registry.build(model, config_to_json(setting.config), size, seed=0)
        labelled = int(ratio * PROBLEMS) if self.solver.needs.labels else 0
        attributes = len(label_attributes(CONFIGURATION, setting.label_map))
        self._batches = RandomBatches(size, attributes, problems=PROBLEMS, labelled=labelled)
        self._generator = torch.Generator().manual_seed(0)
        self._optimizers = self.solver.optimizers()
        self.solver.train()
        self.solver.set_step(0, 100)
        modules = dict(self.solver.named_modules())
        encoders = [modules[name] for name in PIXEL_READERS[model]]
        decoders = [modules[name] for name in PIXEL_WRITERS[model]]
        calls = self._calls([*encoders, *decoders])
        self._encoder = [(module, inputs) for module, inputs in calls if module in encoders]
        self._decoder = [(module, inputs) for module, inputs in calls if module in decoders]
        self.problems = self._batches.drawn
        self.times: list[Times] = []

    def _calls(self, modules: Sequence[nn.Module]) -> list[tuple[nn.Module, Tensor]]:
        """Every call of the modules in a round, with its input."""
        calls: list[tuple[nn.Module, Tensor]] = []

        def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            wants_gradient = inputs[0].requires_grad
            calls.append((module, inputs[0].detach().clone().requires_grad_(wants_gradient)))

        handles = [module.register_forward_pre_hook(note) for module in modules]
        self._round()
        for handle in handles:
            handle.remove()
        return calls

    def _round(self) -> float:
        """Train; seconds in the optimisers."""
        seconds = 0.0
        for loss in self.solver.training_steps(self._batches, self._generator):
            optimizer = self._optimizers[loss.optimizer]
            optimizer.zero_grad(set_to_none=True)
            loss.total.backward()
            seconds += _seconds(optimizer.step)
        return seconds

    def measure(self) -> None:
        """One round, then the encoder and the decoder alone."""
        began = time.perf_counter()
        optimizer = self._round()
        total = time.perf_counter() - began
        self.times.append(
            Times(total, self._alone(self._encoder), self._alone(self._decoder), optimizer)
        )

    def _alone(self, calls: Sequence[tuple[nn.Module, Tensor]]) -> float:
        seconds = 0.0
        for module, inputs in calls:
            module.zero_grad(set_to_none=True)
            seconds += _seconds(
                lambda module=module, inputs=inputs: module(inputs).sum().backward()
            )
        return seconds


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _row(contestant: Contestant) -> dict[str, float]:
    times = contestant.times

    def share(part: Callable[[Times], float]) -> float:
        return statistics.median(part(t) / t.total for t in times)

    return {
        "problems": contestant.problems,
        "problems_per_second": statistics.median(contestant.problems / t.total for t in times),
        "encoder": share(lambda t: t.encoder),
        "model": share(lambda t: t.total - t.encoder - t.decoder - t.optimizer),
        "decoder": share(lambda t: t.decoder),
        "optimizer": share(lambda t: t.optimizer),
    }


def main() -> None:
    """Print one table, and with ``--json`` one JSON object last."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--preset", choices=PRESETS, default="lite")
    parser.add_argument("--models", nargs="+", choices=PIXEL_READERS, default=None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    names = arguments.models or [m for m in PIXEL_READERS if arguments.preset in presets_of(m)]
    contestants = {name: Contestant(name, arguments.preset) for name in names}
    for repeat in range(arguments.repeats):
        print(f"repeat {repeat + 1} of {arguments.repeats}", file=sys.stderr)
        for contestant in contestants.values():
            contestant.measure()
    rows = {name: _row(contestant) for name, contestant in contestants.items()}
    print(f"preset {arguments.preset}, {CONFIGURATION}, {arguments.threads} thread(s)")
    columns = ("encoder", "model", "decoder", "optimizer")
    print(f"{'':12}{'problems/s':>12}" + "".join(f"{column:>11}" for column in columns))
    for name, row in rows.items():
        shares = "".join(f"{row[column]:11.0%}" for column in columns)
        print(f"{name:12}{row['problems_per_second']:12.1f}{shares}")
    if arguments.json:
        print(
            json.dumps(
                {
                    "benchmark": "model_step",
                    "preset": arguments.preset,
                    "configuration": CONFIGURATION,
                    "models": rows,
                    "threads": arguments.threads,
                    "repeats": arguments.repeats,
                    **surroundings(),
                }
            )
        )


if __name__ == "__main__":
    sys.exit(main())
