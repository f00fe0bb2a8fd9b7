"""Files a command is given: opened, and outputs known to be writable, before any long work."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knoi.exceptions import (
    InputError,
    InputTypeError,
    NonFiniteError,
    SourceFormatError,
    SourceNotFoundError,
)

if TYPE_CHECKING:
    from knoi.data.pairs import PairSource
    from knoi.estimators.base import BaseCCA

MODEL_SUFFIX = ".knoi"


def open_pairs(x: Path, y: Path, usage: str) -> "PairSource":
    """Two views by their locators; `usage` says what should stand where a model was given."""
    from knoi.data.pairs import PairSource

    for name, path in (("X", x), ("Y", y)):
        if path.suffix == MODEL_SUFFIX:
            raise InputError(f"{name} is {str(path)!r}, a model, but data is wanted there: {usage}")
    return PairSource.open(os.fspath(x), os.fspath(y))


def load_model(path: Path, *others: Path | None, usage: str, **machine: Any) -> "BaseCCA":
    """The model of a file, to be used with what is said of the machine, not with what it was."""
    from knoi.estimators import load

    misplaced = [other for other in others if other is not None and other.suffix == MODEL_SUFFIX]
    if misplaced and path.suffix != MODEL_SUFFIX:
        raise InputError(f"The model comes first, before the data: {usage}")
    model = load(path)
    # How much memory, how many threads and which device are no part of what was learned.
    model.set_params(memory_budget=None, n_jobs=None, device=None)
    model.set_params(**machine)
    return model


@contextmanager
def about(what: str) -> Iterator[None]:
    """Errors with data in the `with` block begin with `what`."""
    try:
        yield
    except (InputError, SourceNotFoundError, SourceFormatError) as error:
        kinds = (InputTypeError, NonFiniteError, InputError, SourceNotFoundError, SourceFormatError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        raise kind(f"{what}: {error}") from error


def check_columns(found: tuple[int, int], wanted: tuple[int, int]) -> None:
    """Refuse views that are not those of a model, and say so where they are swapped."""
    if found == wanted:
        return
    came = f"X has {found[0]} columns and Y has {found[1]}"
    if found[::-1] == wanted:
        raise InputError(
            f"{came}, but the views fitted have {wanted[0]} and {wanted[1]}: they are swapped. "
            "Give X first, then Y."
        )
    raise InputError(
        f"{came}, but the views fitted have {wanted[0]} and {wanted[1]}. Give files with the "
        "columns that were fitted."
    )


def check_output(path: Path, option: str, inputs: Sequence[Path | None] = ()) -> None:
    """Refuse a place that cannot be written to, or that holds what is to be read."""
    if path.is_dir():
        raise InputError(f"{option} {path} is a folder. Add a file name to it.")
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"{option} {path}: there is no folder {folder}. Make it first.")
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise InputError(f"{option} {path} cannot be written to. Give a place that is yours.")
    for given in inputs:
        if given is not None and _same_file(path, given):
            raise InputError(
                f"{option} {path} is also an input, which it would overwrite. Give another name."
            )


def check_model_output(path: Path, option: str, inputs: Sequence[Path | None]) -> None:
    """As `check_output`; a file that is there must be a model, for it will be overwritten."""
    check_output(path, option, inputs)
    if path.is_file() and path.stat().st_size and not _begins_like_a_model(path):
        raise InputError(
            f"{option} {path} is there and is no model, so it is not overwritten. Give another "
            "name, or remove it."
        )


def _begins_like_a_model(path: Path) -> bool:
    """Whether the first bytes are those of a model file; enough not to destroy something else."""
    with open(path, "rb") as file:
        begin = file.read(64)
    return begin[8:].startswith(b'{"__metadata__":{"knoi"')


def _same_file(output: Path, locator: Path) -> bool:
    from knoi.data.locator import split_locator

    path, _ = split_locator(os.fspath(locator))
    return path.exists() and output.exists() and os.path.samefile(path, output)
