"""What Ray Tune runs for a trial."""

import contextlib
from typing import Any

from tune_spaces.trial_process import Ended, Nursery, TrialDied

_nursery: Nursery | None = None


def _living_nursery() -> Nursery:
    """The nursery of this actor's process, a new one if the old one was killed."""
    global _nursery
    if _nursery is None or not _nursery.is_alive:
        _nursery = Nursery()
    return _nursery


def trainable(config: dict[str, Any]) -> None:
    """Train one trial in a fresh process and pass its rows to Tune.

    :param config: ``store`` (root), ``spec`` (see :func:`~tune_spaces.trial_process.spec_of`),
        ``device``, ``threads``, ``cache`` (folder), ``abandoned`` (claims that may be taken
        over, as JSON).
    :raises TrialDied: if the process was killed; Tune then starts the trial again, which
        resumes from its last checkpoint in the store.
    :raises RuntimeError: if the training failed in a way that may pass.

    Reports ``{"row": row of the curve}`` and last ``{"outcome": ..., "reason": ...}``.
    """
    # Not above: a trial's own process imports this package, and never Ray.
    from ray import tune

    try:
        # Closed at once where Tune gives the trial up, which ``report`` tells by SystemExit.
        with contextlib.closing(_living_nursery().run(config)) as messages:
            for message in messages:
                if isinstance(message, Ended):
                    tune.report({"outcome": message.outcome, "reason": message.reason})
                    if message.outcome == "failed":
                        raise RuntimeError(message.reason)
                else:
                    tune.report({"row": message})
    except TrialDied as error:
        tune.report({"outcome": "failed", "reason": str(error)})
        raise
