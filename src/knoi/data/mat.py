"""MATLAB's `.mat` files: those of version 7.3 are HDF5 and stream, older ones are read whole."""

import math
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.io
import scipy.sparse
from numpy.typing import NDArray

from knoi.data.arrays import open_ndarray, open_sparse
from knoi.data.source import (
    RowSource,
    check_dtype,
    check_fits,
    check_shape,
    choose,
    listing,
    wrap_parse_errors,
)
from knoi.data.stores import from_hdf5_file, stored_array_source
from knoi.exceptions import InputTypeError, SourceFormatError, require

_FORMAT = "a MATLAB file"
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MATLAB_HEADER = 512  # bytes that MATLAB writes before the HDF5 file

# MATLAB's numeric classes, and the dtypes that hold them.
_NAMED = {"double": "float64", "single": "float32", "logical": "uint8", "sparse": "float64"}
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_DTYPES = {kind: np.dtype(_NAMED.get(kind, kind)) for kind in [*_NAMED, *_INTEGERS]}


@dataclass(frozen=True)
class _Variable:
    """A variable as MATLAB's `whos` lists it."""

    name: str
    shape: tuple[int, ...]
    kind: str

    def __str__(self) -> str:
        return f"{self.name} ({' x '.join(map(str, self.shape))} {self.kind})"

    @property
    def is_matrix(self) -> bool:
        """Whether it is a matrix of numbers, not a single number (1 x 1 in MATLAB)."""
        return self.kind in _DTYPES and len(self.shape) == 2 and math.prod(self.shape) > 1


def open_mat(path: Path, selector: str | None, label: str) -> RowSource:
    """One variable of a `.mat` file, with rows and columns as MATLAB shows them."""
    with wrap_parse_errors(label, _FORMAT):
        if not _is_hdf5(path, label):
            return _open_older(path, selector, label)
    return from_hdf5_file(path, label, _FORMAT, lambda file: _open_newer(file, selector, label))


def read_mat(path: Path, selector: str | None, label: str) -> NDArray[Any]:
    """One variable of a `.mat` file of any kind; of version 7.3, numbers only."""
    if _is_hdf5(path, label):
        h5py = require("h5py", "io", f"reading {_FORMAT}")
        with h5py.File(path, "r") as file:
            variable = _choose(_list_newer(file), selector, label)
            return np.asarray(file[variable.name][()].T)
    variable = _choose(_list_older(path), selector, label, any_kind=True)
    return np.asarray(_load_older(path, variable))


def _is_hdf5(path: Path, label: str) -> bool:
    with open(path, "rb") as file:
        start = file.read(_MATLAB_HEADER + len(_HDF5_SIGNATURE))
    if start.startswith(_HDF5_SIGNATURE):
        raise SourceFormatError(
            f"{label} is an HDF5 file that MATLAB did not write, so it is unknown whether its "
            "rows are stored as columns. Rename it to .h5."
        )
    return start[_MATLAB_HEADER:] == _HDF5_SIGNATURE


def _choose(
    variables: Sequence[_Variable], selector: str | None, label: str, *, any_kind: bool = False
) -> _Variable:
    """The variable that `selector` names; without one, the only matrix of numbers (or any)."""
    every = any_kind or selector is not None
    usable = {one.name: one for one in variables if every or one.is_matrix}
    what = "variable" if every else "numeric array"
    chosen = usable[choose(label, what, usable, selector, map(str, usable.values()))]
    if not any_kind and chosen.kind not in _DTYPES:
        raise InputTypeError(
            f"{label}: {chosen} is not a matrix of numbers; cells, structs, tables, text and "
            "functions cannot be used. Save its numbers as a matrix. "
            f"Available: {listing(map(str, variables))}."
        )
    return chosen


# Version 7.3: HDF5.


def _open_newer(file: Any, selector: str | None, label: str) -> RowSource:
    variable = _choose(_list_newer(file), selector, label)
    node = file[variable.name]
    if variable.kind == "sparse":
        # MATLAB stores sparse matrices by columns; without nonzeros there are no values.
        starts = node["jc"][()].astype(np.int64)
        rows = node["ir"][()].astype(np.int64) if "ir" in node else np.empty(0, np.int64)
        values = node["data"][()] if "data" in node else np.empty(0)
        matrix = scipy.sparse.csc_array((values, rows, starts), shape=variable.shape)
        source = open_sparse(matrix, label)
        file.close()
        return source
    if node.dtype.names == ("real", "imag"):
        check_dtype(label, np.dtype(np.complex128))
    check_shape(label, variable.shape)
    return stored_array_source(node, label, file.close, transposed=True)


