"""The flow's parameters as the command line's help lists them.

The flow itself takes ten seconds to import, which a user who asks for help does not wait for; a
test sees to it that both say the same.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import click

from flows.presets import CONFIGURATIONS, DataSource, PresetName, Study

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of the flow."""

    name: str
    type: str
    """As in JSON schema."""
    default: Any
    about: str
    choices: Sequence[str] = ()
    """Of a text, or of each text of a list; none: any."""

    def text(self, default: Any) -> str:
        """Description, choices and default."""
        kind = {"array": "list", "integer": "whole number", "boolean": "true or false"}
        choices = " ".join(self.choices) or kind.get(self.type, self.type)
        lists = "list of " if self.type == "array" and self.choices else ""
        value = default if isinstance(default, str) and default else json.dumps(default)
        return f"{self.about} ({lists}{choices})  [default: {value}]"


PARAMETERS: Sequence[Parameter] = (
    Parameter(
        name="preset", type="string", default="auto", choices=get_args(PresetName),
        about="Scale. auto is paper if the cluster has GPUs, else lite; demo takes minutes.",
    ),
    Parameter(
        name="studies", type="array", default=[], choices=get_args(Study),
        about="Parts of the paper; none means all of the preset.",
    ),
    Parameter(
        name="models", type="array", default=[],
        about="Solvers, e.g. raise; none means all of the preset.",
    ),
    Parameter(
        name="configurations", type="array", default=[], choices=CONFIGURATIONS,
        about="RAVEN configurations; none means all of the preset.",
    ),
    Parameter(
        name="trials", type="integer", default=0,
        about="Seeds of each training; 0 means as many as the preset has.",
    ),
    Parameter(
        name="label_ratio", type="number", default=-1.0,
        about="Share of training problems with rule labels, 0 to 1; -1 means the paper's.",
    ),
    Parameter(
        name="store", type="string", default="",
        about="Folder or s3:// URI of data and results; empty means RAISE_HOME/store, for smoke "
        "RAISE_HOME/smoke.",
    ),
    Parameter(
        name="data", type="string", default="generated", choices=get_args(DataSource),
        about="generated; published for files that raise-rpm ingest has read; paired or "
        "overlapping for other I-RAVEN tests: RAVEN's contexts, or a share of them.",
    ),
    Parameter(
        name="device", type="string", default="auto", choices=DEVICES,
        about="auto uses GPUs if the cluster has any.",
    ),
    Parameter(
        name="cpus_per_trial", type="integer", default=1, about="CPUs, and threads, of a trial."
    ),
    Parameter(
        name="gpus_per_trial", type="number", default=0.0,
        about="GPUs of a trial, e.g. 0.25; 0 on cuda means one.",
    ),
    Parameter(
        name="max_concurrent", type="integer", default=0,
        about="Trials at once; 0 means as many as fit.",
    ),
    Parameter(
        name="max_hours", type="number", default=24.0,
        about="A plan that takes longer is refused before it starts.",
    ),
    Parameter(
        name="strict", type="boolean", default=False,
        about="Refuse test problems that training shows, instead of reporting them apart.",
    ),
)  # fmt: skip


class ParametersCommand(click.Command):
    """A command whose help lists the flow's parameters."""

    defaults: dict[str, Any] = {}  # noqa: RUF012
    """What the command gives where the flow has another default."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Parameters of the flow, as in -p trials=3 -p models='[\"raise\"]'"):
            formatter.write_dl(
                [(each.name, each.text(self.defaults.get(each.name, each.default)))
                 for each in PARAMETERS]
            )  # fmt: skip


class DemoCommand(ParametersCommand):
    """The demo's own preset is its default."""

    defaults = {"preset": "demo"}  # noqa: RUF012
