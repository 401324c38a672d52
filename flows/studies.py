"""The experiments as functions: a request becomes trainings and evaluations.

A study returns what to train and what to evaluate; nothing runs.  It asks for digests of
splits, so the splits that a request needs are those it asks for.  Studies share trainings:
the union of all holds each spec once.
"""

import functools
from collections.abc import Mapping

from flows import lowering, presets
from flows.costs import relative_cost
from flows.lowering import Digest, Lowered, Split, union
from flows.request import Request
from flows.study_evaluations import (
    answer_selection,
    arbitrary_position,
    latent_concepts,
    multi_answer,
    odd_one_out,
)
from flows.study_settings import search, transformer_grid
from flows.study_trainings import (
    ablation,
    held_out,
    label_ratio,
    main_table,
    no_labels,
    uniform_noise,
)
from raise_model.errors import UserError

__all__ = ["Digest", "Lowered", "Request", "Split", "lower", "needed_splits", "split_problems"]

_STUDIES: Mapping[presets.Study, lowering.Study] = {
    "main_table": main_table,
    "no_labels": no_labels,
    "uniform_noise": uniform_noise,
    "held_out": held_out,
    "answer_selection": answer_selection,
    "arbitrary_position": arbitrary_position,
    "odd_one_out": odd_one_out,
    "latent_concepts": latent_concepts,
    "multi_answer": multi_answer,
    "label_ratio": label_ratio,
    "ablation": ablation,
    "transformer_grid": transformer_grid,
    "search": search,
}


def lower(request: Request, digest: Digest) -> Lowered:
    """The union of the request's studies.

    :raises UserError: if nothing is left to train.
    """
    lowered = union(
        (_STUDIES[study](request, digest) for study in request.scale.studies),
        cost=functools.partial(relative_cost, request.preset),
    )
    if not lowered.trials:
        raise UserError(
            f"nothing to do: {', '.join(request.scale.studies)} has no training of models "
            f"{', '.join(request.scale.models)} on {', '.join(request.scale.configurations)}; "
            "ask for other models or configurations"
        )
    return lowered


def needed_splits(request: Request) -> list[Split]:
    """Splits that the request reads, each once."""
    asked: dict[Split, None] = {}

    def note(*split: str) -> str:
        asked[split] = None  # type: ignore[index]
        return "0" * 64

    lower(request, note)
    return list(asked)


def split_problems(problems: int, split: str) -> int:
    """Problems of a split among so many of a configuration."""
    return problems * {"train": 6, "val": 2, "test": 2}[split] // 10
