"""Which concept stands for which attribute, and how purely (paper, sections 3.3 and 4.3).

The matrix M over a whole split: how much probability a concept gives, from the context of the
bottom-right panel, to the rule that an attribute is labelled with; and the assignment of one
concept to each attribute that maximises the sum (training solves it for every batch).

Disentanglement is the Mutual Information Gap (Chen et al., 2018, "Isolating sources of
disentanglement in VAEs") over attributes: the information that the most informative concept has
about an attribute's value in a panel, less that of the second, as a share of the attribute's
entropy.  There it is taken over single dimensions; here over whole concepts, whose codes are
vectors: each is quantised by k-means, and information is counted in the cells.  Attributes are
levels of single panels (of Number/Position the number); panels with unequal entities are left
out of an attribute's count.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.cluster.vq import kmeans, vq
from scipy.optimize import linear_sum_assignment
from scipy.stats import entropy
from torch import Tensor

from raise_model.data import schema
from raise_model.data.loader import ProblemSet
from raise_model.data.schema import Manifest
from raise_model.data.splits import label_attributes
from raise_model.evaluation.selection import BATCH_SIZE, evaluating, labelled_probability
from raise_model.models.solver import Solver, UnsupportedProtocol
from raise_model.problem import BOTTOM_RIGHT, NUM_PANELS, UNLABELLED
from raise_model.specs import EvaluationSpec, TrialSpec
from raise_model.store import Store

MEASURE = "mutual information gap over concepts (Chen et al., 2018)"
INFORMATION_PROBLEMS = 1000
"""Of so many problems the panels are counted; of all their rules."""
CELLS = 32
_UNEQUAL = -1
Place = tuple[int, str]


def attribute_name(place: Place) -> str:
    """``color0``: attribute and component."""
    component, attribute = place
    return f"{attribute}{component}"


def rule_gain(
    rules: Float[Tensor, "problems concepts rules"], labels: Int[Tensor, "problems attributes"]
) -> Float[Tensor, "attributes concepts"]:
    """Mean probability of an attribute's labelled rule (-1 left out) in each concept."""
    known = (labels != UNLABELLED).sum(0)
    return labelled_probability(rules, labels) / known.clamp_min(1)[:, None]


def match(gain: Float[Tensor, "attributes concepts"]) -> list[int | None]:
    """The concept of each attribute, each used once; None where there are too few."""
    attributes, concepts = linear_sum_assignment(gain.numpy(), maximize=True)
    found = dict(zip(attributes.tolist(), concepts.tolist(), strict=True))
    return [found.get(attribute) for attribute in range(len(gain))]


def concept_alignment(
    solver: Solver,
    problems: ProblemSet,
    trial: TrialSpec,
    evaluation: EvaluationSpec,
    device: torch.device,
    *,
    store: Store,
) -> dict[str, Any]:
    """M and its disentanglement on a split; the paper's M is that of ``train``.

    :raises UnsupportedProtocol: if the solver has no concepts or names no rules.
    """
    attributes = label_attributes(problems.manifest.configuration, trial.data.label_map)
    codes, rules = _read(solver, problems, evaluation.seed, device)
    labels = torch.from_numpy(problems.rule_labels(trial.data.label_map))
    gain = rule_gain(rules, labels)
    levels = panel_levels(store, problems.manifest, attributes, len(codes))
    information = concept_information(codes.numpy(), levels, evaluation.seed)
    concept_of = match(gain)
    return {
        "problems": problems.num_problems,
        "attributes": [attribute_name(place) for place in attributes],
        "matrix": gain.tolist(),
        "concept_of": concept_of,
        "binary": [[int(c == concept) for c in range(gain.shape[1])] for concept in concept_of],
        "information": information.tolist(),
        "disentanglement": information_gap(information),
        "measure": MEASURE,
        "measured_problems": len(codes),
    }


