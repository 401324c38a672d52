"""Odd-one-out: which of the nine panels breaks a rule, and which attribute (paper, section 4.3).

Each panel is taken as target in turn and predicted from the other eight.  Its error in a concept
is the squared distance between the predicted code and the panel's own.

* *Largest error* (paper): the odd panel is the one with the largest error, summed over the
  concepts that an attribute is matched to; over all concepts too (``panel_accuracy_all``), which
  is the only choice for a solver that names no rules.  Errors are not divided by their spread on
  intact problems: on validation problems that made no difference once unmatched concepts, which
  no rule binds, are left out.
* *Least left* (``repair``, not in the paper): an odd panel spoils the predictions of its
  neighbours too.  Each panel in turn is replaced by its own prediction; the odd one is that
  whose replacement leaves the least error in the other eight.
* The attribute is the one matched to the concept of the largest error in the panel called odd.
* A matrix is called intact if its largest error is not above a threshold: the 95 % quantile of
  that on the intact problems of another split, ``val``, or ``train`` where ``val`` is evaluated.

Attributes are those of the merged label map, whatever map the solver was trained with, and are
matched to concepts by the likeliest rules of the other split's intact problems.  Under
arithmetic a row can be mended by changing any of its panels, so that no solver can always be
right: ``ceiling`` is what one can reach that knows the rules.  A candidate may break several
rules; any of their attributes is then right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from raise_model.data.loader import ProblemSet, load
from raise_model.data.odd_panel import OddPanels, odd_panels
from raise_model.evaluation.concept_alignment import attribute_name, match, rule_gain
from raise_model.evaluation.pictures import png_of
from raise_model.evaluation.selection import BATCH_SIZE, evaluating
from raise_model.models.solver import Prediction, Solver
from raise_model.problem import BOTTOM_RIGHT, NUM_PANELS
from raise_model.specs import EvaluationSpec, TrialSpec
from raise_model.store import Store

QUANTILE = 0.95
"""Share of the other split's intact problems that are called intact."""
EXAMPLES = 4
"""Problems that a result shows."""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Of the odd versions of problems: of each panel, predicted from the other eight."""

    own: Float[Tensor, "problems 9 concepts"]
    """Error of each panel."""
    left: Float[Tensor, "problems 9 concepts"]
    """Errors of the eight others, summed, with the panel replaced by its prediction."""


def odd_one_out(
    solver: Solver,
    problems: ProblemSet,
    trial: TrialSpec,
    evaluation: EvaluationSpec,
    device: torch.device,
    *,
    store: Store,
    cache: Path,
    limit: int | None = None,
) -> dict[str, Any]:
    """Accuracy of the odd panel and of its attribute; see the module's description.

    Options: ``odd``, what :mod:`raise_model.data.odd_panel` makes odd; ``candidate`` is the
    paper's.  Errors are means over the rounds.  ``examples``: the first problem of each broken
    attribute, its panels as a picture and each panel's error in each concept.

    :param limit: take the first so many problems only.
    """
    manifest, data, rounds = problems.manifest, trial.data, evaluation.rounds
    other = load(
        store, manifest.dataset, manifest.configuration,
        "train" if manifest.split == "val" else "val",
        image_size=data.image_size, resize=data.resize, cache=cache,
    )  # fmt: skip
    odd = odd_panels(
        store, manifest, image_size=data.image_size, resize=data.resize,
        odd=evaluation.options["odd"], seed=evaluation.seed, limit=limit,
    )  # fmt: skip
    generator = torch.Generator(device).manual_seed(evaluation.seed)
    number = len(odd.position)
    known = min(other.num_problems, number)
    reference, rules = intact_errors(solver, other, known, rounds, generator, device)
    intact, _ = intact_errors(solver, problems, number, rounds, generator, device)
    labels = torch.from_numpy(other.rule_labels("merged")[:known])
    errors = odd_errors(solver, problems, odd, rounds, generator, device)
    concept_of = None if rules is None else match(rule_gain(rules, labels))
    result = summarise(errors, odd, intact, reference, concept_of)
    return result | {"examples": _examples(problems, odd, errors, concept_of)}


def intact_errors(
    solver: Solver,
    problems: ProblemSet,
    number: int,
    rounds: int,
    generator: torch.Generator,
    device: torch.device,
) -> tuple[Float[Tensor, "problems 9 concepts"], Float[Tensor, "problems concepts rules"] | None]:
    """Errors of the first ``number`` problems as they are, and their rules, if it names any."""
    errors: list[Tensor] = []
    rules: list[Tensor] = []
    with evaluating(solver):
        for rows in torch.arange(number).split(BATCH_SIZE):
            codes = solver.encode(problems.batch(rows, device).panels)
            predicted, named = _predicted(solver, codes, rounds, generator)
            errors.append(_errors(solver, codes, predicted))
            if named is not None:
                rules.append(named.cpu())
    return torch.cat(errors), torch.cat(rules) if rules else None


def odd_errors(
    solver: Solver,
    problems: ProblemSet,
    odd: OddPanels,
    rounds: int,
    generator: torch.Generator,
    device: torch.device,
) -> Errors:
    """Errors of the problems' odd versions; every panel is encoded once."""
    positions = torch.from_numpy(odd.position).to(device)
    pictures = torch.from_numpy(odd.panels)
    own: list[Tensor] = []
    left: list[Tensor] = []
    with evaluating(solver):
        for rows in torch.arange(len(positions)).split(BATCH_SIZE):
            panels = problems.batch(rows, device).panels
            every = torch.arange(len(rows), device=device)
            drawn = pictures[rows].to(device).float().div_(255)[:, None]
            panels[every, positions[rows.to(device)]] = drawn
            codes = solver.encode(panels)
            predicted, _ = _predicted(solver, codes, rounds, generator)
            own.append(_errors(solver, codes, predicted))
            left.append(_errors_left(solver, codes, predicted, rounds, generator))
    return Errors(own=torch.cat(own), left=torch.cat(left))


