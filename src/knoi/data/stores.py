"""HDF5 and Zarr: chunked stores, opened by path or passed as their library's object."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.data.source import RowSource, choose, listing, reject_selector, wrap_parse_errors
from knoi.exceptions import InputError, InputTypeError, require

# HDF5 decodes a chunk again after it left the cache; the default of 1 MiB holds few chunks. Zarr
# has no cache: the rows of the last chunk are kept here, if they take no more.
_CHUNK_CACHE = 64 * 2**20


def open_hdf5(path: Path, selector: str | None, label: str) -> RowSource:
    """One dataset of an HDF5 file."""

    def take(file: Any) -> RowSource:
        return stored_array_source(_choose_array(file, selector, label), label, file.close)

    return from_hdf5_file(path, label, "HDF5", take)


def from_hdf5_file(
    path: Path, label: str, file_format: str, take: Callable[[Any], RowSource]
) -> RowSource:
    """Open a file and return `take(file)`; the source decides when the file is closed."""
    h5py = require("h5py", "io", f"reading {file_format}")
    with wrap_parse_errors(label, file_format):
        file = h5py.File(path, "r", rdcc_nbytes=_CHUNK_CACHE)
        try:
            return take(file)
        except BaseException:
            file.close()
            raise


def read_hdf5(path: Path, selector: str | None, label: str) -> NDArray[Any]:
    """One dataset of an HDF5 file as an array, of any shape and dtype."""
    h5py = require("h5py", "io", "reading HDF5")
    with h5py.File(path, "r") as file:
        return np.asarray(_choose_array(file, selector, label)[()])


def open_zarr(path: Path, selector: str | None, label: str) -> RowSource:
    """A Zarr array, or one array of a Zarr group."""
    with wrap_parse_errors(label, "Zarr"):
        array = _zarr_array(path, selector, label)
        return stored_array_source(array, label, array.store.close)


def read_zarr(path: Path, selector: str | None, label: str) -> NDArray[Any]:
    """A Zarr array, or one array of a Zarr group, of any shape and dtype."""
    return np.asarray(_zarr_array(path, selector, label)[...])


def _zarr_array(path: Path, selector: str | None, label: str) -> Any:
    node = require("zarr", "io", "reading Zarr").open(store=str(path), mode="r")
    if hasattr(node, "shape"):
        reject_selector(label, "the store is a single array", selector)
        return node
    return _choose_array(node, selector, label)


def reject_group(group: Any, label: str) -> RowSource:
    """A file or group is not a view; the error lists its arrays."""
    raise InputTypeError(
        f"{label} is a group, not an array. Pass one of its arrays: {listing(_array_names(group))}."
    )


def _choose_array(group: Any, selector: str | None, label: str) -> Any:
    """The array at a path below a group of either library; without a path, the only array."""
    # Not looked up in the list of names: it lacks links, and can be long.
    node = None if selector is None else group.get(selector)
    if hasattr(node, "shape"):
        return node
    return group[choose(label, "array", _array_names(group), selector)]


def _array_names(group: Any) -> list[str]:
    nodes: list[tuple[str, Any]] = []
    if hasattr(group, "members"):
        nodes.extend(group.members(max_depth=None))  # Zarr
    else:
        group.visititems(lambda name, node: nodes.append((name, node)))
    return sorted(name for name, node in nodes if hasattr(node, "shape"))


def stored_array_source(
    array: Any,
    label: str,
    release: Callable[[], None] | None = None,
    *,
    transposed: bool = False,
) -> RowSource:
    """The rows of an `h5py.Dataset` or `zarr.Array`; its columns if `transposed`, as in MATLAB.

    Closing the source calls `release`; without it, the file stays open.
    """

    def fetch(start: int, stop: int) -> NDArray[Any]:
        _check_open(array, label)
        with wrap_parse_errors(label, "HDF5" if hasattr(array, "id") else "Zarr"):
            return np.asarray(array[:, start:stop].T if transposed else array[start:stop])

    _check_open(array, label)
    # An HDF5 dataset without a dataspace has no shape.
    shape = (0,) if array.shape is None else array.shape
    shape = shape[::-1] if transposed else shape
    if not hasattr(array, "id") and len(shape) == 2:
        fetch = _ZarrRows(array, fetch).fetch
    return RowSource(label, shape, array.dtype, fetch, release=release)


class _ZarrRows:
    """Rows of Zarr, which decodes whole chunks for any of their rows; keeps the last chunk."""

    def __init__(self, array: Any, fetch: Callable[[int, int], NDArray[Any]]) -> None:
        self._fetch, self._n_rows = fetch, array.shape[0]
        fits = array.chunks[0] * array.shape[1] * array.dtype.itemsize <= _CHUNK_CACHE
        self._size = array.chunks[0] if fits else 1  # rows that are read at once
        self._lock = threading.Lock()
        self._kept: tuple[int, NDArray[Any]] | None = None

    def fetch(self, start: int, stop: int) -> NDArray[Any]:
        """Rows of a valid, non-empty range, in fresh memory."""
        first = start - start % self._size
        if stop > first + self._size:
            return self._fetch(start, stop)
        with self._lock:
            if self._kept is None or self._kept[0] != first:
                self._kept = None  # freed before the next ones are read
                rows = self._fetch(first, min(first + self._size, self._n_rows))
                self._kept = first, rows
            return self._kept[1][start - first : stop - first].copy()


def _check_open(array: Any, label: str) -> None:
    if not getattr(array, "id", True):  # h5py's handle, which is false once the file is closed
        raise InputError(
            f"{label} is a dataset of a closed HDF5 file. Keep the file open while it is read."
        )
