"""Studies that train: the paper's tables, and the curve over label ratios."""

from collections.abc import Mapping, Sequence

from flows.lowering import Digest, Lowered, reads_labels, selected, tests_of, trainings
from flows.presets import DATASETS, Configuration
from flows.request import Request
from raise_model.data.held_out import held_out_name
from raise_model.errors import UserError
from raise_model.presets import ABLATION_PRESET, RATIOS, as_published, shortened

RATIO_CONFIGURATIONS: Sequence[Configuration] = ("center",)
"""Where the curve is drawn unless a request says otherwise."""
NOISY: Sequence[Configuration] = ("out_in_grid_uni", "grid_2x2_uni", "grid_3x3_uni")
"""Grids with noise on attributes (paper, appendix E)."""
ABLATION_CONFIGURATIONS: Sequence[Configuration] = ("center", "left_right", "grid_2x2")
"""Where trainings are compared unless a request says otherwise."""
HELD_OUT_RATIOS: Mapping[Configuration, float] = {"center": 0.05, "out_in_center": 0.2}
"""Labelled share of the training problems that are left (paper, section 4.5)."""


def main_table(request: Request, digest: Digest) -> Lowered:
    """Bottom-right selection of every model (table 1 of the paper)."""
    return selected(request, digest, trainings(request, digest))


def no_labels(request: Request, digest: Digest) -> Lowered:
    """The models that read labels, trained without any (paper, table of baselines)."""
    return selected(
        request,
        digest,
        trainings(request, digest, models=_label_readers(request), label_ratio=0.0),
    )


def label_ratio(request: Request, digest: Digest) -> Lowered:
    """The models that read labels, at every ratio; steps and problems seen are the same at all.

    On Center, or on the configurations that were asked for.
    """
    trials = [
        trial
        for ratio in RATIOS
        for trial in trainings(
            request,
            digest,
            models=_label_readers(request),
            configurations=request.configurations or RATIO_CONFIGURATIONS,
            label_ratio=ratio,
            equal_exposure=True,
        )
    ]
    return selected(request, digest, trials)


def uniform_noise(request: Request, digest: Digest) -> Lowered:
    """The main table on the three grids with noise (paper, appendix E).

    Only the generator makes them; of other data those that were asked for by name.
    """
    exist = NOISY if request.data in ("generated", "paired") else request.configurations
    configurations = [name for name in request.configurations_of(NOISY) if name in exist]
    return selected(request, digest, trainings(request, digest, configurations=configurations))


def held_out(request: Request, digest: Digest) -> Lowered:
    """Training and test problems differ in their pairs of attribute and rule (section 4.5)."""
    trials = [
        trial
        for configuration in request.configurations_of(tuple(HELD_OUT_RATIOS))
        for trial in trainings(
            request,
            digest,
            configurations=[configuration],
            dataset=held_out_name(DATASETS[request.data][0]),
            label_ratio=HELD_OUT_RATIOS[configuration],  # type: ignore[index]
        )
    ]
    datasets = [held_out_name(name) for name in tests_of(request)]
    return selected(request, digest, trials, datasets=datasets)


def ablation(request: Request, digest: Digest) -> Lowered:
    """RAISE trained as the authors do, in the same time on the same networks; with their label
    map, where that is another; and ``raise_plus``.  On three configurations, or those that were
    asked for, each training a third of the lite setting's.
    """
    if request.preset != ABLATION_PRESET:
        raise UserError(
            f"study ablation compares trainings of preset {ABLATION_PRESET}, not of "
            f"{request.preset}: ask for preset={ABLATION_PRESET}"
        )
    plain, plus = (
        [
            shortened(trial)
            for trial in trainings(
                request,
                digest,
                models=[model],
                configurations=request.configurations or ABLATION_CONFIGURATIONS,
            )
        ]
        for model in ("raise", "raise_plus")
    )
    # Where no component has several slots, the maps have the same labels.
    official = [
        trial
        for trial, other in zip(plain, plus, strict=True)
        if other.data.label_map == "separate"
    ]
    return selected(request, digest, [*map(as_published, plain), *official, *plus])


def _label_readers(request: Request) -> Sequence[str]:
    return [model for model in request.scale.models if reads_labels(model)]
