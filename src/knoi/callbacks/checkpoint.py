"""Checkpoints: the whole run in one file, written atomically, every so often and when told to end.

A checkpoint carries the `identity` of its run, what must be equal for it to go on: parameters,
data, feature maps. A run goes on only from a checkpoint that is its own.
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
from knoi.solvers.loop import Run
from knoi.solvers.rule import Outcome

FILE_NAME = "checkpoint.knoi"
# Entries of an identity that stand for the data itself: fingerprints, which would tell nobody much.
DIGESTS = ("rows", "features")
_CLASS = "Checkpoint"


class Interrupted:
    """Takes note of Ctrl-C and SIGTERM, so that a step ends and is saved before the process does.

    Outside the main thread, where Python lets no one listen, nothing is noted and signals act as
    they would; so does a signal that the process ignores, or whose handler is not Python's.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Listen for the length of a `with` block."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self._before = {
            number: handler
            for number, handler in handlers.items()
            if handler not in (signal.SIG_IGN, None)
        }
        try:
            for number in self._before:
                signal.signal(number, self._note)
            yield
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _frame: Any) -> None:
        again, self.signal = self.signal is not None, number
        if again:  # asked twice: at once
            self.act()

    def act(self) -> None:
        """Do what the noted signal, if any, would have done.

        Ctrl-C raises KeyboardInterrupt and SIGTERM exits with its code, unless the caller has
        handlers of its own: those are called, and if they return, so does this.
        """
        number, self.signal = self.signal, None
        if number is None:
            return
        handler = self._before.get(number, signal.SIG_DFL)
        if callable(handler):  # Python's own for Ctrl-C raises KeyboardInterrupt
            handler(number, None)
        else:
            raise SystemExit(128 + number)


@dataclass
class Checkpoint:
    """Saves the run to `directory` every `seconds`, and before a signal ends it."""

    directory: Path
    identity: Mapping[str, Any]
    backend: Backend
    interrupted: Interrupted
    seconds: float
    now: Callable[[], float] = monotonic
    _saved: float = field(init=False)
    _unsaved: Run | None = field(default=None, init=False)
    _has_saved: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._saved = self.now()

    def __call__(self, run: Run, outcome: Outcome) -> Run:
        """Save if it is time to; end the process if it was told to."""
        self._unsaved = run
        told = self.interrupted.signal is not None
        if told or self.now() - self._saved >= self.seconds:
            self.save(run)
        if told:
            self.interrupted.act()
        return run

    def save(self, run: Run) -> None:
        """Write the run, whole or not at all."""
        plain, tensors = flatten_state(run.state_dict(self.backend))
        header = {"class": _CLASS, "identity": self.identity, "run": plain}
        write_model(self.directory / FILE_NAME, header, tensors)
        self._saved, self._unsaved, self._has_saved = self.now(), None, True

    @contextmanager
    def rescuing(self) -> Iterator[None]:
        """Save the steps taken if an error ends the `with` block, and say so in a note to it."""
        try:
            yield
        except Exception as error:
            try:
                if self._unsaved is not None:
                    self.save(self._unsaved)
            except Exception as another:  # what has ended training is the one to be told
                error.add_note(f"The run could not be saved to {self.directory}: {another}")
                raise error from None
            if self._has_saved:
                error.add_note(
                    f"The steps until here are saved in {self.directory}: once the cause is "
                    "mended, fit with resume=True goes on from there."
                )
            raise


def open_directory(path: str | Path) -> Path:
    """The directory of a checkpoint, made if need be, without leftovers of killed writes."""
    directory = Path(path)
    if directory.exists() and not directory.is_dir():
        raise CheckpointError(
            f"checkpoint={str(path)!r} is a file: wanted a directory to write checkpoints to. Name "
            "a directory; it is made if it does not exist."
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


def refuse_another(directory: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raise unless the identity of a checkpoint agrees with `ours`, which may be a part of it."""
    for name, value in ours.items():
        if theirs.get(name) == value:
            continue
        if name in DIGESTS:
            difference = "it was made from other data than X and Y, though of the same shape"
        else:
            difference = f"its {name} is {theirs.get(name)!r}, here it is {value!r}"
        raise CheckpointError(
            f"{directory / FILE_NAME} is of another run: {difference}. Resume with the parameters "
            "and the data it was made with, or train anew in another directory."
        )


def load_run(directory: Path, identity: Mapping[str, Any], backend: Backend) -> Run:
    """The run of the checkpoint in `directory`, refused unless it is the one of `identity`."""
    model = _read(directory / FILE_NAME)
    refuse_another(directory, model.header["identity"], identity)
    return Run.from_state_dict(unflatten_state(model.header["run"], model.tensors), backend)


def _read(file: Path) -> Any:
    model = read_model(file)
    if model.header.get("class") != _CLASS:
        raise ModelFileError(
            f"{file} holds a {model.header.get('class')!r}, not a checkpoint. Name the directory "
            "of a checkpoint."
        )
    return model
