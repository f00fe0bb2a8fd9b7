"""MATLAB's `.mat` files: those of version 7.3 are HDF5 and stream, older ones are read whole."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from knoi.arrays.backend import available_ram
from knoi.data.damage import damage_reported
from knoi.data.in_memory import open_ndarray, open_sparse
from knoi.data.mat_check import check_elements
from knoi.data.optional import is_a
from knoi.data.row_source import RowSource
from knoi.data.selection import listing, nothing_called
from knoi.data.stores import dataset_source, from_hdf5_file
from knoi.data.validation import check_dtype, check_shape
from knoi.exceptions import InputTypeError, MemoryBudgetError, SourceFormatError

_FORMAT = "a MATLAB file"
_HDF5_MARK = b"\x89HDF\r\n\x1a\n"
_MATLAB_HEADER = 512  # bytes of MATLAB's own before the HDF5 file

# MATLAB's classes of numbers, and the dtypes that hold them.
_NAMED = {"double": "float64", "single": "float32", "logical": "uint8", "sparse": "float64"}
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_DTYPES: dict[str, np.dtype[Any]] = {
    kind: np.dtype(dtype)
    for kind, dtype in [*_NAMED.items(), *zip(_INTEGERS, _INTEGERS, strict=True)]
}


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
        """Numbers in rows and columns, and more than one of them: MATLAB has no plain numbers."""
        return self.kind in _DTYPES and len(self.shape) == 2 and math.prod(self.shape) > 1


def open_mat(path: Path, selector: str | None, label: str) -> RowSource:
    """One variable of a `.mat` file, with rows and columns as MATLAB shows them."""
    with damage_reported(label, _FORMAT), open(path, "rb") as file:
        start = file.read(_MATLAB_HEADER + len(_HDF5_MARK))
    if start.startswith(_HDF5_MARK):
        raise SourceFormatError(
            f"{label} is an HDF5 file that MATLAB did not write, so it is not known whether its "
            "rows stand in columns. Rename it to .h5."
        )
    if start[_MATLAB_HEADER:] == _HDF5_MARK:
        return from_hdf5_file(path, label, _FORMAT, lambda file: _take(file, selector, label))
    with damage_reported(label, _FORMAT):
        return _open_older(path, selector, label)


def _open_older(path: Path, selector: str | None, label: str) -> RowSource:
    check_elements(path)
    listed = (_Variable(*variable) for variable in scipy.io.whosmat(path, appendmat=False))
    # What begins with __ is MATLAB's own: what functions refer to.
    variables = [variable for variable in listed if not variable.name.startswith("__")]
    wanted = _choose(variables, selector, label)
    _refuse_too_large(wanted, label)
    # What is chosen is an array of numbers: nothing that could run is even read.
    values = scipy.io.loadmat(path, variable_names=[wanted.name], appendmat=False)[wanted.name]
    check_dtype(label, values.dtype)  # before the cast, which would drop imaginary parts
    dtype = _DTYPES[wanted.kind]
    if scipy.sparse.issparse(values):
        return open_sparse(values.astype(dtype), label)
    # Small integers are stored in few bytes even where they are doubles; rows stand in columns.
    return open_ndarray(np.ascontiguousarray(values, dtype=dtype), label)


def _refuse_too_large(variable: _Variable, label: str) -> None:
    if variable.kind in ("sparse", "logical"):
        # Logical matrices may be sparse too. How much is stored is not listed, only how many rows
        # and columns there are to say where.
        needed = 2 * 8 * sum(variable.shape)
    else:
        needed = 2 * math.prod(variable.shape) * _DTYPES[variable.kind].itemsize
    free = available_ram()
    if needed > free:
        raise MemoryBudgetError(
            f"{label} is read whole and takes {needed / 2**20:.0f} MiB while its rows are put in "
            f"order, but {free / 2**20:.0f} MiB of memory are free. Save it by "
            "save(..., '-v7.3'), which streams from disk."
        )


def _take(file: Any, selector: str | None, label: str) -> RowSource:
    """One variable of an open file of version 7.3."""
    # What begins with # is MATLAB's own: what cells and objects refer to.
    names = [name for name in file if not name.startswith("#")]
    wanted = _choose([_variable(name, file[name]) for name in names], selector, label)
    node = file[wanted.name]
    if wanted.kind == "sparse":
        source = open_sparse(_sparse(node, wanted.shape), label)
        file.close()
        return source
    if node.dtype.names == ("real", "imag"):
        check_dtype(label, np.dtype(np.complex128))
    check_shape(label, wanted.shape)
    return dataset_source(node, label, release=file.close, transposed=True)


def _variable(name: str, node: Any) -> _Variable:
    kind = node.attrs.get("MATLAB_class", b"unknown")
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if "MATLAB_sparse" in node.attrs:
        n_cols = len(node["jc"]) - 1
        return _Variable(name, (int(node.attrs["MATLAB_sparse"]), n_cols), "sparse")
    if not is_a("h5py", "Dataset")(node):
        return _Variable(name, (1, 1), kind)
    if node.attrs.get("MATLAB_empty", 0):
        return _Variable(name, tuple(int(size) for size in node[()]), kind)  # holds its shape
    return _Variable(name, tuple(node.shape[::-1]), kind)


def _sparse(group: Any, shape: tuple[int, ...]) -> scipy.sparse.csc_array:
    """A sparse matrix, which MATLAB stores by columns; without nonzeros it has no values."""
    starts = group["jc"][()].astype(np.int64)
    rows = group["ir"][()].astype(np.int64) if "ir" in group else np.empty(0, np.int64)
    values = group["data"][()] if "data" in group else np.empty(0)
    return scipy.sparse.csc_array((values, rows, starts), shape=shape)


def _choose(variables: Sequence[_Variable], selector: str | None, label: str) -> _Variable:
    """The variable a selector names; without one, the only matrix of numbers."""
    there = listing(map(str, variables))
    if selector is not None:
        for variable in variables:
            if variable.name == selector:
                _refuse_other_kinds(variable, there, label)
                return variable
        raise nothing_called(label, "variable", selector, map(str, variables))
    matrices = [variable for variable in variables if variable.is_matrix]
    if len(matrices) == 1:
        return matrices[0]
    if not matrices:
        raise SourceFormatError(
            f"{label} holds no matrix of numbers: point to a file that holds one. "
            f"There are: {there or 'no variables'}."
        )
    raise SourceFormatError(
        f"{label} holds {len(matrices)} matrices of numbers: say which one by PATH:NAME. "
        f"There are: {listing(map(str, matrices))}."
    )


def _refuse_other_kinds(variable: _Variable, there: str, label: str) -> None:
    if variable.kind not in _DTYPES:
        raise InputTypeError(
            f"{label}: {variable} is no matrix of numbers; cells, structs, tables, text and "
            f"functions cannot be used. Save its numbers as a matrix. There are: {there}."
        )
