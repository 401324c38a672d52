"""Waiting that a signal ends.

Ray waits in C and drops what a signal's handler raises there, unless that is Ctrl-C's exception
(Prefect's, for a run that is cancelled, is another).  So nothing of a flow's main thread waits
in Ray itself.
"""

import math
import time
from collections.abc import Collection
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, wait
from typing import Any

SIGNAL_SECONDS = 0.5
"""How long a signal may wait for its handler: one that another thread gets wakes nobody."""


def until_ended(
    work: Collection["Future[Any]"], *, every: bool = False, seconds: float = math.inf
) -> "set[Future[Any]]":
    """What has ended, as soon as one has; never raises what ended it.

    :param every: wait for all instead.
    :param seconds: at most so long.
    """
    deadline = time.monotonic() + seconds
    condition = ALL_COMPLETED if every else FIRST_COMPLETED
    while True:
        patience = min(SIGNAL_SECONDS, max(0.0, deadline - time.monotonic()))
        ended, going_on = wait(work, timeout=patience, return_when=condition)
        if not going_on or (ended and not every) or time.monotonic() >= deadline:
            return ended
