"""The learning curve (which steps are recorded, which weights are kept), stopping, progress."""

import io
import math
import re

import numpy as np
import pytest

from knoi.callbacks import history as module
from knoi.callbacks.history import (
    COLUMNS,
    CONVERGED,
    MIN_RECORDS,
    OUT_OF_TIME,
    EarlyStopping,
    History,
    ProgressBar,
    TimeLimit,
)
from knoi.solvers.loop import Snapshot
from tests.callbacks.states import record, state_at, step_result


def after(history, steps, state=None):
    """The state after calling `history` at each of these steps."""
    state = state_at(0) if state is None else state
    for step in steps:
        state = state_at(step, value=step, history=state.history, best=state.best)
        state = history(state, step_result())
    return state


def recorded(state):
    return [one["step"] for one in state.history]


class TestHistory:
    def test_a_record_holds_every_column(self):
        state = History(1, None, lambda _optimizer: 1.5)(state_at(12), step_result())
        (found,) = state.history
        assert tuple(found) == COLUMNS
        assert list(found.values()) == [12, 1, 1200, 1.2, 0.5, 1.234, 1.5, 0.25, False]

    @pytest.mark.parametrize(
        ("every", "last_step", "expected"),
        [(3, None, [3, 6, 9]), (4, 10, [4, 8, 10]), (100, 10, [10])],
    )
    def test_every_so_many_steps_and_the_last_are_recorded(self, every, last_step, expected):
        history = History(every, last_step, None)
        assert recorded(after(history, range(1, 11))) == expected
        resumed = after(history, range(7, 11), after(history, range(1, 7)))
        assert recorded(resumed) == expected

    def test_steps_that_stop_the_run_or_are_rolled_back_are_recorded(self):
        state = History(100, None, None)(state_at(7, stopped=OUT_OF_TIME), step_result())
        assert (recorded(state), state.stopped) == ([7], OUT_OF_TIME)

        def evaluate(_optimizer):
            raise AssertionError("these weights no longer exist")

        state = History(100, None, evaluate)(state_at(7), step_result(rolled_back=True))
        (found,) = state.history
        assert (found["step"], found["rolled_back"]) == (7, True)
        assert math.isnan(found["held_out"])
        assert state.best is None

    def test_late_records_are_a_hundredth_of_the_run_apart(self):
        steps = recorded(after(History(1, None, None), range(1, 20_001)))
        assert steps[:100] == list(range(1, 101))
        gaps = np.diff(steps)
        assert np.all(gaps * 100 >= np.array(steps[1:]))
        # A hundredth, rounded up, and no more: the number of records grows logarithmically.
        assert np.all((gaps - 1) * 100 < np.array(steps[1:]) - 1)

    def test_the_first_best_weights_are_kept(self):
        values = {1: -0.2, 2: 0.9, 3: 0.7, 4: math.nan, 5: 0.9}
        history = History(1, None, lambda optimizer: values[optimizer.steps])
        assert after(history, [1]).best.held_out == -0.2
        state = after(history, values)
        assert (state.best.held_out, state.best.samples) == (0.9, 200)
        assert np.all(state.best.U == 2)
        assert np.all(state.best.V == 2)
        np.testing.assert_equal([one["held_out"] for one in state.history], list(values.values()))


def curve(*values):
    """A history with a record every ten steps."""
    return tuple(record(10 * (i + 1), value) for i, value in enumerate(values))


FLAT = curve(1.0, 1.2, 1.4, 1.401, 1.402, 1.403)
NAN = math.nan


