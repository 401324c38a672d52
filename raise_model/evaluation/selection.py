"""Selection of the bottom-right answer among the eight offered candidates (paper, section 4.1).

Panel 8 is missing; the solver predicts it from the other eight and the candidate that agrees
best is chosen, in the solver's latent space or in pixels.  Of equal candidates the first wins.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from raise_model.data.loader import ProblemSet
from raise_model.models.solver import Solver, Space, UnsupportedProtocol
from raise_model.problem import BOTTOM_RIGHT, NUM_PANELS, UNLABELLED
from raise_model.specs import LabelMap

BATCH_SIZE = 250


@contextmanager
def evaluating(solver: Solver) -> Iterator[None]:
    """Evaluation mode without gradients (BatchNorm uses running statistics); restored after."""
    training = solver.training
    solver.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        solver.train(training)


def bottom_right(
    solver: Solver,
    problems: ProblemSet,
    *,
    space: Space,
    rounds: int,
    seed: int,
    device: torch.device,
    label_map: LabelMap | None = None,
    limit: int | None = None,
    batch_size: int = BATCH_SIZE,
) -> dict[str, Any]:
    """Accuracy over the first ``limit`` problems, in each of ``rounds`` stochastic passes.

    :param label_map: with it the result has ``rule_accuracy``: the share of (problem, attribute)
        pairs whose likeliest rule, before the answer is seen, is the labelled one.  Attributes
        are matched to concepts over the evaluated problems, as training matches them.
    :returns: problems, accuracy (one number a round), correct (one string of 0 and 1 a round, in
        the order of the split), rule_accuracy (None without label map or rules).
    :raises UnsupportedProtocol: if the solver does not support the protocol or the space.
    """
    for needed in ("bottom_right", space):
        if needed not in solver.supports:
            raise UnsupportedProtocol(f"{type(solver).__name__} does not support {needed}")
    number = min(limit or problems.num_problems, problems.num_problems)
    generator = torch.Generator(device).manual_seed(seed)
    correct = np.zeros((rounds, number), dtype=bool)
    rules: list[Tensor] = []
    with evaluating(solver):
        for start in range(0, number, batch_size):
            rows = torch.arange(start, min(start + batch_size, number))
            batch = problems.batch(rows, device, candidates=True)
            assert batch.candidates is not None
            assert batch.answer is not None
            missing = torch.zeros(len(rows), NUM_PANELS, dtype=torch.bool, device=device)
            missing[:, BOTTOM_RIGHT] = True
            for round_ in range(rounds):
                prediction = solver.predict(batch.panels, missing, generator)
                scores = solver.score(prediction, batch.candidates[:, :, None], space)
                hit = scores.argmax(1) == batch.answer
                correct[round_, start : start + len(rows)] = hit.cpu().numpy()
                if round_ == 0 and prediction.rules is not None:  # the same in every round
                    rules.append(prediction.rules.cpu())
    return {
        "problems": number,
        "accuracy": [float(share) for share in correct.mean(1)],
        "correct": ["".join("01"[int(hit)] for hit in row) for row in correct],
        "rule_accuracy": _rule_accuracy(rules, problems, number, label_map),
    }


def _rule_accuracy(
    rules: list[Tensor], problems: ProblemSet, number: int, label_map: LabelMap | None
) -> float | None:
    if not rules or label_map is None:
        return None
    labels = torch.from_numpy(np.asarray(problems.rule_labels(label_map)[:number]))
    return rule_accuracy(torch.cat(rules), labels)


def rule_accuracy(
    rules: Float[Tensor, "problems concepts rules"], labels: Int[Tensor, "problems attributes"]
) -> float:
    """Share of labels (but -1) named by the matched concept's likeliest rule.

    The matching maximises the summed probability of the labelled rules over all problems
    (models' matrix M, solved over the whole set instead of a batch).
    """
    gain = labelled_probability(rules, labels)
    attributes, concepts = linear_sum_assignment(gain.numpy(), maximize=True)
    named = rules.argmax(-1)[:, concepts] == labels[:, attributes]
    return float(named[labels[:, attributes] != UNLABELLED].double().mean())


def labelled_probability(
    rules: Float[Tensor, "problems concepts rules"], labels: Int[Tensor, "problems attributes"]
) -> Float[Tensor, "attributes concepts"]:
    """Summed probability of each attribute's labelled rule (-1 left out) in each concept."""
    known = labels != UNLABELLED
    wanted = torch.nn.functional.one_hot(labels.clamp_min(0), rules.shape[-1]) * known[..., None]
    return torch.einsum("pck,pak->ac", rules, wanted.to(rules.dtype))
