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
from typing import IO, Any, Literal, TypeVar

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
    plural,
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

# Shape, whether in Fortran order, and dtype of an array in `.npy` format.
Header = tuple[tuple[int, ...], bool, np.dtype[Any]]
FileOpener = Callable[[Path, str | None, str], RowSource]
ArrayReader = Callable[[Path, str | None, str], NDArray[Any]]
Function = TypeVar("Function")

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
    """Open one view, called `name` ("X" or "Y") in messages, for reading by rows.

    Whether its values are finite is checked when they are read, see `check_finite`.
    """
    if data is None:
        # The first sentence is scikit-learn's: its checks look for it.
        raise InputTypeError(
            f"{name}: Expected array-like (array or non-string sequence), got None. "
            f"CCA needs both views: fit(X, Y). {_ACCEPTED}."
        )
    if isinstance(data, list | tuple) and _are_views(data):
        raise InputTypeError(
            f"{name} is a {type(data).__name__} of {plural(len(data), 'table')}: wanted one view. "
            "The two views are two arguments: fit(X, Y), transform(X, Y)."
        )
    for base in type(data).__mro__:
        opener = _CLASSES.get((base.__module__.partition(".")[0], base.__name__))
        if opener is not None:
            return opener(data, name)
    if isinstance(data, str | os.PathLike):
        return open_path(data, name)
    if scipy.sparse.issparse(data):
        return open_sparse(data, name)
    if isinstance(data, ViewSource):
        return data
    if isinstance(data, Sequence | Number) or hasattr(data, "__array__"):
        return open_array_like(data, name)
    raise InputTypeError(f"{name} is a {type(data).__qualname__}. {_ACCEPTED}.")


def one_column(data: Any) -> Any:
    """A 1-D array, series or list of numbers as a table of one column; anything else as it is."""
    if hasattr(data, "to_frame"):
        return data.to_frame()
    numbers = isinstance(data, list | tuple) and bool(data) and isinstance(data[0], Number)
    if numbers or (getattr(data, "ndim", 0) == 1 and hasattr(data, "reshape")):
        return np.reshape(data, (-1, 1)) if numbers else data.reshape(-1, 1)
    return data


def pandas_index(data: Any) -> Any:
    """The index of a pandas data frame or series, else None."""
    for base in type(data).__mro__:
        if base.__module__.partition(".")[0] == "pandas" and base.__name__ in _INDEXED:
            return data.index
    return None


def _are_views(data: Sequence[Any]) -> bool:
    """Whether these are tables or paths, some of which may be single columns."""

    def dims(one: Any) -> int:
        return 2 if isinstance(one, str | os.PathLike) else len(getattr(one, "shape", ()))

    found = [dims(one) for one in data]
    return 2 in found and 0 not in found


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
    """The view in a file, `PATH` or `PATH:SELECTOR`.

    The selector names an array of a `.npz`, `.h5`, `.zarr` or `.mat`, or the columns of a
    `.parquet` or `.csv`, comma-separated.
    """
    path, selector, label = _find(data, name)
    return _by_format(path, label, _OPENERS)(path, selector, label)


def read_texts(
    data: str | os.PathLike[str], name: str, n_rows: int | None = None
) -> NDArray[np.str_]:
    """A column of texts, such as titles or names, from a file of any format."""
    return _read_column(data, name, n_rows).astype(np.str_)


def read_column(data: str | os.PathLike[str], name: str, n_rows: int | None = None) -> NDArray[Any]:
    """A column of labels, numbers or text, from a file of any format; integers where possible.

    If a text file has one line more than `n_rows`, the first is its header.
    """
    values = _read_column(data, name, n_rows)
    if values.dtype.kind == "f" and np.array_equal(values, np.round(values)):
        return values.astype(np.int64)  # MATLAB and pandas write integers as floats
    if values.dtype.kind == "U":
        with suppress(ValueError):
            return np.array([int(text) for text in values])
    return values


def _read_column(data: str | os.PathLike[str], name: str, n_rows: int | None) -> NDArray[Any]:
    """A column of numbers or texts as the file holds them."""
    path, selector, label = _find(data, name)
    read = _by_format(path, label, _READERS)
    with wrap_parse_errors(label, "labels"):
        values = read(path, selector, label)
    if values.ndim == 2 and 1 in values.shape:
        values = values.ravel()
    if values.ndim != 1:
        shape = " x ".join(map(str, values.shape))
        raise InputError(f"{label} is an array of {shape}. Pass one label per row.")
    if read in (read_csv, read_lines) and selector is None and len(values) - 1 == n_rows:
        values = values[1:]
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
        if _extension(path) in _READERS:
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


def _by_format(path: Path, label: str, functions: dict[str, Function]) -> Function:
    """The function for a file, by its extension, or for a folder."""
    extension = _extension(path)
    if path.is_dir() and extension != ".zarr":
        is_zarr = any((path / marker).exists() for marker in _ZARR_MARKERS)
        extension = ".zarr" if is_zarr else ".parquet"
    if extension not in functions:
        raise SourceFormatError(
            f"{label}: files ending in {extension!r} are not supported. Supported: "
            f"{', '.join(functions)}, and folders of .parquet files."
        )
    return functions[extension]


