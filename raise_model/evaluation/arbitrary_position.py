"""Selection at arbitrary positions (paper, section 4.2 and appendix F).

One or two panels anywhere in the matrix are missing.  Distractors are the panels at the same
positions of N_c other problems of the same batch, drawn without replacement; with two missing
panels a candidate is a pair, both from one problem.  As in the authors' code a batch has 512
problems in the order of the split, the right answer stands last and the first best candidate
is chosen, so that distractors which equal the answer pixel for pixel count as errors.

What is shared: each panel is encoded once in the whole evaluation; masks are drawn once for each
number of missing panels and round, and the distractors of every N_c are the first of one draw of
15, so that one prediction serves all N_c.  Draws depend on the data and the seed alone: every
solver answers the same questions.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from raise_model.data.loader import ProblemSet
from raise_model.errors import UserError
from raise_model.evaluation.selection import evaluating
from raise_model.models.solver import Prediction, Solver, Space, UnsupportedProtocol
from raise_model.problem import NUM_PANELS

TARGETS = (1, 2)
DISTRACTORS = (1, 3, 7, 15)
BATCH_SIZE = 512
"""Problems among which distractors and, with ``masks="batch"``, missing positions are shared."""
ENCODED_AT_ONCE = 64
"""Problems."""
SCORED_AT_ONCE = 2**20
"""Numbers in the codes of candidates: what the processor's cache holds."""

