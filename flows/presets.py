"""What a preset runs: which studies, configurations, seeds and data.

How one training of a preset looks (steps, widths, labels) is in :mod:`raise_model.presets`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Study = Literal[
    "main_table",
    "no_labels",
    "uniform_noise",
    "held_out",
    "answer_selection",
    "arbitrary_position",
    "odd_one_out",
    "latent_concepts",
    "multi_answer",
    "label_ratio",
    "ablation",
    "transformer_grid",
    "search",
]
Configuration = Literal[
    "center",
    "left_right",
    "up_down",
    "out_in_center",
    "out_in_grid",
    "grid_2x2",
    "grid_3x3",
    "out_in_grid_uni",
    "grid_2x2_uni",
    "grid_3x3_uni",
]
PresetName = Literal["auto", "paper", "lite", "demo", "smoke"]
DataSource = Literal["generated", "published", "paired", "overlapping"]

STUDIES: Sequence[Study] = get_args(Study)
PAPER_STUDIES = STUDIES[:9]
"""Those with a table or figure in the paper."""
PAPER_MODELS = ("raise", "transformer", "clap", "anp", "lgpp")
"""Those that generate at any position, in order of the paper's results."""
CONFIGURATIONS: Sequence[Configuration] = get_args(Configuration)
PAPER_CONFIGURATIONS = CONFIGURATIONS[:7]
"""Those of the paper's main tables."""

DATASETS: Mapping[DataSource, tuple[str, Sequence[str]]] = {
    "generated": ("raven", ("raven", "iraven")),
    "published": ("raven_published", ("raven_published", "iraven_published")),
    "paired": ("raven", ("raven", "iraven_paired")),
    "overlapping": ("raven", ("raven", "iraven_overlapping")),
}
"""Data set of the training, and those of the tests, by source."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """The scale of a run; every field can be overridden by a parameter of the flow."""

    studies: Sequence[Study]
    models: Sequence[str]
    configurations: Sequence[Configuration]
    seeds: int
    """Trainings of each cell of a table."""
    rounds: int
    """Stochastic passes over each checkpoint."""
    problems: int
    """Generated problems of a configuration: six tenths train, two validate, two test."""


PRESETS: Mapping[str, Preset] = {
    "paper": Preset(
        studies=PAPER_STUDIES, models=PAPER_MODELS, configurations=PAPER_CONFIGURATIONS,
        seeds=10, rounds=10, problems=10_000,
    ),
    "lite": Preset(
        studies=PAPER_STUDIES, models=PAPER_MODELS, configurations=PAPER_CONFIGURATIONS,
        seeds=3, rounds=3, problems=10_000,
    ),
    "demo": Preset(
        # Those that only evaluate take two to three seconds an evaluation.
        studies=("main_table", "answer_selection", "arbitrary_position"), models=("raise",),
        configurations=("center",), seeds=2, rounds=3, problems=10_000,
    ),
    "smoke": Preset(
        studies=("main_table", "answer_selection", "arbitrary_position"), models=("raise",),
        configurations=CONFIGURATIONS[:4], seeds=2, rounds=2, problems=100,
    ),
}  # fmt: skip

TRIAL_SECONDS = 10.0
"""Of a trial outside its steps: start, reading of data, validations, evaluations."""
TRIAL_BYTES: Mapping[str, float] = {"paper": 160e6, "lite": 20e6, "demo": 20e6, "smoke": 2e6}
"""Checkpoints, curve and log of a trial."""
PROBLEM_BYTES = 10.7e3
"""A stored problem: 745 MB of 70,000."""
