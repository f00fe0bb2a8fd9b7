"""Opening data: whatever a user may pass as a view becomes a `ViewSource`.

Also columns of labels, which may be text, from files of the same formats.
"""

import difflib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from numbers import Number
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from knoi.data.arrays import (
    open_array_like,
    open_ndarray,
    open_pandas,
    open_polars,
    open_sparse,
    open_tensor,
)
from knoi.data.csv import open_csv, read_csv, read_lines
from knoi.data.mat import open_mat, read_mat
from knoi.data.npy import open_npy, open_npz, read_npy, read_npz
from knoi.data.parquet import open_arrow_table, open_parquet, read_parquet
from knoi.data.source import RowSource, ViewSource, listing, wrap_parse_errors
from knoi.data.stores import (
    open_h5py_dataset,
    open_hdf5,
    open_zarr,
    open_zarr_array,
    read_hdf5,
    read_zarr,
    reject_h5py_group,
    reject_zarr_group,
)
from knoi.exceptions import InputError, InputTypeError, SourceFormatError, SourceNotFoundError

FileOpener = Callable[[Path, str | None, str], RowSource]
ArrayReader = Callable[[Path, str | None, str], NDArray[Any]]

_ACCEPTED = (
    "Pass a 2-D array (NumPy, scipy.sparse, pandas, polars, torch, h5py, zarr), nested lists of "
    "numbers, or a path PATH or PATH:SELECTOR to a .npy, .npz, .h5, .zarr, .parquet, .csv or .mat "
    "file"
)


def open_view(data: Any, name: str) -> ViewSource:
    """Open one view for reading by rows.

    Parameters
    ----------
    data : object
        An array, sparse matrix, data frame, tensor or dataset, nested lists of numbers, a path
        `PATH` or `PATH:SELECTOR`, or a `ViewSource`, which is returned as it is.
    name : str
        "X" or "Y": what error messages call the view.

    Raises
    ------
    InputError
        The data is not a non-empty table of real numbers. (Whether they are finite is checked
        when they are read, see `knoi.data.checked`.)
    SourceNotFoundError, SourceFormatError
        The file does not exist or cannot be read.
    """
    for matches, opener in _OPENERS:
        if matches(data):
            return opener(data, name)
    raise InputTypeError(f"{name} is a {type(data).__qualname__}. {_ACCEPTED}.")


@contextmanager
def opened_view(data: Any, name: str) -> Iterator[ViewSource]:
    """A view that is closed afterwards, unless it was passed as a `ViewSource`."""
    view = open_view(data, name)
    try:
        yield view
    finally:
        if view is not data:
            view.close()


def open_path(data: str | os.PathLike[str], name: str) -> RowSource:
    """The view in a file.

    Parameters
    ----------
    data : str or path
        `PATH` or `PATH:SELECTOR`. The selector names an array of a `.npz`, `.h5`, `.zarr` or
        `.mat`, or the columns of a `.parquet` or `.csv`, comma-separated.
    name : str
        What messages call the view; the path is added to it.
    """
    path, selector, label = _find(data, name)
    return _opener(path, label)(path, selector, label)


def read_column(data: str | os.PathLike[str], name: str, n_rows: int | None = None) -> NDArray[Any]:
    """A column of labels, numbers or text, from a file of any format; integers where possible.

    Parameters
    ----------
    data : str or path
        `PATH` or `PATH:SELECTOR`; also `.txt`, one label per line.
    name : str
        What messages call the column; the path is added to it.
    n_rows : int, optional
        Number of labels expected. If a text file has one line more, the first is its header.
    """
    path, selector, label = _find(data, name)
    extension = _extension(path)
    if extension not in _FORMATS:
        raise SourceFormatError(
            f"{label}: files ending in {extension!r} are not supported. "
            f"Supported: {', '.join(_FORMATS)}."
        )
    read = _FORMATS[extension].read
    with wrap_parse_errors(label, "labels"):
        values = read(path, selector, label)
    if values.ndim == 2 and 1 in values.shape:
        values = values.ravel()
    if values.ndim != 1:
        shape = " x ".join(map(str, values.shape))
        raise InputError(f"{label} is an array of {shape}. Pass one label per row.")
    if read in (read_csv, read_lines):
        if selector is None and len(values) - 1 == n_rows:
            values = values[1:]
        with suppress(ValueError):
            return np.array([int(text) for text in values])
    if values.dtype.kind == "f" and np.array_equal(values, np.round(values)):
        return values.astype(np.int64)  # MATLAB and pandas write integers as floats
    if values.dtype.kind in "iufbU":
        return values
    # MATLAB's cells are arrays of one string; HDF5 has bytes.
    items = (one.item() if isinstance(one, np.ndarray) and one.size == 1 else one for one in values)
    return np.array(
        [one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in items]
    )


def split_path(text: str) -> tuple[Path, str | None]:
    """Path and selector of `PATH` or `PATH:SELECTOR`; the longest path that exists is taken."""
    colons = [index for index, character in enumerate(text) if character == ":"]
    splits = [(text, None), *((text[:i], text[i + 1 :] or None) for i in reversed(colons) if i)]
    candidates = [(Path(os.path.expanduser(path)), selector) for path, selector in splits]
    for path, selector in candidates:
        if os.path.exists(path):
            return path, selector
    # None exists: name the most likely one in the message.
    for path, selector in candidates:
        if _extension(path) in _FORMATS:
            return path, selector
    return candidates[0]


