"""What the studies have that the paper has no table for, and what of it has no number yet.

The lists are those of the studies themselves; a test holds them against one another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from artifacts.gaps import Asking, Gap, Lack, merged
from artifacts.measures import measure_name
from artifacts.numbers import Number
from artifacts.paper_tables import LABELS
from artifacts.records import EvaluationRecord, TrialRecord
from artifacts.settings import ABLATION, ABLATION_AS_PUBLISHED, CUSTOM, root, setting
from raise_model.models import registry
from raise_model.presets import ABLATION_PRESET, LABEL_RATIOS, RATIOS, training_preset
from raise_model.specs import TrialSpec, canonical_json

ABLATION_CONFIGURATIONS = ("center", "left_right", "grid_2x2")
ODD = ("any", "candidate")
"""Kinds of odd panels of the study ``odd_one_out``."""
_STUDIES: Mapping[str, str] = {
    "odd_one_out": "odd_one_out",
    "rule_accuracy": "latent_concepts",
    "concept_alignment": "latent_concepts",
    "latent_traversal": "latent_concepts",
    "multi_answer": "multi_answer",
}
"""Of protocols that give no selection accuracy."""
_FREE = ("noise",)
"""Options that a training's own setting decides."""


def ratio_groups(numbers: Sequence[Number], specs: Mapping[str, TrialSpec]) -> list[list[Number]]:
    """Numbers that differ in nothing but the share of labelled problems, smallest first.

    Two at least; bottom-right selection only.
    """
    groups: dict[str, list[Number]] = {}
    for number in numbers:
        if number.setting["protocol"] == "bottom_right":
            spec = specs[number.seeds[0]["trial"]]
            key = (_but_ratio(spec), number.setting["dataset"], number.setting["evaluation"])
            groups.setdefault(canonical_json(key), []).append(number)
    return [
        sorted(group, key=lambda number: number.setting["label_ratio"])
        for group in groups.values()
        if len({number.setting["label_ratio"] for number in group}) > 1
    ]


def _but_ratio(spec: TrialSpec) -> str:
    return canonical_json(setting(spec) | {"label_ratio": None})


def trained_ratios(group: Sequence[Number], specs: Mapping[str, TrialSpec]) -> set[float]:
    """Shares of labelled problems that the setting of a group was trained with."""
    wanted = _but_ratio(specs[group[0].seeds[0]["trial"]])
    return {spec.data.label_ratio for spec in specs.values() if _but_ratio(spec) == wanted}


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to train the networks of an ablation."""

    name: str
    model: str
    preset: str

    def has(self, configuration: str) -> bool:
        """Whether the study trains it there: with one slot a component the label maps of RAISE
        and RAISE plus have the same labels.
        """
        if self.model != "raise" or self.preset != ABLATION:
            return configuration in ABLATION_CONFIGURATIONS
        ratio = LABEL_RATIOS[configuration]
        plus = training_preset("raise_plus", ABLATION_PRESET, configuration, ratio)
        return configuration in ABLATION_CONFIGURATIONS and plus.label_map == "separate"

    def is_of(self, model: str, presets: Sequence[str]) -> bool:
        """Whether a training of a model is trained so."""
        return model == self.model and self.preset in presets


WAYS = (
    Way(name="RAISE, as the authors train", model="raise", preset=ABLATION_AS_PUBLISHED),
    Way(name="RAISE, as here, the authors' label map", model="raise", preset=ABLATION),
    Way(name="RAISE plus, as here", model="raise_plus", preset=ABLATION),
)


@dataclass(frozen=True, kw_only=True)
class Unmeasured:
    """A protocol with its options that a training of a model has too few results of."""

    protocol: str
    trials: Sequence[TrialRecord]
    """Trainings of a configuration, by seed."""
    like: EvaluationRecord
    """The same of another configuration."""
    seeds: int
    """How many have a result."""

    @property
    def options(self) -> Mapping[str, object]:
        return self.like.spec.options

    @property
    def is_in_study(self) -> bool:
        """Whether the protocol's study runs it."""
        return self.options.get("odd", ODD[0]) in ODD


def unmeasured(records: Sequence[TrialRecord], seeds: int = 1) -> list[Unmeasured]:
    """What a model's trainings of the main table have no result of, where one of them has.

    :param seeds: how many results there should be.
    """
    groups: dict[tuple[str, str], dict[str, list[TrialRecord]]] = {}
    for record in sorted(records, key=lambda record: record.spec.seed):
        if _is_of_main_table(record):
            key = (record.spec.model, record.presets[0])
            groups.setdefault(key, {}).setdefault(record.spec.data.configuration, []).append(record)
    lacking = []
    for by_configuration in groups.values():
        variants: dict[str, EvaluationRecord] = {}
        have: dict[tuple[str, str], int] = {}
        for configuration, trials in by_configuration.items():
            for evaluation in (each for trial in trials for each in trial.evaluations):
                if evaluation.spec.protocol in _STUDIES:
                    variant = _variant(evaluation)
                    variants.setdefault(variant, evaluation)
                    have[variant, configuration] = have.get((variant, configuration), 0) + 1
        lacking += [
            Unmeasured(protocol=like.spec.protocol, trials=trials, like=like, seeds=found)
            for variant, like in variants.items()
            for configuration, trials in by_configuration.items()
            if (found := have.get((variant, configuration), 0)) < max(seeds, 1)
        ]
    return lacking


