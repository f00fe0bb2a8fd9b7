"""Files of a command: inputs opened and outputs checked before any long work begins."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knoi.exceptions import InputError, SourceFormatError, SourceNotFoundError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from knoi.arrays.backend import Array
    from knoi.data.pairs import PairSource
    from knoi.data.source import ViewSource
    from knoi.estimators.base import BaseCCA
    from knoi.persistence import ModelFile

# What `knoi fit` writes: not data.
KINDS = {".knoi": "a model file", ".html": "a report"}


def read_model_file(path: Path, *data: Path | None, usage: str) -> "ModelFile":
    """Read a model file; `data` and `usage` serve to explain arguments in the wrong order."""
    from knoi.persistence import read_model

    if path.suffix != ".knoi":
        if any(other is not None and other.suffix == ".knoi" for other in data):
            raise InputError(f"The model comes first, before the data: {usage}")
        if path.suffix in KINDS and path.exists():
            raise InputError(f"{path} is {KINDS[path.suffix]}. Give a model file: {usage}")
    return read_model(path)


def load_model(path: Path, *data: Path | None, usage: str, **machine: Any) -> "BaseCCA":
    """Load a model, and replace the memory limit, threads and device of the fit."""
    from knoi.estimators import TwoViewPipeline, from_model_file

    model = from_model_file(read_model_file(path, *data, usage=usage))
    if isinstance(model, TwoViewPipeline):
        raise InputError(
            f"{path} holds a TwoViewPipeline, whose transformers take tables in Python: use "
            "knoi.load. The command line takes estimators: pipeline.estimator_.save(path)."
        )
    model.set_params(**machine)
    return model


def open_pairs(x: Path, y: Path, usage: str) -> "PairSource":
    """Open two views by their locators; `usage` is shown if one is not data."""
    from knoi.data.pairs import PairSource

    for name, path in (("X", x), ("Y", y)):
        if path.suffix in KINDS:
            raise InputError(f"{name} is {str(path)!r}, {KINDS[path.suffix]}. Give data: {usage}")
    return PairSource.open(os.fspath(x), os.fspath(y))


def open_test_pairs(
    test: tuple[Path, Path] | None, n_cols: tuple[int, int], opened: ExitStack
) -> "PairSource | None":
    """Open the pairs of `--test`, which must have the columns of the training pairs."""
    if test is None:
        return None
    with prefix_errors("--test"):
        pairs = opened.enter_context(open_pairs(*test, "--test X_TEST Y_TEST"))
        check_columns(pairs.n_cols, n_cols)
    return pairs


def hold_out(
    pairs: "PairSource", size: int | float, seed: int, command: int
) -> tuple["PairSource", "PairSource"]:
    """Split into training pairs and held-out pairs; each `command` draws others."""
    from knoi.arrays.random import Purpose, derived_seed

    with prefix_errors("--held-out"):
        return pairs.split(size, derived_seed(seed, Purpose.PARTS, command))


@contextmanager
def prefix_errors(option: str) -> Iterator[None]:
    """Put the name of an option before the messages of data errors."""
    try:
        yield
    except (InputError, SourceNotFoundError, SourceFormatError) as error:
        error.args = (f"{option}: {error}",)
        raise


def check_columns(found: tuple[int, int], wanted: tuple[int, int]) -> None:
    """Check that two views have the columns the model was fitted to."""
    if found != wanted:
        swapped = ": they are swapped. Give X first, then Y."
        hint = ". Give files with the columns of the training data."
        raise InputError(
            f"X has {found[0]} columns and Y has {found[1]}, but the model was fitted to "
            f"{wanted[0]} and {wanted[1]}{swapped if found[::-1] == wanted else hint}"
        )


def read_texts(
    option: str, path: Path, n: int, whose: str, each: str = "row", *, labels: bool = False
) -> "NDArray[Any]":
    """Read a text or label for each row or column; `whose` is the view that has `n` of them."""
    from knoi.data import open as opening

    values = (opening.read_column if labels else opening.read_texts)(path, option, n)
    if len(values) != n:
        what = option.rpartition("-")[2]
        raise InputError(
            f"{option} ('{path}') has {len(values)} {what}, but {whose} has {n} {each}s. Give one "
            f"{what.removesuffix('s')} per {each}."
        )
    return values


def check_output(path: Path, option: str, inputs: Sequence[Path | None] = ()) -> None:
    """Check that a file can be written, and is not one of the inputs."""
    from knoi.data.open import split_path

    if path.is_dir():
        raise InputError(f"{option} {path} is a folder. Add a file name to it.")
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"{option} {path}: there is no folder {folder}. Create it first.")
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise InputError(f"{option} {path} cannot be written to. Choose another place.")
    for given in filter(None, inputs):
        source, _ = split_path(os.fspath(given))
        if source.exists() and path.exists() and os.path.samefile(source, path):
            raise InputError(
                f"{option} {path} is also an input, which it would overwrite. Give another name."
            )


def check_model_output(path: Path, option: str, inputs: Sequence[Path | None]) -> None:
    """Check as `check_output` does, and that only a model file is overwritten."""
    check_output(path, option, inputs)
    if not path.is_file() or not path.stat().st_size:
        return
    with open(path, "rb") as file:  # the first bytes are enough not to destroy something else
        begin = file.read(64)
    if not begin[8:].startswith(b'{"__metadata__":{"knoi"'):
        raise InputError(
            f"{option} {path} exists and is not a model file, so it is not overwritten. Give "
            "another name, or remove it."
        )


class ProgressSource:
    """A `ViewSource` that calls `report` with the number of rows read in order so far."""

    def __init__(self, source: "ViewSource", report: Callable[[int], None]) -> None:
        self.n_rows, self.n_cols, self.dtype = source.n_rows, source.n_cols, source.dtype
        self.sparse, self.row_bytes = source.sparse, source.row_bytes
        self.random_access, self.column_names = source.random_access, source.column_names
        self._source, self._report = source, report
        self._passed = 0

    def read(self, start: int, stop: int) -> "Array":
        """Read rows `start:stop` of the view."""
        rows = self._source.read(start, stop)
        if start in (0, self._passed):  # at 0 another pass begins
            self._passed = stop
            self._report(stop)
        return rows

    def close(self) -> None:
        """Do nothing: whoever opened the view closes it."""
