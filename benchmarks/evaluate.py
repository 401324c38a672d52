"""Evaluation at arbitrary positions: what it costs on top of encoding every panel once.

    python benchmarks/evaluate.py [--problems 2000] [--rounds 10] [--repeats 3] [--json]

RAISE at paper size on panels of 64 x 64 pixels, 8 settings (|T| 1 and 2, N_c 1, 3, 7, 15).  The
evaluation is timed whole and, within the same run, in its encoder (the run fails unless it is
shown each panel exactly once) and in its predictions; what is left is the draws, the scores and
the reading of panels.  ``argmax`` executes the likeliest rule, ``sample`` (the paper's setting)
all rules.  The opponent does what is left problem by problem in Python, from the same codes and
predictions, and takes its turn within every repeat; the run fails if it is a straw man: slower
than 150 us a problem and setting.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from surroundings import surroundings
from torch import Tensor

from raise_model.data.loader import ProblemSet
from raise_model.data.schema import PANELS_PER_PROBLEM, Manifest
from raise_model.evaluation.arbitrary_position import (
    DISTRACTORS,
    TARGETS,
    arbitrary_position,
    batches,
)
from raise_model.models import registry
from raise_model.models.raise_net.config import paper
from raise_model.models.solver import Prediction, Solver, config_to_json
from raise_model.problem import NUM_PANELS
from raise_model.version import package_version

SIZE = 64
STRAW_MAN = 150e-6
LIMIT = 0.2
"""Of the encoder's time, for everything else."""


class Watch:
    """Times calls of a solver's methods and keeps what a loop needs to do the rest."""

    def __init__(self, solver: Solver) -> None:
        self.encoding = self.predicting = 0.0
        self.panels = 0
        self.codes: list[Tensor] = []
        self.predictions: list[tuple[Tensor, list[Prediction]]] = []
        self._encode, self._predict = solver.encode, solver.predict_masks
        solver.encode, solver.predict_masks = self._timed_encode, self._timed_predict

    def _timed_encode(self, panels: Tensor) -> Tensor:
        began = time.perf_counter()
        codes = self._encode(panels)
        self.encoding += time.perf_counter() - began
        self.panels += panels.shape[0] * panels.shape[1]
        self.codes.append(codes)
        return codes

    def _timed_predict(
        self, codes: Tensor, missing: Tensor, generator: torch.Generator
    ) -> list[Prediction]:
        began = time.perf_counter()
        predictions = self._predict(codes, missing, generator)
        self.predicting += time.perf_counter() - began
        self.predictions.append((missing, predictions))
        return predictions


def _problems(number: int) -> ProblemSet:
    shape = (number, PANELS_PER_PROBLEM, SIZE, SIZE)
    manifest = Manifest(
        dataset="noise", configuration="center", split="test", problems=number, digest="",
        files={}, recipe={}, version=package_version(),
    )  # fmt: skip
    panels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return ProblemSet(manifest, panels, np.zeros(number, dtype=np.int8), [[]] * number)


def _solver(test_rule: Any) -> Solver:
    config = replace(paper(), test_rule=test_rule)
    solver = registry.build("raise", config_to_json(config), SIZE, seed=0)
    solver.set_step(1, 1)
    return solver.eval()


def _evaluate(problems: ProblemSet, rounds: int, test_rule: str) -> tuple[float, Watch]:
    solver = _solver(test_rule)
    watch = Watch(solver)
    began = time.perf_counter()
    arbitrary_position(
        solver, problems, space="latent", masks="batch", duplicates="keep", rounds=rounds,
        seed=0, device=torch.device("cpu"),
    )  # fmt: skip
    return time.perf_counter() - began, watch


