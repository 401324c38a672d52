"""What a sweep's reports add up to."""

import random
import statistics
from collections import Counter
from types import SimpleNamespace

import pytest

from flows.board import Board, duration


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def specs(names):
    return [SimpleNamespace(name=name, steps=100, validate_every=10) for name in names]


@pytest.fixture
def board(clock):
    board = Board(specs("abcd"), clock)
    with board.training():
        yield board


def row(step, accuracy):
    return {"step": float(step), "validation_accuracy": accuracy}


def test_time_left_counts_only_steps_of_this_run(board, clock):
    board.set_state("a", "done")  # found finished
    board.set_state("b", "running")
    clock.now = 10.0
    board.report("b", row(60, 0.2))  # resumed at 50: ten steps in ten seconds
    assert board.seconds_left == pytest.approx(40 + 100 + 100)
    assert board.fraction == pytest.approx((100 + 60) / 400)


def test_a_step_counts_by_its_cost(clock):
    board = Board(specs("ab"), clock, cost=lambda spec: {"a": 0.1, "b": 0.3}[spec.name])
    with board.training():
        board.report("a", row(10, 0.2))  # the first of a trial that starts anew
        clock.now = 5.0
        board.report("a", row(50, 0.2))
    assert board.fraction == pytest.approx(5 / 40)
    assert board.seconds_left == pytest.approx(35)


def test_only_time_of_training_counts(clock):
    board = Board(specs("ab"), clock)
    clock.now = 1000.0  # data sets were made
    with board.training():
        board.report("a", row(10, 0.2))
        clock.now += 10
        board.report("a", row(100, 0.2))
        board.set_state("a", "done")
    clock.now += 1000  # evaluations
    assert board.seconds_left == pytest.approx(10)
    with board.training():
        board.report("b", row(10, 0.2))
        clock.now += 5
        board.report("b", row(50, 0.2))
        assert board.seconds_left == pytest.approx(5)


def test_there_is_no_estimate_before_the_first_report(board, clock):
    clock.now = 10.0
    assert board.seconds_left is None


def test_a_failed_trial_is_not_waited_for(board, clock):
    for name in "abc":
        board.set_state(name, "done")
    board.set_state("d", "failed")
    assert board.fraction == 1.0
    assert board.line() == "trials 3/4 done, 0 running, 1 failed"


def test_who_was_given_up_is_not_waited_for_either(board, clock):
    for name in "abc":
        board.set_state(name, "done")
    board.report("d", row(20, 0.1))
    board.set_state("d", "pruned")
    assert board.fraction == 1.0
    assert board.seconds_left is None or board.seconds_left == 0
    assert board.line().startswith("trials 3/4 done, 0 running, 1 pruned, 0 failed")


def test_the_line_names_states_best_accuracy_and_time(board, clock):
    board.set_state("a", "running")
    board.set_state("b", "waiting")
    clock.now = 30.0
    board.report("a", row(10, 0.25))
    board.report("a", row(20, 0.125))
    assert board.line() == (
        "trials 0/4 done, 1 running, 1 waiting, 0 failed; "
        "best validation accuracy 0.250 (median 0.250); about 10 min of training left"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12, "12 s"), (600, "10 min"), (3 * 3600, "3.0 h"), (72 * 3600, "3 days")],
)
def test_durations_are_rounded_for_people(seconds, text):
    assert duration(seconds) == text


def test_sums_kept_are_sums_taken_anew(clock):
    """After a random walk of states and reports they are what a fresh count gives."""
    draw = random.Random(0)
    names = [f"trial{number}" for number in range(20)]
    board = Board(specs(names), clock)
    states = ("queued", "running", "retrying", "waiting", "pruned", "failed", "done")
    last, best, state = dict.fromkeys(names, 0), {}, dict.fromkeys(names, "queued")
    for _ in range(500):
        name, accuracy = draw.choice(names), draw.choice((0.0, 0.125, 0.25, 0.5))
        if draw.random() < 0.5:
            last[name] = 10 * draw.randint(1, 10)
            best[name] = max(best.get(name, 0.0), accuracy)
            board.report(name, row(last[name], accuracy))
        else:
            state[name] = draw.choice(states)
            if state[name] == "done" and last[name] == 0:
                last[name] = 100
            board.set_state(name, state[name])
    ended = {n for n in names if state[n] in ("done", "pruned", "failed")}
    covered = sum(100 if n in ended else last[n] for n in names)
    assert board.counts == Counter(state.values())
    assert board.fraction == pytest.approx(covered / 2000)
    found = [value for value in best.values() if value]
    assert f"{max(found):.3f} (median {statistics.median(found):.3f})" in board.line()
