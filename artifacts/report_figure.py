"""A figure of a report."""

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class ReportFigure:
    """A figure with what is said below it; drawn when the report is written."""

    key: str
    title: str
    caption: str
    """What it shows, and of which data set, split and trainings."""
    draw: Callable[[], Figure]