def _is_of_main_table(record: TrialRecord) -> bool:
    data, model = record.spec.data, record.spec.model
    return (
        record.presets[0] != CUSTOM
        and record.presets[0] == root(record.presets[0])
        and not data.dataset.endswith("_held_out")
        and (
            data.label_ratio == LABEL_RATIOS[data.configuration]
            or not registry.solver_class(model).needs.labels
        )
    )


def _variant(evaluation: EvaluationRecord) -> str:
    spec = evaluation.spec
    options = {name: value for name, value in spec.options.items() if name not in _FREE}
    return canonical_json([spec.protocol, spec.dataset, spec.split, options])


def study_gaps(
    records: Sequence[TrialRecord],
    ratios: Sequence[Sequence[Number]],
    ablations: Sequence[Number],
    asking: Asking,
) -> list[Gap]:
    """What studies lack that have a number.

    :param ratios: as of :func:`ratio_groups`.
    :param ablations: numbers of the study ``ablation``, on test problems.
    """
    lacking = [
        *_of_ratios(ratios, asking),
        *_of_ablations(ablations, asking),
        *_of_measures(records, asking),
    ]
    presets = dict.fromkeys(preset for preset, _ in lacking)
    found = [
        gap
        for preset in presets
        for gap in merged((each for p, each in lacking if p == preset),
                          replace(asking, preset=preset))
    ]  # fmt: skip
    return [*found, *_of_no_study(records, asking)]


_Found = list[tuple[str, Lack]]
"""Each with the preset that its command asks for."""


def _of_ratios(groups: Sequence[Sequence[Number]], asking: Asking) -> _Found:
    found: _Found = []
    for group in groups:
        first = group[0]
        seeds = {number.setting["label_ratio"]: number.spreads["seeds"] for number in group}
        if first.presets[0] == CUSTOM:
            continue
        few = {r: seeds.get(r, 0) for r in RATIOS if seeds.get(r, 0) < max(asking.seeds, 1)}
        for count in sorted(set(few.values())):
            shares = [f"{100 * ratio:g} %" for ratio in few if few[ratio] == count]
            lack = Lack(
                study="label_ratio",
                model=first.setting["model"],
                configurations=[first.setting["configuration"]],
                seeds=count,
                what=f"{_listed(shares)} labels",
            )
            found += [(root(first.presets[0]), lack)] * len(shares)
    return found


def _listed(words: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def _of_ablations(numbers: Sequence[Number], asking: Asking) -> _Found:
    tests = dict.fromkeys(number.setting["dataset"] for number in numbers)
    found: _Found = []
    for way in WAYS:
        for configuration in filter(way.has, ABLATION_CONFIGURATIONS):
            for test in tests:
                seeds = [
                    number.spreads["seeds"]
                    for number in numbers
                    if (number.setting["configuration"], number.setting["dataset"])
                    == (configuration, test)
                    and way.is_of(number.setting["model"], number.presets)
                ]
                if max(seeds, default=0) < max(asking.seeds, 1):
                    lack = Lack(
                        study="ablation",
                        model=way.model,
                        configurations=[configuration],
                        seeds=max(seeds, default=0),
                        what=way.name.partition(", ")[2],
                    )
                    found.append((ABLATION_PRESET, lack))
    return found


def _of_measures(records: Sequence[TrialRecord], asking: Asking) -> _Found:
    return [
        (
            each.trials[0].presets[0],
            Lack(
                study=_STUDIES[each.protocol],
                model=each.trials[0].spec.model,
                configurations=[each.trials[0].spec.data.configuration],
                seeds=each.seeds,
                unit="row",
            ),
        )
        for each in unmeasured(records, asking.seeds)
        if each.is_in_study
    ]


def _of_no_study(records: Sequence[TrialRecord], asking: Asking) -> list[Gap]:
    """Evaluations that no study runs, of one training each."""
    store = asking.store or "${RAISE_STORE:-${RAISE_HOME:-.raise}/store}"
    found = []
    for each in unmeasured(records):
        if each.is_in_study:
            continue
        spec, trial = each.like.spec, each.trials[0]
        place = trial.spec.data.configuration
        options = [f"--option {name}={value}" for name, value in sorted(each.options.items())]
        words = [
            f"python -m raise_model evaluate {trial.name}",
            f'--store "{store}" --dataset {spec.dataset} --split {spec.split}',
            f"--protocol {spec.protocol} --rounds {spec.rounds}",
            *options,
        ]
        found.append(
            Gap(
                study="",
                models=[trial.spec.model],
                configurations=[place],
                cells=1,
                own_only=0,
                seeds=0,
                wanted=asking.seeds,
                what=f"{LABELS.get(place, place)}, {measure_name(spec)}",
                unit="row",
                command=" ".join(words),
            )
        )
    return found
