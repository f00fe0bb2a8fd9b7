"""Sparse matrices that `scipy.sparse.save_npz` wrote: one matrix, in several arrays of a `.npz`."""

import zipfile
from pathlib import Path

import scipy.sparse
from numpy.lib import format as npy_format

from knoi.arrays.backend import available_ram
from knoi.data.in_memory import open_sparse
from knoi.data.row_source import RowSource
from knoi.exceptions import MemoryBudgetError, SourceFormatError

_MEMBERS = {"format.npy", "shape.npy", "data.npy"}
_FORMATS = ("csr", "csc", "coo", "bsr", "dia")


def is_sparse_npz(archive: zipfile.ZipFile) -> bool:
    """Whether scipy wrote this archive: it has the arrays, and one of them names a format."""
    if not set(archive.namelist()) >= _MEMBERS:
        return False
    with archive.open("format.npy") as stream:
        # Only a header is read of what may be anybody's array.
        npy_format.read_magic(stream)
        shape, _, dtype = npy_format.read_array_header_1_0(stream)
        if shape != () or dtype.kind not in "SU":
            return False
        name = stream.read(dtype.itemsize).replace(b"\0", b"")
        return name.decode("ascii", "replace") in _FORMATS


def open_sparse_npz(
    path: Path, archive: zipfile.ZipFile, selector: str | None, label: str
) -> RowSource:
    """The matrix, read whole; it stays sparse."""
    if selector is not None:
        raise SourceFormatError(
            f"{label}: the file holds a single sparse matrix, so there is no {selector!r} to "
            f"select. Drop ':{selector}'."
        )
    needed, free = sum(member.file_size for member in archive.infolist()), available_ram()
    if needed > free:
        raise MemoryBudgetError(
            f"{label} is a sparse matrix that takes {needed / 2**20:.0f} MiB, but "
            f"{free / 2**20:.0f} MiB of memory are free. Split its rows over several files."
        )
    return open_sparse(scipy.sparse.load_npz(path), label)  # never unpickles