def _find(data: str | os.PathLike[str], name: str) -> tuple[Path, str | None, str]:
    """Path, selector and label of a path that exists."""
    text = os.fsdecode(data)
    label = f"{name} ({text!r})"
    path, selector = split_path(text)
    if text and os.path.exists(path):
        return path, selector, label
    folder = path.parent
    if not os.path.isdir(folder):
        raise SourceNotFoundError(
            f"{label}: there is no folder {str(folder)!r}. Check the path; relative paths start at "
            "the working directory."
        )
    similar = difflib.get_close_matches(path.name, os.listdir(folder), n=3)
    hint = f"Similar names: {listing(similar)}." if similar else "Check the path."
    raise SourceNotFoundError(f"{label}: there is no file or folder {str(path)!r}. {hint}")


def _extension(path: Path) -> str:
    """The suffix, with the one before it if the file is compressed."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:] if suffixes[-1:] == [".gz"] else suffixes[-1:])


def _opener(path: Path, label: str) -> FileOpener:
    extension = _extension(path)
    opener = _FORMATS[extension].open if extension in _FORMATS else None
    if path.is_dir():
        if any((path / marker).exists() for marker in _ZARR_MARKERS):
            return open_zarr
        if opener not in (open_zarr, open_parquet):
            return _open_folder
    if opener is None:
        raise SourceFormatError(
            f"{label}: files ending in {extension!r} are not supported. Supported: "
            f"{_supported()}, and folders of .parquet files."
        )
    return opener


def _supported() -> str:
    return ", ".join(extension for extension, known in _FORMATS.items() if known.open)


def _open_folder(path: Path, selector: str | None, label: str) -> RowSource:
    if not any(path.rglob("*.parquet")):
        raise SourceFormatError(
            f"{label} is a folder, but neither a Zarr store nor a folder of .parquet files. "
            f"Pass such a folder, or a file ({_supported()})."
        )
    return open_parquet(path, selector, label)


class _Format(NamedTuple):
    """How a file is opened as a view, and read as an array of any kind."""

    open: FileOpener | None
    read: ArrayReader


_FORMATS: dict[str, _Format] = {
    ".npy": _Format(open_npy, read_npy),
    ".npz": _Format(open_npz, read_npz),
    ".h5": _Format(open_hdf5, read_hdf5),
    ".hdf5": _Format(open_hdf5, read_hdf5),
    ".zarr": _Format(open_zarr, read_zarr),
    ".parquet": _Format(open_parquet, read_parquet),
    ".csv": _Format(open_csv, read_csv),
    ".csv.gz": _Format(open_csv, read_csv),
    ".tsv": _Format(open_csv, read_csv),
    ".tsv.gz": _Format(open_csv, read_csv),
    ".mat": _Format(open_mat, read_mat),
    ".txt": _Format(None, read_lines),
    ".txt.gz": _Format(None, read_lines),
}
# Files at the root of a Zarr store, of its formats 3 and 2.
_ZARR_MARKERS = ("zarr.json", ".zarray", ".zgroup")


def _is_a(library: str, class_name: str) -> Callable[[Any], bool]:
    """Test for instances of a class without importing its library."""

    def test(data: Any) -> bool:
        return any(
            base.__name__ == class_name and base.__module__.partition(".")[0] == library
            for base in type(data).__mro__
        )

    return test


def _reject_none(data: Any, name: str) -> ViewSource:
    # The first sentence is scikit-learn's: its checks look for it.
    raise InputTypeError(
        f"{name}: Expected array-like (array or non-string sequence), got None. "
        f"CCA needs both views. {_ACCEPTED}."
    )


def _return_source(data: Any, name: str) -> ViewSource:
    source: ViewSource = data
    return source


# The first test that holds decides. Optional libraries are recognised by the names of their
# classes, so that none is imported. Add a further kind of data as a line before the last.
_OPENERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, str], ViewSource]], ...] = (
    (lambda data: data is None, _reject_none),
    (lambda data: isinstance(data, str | os.PathLike), open_path),
    (lambda data: isinstance(data, np.ndarray), open_ndarray),
    (scipy.sparse.issparse, open_sparse),
    (_is_a("pandas", "DataFrame"), open_pandas),
    (_is_a("polars", "DataFrame"), open_polars),
    (_is_a("pyarrow", "Table"), open_arrow_table),
    (_is_a("torch", "Tensor"), open_tensor),
    (_is_a("h5py", "Dataset"), open_h5py_dataset),
    (_is_a("h5py", "Group"), reject_h5py_group),
    (_is_a("zarr", "Array"), open_zarr_array),
    (_is_a("zarr", "Group"), reject_zarr_group),
    # This test reads the attributes of `data`, which fails on a dataset of a closed file.
    (lambda data: isinstance(data, ViewSource), _return_source),
    (
        lambda data: isinstance(data, Sequence | Number) or hasattr(data, "__array__"),
        open_array_like,
    ),
)
