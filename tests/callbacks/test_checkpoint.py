"""Checkpoints: when they are written, what they restore, which runs may resume; signals."""

import os
import signal
import threading

import pytest

from knoi.arrays.backend import numpy_backend
from knoi.callbacks.checkpoint import (
    FILE_NAME,
    Checkpoint,
    SignalGuard,
    load_state,
    open_directory,
    stored_identity,
)
from knoi.exceptions import CheckpointError, ModelFileError
from knoi.persistence import write_model
from tests.callbacks.states import state_at, step_result

BACKEND = numpy_backend("float64")
IDENTITY = {"estimator": "KNOI", "n_rows": 7, "kernel": ["rbf", None], "rows": "ab", "features": []}


def saving(directory, clock=(0.0,)):
    """A checkpoint every ten seconds of a clock that tests set."""
    return Checkpoint(directory, IDENTITY, BACKEND, 10.0, now=lambda: clock[0])


def steps_saved(directory):
    """The step of the checkpoint on disk; None if there is none."""
    if not (directory / FILE_NAME).exists():
        return None
    return load_state(directory, IDENTITY, BACKEND).optimizer.steps


class TestSaving:
    def test_every_so_many_seconds(self, tmp_path):
        clock, found = [0.0], []
        save = saving(tmp_path, clock=clock)
        for step, clock[0] in enumerate([1.0, 9.9, 10.0, 12.0, 19.9, 20.5], start=1):
            state = state_at(step)
            assert save(state, step_result()) is state
            found.append(steps_saved(tmp_path))
        assert found == [None, None, 3, 3, 3, 6]


class TestFiles:
    @pytest.mark.parametrize(
        ("header", "error", "message"),
        [
            ({"class": "LinearCCA"}, ModelFileError, r"holds a 'LinearCCA', not .* Name the dir"),
            ({"class": "Checkpoint"}, CheckpointError, r"of version 1, but .* Finish"),
        ],
    )
    def test_files_that_are_not_checkpoints_of_this_version(self, tmp_path, header, error, message):
        write_model(tmp_path / FILE_NAME, header, {})
        for read in (stored_identity, lambda path: load_state(path, IDENTITY, BACKEND)):
            with pytest.raises(error, match=message):
                read(tmp_path)

    def test_the_directory_is_created_and_leftovers_of_killed_writes_are_removed(self, tmp_path):
        directory = open_directory(str(tmp_path / "a" / "b"))
        assert stored_identity(directory) is None
        saving(directory).save(state_at(3))
        for name in (".knoi-0123.tmp/checkpoint.knoi", "notes.txt", "other.knoi"):
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_text("half")
        open_directory(directory)
        left = sorted(path.name for path in directory.iterdir())
        assert left == [FILE_NAME, "notes.txt", "other.knoi"]
        assert steps_saved(directory) == 3

    def test_a_file_is_not_a_directory(self, tmp_path):
        file = tmp_path / "run"
        file.write_text("mine")
        with pytest.raises(CheckpointError, match=r"^checkpoint=.* is a file: wanted a directory"):
            open_directory(file)
        assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("steps", "folder", "notes"),
    [(0, "", []), (1, "gone", ["The run could not be saved to "])],
    ids=["before the first step", "saving fails too"],
)
def test_an_error_is_raised_and_an_older_checkpoint_kept(tmp_path, steps, folder, notes):
    saving(tmp_path).save(state_at(99))
    save = saving(tmp_path / folder)

    def train():
        with save.guarding():
            for step in range(1, steps + 1):
                save(state_at(step), step_result())
            raise ValueError("no row 7")

    with pytest.raises(ValueError, match="no row 7") as raised:
        train()
    assert [note[:30] for note in getattr(raised.value, "__notes__", [])] == notes
    assert steps_saved(tmp_path) == 99


def send(number):
    """Send this process a signal; Python handles it before the next line."""
    os.kill(os.getpid(), number)


@pytest.fixture
def handlers():
    """The handlers of both signals, restored at the end."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


class TestSignals:
    @pytest.mark.parametrize(
        ("number", "ending"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
    )
    def test_a_signal_acts_after_the_step_is_saved(self, tmp_path, handlers, number, ending):
        save = saving(tmp_path)

        def train():
            with save.guarding():
                save(state_at(1), step_result())
                send(number)
                assert steps_saved(tmp_path) is None  # the current step continues
                save(state_at(2), step_result())

        with pytest.raises(ending) as raised:
            train()
        assert steps_saved(tmp_path) == 2
        if ending is SystemExit:
            assert raised.value.code == 143
        assert {number: signal.getsignal(number) for number in handlers} == handlers

    def test_the_second_signal_acts_at_once(self, handlers):
        def train():
            with SignalGuard().listening():
                send(signal.SIGTERM)
                send(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            train()
        assert {number: signal.getsignal(number) for number in handlers} == handlers

    def test_a_signal_after_the_last_step_is_delivered(self, tmp_path, handlers):
        save = saving(tmp_path)
        with save.guarding():
            send(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                save.finish(state_at(4))
        assert steps_saved(tmp_path) == 4

    def test_the_callers_handler_is_called(self, tmp_path, handlers):
        calls = []
        signal.signal(signal.SIGTERM, lambda number, _frame: calls.append(number))
        save = saving(tmp_path)
        with save.guarding():
            send(signal.SIGTERM)
            assert calls == []
            save(state_at(1), step_result())
            assert (calls, steps_saved(tmp_path)) == ([signal.SIGTERM], 1)
            save(state_at(2), step_result())  # the handler returned: training continues
        assert (calls, steps_saved(tmp_path)) == ([signal.SIGTERM], 1)

    def test_a_signal_that_is_ignored_stays_ignored(self, handlers):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        interrupted = SignalGuard()
        with interrupted.listening():
            send(signal.SIGINT)
        assert interrupted.signal is None

    def test_outside_the_main_thread_handlers_stay(self, handlers):
        found = []

        def listen():
            with SignalGuard().listening():
                found.append({number: signal.getsignal(number) for number in handlers})

        thread = threading.Thread(target=listen)
        thread.start()
        thread.join()
        assert found == [handlers]