Masks = Literal["batch", "problem"]
"""One mask for each batch and round (the authors), or one for each problem and round."""
Duplicates = Literal["keep", "leave_out"]
"""Whether a problem whose panels at the missing positions equal the answer may distract."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """The questions with one number of missing panels."""

    positions: Int[Tensor, "rounds problems targets"]
    """Cells of the missing panels, ascending."""
    distractors: Int[Tensor, "rounds problems 15"]
    """Rows of the problems that the distractors are from."""


def batches(problems: int) -> list[slice]:
    """Batches of 512 and the rest, which joins the last one if it is too small to draw from."""
    starts = list(range(0, problems, BATCH_SIZE))
    if len(starts) > 1 and problems - starts[-1] <= max(DISTRACTORS):
        starts.pop()
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], problems], strict=True)]


def draw(
    identity: Int[Tensor, "problems 9"],
    *,
    rounds: int,
    seed: int,
    masks: Masks,
    duplicates: Duplicates,
) -> list[Draw]:
    """All random choices of an evaluation, one entry for each of :data:`TARGETS`.

    :param identity: equal for panels that are equal pixel for pixel (CPU).
    :raises UserError: if a batch has fewer than 15 problems to distract with.
    """
    generator = torch.Generator().manual_seed(seed)
    problems = len(identity)
    spans = batches(problems)
    sizes = torch.tensor([span.stop - span.start for span in spans])
    draws = []
    for targets in TARGETS:
        drawn = problems if masks == "problem" else len(spans)
        order = torch.rand(rounds, drawn, NUM_PANELS, generator=generator).argsort(2)
        positions = order[..., :targets].sort(2).values
        if masks == "batch":
            positions = positions.repeat_interleave(sizes, 1)
        each = [
            [
                span.start
                + _distractors(identity[span], positions[round_, span], duplicates, generator)
                for span in spans
            ]
            for round_ in range(rounds)
        ]
        distractors = torch.stack([torch.cat(parts) for parts in each])
        draws.append(Draw(positions=positions, distractors=distractors))
    return draws


def _distractors(
    identity: Int[Tensor, "batch 9"],
    positions: Int[Tensor, "batch targets"],
    duplicates: Duplicates,
    generator: torch.Generator,
) -> Int[Tensor, "batch 15"]:
    """Other problems of a batch, for each of its problems, uniformly without replacement."""
    excluded = torch.eye(len(identity), dtype=torch.bool)
    if duplicates == "leave_out":
        own = identity.gather(1, positions)
        excluded |= (identity[:, positions].transpose(0, 1) == own[:, None]).all(2)
    wanted = max(DISTRACTORS)
    offered = len(identity) - int(excluded.sum(1).max())
    if offered < wanted:
        kind = "other problems" if duplicates == "keep" else "problems with other panels"
        raise UserError(
            f"selection at arbitrary positions needs {wanted} {kind} in a batch to take "
            f"distractors from, a batch of {len(identity)} has {offered}; evaluate a larger split"
        )
    keys = torch.rand(excluded.shape, generator=generator).masked_fill_(excluded, 2.0)
    return keys.topk(wanted, 1, largest=False).indices


def arbitrary_position(
    solver: Solver,
    problems: ProblemSet,
    *,
    space: Space,
    masks: Masks,
    duplicates: Duplicates,
    rounds: int,
    seed: int,
    device: torch.device,
) -> dict[str, Any]:
    """Accuracy for each number of missing panels and of distractors, in each round.

    :param space: ``latent``, or ``pixel`` for a solver without codes of its own.
    :returns: problems and settings, a list of {targets, distractors, accuracy (one number a
        round), problems}.
    :raises UnsupportedProtocol: if the solver does not support the protocol or the space.
    :raises UserError: if there are too few problems to draw distractors from.
    """
    for needed in ("arbitrary_position", space):
        if needed not in solver.supports:
            raise UnsupportedProtocol(f"{type(solver).__name__} does not support {needed}")
    with evaluating(solver):
        codes, identity = _encode(solver, problems, device)
        draws = draw(identity, rounds=rounds, seed=seed, masks=masks, duplicates=duplicates)
        # Of its own, or it would repeat the draws above.
        generator = torch.Generator(device).manual_seed(seed + 1)
        correct = torch.zeros(len(TARGETS), rounds, len(DISTRACTORS), dtype=torch.int64)
        for span in batches(problems.num_problems):
            correct += _evaluate_batch(solver, codes, identity, draws, span, space, generator)
    number = problems.num_problems
    settings = [
        {
            "targets": targets,
            "distractors": distractors,
            "accuracy": [int(hits) / number for hits in correct[t, :, n]],
            "problems": number,
        }
        for t, targets in enumerate(TARGETS)
        for n, distractors in enumerate(DISTRACTORS)
    ]
    return {"problems": number, "settings": settings}


def _encode(
    solver: Solver, problems: ProblemSet, device: torch.device
) -> tuple[Float[Tensor, "problems 9 code"], Int[Tensor, "problems 9"]]:
    """Codes of all panels, and numbers (CPU) that are the same for identical panels."""
    codes, pixels = [], []
    for rows in torch.arange(problems.num_problems).split(ENCODED_AT_ONCE):
        panels = problems.batch(rows, device).panels
        codes.append(solver.encode(panels))
        grey = (panels.flatten(0, 1).flatten(1) * 255).round_().to(torch.uint8)
        pixels.append(grey.cpu().numpy())
    images = np.concatenate(pixels)
    whole = images.view(np.dtype((np.void, images.shape[1])))[:, 0]
    _, identity = np.unique(whole, return_inverse=True)
    return torch.cat(codes), torch.from_numpy(identity).view(-1, NUM_PANELS)


def _evaluate_batch(
    solver: Solver,
    codes: Float[Tensor, "problems 9 code"],
    identity: Int[Tensor, "problems 9"],
    draws: Sequence[Draw],
    span: slice,
    space: Space,
    generator: torch.Generator,
) -> Int[Tensor, "numbers_of_targets rounds numbers_of_distractors"]:
    """Number of right answers in one batch."""
    device = codes.device
    asked = [
        (draw.positions[round_, span], draw.distractors[round_, span] - span.start)
        for draw in draws
        for round_ in range(len(draw.positions))
    ]
    missing = torch.stack([_masks(positions) for positions, _ in asked]).to(device)
    codes, identity = codes[span], identity[span].to(device)
    predictions = solver.predict_masks(codes, missing, generator)
    counts = []
    for prediction, (positions, distractors) in zip(predictions, asked, strict=True):
        beaten = _beaten(
            solver, prediction, codes, identity, positions.to(device), distractors.to(device), space
        )
        counts.append(torch.stack([(~beaten[:, :n].any(1)).sum() for n in DISTRACTORS]))
    return torch.stack(counts).unflatten(0, (len(draws), -1)).cpu()


def _masks(positions: Int[Tensor, "batch targets"]) -> Bool[Tensor, "batch 9"]:
    return torch.zeros(len(positions), NUM_PANELS, dtype=torch.bool).scatter_(1, positions, True)


def _beaten(
    solver: Solver,
    prediction: Prediction,
    codes: Float[Tensor, "batch 9 code"],
    identity: Int[Tensor, "batch 9"],
    positions: Int[Tensor, "batch targets"],
    distractors: Int[Tensor, "batch 15"],
    space: Space,
) -> Bool[Tensor, "batch 15"]:
    """Whether each distractor is preferred to the answer, which stands behind it.

    Identical panels tie whatever the encoder's rounding, and a score that is no number loses.
    """
    batch, targets = positions.shape
    own = torch.arange(batch, device=codes.device)[:, None]
    rows = torch.cat([distractors, own], 1)
    at_once = max(1, SCORED_AT_ONCE // (rows.shape[1] * targets * codes.shape[2]))
    scores = []
    for start in range(0, batch, at_once):
        some = slice(start, start + at_once)
        candidates = codes[rows[some, :, None], positions[some, None]]
        scores.append(solver.score_encoded(_some(prediction, some), candidates, space))
    offered, right = torch.cat(scores).split([rows.shape[1] - 1, 1], 1)
    answers = identity.gather(1, positions)
    identical = (identity[distractors[:, :, None], positions[:, None]] == answers[:, None]).all(2)
    return ~(offered < right) | identical


def _some(prediction: Prediction, rows: slice) -> Prediction:
    """The predictions of some problems."""
    given = {
        field.name: getattr(prediction, field.name) for field in dataclasses.fields(prediction)
    }
    return Prediction(**{name: x if x is None else x[rows] for name, x in given.items()})
