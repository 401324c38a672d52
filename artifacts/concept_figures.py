"""Figures from the pictures that results hold: traversals, odd panels, generated answers.

Neither weights nor data are read.  Results without pictures, made by earlier versions, give no
figure; a damaged picture stops the report like any damaged record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from artifacts import plots_concepts
from artifacts.measures import ODD_PANELS
from artifacts.paper_tables import LABELS
from artifacts.plots_concepts import OddExample, attribute_labels
from artifacts.published import dataset_title, model_label
from artifacts.records import EvaluationRecord, TrialRecord
from artifacts.report_figure import ReportFigure
from raise_model.evaluation.pictures import pictures_of
from raise_model.matrix import NUM_PANELS


@dataclass(frozen=True)
class _Source:
    """A training whose pictures are shown, and one of its evaluations."""

    record: TrialRecord
    evaluation: EvaluationRecord

    @property
    def title(self) -> str:
        spec = self.record.spec
        place = LABELS.get(spec.data.configuration, spec.data.configuration)
        return f"{model_label(spec.model)}, {place}"

    @property
    def what(self) -> str:
        """Data set, split, seed, training."""
        spec = self.evaluation.spec
        return (
            f"Problems of {dataset_title(spec.dataset)}, split {spec.split}; training "
            f"{self.record.name} (preset {'/'.join(self.record.presets)}, seed "
            f"{self.record.spec.seed})."
        )

    def key(self, kind: str) -> str:
        return f"{kind}_{self.record.name}"


def concept_figures(records: Sequence[TrialRecord]) -> list[ReportFigure]:
    """Those of one training of each setting: of the smallest seed that has pictures."""
    return [
        *_traversals(records),
        *(each for odd in ODD_PANELS for each in _odd_one_out(records, odd)),
        *_answers(records),
    ]


def _sources(
    records: Sequence[TrialRecord], protocol: str, part: str, **options: Any
) -> list[_Source]:
    """One evaluation a setting, with ``part`` in its result."""
    found: dict[str, _Source] = {}
    for record in sorted(records, key=lambda record: record.spec.seed):
        for evaluation in record.evaluations:
            given = dict(evaluation.spec.options)
            if (
                evaluation.spec.protocol == protocol
                and evaluation.result.get(part)
                and all(given[name] == value for name, value in options.items())
            ):
                found.setdefault(record.study_cell, _Source(record, evaluation))
    return list(found.values())


def _traversals(records: Sequence[TrialRecord]) -> list[ReportFigure]:
    made = []
    for source in _sources(records, "latent_traversal", "png"):
        aligned = [
            each.result
            for each in source.record.evaluations
            if each.spec.protocol == "concept_alignment"
        ]
        result = aligned[0] if aligned else source.evaluation.result
        beside = (
            "M over the training problems (probability of the labelled rule, 0 white to 1 "
            "black), the concept matched to each attribute framed in red"
            if aligned
            else "the share of pictures in which an attribute is read otherwise than before the "
            "move (0 white to 1 black)"
        )
        made.append(
            ReportFigure(
                key=source.key("latent_traversal"),
                title=f"What each concept draws: {source.title}",
                caption="A row is one concept of a test panel's code moved from its smallest to "
                f"its largest value over a batch, the others left as they were. Right: {beside}. "
                + source.what,
                draw=partial(
                    _draw_traversal,
                    source.evaluation.result,
                    result["matrix"] if aligned else result["changed"],
                    result["attributes"],
                    result["concept_of"] if aligned else [],
                ),
            )
        )
    return made


def _draw_traversal(
    result: Mapping[str, Any],
    matrix: Sequence[Sequence[float]],
    attributes: Sequence[str],
    concept_of: Sequence[int | None],
) -> Figure:
    shown = np.array(matrix)
    images = pictures_of(result["png"], shown.shape[1], result["steps"])
    return plots_concepts.draw_traversal(images, shown, attribute_labels(attributes), concept_of)


def _odd_one_out(records: Sequence[TrialRecord], odd: str) -> list[ReportFigure]:
    return [
        ReportFigure(
            key=source.key(f"odd_one_out_{odd}"),
            title=f"Odd-one-out ({ODD_PANELS[odd]}): {source.title}",
            caption="The odd panel is framed; above, the problem's index, the odd panel with the "
            "broken attribute, and what the largest error calls odd. Beside each matrix: squared "
            "error of each panel (row, 1 to 9) predicted from the other eight, in each concept "
            "(column, with the attribute matched to it; its digit is the component), white none, "
            "black the largest of that matrix. Shown is the first problem of each attribute, at "
            "most four. " + source.what,
            draw=partial(_draw_odd, source.evaluation.result),
        )
        for source in _sources(records, "odd_one_out", "examples", odd=odd)
    ]


def _draw_odd(result: Mapping[str, Any]) -> Figure:
    matched = result["concept_of"] or {}
    attributes = list(result["by_attribute"])
    labels = dict(zip(attributes, attribute_labels(attributes), strict=True))
    names: list[str | None] = [None] * len(result["examples"][0]["errors"][0])
    for attribute, concept in matched.items():
        if concept is not None:
            names[concept] = labels[attribute]
    examples = []
    for each in result["examples"]:
        found = f"panel {each['called'] + 1}" + (
            f", {labels[each['named']]}" if each["named"] else ""
        )
        broken = " and ".join(labels[name] for name in each["broken"])
        examples.append(
            OddExample(
                panels=np.concatenate(pictures_of(each["png"], 3, 3)),
                errors=np.array(each["errors"]),
                odd=each["odd"],
                title=f"problem {each['problem']}: panel {each['odd'] + 1}, {broken}\n"
                f"called odd: {found}",
            )
        )
    return plots_concepts.draw_odd_one_out(examples, names)


def _answers(records: Sequence[TrialRecord]) -> list[ReportFigure]:
    made = []
    for targets, words in ((1, "one missing panel"), (2, "two missing panels")):
        made += [
            ReportFigure(
                key=source.key(f"answers_{targets}"),
                title=f"Generated answers, {words}: {source.title}",
                caption="Panels in red frames are generated from the others, which are the "
                "problem's own; above, the rules that they break when read back by nearest "
                "rendering. Shown are the first problems and the first answer to each. "
                + source.what,
                draw=partial(_draw_answers, source.evaluation.result),
            )
            for source in _sources(records, "multi_answer", "examples", targets=targets)
        ]
    return made


def _draw_answers(result: Mapping[str, Any]) -> Figure:
    names = list(result["by_attribute"])
    labels = dict(zip(names, attribute_labels(names), strict=True))
    examples = result["examples"]
    missing = np.zeros((len(examples), NUM_PANELS), dtype=bool)
    for row, each in enumerate(examples):
        missing[row, each["missing"]] = True
    titles = [
        "keeps every rule" if not each["broken"]
        else "breaks " + ", ".join(str(labels.get(name, name)) for name in each["broken"])
        for each in examples
    ]  # fmt: skip
    panels = np.stack([np.concatenate(pictures_of(each["png"], 3, 3)) for each in examples])
    return plots_concepts.draw_answers(panels, missing, titles=titles)