def _read(
    solver: Solver, problems: ProblemSet, seed: int, device: torch.device
) -> tuple[Float[Tensor, "some 9 concepts dims"], Float[Tensor, "problems concepts rules"]]:
    """Codes of the first problems' panels, and the rules of all."""
    concepts = solver.num_concepts
    generator = torch.Generator(device).manual_seed(seed)
    codes: list[Tensor] = []
    rules: list[Tensor] = []
    with evaluating(solver):
        for rows in torch.arange(problems.num_problems).split(BATCH_SIZE):
            panels = problems.batch(rows, device).panels
            encoded = solver.encode(panels)
            missing = torch.zeros(panels.shape[:2], dtype=torch.bool, device=device)
            missing[:, BOTTOM_RIGHT] = True
            named = solver.predict_encoded(encoded, missing, generator).rules
            if named is None or concepts is None:
                raise UnsupportedProtocol(f"{type(solver).__name__} names no rules of concepts")
            rules.append(named.cpu())
            if rows[0] < INFORMATION_PROBLEMS:
                latents = solver.latents_of(encoded)
                codes.append(latents.unflatten(2, (concepts, -1)).cpu())
    return torch.cat(codes)[:INFORMATION_PROBLEMS], torch.cat(rules)


def panel_levels(
    store: Store, manifest: Manifest, places: Sequence[Place], problems: int
) -> Int[np.ndarray, "problems 9 attributes"]:
    """Levels of attributes in the nine panels of the first problems of a split.

    Of Number, Position and both it is the number of entities; -1 where entities differ.
    """
    table: list[list[list[int]]] = []
    for chunk in schema.read_chunks(store, manifest, ["target", "entities"], rows=1024):
        if len(table) >= problems:
            break
        some = chunk.slice(0, problems - len(table))
        targets, scenes = (some.column(name).to_pylist() for name in ("target", "entities"))
        for target, panels in zip(targets, scenes, strict=True):
            shown = [*panels[: NUM_PANELS - 1], panels[NUM_PANELS - 1 + target]]
            table.append([[_level(panel, *place) for place in places] for panel in shown])
    return np.array(table)


def _level(panel: Sequence[dict[str, int]], component: int, attribute: str) -> int:
    own = [entity for entity in panel if entity["component"] == component]
    if attribute in ("number", "position", "number_position"):
        return len(own)
    levels = {entity[attribute] for entity in own}
    return levels.pop() if len(levels) == 1 else _UNEQUAL


def concept_information(
    codes: Float[np.ndarray, "problems 9 concepts dims"],
    levels: Int[np.ndarray, "problems 9 attributes"],
    seed: int,
) -> Float[np.ndarray, "attributes concepts"]:
    """Mutual information of each attribute and each concept, as a share of the attribute's
    entropy; 0 where an attribute never varies.
    """
    flat = codes.reshape(-1, *codes.shape[2:]).astype(np.float64)
    values = levels.reshape(-1, levels.shape[2])
    cells = np.stack([_quantised(flat[:, concept], seed) for concept in range(flat.shape[1])], 1)
    table = np.zeros((values.shape[1], cells.shape[1]))
    for attribute, column in enumerate(values.T):
        known = column != _UNEQUAL
        for concept in range(cells.shape[1]):
            table[attribute, concept] = _shared(column[known], cells[known, concept])
    return table


def _quantised(points: Float[np.ndarray, "n dims"], seed: int) -> Int[np.ndarray, " n"]:
    """The nearest of up to ``CELLS`` centres (k-means from random different points)."""
    different, numbers = np.unique(points, axis=0, return_inverse=True)
    if len(different) <= CELLS:
        return numbers
    chosen = np.random.default_rng(seed).choice(len(different), CELLS, replace=False)
    centres, _ = kmeans(points, different[chosen])
    return vq(points, centres)[0]


def _shared(first: Int[np.ndarray, " n"], second: Int[np.ndarray, " n"]) -> float:
    counts = np.zeros((first.max(initial=0) + 1, second.max(initial=0) + 1))
    np.add.at(counts, (first, second), 1)
    own = float(entropy(counts.sum(1))) if counts.any() else 0.0
    if own == 0:
        return 0.0
    return float(own + entropy(counts.sum(0)) - entropy(counts.ravel())) / own


def information_gap(shares: Float[np.ndarray, "attributes concepts"]) -> float:
    """Mean over attributes of the lead of the most informative concept over the second."""
    ordered = np.sort(shares, axis=1)
    second = ordered[:, -2] if ordered.shape[1] > 1 else 0.0
    return float((ordered[:, -1] - second).mean())
