"""The progress bar: a live line on a terminal, plain lines elsewhere."""

import io
import re

import pytest

from knoi.callbacks import history
from knoi.callbacks.history import CONVERGED, ProgressBar
from knoi.solvers.loop import Snapshot
from tests.callbacks.states import record, state_at, step_result


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set."""
    time = [100.0]
    monkeypatch.setattr(history, "monotonic", lambda: time[0])
    return time


def lines(stream):
    return stream.getvalue().splitlines()


class TestLog:
    def test_a_line_now_and_then(self, clock):
        stream = io.StringIO()
        bar = ProgressBar("KNOI", 2, 4000, stream)
        for step, now in ((1, 100.0), (2, 105.0), (11, 110.0), (12, 119.0), (21, 120.0)):
            clock[0] = now
            bar(state_at(step), step_result())
        assert lines(stream) == [
            "KNOI  epoch 1  100 samples  correlation 1.23 of 2",
            "KNOI  epoch 2  1,100 samples  100/s  correlation 1.23 of 2  28%, 0:29 left",
            "KNOI  epoch 3  2,100 samples  100/s  correlation 1.23 of 2  52%, 0:19 left",
        ]

    def test_without_a_known_end_there_is_no_time_left(self, clock):
        stream = io.StringIO()
        bar = ProgressBar("KNOI", 2, None, stream)
        bar(state_at(1), step_result())
        clock[0] = 110.0
        bar(state_at(11), step_result())
        assert "left" not in stream.getvalue()
        assert "100/s" in stream.getvalue()

    def test_the_latest_held_out_value_that_was_not_rolled_back(self, clock):
        stream = io.StringIO()
        records = (record(1, 1.5), record(2, float("nan"), rolled_back=True))
        ProgressBar("KNOI", 2, None, stream)(state_at(3, history=records), step_result())
        assert "held out 1.50" in stream.getvalue()

    def test_a_step_that_is_rolled_back_is_reported_at_once(self, clock):
        stream = io.StringIO()
        bar = ProgressBar("KNOI", 2, None, stream)
        bar(state_at(1), step_result())
        bar(state_at(2), step_result(rolled_back=True))
        assert lines(stream)[1] == (
            "step 2: the views fell apart; rolled back, learning rate halved to 0.125"
        )

    def test_the_last_line(self, clock):
        stream = io.StringIO()
        state = state_at(40, stopped=CONVERGED, best=Snapshot(None, None, 1.75, 3000))
        ProgressBar("KNOI", 2, 4000, stream).finish(state)
        ProgressBar("KNOI", 2, None, stream).finish(state_at(40_000))
        assert lines(stream) == [
            "KNOI  4,000 samples in 0:04  held out 1.75  converged",
            "KNOI  4,000,000 samples in 1:06:40",
        ]


class TestTerminal:
    def test_a_bar_is_replaced_by_one_last_line(self, clock, monkeypatch):
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")
        stream = Terminal()
        bar = ProgressBar("KNOI", 2, 4000, stream)
        bar(state_at(1), step_result())
        bar(state_at(2), step_result(rolled_back=True))
        bar.finish(state_at(40))
        shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
        assert "correlation 1.23 of 2" in shown
        assert "learning rate halved to 0.125" in shown
        assert shown.endswith("KNOI  4,000 samples in 0:04\n")
        assert stream.getvalue().count("\x1b[?25l") == stream.getvalue().count("\x1b[?25h") == 1
