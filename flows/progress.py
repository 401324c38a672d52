"""How far a run is, in the log of the flow run and in one Prefect progress artifact."""

import time
from collections.abc import Mapping
from uuid import UUID

import httpx
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.logging import get_run_logger

from flows.board import Clock

STAGES: Mapping[str, float] = {"problems": 0.05, "train": 0.8, "evaluate": 0.13, "report": 0.02}
"""Stages of a run, with their share of the bar; it is no measure of time."""
LOG_SECONDS = 15.0
ARTIFACT_SECONDS = 3.0
ARTIFACT_KEY = "raise-progress"


class Progress:
    """One Prefect progress artifact of a flow run, and the lines of its log."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._texts = dict.fromkeys(STAGES, "")
        self._last_line = ""
        self._fractions = dict.fromkeys(STAGES, 0.0)
        self._logger = get_run_logger()
        self._logged = self._updated = clock()
        created = create_progress_artifact(
            progress=0.0, key=ARTIFACT_KEY, description=self._description()
        )
        assert isinstance(created, UUID)
        self._artifact = created

    def update(self, stage: str, fraction: float, text: str, *, now: bool = False) -> None:
        """A stage got on; the log and the artifact hear of it now and then, or ``now``."""
        self._fractions[stage], self._texts[stage] = fraction, text
        time_now = self._clock()
        line = f"{stage}: {text}"
        if line != self._last_line and (now or time_now - self._logged >= LOG_SECONDS):
            self._logged, self._last_line = time_now, line
            self._logger.info("%s", line)
        if now or time_now - self._updated >= ARTIFACT_SECONDS:
            self._updated = time_now
            self._send()

    def warn(self, text: str) -> None:
        """A line of the log about something that went wrong."""
        self._logger.warning("%s", text)

    def _send(self) -> None:
        done = sum(share * self._fractions[stage] for stage, share in STAGES.items())
        try:
            update_progress_artifact(
                self._artifact, progress=round(100 * done, 1), description=self._description()
            )
        except httpx.HTTPError as error:
            # A bar that stands still must not end a sweep of days.
            self._logger.warning("Prefect server does not take the progress: %r", error)

    def _description(self) -> str:
        return "\n".join(f"- {stage}: {text or 'to come'}" for stage, text in self._texts.items())
