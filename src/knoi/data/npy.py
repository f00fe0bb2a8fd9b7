"""NumPy's files: `.npy` and stored `.npz` members are mapped, compressed ones unpacked."""

import math
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from knoi.arrays.backend import available_ram
from knoi.data.damage import damage_reported
from knoi.data.in_memory import open_ndarray
from knoi.data.row_source import RowSource
from knoi.data.selection import choose
from knoi.data.sparse_npz import is_sparse_npz, open_sparse_npz
from knoi.data.validation import check_dtype, check_shape
from knoi.exceptions import MemoryBudgetError, SourceFormatError

# A zip member starts with 30 fixed bytes; the lengths of its name and extra field are at 26.
_ZIP_LOCAL_HEADER = 30
_ZIP_LENGTHS = 26


@dataclass(frozen=True)
class _Header:
    """What a .npy file says of its array, and how many bytes it took to say so."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]
    size: int

    @property
    def array_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def open_npy(path: Path, selector: str | None, label: str) -> RowSource:
    """A `.npy` file, memory-mapped."""
    if selector is not None:
        raise SourceFormatError(
            f"{label}: a .npy file holds a single array, so there is no {selector!r} to select. "
            f"Drop ':{selector}'."
        )
    with damage_reported(label, ".npy"), open(path, "rb") as file:
        header = _read_header(file, label)
    return _map(path, header, start=0, size=os.path.getsize(path), label=label)


def open_npz(path: Path, selector: str | None, label: str) -> RowSource:
    """One array of a `.npz` file: memory-mapped inside the zip if stored, else decompressed.

    A file of `scipy.sparse.save_npz` is one sparse matrix.
    """
    with damage_reported(label, ".npz"), zipfile.ZipFile(path) as archive:
        if is_sparse_npz(archive):
            return open_sparse_npz(path, archive, selector, label)
        members = (name for name in archive.namelist() if name.endswith(".npy"))
        arrays = {name.removesuffix(".npy"): name for name in members}
        wanted = None if selector is None else selector.removesuffix(".npy")
        member = archive.getinfo(arrays[choose(label, "array", arrays, wanted)])
        with archive.open(member) as stream:
            header = _read_header(stream, label)
        if member.compress_type != zipfile.ZIP_STORED:
            return _decompress(archive, member, header, label)
    start = _start_of_member(path, member)
    return _map(path, header, start=start, size=start + member.file_size, label=label)


def _read_header(stream: IO[bytes], label: str) -> _Header:
    version = npy_format.read_magic(stream)
    if version == (1, 0):
        shape, fortran_order, dtype = npy_format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, fortran_order, dtype = npy_format.read_array_header_2_0(stream)
    else:
        raise SourceFormatError(
            f"{label} is of .npy format {version[0]}.{version[1]}, which holds structured arrays: "
            "only plain numbers can be used. Save the numeric fields as one 2-D array."
        )
    if dtype.hasobject:
        raise SourceFormatError(
            f"{label} holds pickled Python objects, which are never unpickled because that can run "
            "code. Save numbers instead: numpy.save(path, array.astype(float))."
        )
    check_shape(label, shape)
    check_dtype(label, dtype)
    return _Header(shape, fortran_order, dtype, stream.tell())


def _map(path: Path, header: _Header, *, start: int, size: int, label: str) -> RowSource:
    offset = start + header.size
    if offset + header.array_bytes > size:
        raise SourceFormatError(
            f"{label} is truncated: an array of shape {header.shape} and dtype {header.dtype} "
            f"takes {header.array_bytes} bytes, but {size - offset} are there. "
            "Copy or write it again."
        )
    with damage_reported(label, "a memory-mapped array"):
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
    free = available_ram()
    if header.array_bytes > free:
        raise MemoryBudgetError(
            f"{label} is compressed and takes {header.array_bytes / 2**20:.0f} MiB unpacked, but "
            f"{free / 2**20:.0f} MiB of memory are free. Save it as .npy (or with numpy.savez), "
            "which streams from disk."
        )
    with archive.open(member) as stream:
        return open_ndarray(npy_format.read_array(stream, allow_pickle=False), label)


def _start_of_member(path: Path, member: zipfile.ZipInfo) -> int:
    # The directory at the end of a zip repeats a member's name and extra field, but the extra field
    # may have another length there: only the local header says where the bytes begin.
    with open(path, "rb") as file:
        file.seek(member.header_offset + _ZIP_LENGTHS)
        name_length = int.from_bytes(file.read(2), "little")
        extra_length = int.from_bytes(file.read(2), "little")
    return member.header_offset + _ZIP_LOCAL_HEADER + name_length + extra_length