def _select(
    codes: Float[np.ndarray, "batch 9 code"],
    predicted: Float[np.ndarray, "batch targets code"],
    positions: Int[np.ndarray, " targets"],
    number: int,
    generator: np.random.Generator,
) -> int:
    """Right answers among ``number`` distractors, one problem after another."""
    right = 0
    targets = np.ascontiguousarray(codes[:, positions])
    for problem in range(len(codes)):
        others = generator.choice(len(codes) - 1, number, replace=False)
        others += others >= problem
        difference = targets[others] - predicted[problem]
        own = targets[problem] - predicted[problem]
        flat = difference.reshape(number, -1)
        distance = np.einsum("nd,nd->n", flat, flat)
        right += bool(distance.min() > np.vdot(own, own))
    return right


def _loop(watch: Watch, problems: int) -> Callable[[], float]:
    """The opponent, from the codes and predictions of an evaluation."""
    codes = torch.cat(watch.codes).numpy()
    spans = batches(problems)
    generator = np.random.default_rng(0)

    def run() -> float:
        began = time.perf_counter()
        for span, (missing, predictions) in zip(spans, watch.predictions, strict=True):
            for mask, prediction in zip(missing[:, 0].numpy(), predictions, strict=True):
                assert prediction.latents is not None
                latents, positions = prediction.latents.numpy(), np.flatnonzero(mask)
                for number in DISTRACTORS:
                    _select(codes[span], latents, positions, number, generator)
        return time.perf_counter() - began

    return run


def _measure(
    problems: ProblemSet, rounds: int, repeats: int, rules: Sequence[str]
) -> dict[str, list[dict[str, float]]]:
    """Seconds of every part, by rule and repeat."""
    found: dict[str, list[dict[str, float]]] = {rule: [] for rule in rules}
    for _ in range(repeats):
        for rule in rules:
            total, watch = _evaluate(problems, rounds, rule)
            panels = NUM_PANELS * problems.num_problems
            if watch.panels != panels:
                raise SystemExit(f"error: the encoder was shown {watch.panels} of {panels} panels")
            rest = total - watch.encoding - watch.predicting
            found[rule].append(
                {
                    "total": total,
                    "encoding": watch.encoding,
                    "predicting": watch.predicting,
                    "selecting": rest,
                    "loop": _loop(watch, problems.num_problems)(),
                    "share": (total - watch.encoding) / watch.encoding,
                }
            )
    return found


def main() -> None:
    """Print one table, and with ``--json`` one JSON object last."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rules", nargs="+", default=["argmax", "sample"])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    problems = _problems(arguments.problems)
    found = _measure(problems, arguments.rounds, arguments.repeats, arguments.rules)
    asked = arguments.problems * arguments.rounds * len(TARGETS) * len(DISTRACTORS)
    rows = {}
    print(f"{'':10}" + "".join(f"{part:>12}" for part in found[arguments.rules[0]][0]))
    for rule, repeats in found.items():
        row = {part: statistics.median(each[part] for each in repeats) for part in repeats[0]}
        row["times_loop"] = statistics.median(each["loop"] / each["selecting"] for each in repeats)
        row["loop_microseconds"] = 1e6 * row["loop"] / asked
        rows[rule] = {part: round(value, 4) for part, value in row.items()}
        seconds = "".join(f"{row[part]:11.2f}s" for part in repeats[0] if part != "share")
        print(f"{rule:10}{seconds}{row['share']:12.1%}")
        print(
            f"{'':10}the loop takes {row['loop_microseconds']:.0f} us a problem and setting, "
            f"{row['times_loop']:.1f} times the time of selecting"
        )
    result = {
        "benchmark": "evaluate",
        "rules": rows,
        "limit": LIMIT,
        "problems": arguments.problems,
        "rounds": arguments.rounds,
        "repeats": arguments.repeats,
        "threads": arguments.threads,
        **surroundings(),
    }
    if arguments.json:
        print(json.dumps(result))
    slow = [rule for rule, row in rows.items() if row["loop_microseconds"] > 1e6 * STRAW_MAN]
    if slow:
        raise SystemExit("error: the Python loop is slower than 150 us a problem and setting")


if __name__ == "__main__":
    sys.exit(main())
