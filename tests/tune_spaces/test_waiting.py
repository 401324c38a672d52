"""Waiting that a signal ends."""

import os
import signal
import threading
from concurrent.futures import Future

import pytest

from tune_spaces.waiting import until_ended


class Terminated(BaseException):
    """As Prefect's, for a run that is cancelled."""


def raise_terminated(number, frame):
    raise Terminated


def test_the_first_that_ends_or_all_or_what_there_is_in_time():
    good, bad, endless = Future(), Future(), Future()
    threading.Timer(0.1, lambda: good.set_result(1)).start()
    assert until_ended([good, bad, endless]) == {good}
    threading.Timer(0.1, lambda: bad.set_exception(ZeroDivisionError())).start()
    assert until_ended([good, bad], every=True) == {good, bad}
    assert until_ended([good, endless], every=True, seconds=0.1) == {good}
    assert until_ended([endless], seconds=0.1) == set()


def test_what_a_handler_raises_ends_the_wait():
    before = signal.signal(signal.SIGTERM, raise_terminated)
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
    try:
        with pytest.raises(Terminated):
            until_ended([Future()], seconds=60)
    finally:
        signal.signal(signal.SIGTERM, before)
