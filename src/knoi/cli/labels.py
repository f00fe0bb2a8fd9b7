"""What each row is: a text or a number a row, from a file of any format that a view may have."""

import csv
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.data.open import split_path
from knoi.data.source import choose, wrap_parse_errors
from knoi.exceptions import InputError, SourceFormatError, SourceNotFoundError, require

Labels = NDArray[Any]
Reader = Callable[[Path, str | None, str], Any]


def read_labels(locator: Path, n_rows: int, of_what: str) -> Labels:
    """A label a row, (n_rows,), integers or text; `of_what` says whose rows they should be."""
    text = os.fspath(locator)
    label = f"--labels ({text!r})"
    path, selector = split_path(text)
    if not path.exists():
        raise SourceNotFoundError(f"{label}: there is no file {str(path)!r}. Check the path.")
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    reader = _READERS.get(suffixes[-1] if suffixes else "")
    if reader is None:
        raise SourceFormatError(
            f"{label}: labels are not read from such files. Use {', '.join(_READERS)}."
        )
    with wrap_parse_errors(label, "labels"):
        values = _tidied(reader(path, selector, label), label)
    if reader is _lines and len(values) == n_rows + 1 and selector is None:
        # One line more than rows: the first is a heading.
        values = _tidied(_numbers(values[1:].tolist()), label)
    if len(values) != n_rows:
        raise InputError(
            f"{label} has {len(values)} labels, but {of_what} has {n_rows} rows. Give a label for "
            "each of them."
        )
    return values


def _tidied(values: Any, label: str) -> Labels:
    array = np.asarray(values)
    if array.ndim == 2 and 1 in array.shape:
        array = array.ravel()
    if array.ndim != 1:
        shape = " x ".join(map(str, array.shape))
        raise InputError(f"{label} holds an array of {shape}: one label a row is wanted.")
    if array.dtype.kind == "f" and np.array_equal(array, np.round(array)):
        return array.astype(np.int64)  # as MATLAB and CSV writers have whole numbers
    if array.dtype.kind in "iufbU":
        return array
    texts = (one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in array)
    return np.array([str(one) for one in texts])


def _npy(path: Path, selector: str | None, label: str) -> Any:
    return np.load(path, allow_pickle=False)


def _npz(path: Path, selector: str | None, label: str) -> Any:
    with np.load(path, allow_pickle=False) as archive:
        return archive[choose(label, "array", archive.files, selector)]


def _lines(path: Path, selector: str | None, label: str) -> Any:
    """A column of a table, or the lines of a text."""
    is_table = ".csv" in path.suffixes or ".tsv" in path.suffixes
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        if not is_table:
            return _numbers([line.strip() for line in file if line.strip()])
        delimiter = "\t" if ".tsv" in path.suffixes else ","
        rows = [row for row in csv.reader(file, delimiter=delimiter) if row]
    if selector is not None:
        names = [name.strip() for name in rows[0]] if rows else []
        column = names.index(choose(label, "column", names, selector))
        return _numbers([row[column] for row in rows[1:]])
    if any(len(row) != 1 for row in rows):
        raise SourceFormatError(f"{label} has several columns. Select one with PATH:NAME.")
    return _numbers([row[0] for row in rows])


def _numbers(texts: list[str]) -> Any:
    try:
        return [int(text) for text in texts]
    except ValueError:
        return texts


def _hdf5(path: Path, selector: str | None, label: str) -> Any:
    h5py = require("h5py", "io", "reading HDF5")
    with h5py.File(path, "r") as file:
        names: list[str] = []
        file.visititems(lambda name, node: names.append(name) if hasattr(node, "shape") else None)
        wanted = None if selector is None else selector.strip("/")
        return file[choose(label, "dataset", names, wanted)][()]


def _zarr(path: Path, selector: str | None, label: str) -> Any:
    node = require("zarr", "io", "reading Zarr").open(store=str(path), mode="r")
    if hasattr(node, "shape"):
        return node[...]
    names = sorted(
        name for name, member in node.members(max_depth=None) if hasattr(member, "shape")
    )
    wanted = None if selector is None else selector.strip("/")
    return node[choose(label, "array", names, wanted)][...]


def _parquet(path: Path, selector: str | None, label: str) -> Any:
    parquet = require("pyarrow.parquet", "io", "reading Parquet")
    names = parquet.read_schema(path).names
    column = choose(label, "column", names, selector)
    return parquet.read_table(path, columns=[column])[column].to_pylist()


def _mat(path: Path, selector: str | None, label: str) -> Any:
    import scipy.io

    names = [name for name, *_ in scipy.io.whosmat(path, appendmat=False)]
    wanted = choose(label, "variable", names, selector)
    return scipy.io.loadmat(path, variable_names=[wanted], appendmat=False)[wanted]


_READERS: dict[str, Reader] = {
    ".npy": _npy,
    ".npz": _npz,
    ".txt": _lines,
    ".csv": _lines,
    ".tsv": _lines,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".zarr": _zarr,
    ".parquet": _parquet,
    ".mat": _mat,
}