def _list_newer(file: Any) -> list[_Variable]:
    # Names that begin with # are MATLAB's own: the contents of cells and objects.
    return [_newer_variable(name, file[name]) for name in file if not name.startswith("#")]


def _newer_variable(name: str, node: Any) -> _Variable:
    kind = node.attrs.get("MATLAB_class", b"unknown")
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if "MATLAB_sparse" in node.attrs:
        n_cols = len(node["jc"]) - 1
        return _Variable(name, (int(node.attrs["MATLAB_sparse"]), n_cols), "sparse")
    if not hasattr(node, "shape"):
        return _Variable(name, (1, 1), kind)
    if node.attrs.get("MATLAB_empty", 0):
        return _Variable(name, tuple(int(size) for size in node[()]), kind)  # it holds its shape
    return _Variable(name, tuple(node.shape[::-1]), kind)


# Older versions: scipy.


def _open_older(path: Path, selector: str | None, label: str) -> RowSource:
    variable = _choose(_list_older(path), selector, label)
    dtype = _DTYPES[variable.kind]
    n_bytes = math.prod(variable.shape) * dtype.itemsize
    if variable.kind in ("sparse", "logical"):
        # Logical matrices may be sparse, too. The number of nonzeros is not listed, only the shape.
        n_bytes = 8 * sum(variable.shape)
    remedy = "Save it with save(..., '-v7.3'), which streams from disk."
    # Twice: as it is stored, by columns, and its rows.
    check_fits(label, "a variable of an older MATLAB file", 2 * n_bytes, remedy)
    # The variable is an array of numbers: no code is read, let alone run.
    values = _load_older(path, variable)
    check_dtype(label, values.dtype)  # before the cast, which would drop imaginary parts
    # MATLAB stores doubles that are small integers as integers: convert them back.
    if scipy.sparse.issparse(values):
        return open_sparse(values.astype(dtype), label)
    return open_ndarray(np.ascontiguousarray(values, dtype=dtype), label)


def _list_older(path: Path) -> list[_Variable]:
    _check_data_types(path)
    # Names that begin with __ are MATLAB's own: the workspaces of functions.
    variables = (_Variable(*listed) for listed in scipy.io.whosmat(path, appendmat=False))
    return [variable for variable in variables if not variable.name.startswith("__")]


def _load_older(path: Path, variable: _Variable) -> Any:
    return scipy.io.loadmat(path, variable_names=[variable.name], appendmat=False)[variable.name]


def _check_data_types(path: Path) -> None:
    """Raise `ValueError` for data of an unknown type, on which scipy would crash.

    Only uncompressed arrays of numbers in files of version 5 are checked: compressed variables
    carry a checksum, and the reader of version 4 does not crash.
    """
    matrix, compressed = 14, 15
    numbers_and_text = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18}
    end = os.path.getsize(path)
    with open(path, "rb") as file:
        order = {b"IM": "<", b"MI": ">"}.get(file.read(128)[126:])
        while order is not None and file.tell() < end:
            kind, size = _unpack(file, order + "II")
            stop = file.tell() + size
            if kind not in (matrix, compressed):
                raise ValueError(f"the file has an element of the unknown type {kind}")
            is_numeric = kind == matrix and _unpack(file, order + "IIII")[2] & 0xFF in range(5, 16)
            while is_numeric and file.tell() < stop:
                kind, size = _unpack(file, order + "II")
                if kind >> 16:  # up to 4 bytes of data are stored in place of the size
                    kind, size = kind & 0xFFFF, 0
                if kind not in numbers_and_text:
                    raise ValueError(f"the file has data of the unknown type {kind}")
                file.seek(size + -size % 8, os.SEEK_CUR)  # to the next multiple of 8 bytes
            file.seek(stop)


def _unpack(file: BinaryIO, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))
