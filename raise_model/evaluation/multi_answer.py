"""Several answers to one problem (paper, appendix on multi-solution problems).

Problems leave room: an attribute that no rule binds may be anything, and random positions may
be any.  The missing panels (the bottom-right one, or that and another of each problem's own) are
predicted several times, with rules as the solver draws them and Gaussian noise on the predicted
latents (``noise``, its standard deviation: RAISE's sigma_z for its generative process, 0 for a
solver that draws latents itself), and decoded.  The pictures are read back by nearest rendering
and held against the rules by the checker of the data.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from raise_model.data.grammar import configuration
from raise_model.data.loader import ProblemSet
from raise_model.data.odd_panel import (
    Place,
    broken_places,
    read_problems,
    scene_of,
    with_panel,
)
from raise_model.data.schema import Problem
from raise_model.evaluation.concept_alignment import attribute_name
from raise_model.evaluation.nearest_rendering import NearestRendering
from raise_model.evaluation.pictures import png_of
from raise_model.evaluation.selection import evaluating
from raise_model.models.solver import Solver, UnsupportedProtocol
from raise_model.problem import BOTTOM_RIGHT, NUM_PANELS
from raise_model.specs import EvaluationSpec, TrialSpec
from raise_model.store import Store

PROBLEMS = 200
EXAMPLES = 4
"""Answers that a result shows."""
_BATCH = 50


def multi_answer(
    solver: Solver,
    problems: ProblemSet,
    trial: TrialSpec,
    evaluation: EvaluationSpec,
    device: torch.device,
    *,
    store: Store,
    limit: int = PROBLEMS,
) -> dict[str, Any]:
    """Share of generated answers that keep every rule, and how many different ones there are.

    Options: ``targets`` (1 or 2), ``samples`` of each problem, ``noise``.

    :param limit: take the first so many problems.
    :returns: share_valid, of all answers; distinct_valid, mean number of different ones of a
        problem; share_solved, of problems with one at least; share_with_other, with one that
        differs from the data's answer; by_attribute, share of answers that keep that rule;
        decoded_valid, share of the data's answers that still do once encoded and decoded;
        examples, the first answer to each of the first problems: the matrix as a picture, which
        panels were missing, and the attributes whose rules it breaks.
    :raises UnsupportedProtocol: if the solver draws no pictures.
    """
    if "decode" not in solver.supports and "pixel" not in solver.supports:
        raise UnsupportedProtocol(f"{type(solver).__name__} draws no panels")
    options, manifest = evaluation.options, problems.manifest
    generator = torch.Generator(device).manual_seed(evaluation.seed)
    number = min(limit, problems.num_problems)
    missing = draw_missing(number, options["targets"], evaluation.seed)
    images: list[Tensor] = []
    decoded: list[Tensor] = []
    with evaluating(solver):
        for rows in torch.arange(number).split(_BATCH):
            codes = solver.encode(problems.batch(rows, device).panels)
            hidden = missing[rows].to(device)
            drawn = generate(solver, codes, hidden, options["samples"], options["noise"], generator)
            images.append(drawn.cpu())
            if "decode" in solver.supports:
                own = solver.latents_of(codes)[hidden].unflatten(0, (len(rows), -1))
                decoded.append(solver.decode(own).cpu())
    reader = NearestRendering(manifest.configuration, trial.data.image_size, trial.data.resize)
    answers = torch.cat(images)
    levels = _read(reader, answers)
    own_levels = _read(reader, torch.cat(decoded)[:, None]) if decoded else None
    judge = _Judge(reader, manifest.configuration)
    examples: list[dict[str, Any]] = []
    row = 0
    for part in read_problems(store, manifest, number):
        for problem in part:
            positions = missing[row].nonzero()[:, 0].tolist()
            broken = judge.add(
                problem,
                positions,
                levels[row],
                own_levels if own_levels is None else own_levels[row, 0],
            )
            if row < EXAMPLES:
                panels = problems.batch(torch.tensor([row]), torch.device("cpu")).panels[0]
                panels = panels.clone()
                panels[missing[row]] = answers[row, 0].to(panels.dtype)
                examples.append(
                    {
                        "problem": row,
                        "missing": positions,
                        "broken": [attribute_name(place) for place in sorted(broken)],
                        "png": png_of(panels[:, 0].unflatten(0, (3, 3))),
                    }
                )
            row += 1
    return {
        "problems": number,
        "samples": options["samples"],
        "targets": options["targets"],
        **judge.result(),
        "examples": examples,
    }


def _read(
    reader: NearestRendering, images: Float[Tensor, "problems samples targets 1 size size"]
) -> Int[np.ndarray, "problems samples targets slots 4"]:
    levels = reader.read(images.flatten(0, 3))
    return levels.reshape(*images.shape[:3], *levels.shape[1:])


def draw_missing(problems: int, targets: int, seed: int) -> Bool[Tensor, "problems 9"]:
    """The bottom-right panel, and ``targets`` - 1 others of each problem at random."""
    keys = torch.rand(problems, NUM_PANELS, generator=torch.Generator().manual_seed(seed))
    keys[:, BOTTOM_RIGHT] = -1
    missing = torch.zeros(problems, NUM_PANELS, dtype=torch.bool)
    return missing.scatter_(1, keys.argsort(1)[:, :targets], True)


def generate(
    solver: Solver,
    codes: Float[Tensor, "batch 9 code"],
    missing: Bool[Tensor, "batch 9"],
    samples: int,
    noise: float,
    generator: torch.Generator,
) -> Float[Tensor, "batch samples targets 1 size size"]:
    """Pictures of the missing panels, several times; in evaluation mode."""
    repeated, hidden = codes.repeat_interleave(samples, 0), missing.repeat_interleave(samples, 0)
    prediction = solver.predict_encoded(repeated, hidden, generator)
    if "decode" in solver.supports:
        assert prediction.latents is not None
        latents = prediction.latents
        drawn = torch.randn(
            latents.shape, generator=generator, device=latents.device, dtype=latents.dtype
        )
        images = solver.decode(latents + noise * drawn)
    else:
        assert prediction.images is not None
        images = prediction.images
    return images.unflatten(0, (len(codes), samples))


class _Judge:
    """Holds answers against the rules, problem by problem."""

    def __init__(self, reader: NearestRendering, name: str) -> None:
        self._reader = reader
        self._name = name
        self._places = configuration(name).merged_labels
        self._valid: list[Bool[np.ndarray, " samples"]] = []
        self._distinct: list[int] = []
        self._has_other: list[bool] = []
        self._decoded: list[bool] = []
        self._broken: Counter[Place] = Counter()

    def add(
        self,
        problem: Problem,
        positions: Sequence[int],
        levels: Int[np.ndarray, "samples targets slots 4"],
        decoded: Int[np.ndarray, "targets slots 4"] | None,
    ) -> set[Place]:
        """Returns what the first answer breaks.

        :param decoded: read from the panels' own codes as decoded: what the decoder can show.
        """
        looks = [_look(answer) for answer in levels]
        broken = {
            look: self._broken_by(problem, positions, answer)
            for look, answer in zip(looks, levels, strict=True)
        }
        right = {look for look, places in broken.items() if not places}
        shown = np.stack(
            [self._reader.levels(scene_of(problem, position)) for position in positions]
        )
        self._valid.append(np.array([look in right for look in looks]))
        self._distinct.append(len(right))
        self._has_other.append(bool(right - {_look(shown)}))
        for look in looks:
            self._broken.update(broken[look])
        if decoded is not None:
            self._decoded.append(not self._broken_by(problem, positions, decoded))
        return broken[looks[0]]

    def _broken_by(
        self,
        problem: Problem,
        positions: Sequence[int],
        answer: Int[np.ndarray, "targets slots 4"],
    ) -> set[Place]:
        """What the best reading of the pictures breaks, where several look alike."""
        found = None
        for variant in product(*(self._reader.variants(levels) for levels in answer)):
            completed = problem
            for position, levels in zip(positions, variant, strict=True):
                completed = with_panel(completed, position, self._reader.scene(levels))
            broken = broken_places(completed, self._name)
            if found is None or len(broken) < len(found):
                found = broken
            if not found:
                break
        assert found is not None
        return found

    def result(self) -> dict[str, Any]:
        valid = np.stack(self._valid)
        return {
            "share_valid": float(valid.mean()),
            "distinct_valid": float(np.mean(self._distinct)),
            "share_solved": float(valid.any(1).mean()),
            "share_with_other": float(np.mean(self._has_other)),
            "by_attribute": {
                attribute_name(place): 1 - self._broken[place] / valid.size
                for place in self._places
            },
            "decoded_valid": float(np.mean(self._decoded)) if self._decoded else None,
        }


def _look(answer: Int[np.ndarray, "targets slots 4"]) -> bytes:
    """What tells answers apart: all but the angles, which symmetric shapes do not show."""
    return answer[..., :3].tobytes()
