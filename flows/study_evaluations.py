"""Studies that only evaluate: they train what the main table trains, and nothing else."""

from flows.lowering import (
    Digest,
    Lowered,
    evaluations,
    own_space,
    supports,
    tests_of,
    trainings,
)
from flows.presets import DATASETS
from flows.request import Request
from raise_model.models import registry
from raise_model.models.raise_net.config import RaiseConfig
from raise_model.specs import TrialSpec

ANSWERS = 10
"""Answers to one problem."""


def answer_selection(request: Request, digest: Digest) -> Lowered:
    """Candidates compared as latents and as pixels."""
    trials = trainings(request, digest)
    pairs = evaluations(
        request,
        digest,
        trials,
        "bottom_right",
        lambda trial: [{"space": s} for s in ("latent", "pixel") if supports(trial.model, s)],
    )
    return Lowered(trials=trials, evaluations=pairs)


def arbitrary_position(request: Request, digest: Digest) -> Lowered:
    """One or two panels at any positions, among 1, 3, 7 or 15 distractors.

    As the authors draw them; with a mask of its own for each problem; and without distractors
    that equal the answer.  Contexts alone matter, so that a test set with those of another one
    is left out.
    """
    trials = trainings(request, digest)
    pairs = evaluations(
        request,
        digest,
        trials,
        "arbitrary_position",
        lambda trial: [
            {"space": own_space(trial.model), "masks": masks, "duplicates": duplicates}
            for masks, duplicates in (
                ("batch", "keep"),
                ("problem", "keep"),
                ("batch", "leave_out"),
            )
        ],
        datasets=[name for name in tests_of(request) if name != "iraven_paired"],
    )
    return Lowered(trials=trials, evaluations=pairs)


def odd_one_out(request: Request, digest: Digest) -> Lowered:
    """Which panel breaks the rules: any of the nine, or as in the paper a wrong candidate."""
    trials = trainings(request, digest)
    pairs = evaluations(
        request,
        digest,
        trials,
        "odd_one_out",
        lambda trial: [{"odd": odd} for odd in ("any", "candidate")],
        datasets=[DATASETS[request.data][0]],
    )
    return Lowered(trials=trials, evaluations=pairs)


def latent_concepts(request: Request, digest: Digest) -> Lowered:
    """Which concept stands for which attribute (of training problems), what each draws, and
    rule accuracy.
    """
    trials = trainings(request, digest)
    train = DATASETS[request.data][0]
    rules = evaluations(request, digest, trials, "rule_accuracy", datasets=[train])
    concepts = evaluations(
        request, digest, trials, "concept_alignment", datasets=[train], split="train"
    )
    drawn = evaluations(request, digest, trials, "latent_traversal", datasets=[train])
    return Lowered(trials=trials, evaluations=[*rules, *concepts, *drawn])


def multi_answer(request: Request, digest: Digest) -> Lowered:
    """Several answers to one problem, with one panel missing and with two."""
    trials = trainings(request, digest)
    pairs = evaluations(
        request,
        digest,
        trials,
        "multi_answer",
        lambda trial: [
            {"targets": targets, "samples": ANSWERS, "noise": _noise(trial)} for targets in (1, 2)
        ],
        datasets=[DATASETS[request.data][0]],
    )
    return Lowered(trials=trials, evaluations=pairs)


def _noise(trial: TrialSpec) -> float:
    """Of predicted latents: RAISE's sigma_z; the other solvers draw their latents themselves."""
    is_raise = registry.config_class(trial.model) is RaiseConfig
    return trial.config["sigma_z"] if is_raise else 0.0
