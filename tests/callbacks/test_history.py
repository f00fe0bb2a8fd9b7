"""The learning curve: which steps are recorded, what a record says, which weights are kept."""

import math

import numpy as np
import pytest

from knoi.callbacks.history import COLUMNS, OUT_OF_TIME, History, as_columns
from tests.callbacks.runs import outcome, run_at


def followed(history, steps, run=None):
    """The run once `history` has looked at these steps, one after the other."""
    run = run_at(0) if run is None else run
    for step in steps:
        run = history(run_at(step, history=run.history, best=run.best), outcome())
    return run


def recorded(run):
    return [record["step"] for record in run.history]


def test_a_record_says_where_the_run_is():
    run = History(1, None, lambda _weights: 1.5)(run_at(12), outcome())
    assert run.history == (
        {
            "step": 12,
            "epoch": 1,
            "samples": 1200,
            "seconds": 1.2,
            "loss": 0.5,
            "correlation": 1.234,
            "held_out": 1.5,
            "learning_rate": 0.25,
            "rolled_back": False,
        },
    )


def test_records_lie_so_many_steps_apart():
    assert recorded(followed(History(3, None, None), range(1, 11))) == [3, 6, 9]


def test_the_last_step_is_recorded_whatever_its_number():
    assert recorded(followed(History(4, 10, None), range(1, 11))) == [4, 8, 10]
    assert recorded(followed(History(100, 10, None), range(1, 11))) == [10]


def test_a_step_that_stops_the_run_is_recorded():
    run = History(100, None, None)(run_at(7, stopped=OUT_OF_TIME), outcome())
    assert recorded(run) == [7]
    assert run.stopped == OUT_OF_TIME


def test_a_step_that_is_undone_is_recorded_and_not_judged():
    def evaluate(_weights):
        raise AssertionError("these weights are gone")

    run = History(100, None, evaluate)(run_at(7), outcome(rolled_back=True))
    assert recorded(run) == [7]
    assert run.history[0]["rolled_back"] is True
    assert math.isnan(run.history[0]["held_out"])
    assert run.best is None


def test_later_records_lie_a_hundredth_of_the_run_apart():
    steps = recorded(followed(History(1, None, None), range(1, 20_001)))
    assert steps[:100] == list(range(1, 101))
    gaps = np.diff(steps)
    assert np.all(gaps * 100 >= np.array(steps[1:]))
    # The first step that may be recorded is: apart by a hundredth, rounded up, and no more.
    assert np.all((gaps - 1) * 100 < np.array(steps[1:]) - 1)


def test_the_number_of_records_grows_with_the_logarithm_of_the_steps():
    run, counts = run_at(0), []
    history = History(1, None, None)
    for stop in (1_000, 4_000, 16_000, 64_000):
        run = followed(history, range(run.optimizer.steps + 1, stop + 1), run)
        counts.append(len(run.history))
    added = np.diff(counts)  # each time for four times the steps
    assert np.all(added <= 100 * math.log(4) * 1.05)
    assert added.max() <= 1.1 * added.min()


def test_the_best_weights_are_kept_and_only_they():
    values = {1: 0.5, 2: 0.9, 3: 0.7, 4: math.nan, 5: 0.9}
    history = History(1, None, lambda w: values[w.steps])
    run = run_at(0)
    for step in values:
        run = history(run_at(step, value=step, history=run.history, best=run.best), outcome())
    assert (run.best.held_out, run.best.samples) == (0.9, 200)  # the first of equals
    assert np.all(run.best.U == 2)
    assert np.all(run.best.V == 2)
    np.testing.assert_equal([r["held_out"] for r in run.history], list(values.values()))


def test_a_negative_correlation_is_better_than_none():
    run = History(1, None, lambda _weights: -0.2)(run_at(1), outcome())
    assert run.best.held_out == -0.2


def test_nothing_is_kept_where_nothing_is_held_out():
    run = followed(History(1, None, None), range(1, 4))
    assert run.best is None
    assert all(math.isnan(record["held_out"]) for record in run.history)


def test_columns_are_all_there_and_of_one_length():
    run = followed(History(1, None, None), range(1, 4))
    columns = as_columns(run.history)
    assert tuple(columns) == COLUMNS
    assert {len(values) for values in columns.values()} == {3}
    assert columns["step"] == [1, 2, 3]
    assert as_columns([]) == {name: [] for name in COLUMNS}


@pytest.mark.parametrize("every", [1, 5])
def test_a_history_that_goes_on_records_what_one_in_one_go_would(every):
    straight = followed(History(every, 50, None), range(1, 51))
    first = followed(History(every, 50, None), range(1, 18))
    again = followed(History(every, 50, None), range(18, 51), first)
    assert recorded(again) == recorded(straight)
