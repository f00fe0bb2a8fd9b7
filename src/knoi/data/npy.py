"""NumPy's files: `.npy` and stored `.npz` members are mapped, compressed ones unpacked.

A `.npz` file written by `scipy.sparse.save_npz` is one sparse matrix.
"""

import math
import os
import zipfile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from knoi.arrays.backend import available_ram
from knoi.data.arrays import open_ndarray, open_sparse
from knoi.data.source import (
    RowSource,
    check_dtype,
    check_shape,
    choose,
    reject_selector,
    wrap_parse_errors,
)
from knoi.exceptions import MemoryBudgetError, SourceFormatError

# A zip member starts with 30 fixed bytes; the lengths of its name and extra field are at 26.
_ZIP_LOCAL_HEADER = 30
_ZIP_LENGTHS = 26

# Members and formats of `scipy.sparse.save_npz`.
_SPARSE_MEMBERS = {"format.npy", "shape.npy", "data.npy"}
_SPARSE_FORMATS = (b"csr", b"csc", b"coo", b"bsr", b"dia")


class _Header(NamedTuple):
    """The header of a .npy file."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]
    size: int  # bytes of the header itself

    @property
    def array_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def open_npy(path: Path, selector: str | None, label: str) -> RowSource:
    """A `.npy` file, memory-mapped."""
    reject_selector(label, "a .npy file holds a single array", selector)
    with wrap_parse_errors(label, ".npy"), open(path, "rb") as file:
        header = _read_numeric_header(file, label)
    return _map(path, header, start=0, size=os.path.getsize(path), label=label)


def open_npz(path: Path, selector: str | None, label: str) -> RowSource:
    """One array of a `.npz` file: memory-mapped inside the zip if stored, else decompressed."""
    with wrap_parse_errors(label, ".npz"), zipfile.ZipFile(path) as archive:
        if _is_sparse(archive):
            reject_selector(label, "the file holds a single sparse matrix", selector)
            n_bytes = sum(member.file_size for member in archive.infolist())
            _check_fits(n_bytes, label, "a sparse matrix", "Split its rows over several files.")
            return open_sparse(scipy.sparse.load_npz(path), label)  # does not unpickle
        member = _choose_member(archive, selector, label)
        with archive.open(member) as stream:
            header = _read_numeric_header(stream, label)
        if member.compress_type != zipfile.ZIP_STORED:
            return _decompress(archive, member, header, label)
    start = _start_of_member(path, member)
    return _map(path, header, start=start, size=start + member.file_size, label=label)


def read_npy(path: Path, selector: str | None, label: str) -> NDArray[Any]:
    """The array of a `.npy` file, of any shape and dtype but objects."""
    reject_selector(label, "a .npy file holds a single array", selector)
    values: NDArray[Any] = np.load(path, allow_pickle=False)
    return values


def read_npz(path: Path, selector: str | None, label: str) -> NDArray[Any]:
    """One array of a `.npz` file, of any shape and dtype but objects."""
    with (
        zipfile.ZipFile(path) as archive,
        archive.open(_choose_member(archive, selector, label)) as stream,
    ):
        return npy_format.read_array(stream, allow_pickle=False)


def _choose_member(archive: zipfile.ZipFile, selector: str | None, label: str) -> zipfile.ZipInfo:
    names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    wanted = None if selector is None else selector.removesuffix(".npy")
    return archive.getinfo(choose(label, "array", names, wanted) + ".npy")


def _is_sparse(archive: zipfile.ZipFile) -> bool:
    """Whether scipy wrote this archive: it has the members, and one of them names a format."""
    if not set(archive.namelist()) >= _SPARSE_MEMBERS:
        return False
    with archive.open("format.npy") as stream:
        shape, _, dtype, _ = _read_header(stream)
        if shape != () or dtype.kind not in "SU":
            return False
        return stream.read(dtype.itemsize).replace(b"\0", b"") in _SPARSE_FORMATS


def _read_header(stream: IO[bytes]) -> _Header:
    version = npy_format.read_magic(stream)
    if version == (1, 0):
        header = npy_format.read_array_header_1_0(stream)
    elif version == (2, 0):
        header = npy_format.read_array_header_2_0(stream)
    else:
        raise ValueError(f".npy format {version[0]}.{version[1]} holds structured arrays")
    return _Header(*header, stream.tell())


def _read_numeric_header(stream: IO[bytes], label: str) -> _Header:
    header = _read_header(stream)
    if header.dtype.hasobject:
        raise SourceFormatError(
            f"{label} holds pickled Python objects, which are never unpickled because that can run "
            "code. Save numbers instead: numpy.save(path, array.astype(float))."
        )
    check_shape(label, header.shape)
    check_dtype(label, header.dtype)
    return header


def _map(path: Path, header: _Header, *, start: int, size: int, label: str) -> RowSource:
    offset = start + header.size
    if offset + header.array_bytes > size:
        raise SourceFormatError(
            f"{label} is truncated: an array of shape {header.shape} and dtype {header.dtype} "
            f"takes {header.array_bytes} bytes, but the file has {size - offset}. "
            "Copy or write it again."
        )
    with wrap_parse_errors(label, "a memory-mapped array"):
        rows = np.memmap(
            path,
            dtype=header.dtype,
            mode="r",
            offset=offset,
            shape=header.shape,
            order="F" if header.fortran_order else "C",
        )
    return open_ndarray(rows, label)


def _decompress(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, header: _Header, label: str
) -> RowSource:
    if header.size + header.array_bytes != member.file_size:
        raise SourceFormatError(
            f"{label} is damaged: the array should take {header.array_bytes} bytes, but the zip "
            f"holds {member.file_size - header.size}. Write it again."
        )
    remedy = "Save it as .npy (or with numpy.savez), which streams from disk."
    _check_fits(header.array_bytes, label, "a compressed array", remedy)
    with archive.open(member) as stream:
        return open_ndarray(npy_format.read_array(stream, allow_pickle=False), label)


def _check_fits(n_bytes: int, label: str, what: str, remedy: str) -> None:
    free = available_ram()
    if n_bytes > free:
        raise MemoryBudgetError(
            f"{label} is {what} that takes {n_bytes / 2**20:.0f} MiB in memory, but only "
            f"{free / 2**20:.0f} MiB are free. {remedy}"
        )


def _start_of_member(path: Path, member: zipfile.ZipInfo) -> int:
    # The directory at the end of a zip repeats a member's name and extra field, but the extra field
    # may have another length there: only the local header says where the bytes begin.
    with open(path, "rb") as file:
        file.seek(member.header_offset + _ZIP_LENGTHS)
        name_length = int.from_bytes(file.read(2), "little")
        extra_length = int.from_bytes(file.read(2), "little")
    return member.header_offset + _ZIP_LOCAL_HEADER + name_length + extra_length
