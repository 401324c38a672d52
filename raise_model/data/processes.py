"""Work on data in several processes."""

import multiprocessing
import multiprocessing.connection
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_PRELOAD = [
    "raise_model.data.generate",
    "raise_model.data.ingest",
    "raise_model.data.verify",
    # Arrow imports pandas, where there is one, when it is first given a list.
    "pyarrow.pandas_compat",
]


def _end_with_parent() -> None:
    """In a worker: end when the process that it works for is gone, killed perhaps."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def map_in_processes(
    function: Callable[[_Item], _Result], items: Sequence[_Item], workers: int
) -> Iterator[_Result]:
    """Results in order; an exception of a worker is raised here.

    One worker, or one item, needs no process.  Otherwise one clean process imports the modules
    that work on data, without torch and without the caller's threads, and every worker is a fork
    of it: spawned workers would each import them, which takes as long as 500 problems.
    """
    workers = min(workers, len(items))
    if workers <= 1:
        yield from map(function, items)
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    with ProcessPoolExecutor(workers, context, _end_with_parent) as pool:
        yield from pool.map(function, items)
