"""Rules named before and after the answer is seen (paper, sections 3.2 and 3.3).

Prior: the rule that a concept finds likeliest from the context alone.  Posterior: the likeliest
once the bottom-right panel's code is known, which weighs each rule by how near its prediction
comes.  Attributes are matched to concepts by the prior, over all evaluated problems, so that
both are asked of the same concepts.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from raise_model.data.loader import ProblemSet
from raise_model.data.splits import label_attributes
from raise_model.evaluation.concept_alignment import attribute_name, match, rule_gain
from raise_model.evaluation.selection import BATCH_SIZE, evaluating
from raise_model.models.raise_net.model import Raise
from raise_model.models.solver import Solver, UnsupportedProtocol
from raise_model.problem import BOTTOM_RIGHT, NUM_PANELS, UNLABELLED
from raise_model.specs import EvaluationSpec, TrialSpec


def rule_accuracy(
    solver: Solver,
    problems: ProblemSet,
    trial: TrialSpec,
    evaluation: EvaluationSpec,
    device: torch.device,
) -> dict[str, Any]:
    """Shares of labels (but -1) that are named, in all and by attribute.

    ``posterior`` is None for solvers that have none.

    :raises UnsupportedProtocol: if the solver names no rules.
    """
    label_map = trial.data.label_map
    labels = torch.from_numpy(problems.rule_labels(label_map))
    prior, posterior = _read(solver, problems, evaluation.seed, device)
    concept_of = match(rule_gain(prior, labels))
    named = {"prior": prior, "posterior": posterior}
    right = {
        kind: None if rules is None else named_right(rules, labels, concept_of)
        for kind, rules in named.items()
    }
    places = label_attributes(problems.manifest.configuration, label_map)
    by_attribute = {
        attribute_name(place): {
            kind: None if table is None else _share(table[:, [column]], labels[:, [column]])
            for kind, table in right.items()
        }
        for column, place in enumerate(places)
    }
    total = {
        kind: None if table is None else _share(table, labels) for kind, table in right.items()
    }
    return {"problems": problems.num_problems, **total, "by_attribute": by_attribute}


def named_right(
    rules: Float[Tensor, "problems concepts rules"],
    labels: Int[Tensor, "problems attributes"],
    concept_of: list[int | None],
) -> Bool[Tensor, "problems attributes"]:
    """Whether an attribute's concept finds the labelled rule likeliest; never without concept."""
    likeliest = rules.argmax(-1)
    nothing = torch.full((len(labels),), UNLABELLED)
    columns = [nothing if concept is None else likeliest[:, concept] for concept in concept_of]
    return (torch.stack(columns, 1) == labels) & (labels != UNLABELLED)


def _share(
    right: Bool[Tensor, "problems some"], labels: Int[Tensor, "problems some"]
) -> float | None:
    asked = int((labels != UNLABELLED).sum())
    return int(right.sum()) / asked if asked else None


def _read(
    solver: Solver, problems: ProblemSet, seed: int, device: torch.device
) -> tuple[
    Float[Tensor, "problems concepts rules"], Float[Tensor, "problems concepts rules"] | None
]:
    generator = torch.Generator(device).manual_seed(seed)
    priors: list[Tensor] = []
    posteriors: list[Tensor] = []
    with evaluating(solver):
        for rows in torch.arange(problems.num_problems).split(BATCH_SIZE):
            codes = solver.encode(problems.batch(rows, device).panels)
            missing = torch.zeros(len(rows), NUM_PANELS, dtype=torch.bool, device=device)
            missing[:, BOTTOM_RIGHT] = True
            prior = solver.predict_encoded(codes, missing, generator).rules
            if prior is None:
                raise UnsupportedProtocol(f"{type(solver).__name__} names no rules")
            priors.append(prior.cpu())
            if isinstance(solver, Raise):
                posteriors.append(solver.rule_posterior(codes).cpu())
    return torch.cat(priors), torch.cat(posteriors) if posteriors else None
