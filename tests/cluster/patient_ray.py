"""``ray start`` whose patience with its own processes is ten times Ray's.

Ray gives a new node thirty seconds, which a machine with several clusters on two cores may not
keep; there is no setting for it.
"""

import time
from types import SimpleNamespace

from ray._private import node
from ray.scripts.scripts import main

node.time = SimpleNamespace(  # type: ignore[attr-defined]
    **{**vars(time), "monotonic": lambda: time.monotonic() / 10}
)

if __name__ == "__main__":
    main()
