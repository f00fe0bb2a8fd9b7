"""The learning curve (which steps are recorded, which weights are kept) and when a run stops."""

import math

import numpy as np
import pytest

from knoi.callbacks.history import (
    COLUMNS,
    CONVERGED,
    MIN_RECORDS,
    OUT_OF_TIME,
    EarlyStopping,
    History,
    TimeLimit,
    as_columns,
)
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

    def test_a_step_that_stops_the_run_is_recorded(self):
        state = History(100, None, None)(state_at(7, stopped=OUT_OF_TIME), step_result())
        assert recorded(state) == [7]
        assert state.stopped == OUT_OF_TIME

    def test_a_step_that_is_rolled_back_is_recorded_but_not_evaluated(self):
        def evaluate(_optimizer):
            raise AssertionError("these weights no longer exist")

        state = History(100, None, evaluate)(state_at(7), step_result(rolled_back=True))
        assert recorded(state) == [7]
        assert state.history[0]["rolled_back"] is True
        assert math.isnan(state.history[0]["held_out"])
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

    def test_without_held_out_rows_no_weights_are_kept(self):
        state = after(History(1, None, None), range(1, 4))
        assert state.best is None
        columns = as_columns(state.history)
        assert tuple(columns) == COLUMNS
        assert columns["step"] == [1, 2, 3]
        assert np.isnan(columns["held_out"]).all()
        assert as_columns([]) == {name: [] for name in COLUMNS}


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


def test_the_time_limit_counts_from_its_creation():
    now = [100.0]
    limit = TimeLimit(5.0, lambda: now[0])
    stops = []
    for now[0] in (100.0, 104.999, 105.0, 200.0):
        stops.append(limit(state_at(1), step_result()).stopped)
    assert stops == [None, None, OUT_OF_TIME, OUT_OF_TIME]
    state = state_at(1, stopped=CONVERGED)
    assert TimeLimit(5.0, lambda: 0.0)(state, step_result()) is state
