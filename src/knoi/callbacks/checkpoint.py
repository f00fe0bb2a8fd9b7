"""Checkpoints: the whole run in one file, written atomically, every so often and when told to end.

A checkpoint carries the `identity` of its run, what must be equal for it to go on: parameters,
data, feature maps. A run goes on only from a checkpoint that is its own.
"""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from knoi.arrays.backend import Backend
from knoi.exceptions import CheckpointError, ModelFileError
from knoi.persistence import flatten_state, read_model, unflatten_state, write_model
from knoi.solvers.loop import Run
from knoi.solvers.rule import Outcome

FILE_NAME = "checkpoint.knoi"
_CLASS = "Checkpoint"


class Interrupted:
    """Takes note of Ctrl-C and SIGTERM, so that a step ends and is saved before the process does.

    Outside the main thread, where Python lets no one listen, nothing is noted and signals act as
    they would.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Listen for the length of a `with` block."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _frame: Any) -> None:
        if self.signal is not None:  # asked twice: at once
            self.act(number)
        self.signal = number

    @staticmethod
    def act(number: int) -> None:
        """What the signal would have done: KeyboardInterrupt, or an exit with its code."""
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)


@dataclass
class Checkpoint:
    """Saves the run to `directory` every `seconds`, and before a signal ends it."""

    directory: Path
    identity: Mapping[str, Any]
    backend: Backend
    interrupted: Interrupted
    seconds: float
    _saved: float = field(default_factory=monotonic, init=False)

    def __call__(self, run: Run, _outcome: Outcome) -> Run:
        """Save if it is time to; end the process if it was told to."""
        told = self.interrupted.signal
        if told is not None or monotonic() - self._saved >= self.seconds:
            self.save(run)
        if told is not None:
            self.interrupted.act(told)
        return run

    def save(self, run: Run) -> None:
        """Write the run, whole or not at all."""
        plain, tensors = flatten_state(run.state_dict(self.backend))
        header = {"class": _CLASS, "identity": self.identity, "run": plain}
        write_model(self.directory / FILE_NAME, header, tensors)
        self._saved = monotonic()


def open_directory(path: str | Path) -> Path:
    """The directory of a checkpoint, made if need be, without leftovers of killed writes."""
    directory = Path(path)
    if directory.exists() and not directory.is_dir():
        raise CheckpointError(
            f"checkpoint={str(path)!r} is a file: wanted a directory to write checkpoints to. Name "
            "a directory; it is made if it does not exist."
        )
    os.makedirs(directory, exist_ok=True)
    for leftover in directory.glob(".knoi-*.tmp"):
        leftover.unlink(missing_ok=True)
    return directory


def stored_identity(directory: Path) -> dict[str, Any] | None:
    """The identity of the checkpoint in a directory; None if there is no checkpoint."""
    file = directory / FILE_NAME
    if not file.exists():
        return None
    identity: dict[str, Any] = _read(file).header["identity"]
    return identity


def load_run(directory: Path, identity: Mapping[str, Any], backend: Backend) -> Run:
    """The run of the checkpoint in `directory`, refused unless it is the one of `identity`."""
    file = directory / FILE_NAME
    model = _read(file)
    theirs = model.header["identity"]
    for name in [*identity, *(name for name in theirs if name not in identity)]:
        if identity.get(name) != theirs.get(name):
            raise CheckpointError(
                f"{file} is of another run: its {name} is {theirs.get(name)!r}, here it is "
                f"{identity.get(name)!r}. Resume with the parameters and the data it was made "
                "with, or train anew in another directory."
            )
    return Run.from_state_dict(unflatten_state(model.header["run"], model.tensors), backend)


def _read(file: Path) -> Any:
    model = read_model(file)
    if model.header.get("class") != _CLASS:
        raise ModelFileError(
            f"{file} holds a {model.header.get('class')!r}, not a checkpoint. Name the directory "
            "of a checkpoint."
        )
    return model