# NumPy's files: `.npy` and stored `.npz` members are mapped, compressed ones unpacked.


def open_npy(path: Path, selector: str | None, label: str) -> RowSource:
    """A `.npy` file, memory-mapped."""
    reject_selector(label, "a .npy file holds a single array", selector)
    with wrap_parse_errors(label, ".npy"), open(path, "rb") as file:
        return _map(path, file, os.path.getsize(path), 0, label)


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
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        wanted = None if selector is None else selector.removesuffix(".npy")
        member = archive.getinfo(choose(label, "array", names, wanted) + ".npy")
        with archive.open(member) as stream:
            if member.compress_type == zipfile.ZIP_STORED:
                start = _start_of_member(path, member)
                return _map(path, stream, member.file_size, start, label)
            _read_header(stream, member.file_size, label)
        remedy = "Save it as .npy (or with numpy.savez), which streams from disk."
        check_fits(label, "a compressed array", member.file_size, remedy)
        with archive.open(member) as stream:
            rows = npy_format.read_array(stream, allow_pickle=False)
        return array_source(rows, label, random_access=True)


def _read_numpy(path: Path, selector: str | None, label: str) -> NDArray[Any]:
    """The array of a `.npy` or one of a `.npz` file, of any shape and dtype but objects."""
    loaded: Any = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        reject_selector(label, "a .npy file holds a single array", selector)
        return loaded
    with loaded:
        return np.asarray(loaded[choose(label, "array", loaded.files, selector)])


def _is_sparse(archive: zipfile.ZipFile) -> bool:
    """Whether scipy wrote this archive: it has the members, and one of them names a format."""
    if not set(archive.namelist()) >= _SPARSE_MEMBERS:
        return False
    with archive.open("format.npy") as stream:
        shape, _, dtype = _header_fields(stream)
        text = stream.read(dtype.itemsize).replace(b"\0", b"")
    return shape == () and dtype.kind in "SU" and text in _SPARSE_FORMATS


def _header_fields(stream: IO[bytes]) -> Header:
    version = npy_format.read_magic(stream)
    if version == (1, 0):
        return npy_format.read_array_header_1_0(stream)
    if version == (2, 0):
        return npy_format.read_array_header_2_0(stream)
    raise ValueError(f".npy format {version[0]}.{version[1]} holds structured arrays")


def _read_header(stream: IO[bytes], size: int, label: str) -> Header:
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
    return shape, fortran_order, dtype


def _map(path: Path, stream: IO[bytes], size: int, start: int, label: str) -> RowSource:
    """The array in the `size` bytes of the stream, which begin at `start` of the file."""
    shape, fortran_order, dtype = _read_header(stream, size, label)
    order: Literal["F", "C"] = "F" if fortran_order else "C"
    rows = np.memmap(path, dtype, "r", start + stream.tell(), shape, order)
    return array_source(rows, label)


def _start_of_member(path: Path, member: zipfile.ZipInfo) -> int:
    # The directory at the end of a zip repeats a member's name and extra field, but the extra field
    # may have another length there: only the local header says where the bytes begin.
    with open(path, "rb") as file:
        file.seek(member.header_offset + _ZIP_LENGTHS)
        name_length = int.from_bytes(file.read(2), "little")
        extra_length = int.from_bytes(file.read(2), "little")
    return member.header_offset + _ZIP_LOCAL_HEADER + name_length + extra_length


# All formats and kinds of data.

# How a file is opened as a view, and read as an array of any kind.
_FORMATS: dict[str, tuple[FileOpener, ArrayReader]] = {
    ".npy": (open_npy, _read_numpy),
    ".npz": (open_npz, _read_numpy),
    ".h5": (open_hdf5, read_hdf5),
    ".hdf5": (open_hdf5, read_hdf5),
    ".zarr": (open_zarr, read_zarr),
    ".parquet": (open_parquet, read_parquet),
    ".csv": (open_csv, read_csv),
    ".csv.gz": (open_csv, read_csv),
    ".tsv": (open_csv, read_csv),
    ".tsv.gz": (open_csv, read_csv),
    ".mat": (open_mat, read_mat),
}
_OPENERS = {extension: opener for extension, (opener, _) in _FORMATS.items()}
_READERS = {extension: reader for extension, (_, reader) in _FORMATS.items()}
_READERS |= {".txt": read_lines, ".txt.gz": read_lines}
# Files at the root of a Zarr store, of its formats 3 and 2.
_ZARR_MARKERS = ("zarr.json", ".zarray", ".zgroup")

# Kinds of data by library and class. They are recognised by these names, so that no optional
# library is imported.
_CLASSES: dict[tuple[str, str], Callable[[Any, str], RowSource]] = {
    ("numpy", "ndarray"): open_ndarray,
    ("pandas", "DataFrame"): open_pandas,
    ("polars", "DataFrame"): open_polars,
    ("pyarrow", "Table"): open_arrow_table,
    ("torch", "Tensor"): open_tensor,
    ("h5py", "Dataset"): stored_array_source,
    ("h5py", "Group"): reject_group,
    ("zarr", "Array"): stored_array_source,
    ("zarr", "Group"): reject_group,
}
_INDEXED = ("DataFrame", "Series")
