"""What each concept draws (paper, section 4.3 and appendix F).

The code of a panel is moved in one concept along a straight line from the smallest to the
largest value of each of its dimensions over a batch of panels, in twelve steps, the other
concepts being as they were, and decoded.  If concepts are well decomposed a line changes one
attribute: the pictures are read back by nearest rendering and compared with the unmoved panel's.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from raise_model.data.grammar import configuration
from raise_model.data.loader import ProblemSet
from raise_model.data.odd_panel import Place
from raise_model.evaluation.concept_alignment import attribute_name
from raise_model.evaluation.nearest_rendering import NearestRendering
from raise_model.evaluation.pictures import png_of
from raise_model.evaluation.selection import BATCH_SIZE, evaluating
from raise_model.models.solver import Solver, UnsupportedProtocol
from raise_model.specs import EvaluationSpec, TrialSpec

STEPS = 12
SHOWN = 32
"""Panels that are moved: the first of so many problems."""
_LEVELS = ("type", "size", "color")


def latent_traversal(
    solver: Solver,
    problems: ProblemSet,
    trial: TrialSpec,
    evaluation: EvaluationSpec,
    device: torch.device,
) -> dict[str, Any]:
    """Attributes that each concept changes, and the pictures of one panel.

    :returns: problems, those whose codes give the extremes; panels, those moved; changed,
        attributes x concepts: share of moved pictures whose attribute is read otherwise than in
        the unmoved one; attributes, the rows; purity, mean over attributes of the largest share
        of a concept less the second; png, the first panel's pictures, one concept a row (base64).
    :raises UnsupportedProtocol: if the solver has no concepts to move or decodes no latents.
    """
    rows = torch.arange(min(BATCH_SIZE, problems.num_problems))
    with evaluating(solver):
        latents = solver.latents_of(solver.encode(problems.batch(rows, device).panels))
        shown = latents[:SHOWN, 0]
        unmoved = solver.decode(shown[:, None])[:, 0].cpu()
        moved = traverse(solver, shown, latents.flatten(0, 1)).cpu()
    name, data = problems.manifest.configuration, trial.data
    reader = NearestRendering(name, data.image_size, data.resize)
    before = reader.read(unmoved[:, 0])
    after = reader.read(moved.flatten(0, 3)).reshape(*moved.shape[:3], *before.shape[1:])
    places = configuration(name).merged_labels
    changed = np.array(
        [_differs(reader, place, before[:, None, None], after).mean((0, 2)) for place in places]
    )
    ordered = np.sort(changed, 1)
    return {
        "problems": len(rows),
        "panels": len(shown),
        "steps": STEPS,
        "attributes": [attribute_name(place) for place in places],
        "changed": changed.tolist(),
        "purity": float((ordered[:, -1] - ordered[:, -2]).mean()),
        "png": png_of(moved[0, :, :, 0]),
    }


def traverse(
    solver: Solver, shown: Float[Tensor, "panels latent"], batch: Float[Tensor, "n latent"]
) -> Float[Tensor, "panels concepts 12 1 size size"]:
    """Pictures of panels moved in each concept between the extremes of ``batch``.

    :raises UnsupportedProtocol: as :func:`latent_traversal`.
    """
    concepts = solver.num_concepts
    if concepts is None or "decode" not in solver.supports:
        raise UnsupportedProtocol(f"{type(solver).__name__} has no concepts that can be drawn")
    low, high = (extreme.unflatten(0, (concepts, -1)) for extreme in (batch.amin(0), batch.amax(0)))
    share = torch.linspace(0, 1, STEPS, device=shown.device, dtype=shown.dtype)[:, None]
    codes = shown.unflatten(1, (concepts, -1))[:, None, None].repeat(1, concepts, STEPS, 1, 1)
    for concept in range(concepts):
        codes[:, concept, :, concept] = low[concept] + share * (high[concept] - low[concept])
    images = solver.decode(codes.flatten(0, 1).flatten(2))
    return images.unflatten(0, (len(shown), concepts))


def _differs(
    reader: NearestRendering,
    place: Place,
    first: Int[np.ndarray, "*axes slots 4"],
    second: Int[np.ndarray, "*axes slots 4"],
) -> Bool[np.ndarray, "*axes"]:
    """Whether an attribute is read otherwise; a level where both have an entity."""
    component, attribute = place
    own = [slot for slot, (number, _) in enumerate(reader.slots) if number == component]
    first, second = first[..., own, :], second[..., own, :]
    if attribute == "number_position":
        return ((first[..., 0] > 0) != (second[..., 0] > 0)).any(-1)
    column = _LEVELS.index(attribute)
    both = (first[..., 0] > 0) & (second[..., 0] > 0)
    return (both & (first[..., column] != second[..., column])).any(-1)