def _predicted(
    solver: Solver,
    codes: Float[Tensor, "batch 9 code"],
    rounds: int,
    generator: torch.Generator,
) -> tuple[Float[Tensor, "rounds batch 9 value"], Float[Tensor, "batch concepts rules"] | None]:
    """Each panel's latent (pixels for solvers without) as predicted from the other eight; and
    the rules named for the last one.
    """
    alone = torch.eye(NUM_PANELS, dtype=torch.bool, device=codes.device)
    missing = alone[:, None].expand(-1, len(codes), -1)
    found = [solver.predict_masks(codes, missing, generator) for _ in range(rounds)]
    values = [torch.cat([_value(prediction) for prediction in masks], 1) for masks in found]
    return torch.stack(values), found[0][BOTTOM_RIGHT].rules


def _value(prediction: Prediction) -> Float[Tensor, "batch targets value"]:
    if prediction.latents is not None:
        return prediction.latents
    assert prediction.images is not None
    return prediction.images.flatten(2)


def _errors(
    solver: Solver,
    codes: Float[Tensor, "batch 9 code"],
    predicted: Float[Tensor, "rounds batch 9 value"],
) -> Float[Tensor, "batch 9 concepts"]:
    squared = (predicted - solver.latents_of(codes)).square().mean(0)
    return squared.unflatten(2, (solver.num_concepts or 1, -1)).sum(3).cpu()


def _errors_left(
    solver: Solver,
    codes: Float[Tensor, "batch 9 code"],
    predicted: Float[Tensor, "rounds batch 9 value"],
    rounds: int,
    generator: torch.Generator,
) -> Float[Tensor, "batch 9 concepts"]:
    left = []
    replaced = _codes_of(solver, predicted.mean(0), codes)
    for position in range(NUM_PANELS):
        mended = codes.clone()
        mended[:, position] = replaced[:, position]
        again, _ = _predicted(solver, mended, rounds, generator)
        errors = _errors(solver, mended, again)
        errors[:, position] = 0
        left.append(errors.sum(1))
    return torch.stack(left, 1)


def _codes_of(
    solver: Solver, values: Float[Tensor, "batch 9 value"], like: Float[Tensor, "batch 9 code"]
) -> Float[Tensor, "batch 9 code"]:
    """Codes of predicted panels: the latents, drawn and encoded where codes hold more."""
    if values.shape == like.shape:
        return values
    return solver.encode(solver.decode(values))


