"""When a run stops: held-out correlation that no longer rises, or the clock."""

import math

import pytest

from knoi.callbacks.history import CONVERGED, MIN_RECORDS, OUT_OF_TIME, EarlyStopping, TimeLimit
from tests.callbacks.runs import outcome, record, run_at


def curve(*values):
    """A history with a record every ten steps."""
    return tuple(record(10 * (i + 1), value) for i, value in enumerate(values))


def looked_at(history, tol=0.01, step=None):
    step = history[-1]["step"] if step is None else step
    return EarlyStopping(tol)(run_at(step, history=history), outcome())


RISING = curve(1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
FLAT = curve(1.0, 1.2, 1.4, 1.401, 1.402, 1.403)


class TestEarlyStop:
    def test_a_curve_that_rises_goes_on(self):
        assert looked_at(RISING).stopped is None

    def test_a_curve_that_is_flat_in_its_second_half_stops(self):
        assert looked_at(FLAT).stopped == CONVERGED

    def test_tol_is_relative_and_over_the_doubling_of_samples(self):
        # Half of 60 steps: the best until step 30 was 1.4, and 1.403 is 0.21 % more.
        assert looked_at(FLAT, tol=0.0021).stopped is None
        assert looked_at(FLAT, tol=0.0022).stopped == CONVERGED
        scaled = curve(*(50 * r["held_out"] for r in FLAT))
        assert looked_at(scaled, tol=0.0021).stopped is None
        assert looked_at(scaled, tol=0.0022).stopped == CONVERGED

    def test_a_curve_that_falls_stops_unless_tol_is_zero(self):
        assert looked_at(curve(1, 2, 3, 2.5, 2.4, 2.3), tol=0.0).stopped is None
        assert looked_at(curve(1, 2, 3, 2.5, 2.4, 2.3), tol=1e-9).stopped == CONVERGED

    def test_few_records_say_nothing(self):
        for n in range(1, MIN_RECORDS):
            assert looked_at(curve(*[1.0] * n)).stopped is None
        assert looked_at(curve(*[1.0] * MIN_RECORDS)).stopped == CONVERGED

    def test_nothing_is_judged_between_records(self):
        assert looked_at(FLAT, step=61).stopped is None

    def test_no_record_yet(self):
        assert EarlyStopping(0.01)(run_at(5), outcome()).stopped is None

    def test_undone_steps_are_no_records(self):
        undone = tuple(record(step, math.nan, rolled_back=True) for step in range(1, 11))
        assert looked_at((*undone, *curve(1.0, 1.0))).stopped is None
        assert looked_at(undone).stopped is None

    def test_nothing_to_look_back_to(self):
        late = tuple(record(1000 + step, 1.0) for step in range(6))
        assert looked_at(late).stopped is None

    def test_a_negative_correlation_that_rises_goes_on(self):
        assert looked_at(curve(-1.0, -0.9, -0.8, -0.6, -0.5, -0.4)).stopped is None

    def test_the_rest_of_the_run_is_left_alone(self):
        run = run_at(60, history=FLAT)
        stopped = EarlyStopping(0.01)(run, outcome())
        assert stopped.history is run.history
        assert stopped.optimizer is run.optimizer
        assert run.stopped is None


class TestTimeLimit:
    def test_the_clock_starts_when_it_is_made(self):
        now = [100.0]
        limit = TimeLimit(5.0, lambda: now[0])
        stops = []
        for now[0] in (100.0, 104.999, 105.0, 200.0):
            stops.append(limit(run_at(1), outcome()).stopped)
        assert stops == [None, None, OUT_OF_TIME, OUT_OF_TIME]

    @pytest.mark.parametrize("reason", [None, CONVERGED])
    def test_before_its_time_it_changes_nothing(self, reason):
        run = run_at(1, stopped=reason)
        assert TimeLimit(5.0, lambda: 0.0)(run, outcome()) is run
