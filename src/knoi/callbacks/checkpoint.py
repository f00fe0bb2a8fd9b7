"""Checkpoints: the training state in one file, written now and then and when a signal comes.

A checkpoint carries the `identity` of its run: parameters, plan and fingerprints of data and
feature maps. A run resumes only from a checkpoint with the same identity.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from knoi.arrays.backend import Backend
from knoi.exceptions import CheckpointError, ModelFileError
from knoi.fileio import remove_unfinished
from knoi.persistence import flatten_state, read_model, unflatten_state, write_model
from knoi.solvers.loop import StepResult, TrainingState, from_state_dict, state_dict

FILE_NAME = "checkpoint.knoi"
# Entries of an identity that are fingerprints of data: their values would tell a user nothing.
DIGESTS = ("rows", "features")
# Number of the layout of a checkpoint, besides that of the file format.
VERSION = 2
_CLASS = "Checkpoint"


class SignalGuard:
    """Delay Ctrl-C and SIGTERM until the current step is done and saved.

    Outside the main thread, where Python allows no handlers, signals act at once. So does a signal
    that the process ignores or whose handler is not Python's.
    """

    def __init__(self) -> None:
        self.signal: int | None = None  # the signal that came, if any
        self._before: dict[int, Any] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals within a `with` block."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._before = {
            number: handler
            for number in (signal.SIGINT, signal.SIGTERM)
            if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
        }
        try:
            for number in self._before:
                signal.signal(number, self._handle)
            yield
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, _frame: Any) -> None:
        second, self.signal = self.signal is not None, number
        if second:  # do not wait for the step
            self.deliver()

    def deliver(self) -> None:
        """Do what the delayed signal, if any, would have done.

        Ctrl-C raises KeyboardInterrupt and SIGTERM exits with its code, unless the caller has
        installed handlers: those are called, and if they return, so does this.
        """
        number, self.signal = self.signal, None
        if number is None:
            return
        handler = self._before.get(number, signal.SIG_DFL)
        if callable(handler):  # Python's handler of Ctrl-C raises KeyboardInterrupt
            handler(number, None)
        else:
            raise SystemExit(128 + number)


@dataclass
class Checkpoint:
    """Save the training state to `directory` every `seconds`, and before a signal ends the run."""

    directory: Path
    identity: Mapping[str, Any]
    backend: Backend
    seconds: float
    signals: SignalGuard = field(default_factory=SignalGuard)
    now: Callable[[], float] = monotonic
    _saved_at: float = field(init=False)
    _unsaved: TrainingState | None = field(default=None, init=False)
    _has_saved: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._saved_at = self.now()

    def __call__(self, state: TrainingState, result: StepResult) -> TrainingState:
        """Save if a checkpoint is due; then deliver a delayed signal."""
        self._unsaved = state
        signalled = self.signals.signal is not None
        if signalled or self.now() - self._saved_at >= self.seconds:
            self.save(state)
        if signalled:
            self.signals.deliver()
        return state

    def save(self, state: TrainingState) -> None:
        """Write the state, complete or not at all."""
        plain, tensors = flatten_state(state_dict(state, self.backend))
        header = {"class": _CLASS, "version": VERSION, "identity": self.identity, "state": plain}
        write_model(self.directory / FILE_NAME, header, tensors)
        self._saved_at, self._unsaved, self._has_saved = self.now(), None, True

    def finish(self, state: TrainingState) -> None:
        """Save the end of the run; deliver a signal that came after the last step."""
        self.save(state)
        self.signals.deliver()

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Delay signals within a `with` block; save the steps taken if an error ends it."""
        try:
            with self.signals.listening():
                yield
        except Exception as error:
            try:
                if self._unsaved is not None:
                    self.save(self._unsaved)
            except Exception as another:  # report the error that ended training
                error.add_note(f"The run could not be saved to {self.directory}: {another}")
                raise error from None
            if self._has_saved:
                error.add_note(
                    f"The steps so far are saved in {self.directory}. Fix the cause, then call fit "
                    "with resume=True to continue."
                )
            raise


def open_directory(path: str | Path) -> Path:
    """The directory of a checkpoint, created if needed, without leftovers of killed writes."""
    directory = Path(path)
    if directory.exists() and not directory.is_dir():
        raise CheckpointError(
            f"checkpoint={str(path)!r} is a file: wanted a directory to write checkpoints to. Name "
            "a directory; it is created if it does not exist."
        )
    os.makedirs(directory, exist_ok=True)
    remove_unfinished(directory)
    return directory


def stored_identity(directory: Path) -> dict[str, Any] | None:
    """The identity of the checkpoint in a directory; None if there is no checkpoint."""
    file = directory / FILE_NAME
    if not file.exists():
        return None
    identity: dict[str, Any] = _read(file).header["identity"]
    return identity


def check_same_run(directory: Path, stored: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raise unless a stored identity agrees with `ours`, which may be a part of it."""
    for name, value in ours.items():
        if stored.get(name) == value:
            continue
        if name in DIGESTS:
            difference = "it was made from other data than X and Y, though of the same shape"
        else:
            difference = f"its {name} is {stored.get(name)!r}, here it is {value!r}"
        raise CheckpointError(
            f"{directory / FILE_NAME} is of another run: {difference}. Resume with the parameters "
            "and the data it was made with, or use another directory for a new run."
        )


def load_state(directory: Path, identity: Mapping[str, Any], backend: Backend) -> TrainingState:
    """The training state of the checkpoint in `directory`, which must have this identity."""
    model = _read(directory / FILE_NAME)
    check_same_run(directory, model.header["identity"], identity)
    state = unflatten_state(model.header["state"], model.tensors)
    return from_state_dict(TrainingState, state, backend)


def _read(file: Path) -> Any:
    model = read_model(file)
    if model.header.get("class") != _CLASS:
        raise ModelFileError(
            f"{file} holds a {model.header.get('class')!r}, not a checkpoint. Name the directory "
            "of a checkpoint."
        )
    version = model.header.get("version", 1)
    if version != VERSION:
        raise CheckpointError(
            f"{file} is a checkpoint of version {version}, but this version of knoi resumes "
            f"version {VERSION}. Finish the run with the version of knoi that wrote it, or use "
            "another directory for a new run."
        )
    return model