def summarise(
    errors: Errors,
    odd: OddPanels,
    intact: Float[Tensor, "problems 9 concepts"],
    reference: Float[Tensor, "others 9 concepts"],
    concept_of: Sequence[int | None] | None,
) -> dict[str, Any]:
    """The protocol's result.

    :param intact: errors of the same problems as they are.
    :param reference: of other problems, for the threshold.
    :param concept_of: concept of each of ``odd.places``; None for a solver without rules.
    """
    position, broken = torch.from_numpy(odd.position), torch.from_numpy(odd.broken)
    concepts = _matched(concept_of, errors.own.shape[2])
    totals = errors.own[:, :, concepts].sum(2)
    called, mended = totals.argmax(1), errors.left[:, :, concepts].sum(2).argmin(1)
    every = torch.arange(len(position))
    right, right_mended = (
        None if concept_of is None else broken[every, _attribute(errors.own, panel, concept_of)]
        for panel in (called, mended)
    )
    threshold = reference[:, :, concepts].sum(2).amax(1).quantile(QUANTILE)
    names = [attribute_name(each) for each in odd.places]
    positions = [position == each for each in range(NUM_PANELS)]
    return {
        "problems": len(position),
        "panel_accuracy": _share(called == position),
        "panel_accuracy_all": _share(errors.own.sum(2).argmax(1) == position),
        "attribute_accuracy": None if right is None else _share(right),
        "by_position": [_share((called == position)[rows]) for rows in positions],
        "by_attribute": {
            name: {
                "problems": int(rows.sum()),
                "panel_accuracy": _share((called == position)[rows]),
                "attribute_accuracy": None if right is None else _share(right[rows]),
                "repair_panel_accuracy": _share((mended == position)[rows]),
            }
            for name, rows in zip(names, broken.T, strict=True)
        },
        "repair": {
            "panel_accuracy": _share(mended == position),
            "attribute_accuracy": None if right_mended is None else _share(right_mended),
            "by_position": [_share((mended == position)[rows]) for rows in positions],
        },
        "ceiling": float((1 / odd.suspects).mean()),
        "chance_panel": 1 / NUM_PANELS,
        "chance_attribute": float(odd.broken.sum() / odd.broken.size),
        "constant_answer": float(np.bincount(odd.position).max() / len(position)),
        "constant_attribute": float(odd.broken.mean(0).max()),
        "threshold": float(threshold),
        "false_alarms": _share(intact[:, :, concepts].sum(2).amax(1) > threshold),
        "detected": _share(totals.amax(1) > threshold),
        "concept_of": None if concept_of is None else dict(zip(names, concept_of, strict=True)),
    }


def _matched(concept_of: Sequence[int | None] | None, concepts: int) -> list[int]:
    """Concepts that an attribute is matched to; all for a solver without rules."""
    matched = [concept for concept in concept_of or () if concept is not None]
    return matched or list(range(concepts))


def _examples(
    problems: ProblemSet,
    odd: OddPanels,
    errors: Errors,
    concept_of: Sequence[int | None] | None,
) -> list[dict[str, Any]]:
    """The first problem of each attribute, so that what is shown is not chosen by its result."""
    concepts = _matched(concept_of, errors.own.shape[2])
    names = [attribute_name(place) for place in odd.places]
    rows = sorted({int(column.argmax()) for column in odd.broken.T if column.any()})
    made = []
    for row in rows[:EXAMPLES]:
        panels = problems.batch(torch.tensor([row]), torch.device("cpu")).panels[0, :, 0].clone()
        panels[odd.position[row]] = torch.from_numpy(odd.panels[row]).float() / 255
        own = errors.own[row]
        called = int(own[:, concepts].sum(1).argmax())
        named = None
        if concept_of is not None:
            named = names[int(_attribute(own[None], torch.tensor([called]), concept_of))]
        made.append(
            {
                "problem": row,
                "odd": int(odd.position[row]),
                "broken": [name for name, b in zip(names, odd.broken[row], strict=True) if b],
                "called": called,
                "named": named,
                "errors": [[float(f"{value:.3g}") for value in line] for line in own.tolist()],
                "png": png_of(panels.unflatten(0, (3, 3))),
            }
        )
    return made


def _attribute(
    errors: Float[Tensor, "problems 9 concepts"],
    panel: Int[Tensor, " problems"],
    concept_of: Sequence[int | None],
) -> Int[Tensor, " problems"]:
    """The attribute whose concept errs most in a panel; one without concept is never named."""
    at = errors[torch.arange(len(panel)), panel]
    columns = [
        torch.full((len(at),), -1.0) if concept is None else at[:, concept]
        for concept in concept_of
    ]
    return torch.stack(columns, 1).argmax(1)


def _share(right: Bool[Tensor, " some"]) -> float | None:
    return float(right.double().mean()) if len(right) else None
