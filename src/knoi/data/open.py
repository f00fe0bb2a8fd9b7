"""Opening data: whatever a user may pass as a view becomes a `ViewSource`; NumPy's own files.

Also columns of labels, which may be text, from files of the same formats.
"""

import difflib
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from numbers import Number
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.lib import format as npy_format
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
from knoi.data.parquet import open_arrow_table, open_parquet, read_parquet
from knoi.data.source import (
    RowSource,
    ViewSource,
    array_source,
    check_dtype,
    check_fits,
    check_shape,
    choose,
    listing,
    reject_selector,
    wrap_parse_errors,
)
from knoi.data.stores import (
    open_hdf5,
    open_zarr,
    read_hdf5,
    read_zarr,
    reject_group,
    stored_array_source,
)
from knoi.exceptions import InputError, InputTypeError, SourceFormatError, SourceNotFoundError

FileOpener = Callable[[Path, str | None, str], RowSource]
ArrayReader = Callable[[Path, str | None, str], NDArray[Any]]

_ACCEPTED = (
    "Pass a 2-D array (NumPy, scipy.sparse, pandas, polars, torch, h5py, zarr), nested lists of "
    "numbers, or a path PATH or PATH:SELECTOR to a .npy, .npz, .h5, .zarr, .parquet, .csv or .mat "
    "file"
)

# A zip member starts with 30 fixed bytes; the lengths of its name and extra field are at 26.
_ZIP_LOCAL_HEADER = 30
_ZIP_LENGTHS = 26
# Members and formats of `scipy.sparse.save_npz`.
_SPARSE_MEMBERS = {"format.npy", "shape.npy", "data.npy"}
_SPARSE_FORMATS = (b"csr", b"csc", b"coo", b"bsr", b"dia")


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
        when they are read, see `check_finite`.)
    SourceNotFoundError, SourceFormatError
        The file does not exist or cannot be read.
    """
    if data is None:
        # The first sentence is scikit-learn's: its checks look for it.
        raise InputTypeError(
            f"{name}: Expected array-like (array or non-string sequence), got None. "
            f"CCA needs both views. {_ACCEPTED}."
        )
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


# NumPy's files: `.npy` and stored `.npz` members are mapped, compressed ones unpacked.


def open_npy(path: Path, selector: str | None, label: str) -> RowSource:
    """A `.npy` file, memory-mapped."""
    reject_selector(label, "a .npy file holds a single array", selector)
    with wrap_parse_errors(label, ".npy"):
        with open(path, "rb") as file:
            header = _read_header(file, os.path.getsize(path), label)
        return _map(path, header, start=0, label=label)


def open_npz(path: Path, selector: str | None, label: str) -> RowSource:
    """One array of a `.npz` file: memory-mapped inside the zip if stored, else decompressed.

    A file written by `scipy.sparse.save_npz` is one sparse matrix.
    """
    with wrap_parse_errors(label, ".npz"), zipfile.ZipFile(path) as archive:
        if _is_sparse(archive):
            reject_selector(label, "the file holds a single sparse matrix", selector)
            n_bytes = sum(member.file_size for member in archive.infolist())
            check_fits(label, "a sparse matrix", n_bytes, "Split its rows over several files.")
            return open_sparse(scipy.sparse.load_npz(path), label)  # does not unpickle
        member = _choose_member(archive, selector, label)
        with archive.open(member) as stream:
            header = _read_header(stream, member.file_size, label)
        if member.compress_type == zipfile.ZIP_STORED:
            return _map(path, header, start=_start_of_member(path, member), label=label)
        remedy = "Save it as .npy (or with numpy.savez), which streams from disk."
        check_fits(label, "a compressed array", member.file_size, remedy)
        with archive.open(member) as stream:
            rows = npy_format.read_array(stream, allow_pickle=False)
        return array_source(rows, label, random_access=True)


def _read_npy(path: Path, selector: str | None, label: str) -> NDArray[Any]:
    """The array of a `.npy` file, of any shape and dtype but objects."""
    reject_selector(label, "a .npy file holds a single array", selector)
    values: NDArray[Any] = np.load(path, allow_pickle=False)
    return values


def _read_npz(path: Path, selector: str | None, label: str) -> NDArray[Any]:
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
        shape, _, dtype = _header_fields(stream)
        text = stream.read(dtype.itemsize).replace(b"\0", b"")
    return shape == () and dtype.kind in "SU" and text in _SPARSE_FORMATS


class _Header(NamedTuple):
    """The header of an array in `.npy` format."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]
    size: int  # bytes of the header itself


