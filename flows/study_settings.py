"""Studies that choose settings: on validation problems alone, with one seed; nothing is tested."""

from flows.lowering import Digest, Lowered, trainings
from flows.request import Request
from tune_spaces import transformer
from tune_spaces.spaces import SPACES

SAMPLES = 27
"""Settings tried for each model and configuration, the preset's own first."""


def transformer_grid(request: Request, digest: Digest) -> Lowered:
    """The paper's grid over learning rate, representation size and blocks (appendix D.3)."""
    asked = not request.models or "transformer" in request.models
    trials = [
        transformer.SPACE.trial(trial, sample)
        for trial in trainings(request, digest, models=["transformer"] if asked else [])
        if trial.seed == 0
        for sample in transformer.grid(request.preset)
    ]
    return Lowered(trials=trials, evaluations=[])


def search(request: Request, digest: Digest) -> Lowered:
    """Points of each model's search space; those that fall behind are given up (ASHA).

    The points depend on their number alone, so that a search goes on where it stopped.
    """
    models = [model for model in request.scale.models if model in SPACES]
    trials = []
    for trial in trainings(request, digest, models=models):
        if trial.seed == 0:
            space = SPACES[trial.model]
            samples = [space.sample(trial, number) for number in range(1, SAMPLES)]
            trials += [trial, *(space.trial(trial, sample) for sample in samples)]
    return Lowered(trials=trials, evaluations=[], prunable=frozenset(t.name for t in trials))
