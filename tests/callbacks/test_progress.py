"""The line of progress: when it is shown, what it says, how it renews itself."""

import io
from dataclasses import replace

import pytest

from knoi.callbacks import progress
from knoi.callbacks.progress import Progress, wants_progress
from knoi.callbacks.stopping import CONVERGED
from knoi.data.stream import Position
from knoi.solvers.loop import Snapshot
from tests.callbacks.runs import outcome, record, run_at


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when told to, on a terminal that is wide enough."""
    now = [0.0]
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    return now


def shown(stream, clock, seconds, runs, samples_in_all=1000):
    """What was written for these runs, `seconds` apart."""
    line = Progress(2, samples_in_all, stream)
    for run in runs:
        line(run, outcome())
        clock[0] += seconds
    return line


class TestWhoWantsIt:
    @pytest.mark.parametrize("verbose", [True, 1])
    def test_verbose_is_shown_anywhere(self, verbose):
        assert wants_progress(verbose, io.StringIO())
        assert wants_progress(verbose, Terminal())

    @pytest.mark.parametrize("verbose", [False, 0])
    def test_quiet_is_quiet_anywhere(self, verbose):
        assert not wants_progress(verbose, io.StringIO())
        assert not wants_progress(verbose, Terminal())

    def test_by_default_terminals_only(self):
        assert wants_progress(None, Terminal())
        assert not wants_progress(None, io.StringIO())


class TestTheLine:
    @pytest.mark.parametrize(("epoch", "batch", "said"), [(0, 3, 1), (1, 0, 1), (1, 2, 2)])
    def test_the_epoch_is_that_of_the_step(self, clock, epoch, batch, said):
        stream = Terminal()
        run = replace(run_at(1), position=Position(epoch, batch))
        Progress(2, 1000, stream, method="DoublyStochasticCCA")(run, outcome())
        assert stream.getvalue().startswith(f"\rDoublyStochasticCCA  epoch {said}  ")

    def test_it_tells_rate_time_left_and_correlation(self, clock):
        stream = Terminal()
        history = (record(2, 1.1), record(3, float("nan"), undone=True))
        shown(stream, clock, 2.0, [run_at(1), run_at(3, history=history)])
        # 200 samples in 2 seconds; 700 of 1000 are left.
        assert stream.getvalue().split("\r")[-1].rstrip() == (
            "KNOI  epoch 1  300 samples  100/s  30%, 0:07 left  correlation 1.23 of 2  "
            "held out 1.10"
        )

    def test_without_an_end_there_is_no_time_left(self, clock):
        stream = Terminal()
        shown(stream, clock, 2.0, [run_at(1), run_at(3)], samples_in_all=None)
        assert stream.getvalue().split("\r")[-1].rstrip() == (
            "KNOI  epoch 1  300 samples  100/s  correlation 1.23 of 2"
        )

    def test_the_first_line_knows_no_rate(self, clock):
        stream = Terminal()
        shown(stream, clock, 2.0, [run_at(1)])
        assert stream.getvalue() == "\rKNOI  epoch 1  100 samples  correlation 1.23 of 2"

    def test_a_resumed_run_has_the_rate_of_its_own_steps(self, clock):
        stream = Terminal()
        shown(stream, clock, 1.0, [run_at(7), run_at(8)], samples_in_all=1000)
        assert "  100/s  80%, 0:02 left  " in stream.getvalue()

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(0, "0:00"), (59.6, "1:00"), (61, "1:01"), (3599.7, "1:00:00"), (36_001, "10:00:01")],
    )
    def test_times_are_read_as_clocks_are(self, clock, seconds, text):
        stream = Terminal()
        rate = 100
        shown(stream, clock, 1.0, [run_at(1), run_at(2)], samples_in_all=200 + rate * seconds)
        assert f", {text} left" in stream.getvalue()

    def test_an_undone_step_has_a_line_that_stays(self, clock):
        stream = Terminal()
        line = Progress(2, 1000, stream)
        line(run_at(4), outcome(undone=True))
        first = stream.getvalue().split("\n")[0]
        assert first == (
            "\rstep 4: the views fell apart; step undone, learning rate halved to 0.125"
        )


class TestATerminal:
    def test_the_line_renews_itself_and_leaves_no_tail(self, clock):
        stream = Terminal()
        history = (record(2, 1.1),)
        shown(stream, clock, 2.0, [run_at(1), run_at(2, history=history), run_at(3)])
        lines = stream.getvalue().split("\r")[1:]
        assert len(lines) == 3
        assert "\n" not in stream.getvalue()
        assert len(lines[2]) == len(lines[1]) > len(lines[2].rstrip())

    def test_on_a_narrow_terminal_the_first_facts_go(self, clock, monkeypatch):
        history = (record(2, 1.1),)
        for columns, last in (
            (79, "KNOI  300 samples  100/s  30%, 0:07 left  correlation 1.23 of 2  held out 1.10"),
            (50, "KNOI  correlation 1.23 of 2  held out 1.10"),
            (12, "KNOI  held "),
        ):
            monkeypatch.setenv("COLUMNS", str(columns))
            stream = Terminal()
            shown(stream, clock, 2.0, [run_at(1), run_at(3, history=history)])
            assert stream.getvalue().split("\r")[-1].rstrip() == last.rstrip()
            assert all(len(line) < columns for line in stream.getvalue().split("\r"))

    def test_it_is_renewed_no_more_often_than_can_be_read(self, clock):
        stream = Terminal()
        shown(stream, clock, 0.125, [run_at(step) for step in range(1, 10)])
        assert stream.getvalue().count("\r") == 3  # at 0, 0.5 and 1 seconds

    def test_the_last_line_stays(self, clock):
        stream = Terminal()
        line = shown(stream, clock, 1.0, [run_at(1), run_at(2)])
        best = Snapshot(None, None, 1.876, 100)
        line.end(run_at(900, best=best, stopped=CONVERGED))
        last = stream.getvalue().split("\r")[-1]
        assert last.rstrip(" \n") == "KNOI  90,000 samples in 1:30  held out 1.88  converged"
        assert last.endswith("\n")

    def test_a_line_cut_short_is_ended_once(self, clock):
        stream = Terminal()
        line = shown(stream, clock, 1.0, [run_at(1)])
        line.close()
        line.close()
        assert stream.getvalue().count("\n") == 1
        assert stream.getvalue().endswith("\n")

    def test_a_line_that_stays_needs_no_end(self, clock):
        stream = Terminal()
        line = shown(stream, clock, 1.0, [run_at(1)])
        line.end(run_at(2))
        written = stream.getvalue()
        line.close()
        assert stream.getvalue() == written


class TestAPipe:
    def test_plain_lines_now_and_then(self, clock):
        stream = io.StringIO()
        line = shown(stream, clock, 1.0, [run_at(step) for step in range(1, 22)])
        line.end(run_at(21))
        line.close()
        lines = stream.getvalue().split("\n")
        assert len(lines) == 5  # at 0, 10 and 20 seconds, the end, and what follows its newline
        assert lines[1].startswith("KNOI  epoch 2  1,100 samples  100/s  ")
        assert lines[3] == "KNOI  2,100 samples in 0:02"
        assert "\r" not in stream.getvalue()