def _header_fields(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy_format.read_magic(stream)
    if version == (1, 0):
        return npy_format.read_array_header_1_0(stream)
    if version == (2, 0):
        return npy_format.read_array_header_2_0(stream)
    raise ValueError(f".npy format {version[0]}.{version[1]} holds structured arrays")


def _read_header(stream: IO[bytes], size: int, label: str) -> _Header:
    """The header of a table of numbers which the `size` bytes of the stream hold."""
    shape, fortran_order, dtype = _header_fields(stream)
    if dtype.hasobject:
        raise SourceFormatError(
            f"{label} holds pickled Python objects, which are never unpickled because that can run "
            "code. Save numbers instead: numpy.save(path, array.astype(float))."
        )
    check_shape(label, shape)
    check_dtype(label, dtype)
    needed, found = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if needed > found:
        raise SourceFormatError(
            f"{label} is truncated: an array of shape {shape} and dtype {dtype} takes {needed} "
            f"bytes, but the file has {found}. Copy or write it again."
        )
    return _Header(shape, fortran_order, dtype, stream.tell())


def _map(path: Path, header: _Header, *, start: int, label: str) -> RowSource:
    rows = np.memmap(
        path,
        dtype=header.dtype,
        mode="r",
        offset=start + header.size,
        shape=header.shape,
        order="F" if header.fortran_order else "C",
    )
    return array_source(rows, label, random_access=False)


def _start_of_member(path: Path, member: zipfile.ZipInfo) -> int:
    # The directory at the end of a zip repeats a member's name and extra field, but the extra field
    # may have another length there: only the local header says where the bytes begin.
    with open(path, "rb") as file:
        file.seek(member.header_offset + _ZIP_LENGTHS)
        name_length = int.from_bytes(file.read(2), "little")
        extra_length = int.from_bytes(file.read(2), "little")
    return member.header_offset + _ZIP_LOCAL_HEADER + name_length + extra_length


# All formats and kinds of data.


class _Format(NamedTuple):
    """How a file is opened as a view, and read as an array of any kind."""

    open: FileOpener | None
    read: ArrayReader


_FORMATS: dict[str, _Format] = {
    ".npy": _Format(open_npy, _read_npy),
    ".npz": _Format(open_npz, _read_npz),
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


# The first test that holds decides. Optional libraries are recognised by the names of their
# classes, so that none is imported. Add a further kind of data as a line before the last.
_OPENERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, str], ViewSource]], ...] = (
    (lambda data: isinstance(data, str | os.PathLike), open_path),
    (lambda data: isinstance(data, np.ndarray), open_ndarray),
    (scipy.sparse.issparse, open_sparse),
    (_is_a("pandas", "DataFrame"), open_pandas),
    (_is_a("polars", "DataFrame"), open_polars),
    (_is_a("pyarrow", "Table"), open_arrow_table),
    (_is_a("torch", "Tensor"), open_tensor),
    (_is_a("h5py", "Dataset"), stored_array_source),
    (_is_a("h5py", "Group"), reject_group),
    (_is_a("zarr", "Array"), stored_array_source),
    (_is_a("zarr", "Group"), reject_group),
    # This test reads the attributes of `data`, which fails on a dataset of a closed file.
    (lambda data: isinstance(data, ViewSource), lambda data, name: data),
    (
        lambda data: isinstance(data, Sequence | Number) or hasattr(data, "__array__"),
        open_array_like,
    ),
)