class TestEarlyStopping:
    def stopped(self, history, tol=0.01, step=None):
        step = history[-1]["step"] if step is None else step
        return EarlyStopping(tol)(state_at(step, history=history), step_result()).stopped

    @pytest.mark.parametrize(
        ("history", "tol", "expected"),
        [
            (curve(1.0, 1.2, 1.4, 1.6, 1.8, 2.0), 0.01, None),
            (curve(-1.0, -0.9, -0.8, -0.6, -0.5, -0.4), 0.01, None),
            # Half of 60 steps: the best until step 30 was 1.4, and 1.403 is 0.21 % more.
            (FLAT, 0.0021, None),
            (FLAT, 0.0022, CONVERGED),
            (curve(*(50 * one["held_out"] for one in FLAT)), 0.0021, None),
            (curve(*(50 * one["held_out"] for one in FLAT)), 0.0022, CONVERGED),
            (curve(1, 2, 3, 2.5, 2.4, 2.3), 0.0, None),
            (curve(1, 2, 3, 2.5, 2.4, 2.3), 1e-9, CONVERGED),
            (curve(*[1.0] * (MIN_RECORDS - 1)), 0.01, None),
            (curve(*[1.0] * MIN_RECORDS), 0.01, CONVERGED),
            # No record in the first half of the samples.
            (tuple(record(1000 + step, 1.0) for step in range(6)), 0.01, None),
            # Steps that were rolled back have no held-out value.
            (tuple(record(step, NAN, rolled_back=True) for step in range(1, 11)), 0.01, None),
            ((*(record(s, NAN, rolled_back=True) for s in range(9)), *curve(1.0, 1.0)), 0.01, None),
        ],
    )
    def test_a_run_stops_when_its_second_half_improved_by_less_than_tol(
        self, history, tol, expected
    ):
        assert self.stopped(history, tol) == expected

    def test_only_new_records_are_checked_and_the_rest_of_the_state_is_kept(self):
        assert self.stopped(FLAT, step=61) is None
        assert EarlyStopping(0.01)(state_at(5), step_result()).stopped is None
        state = state_at(60, history=FLAT)
        stopped = EarlyStopping(0.01)(state, step_result())
        assert stopped.history is state.history
        assert stopped.optimizer is state.optimizer
        assert state.stopped is None


@pytest.mark.parametrize(
    ("after", "stop"),
    [({}, 105.0), ({"seconds_after": 2.0}, 103.0), ({"steps_after": 4.0}, 101.0)],
    ids=["", "seconds", "steps"],
)
def test_the_time_limit_leaves_time_for_what_follows(after, stop):
    now = [100.0]
    limit, stops = TimeLimit(105.0, **after, now=lambda: now[0]), []
    for now[0] in (stop - 0.001, stop):  # the only step has taken the time since 100
        stops.append(limit(state_at(1), step_result()).stopped)
    assert stops == [None, OUT_OF_TIME]
    state = state_at(1, stopped=CONVERGED)
    assert TimeLimit(5.0, now=lambda: 0.0)(state, step_result()) is state


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set."""
    time = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: time[0])
    return time


def progress_lines(clock, *steps, n_samples=None):
    """What is written, not on a terminal, for these states, results and times."""
    stream = io.StringIO()
    bar = ProgressBar("KNOI", 2, n_samples, stream)
    for state, result, clock[0] in steps:
        bar(state, result)
    return stream.getvalue().splitlines()


def test_elsewhere_a_line_is_written_now_and_then(clock):
    times = ((1, 100.0), (2, 105.0), (11, 110.0), (12, 119.0), (21, 120.0))
    steps = [(state_at(step), step_result(), now) for step, now in times]
    known = progress_lines(clock, *steps, n_samples=4000)
    assert known == [
        "KNOI  epoch 1  100 samples  correlation 1.23 of 2",
        "KNOI  epoch 2  1,100 samples  100/s  correlation 1.23 of 2  28%, 0:29 left",
        "KNOI  epoch 3  2,100 samples  100/s  correlation 1.23 of 2  52%, 0:19 left",
    ]
    # Without a known end there is no time left.
    assert progress_lines(clock, *steps) == [re.sub(r"  \d+%.*", "", line) for line in known]


def test_held_out_values_and_steps_that_are_rolled_back(clock):
    records = (record(1, 1.5), record(2, float("nan"), rolled_back=True))
    steps = [
        (state_at(3, history=records), step_result(), 100.0),
        (state_at(4), step_result(rolled_back=True), 100.0),
    ]
    first, second = progress_lines(clock, *steps)
    assert first.endswith("held out 1.50")  # the latest that was not rolled back
    assert second == "step 4: the views fell apart; rolled back, learning rate halved to 0.125"


def test_the_last_line():
    stream = io.StringIO()
    state = state_at(40, stopped=CONVERGED, best=Snapshot(None, None, 1.75, 3000))
    ProgressBar("KNOI", 2, 4000, stream).finish(state)
    ProgressBar("KNOI", 2, None, stream).finish(state_at(40_000))
    assert stream.getvalue().splitlines() == [
        "KNOI  4,000 samples in 0:04  held out 1.75  converged",
        "KNOI  4,000,000 samples in 1:06:40",
    ]


def test_on_a_terminal_a_bar_is_replaced_by_one_last_line(clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    bar = ProgressBar("KNOI", 2, 4000, stream)
    bar(state_at(1), step_result())
    bar(state_at(2), step_result(rolled_back=True))
    bar.finish(state_at(40))
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert "correlation 1.23 of 2" in text
    assert "learning rate halved to 0.125" in text
    assert text.endswith("KNOI  4,000 samples in 0:04\n")
    assert stream.getvalue().count("\x1b[?25l") == stream.getvalue().count("\x1b[?25h") == 1
