"""HDF5 and Zarr: chunked stores, opened by path or handed in as their library's object."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.data.damage import damage_reported
from knoi.data.optional import is_a, require
from knoi.data.row_source import RowSource
from knoi.data.selection import choose, listing, nothing_called
from knoi.exceptions import InputError, InputTypeError, SourceFormatError

# HDF5 decodes a chunk again if it left the cache; the library's own 1 MiB holds few chunks.
_HDF5_CHUNK_CACHE = 64 * 2**20


def open_hdf5(path: Path, selector: str | None, label: str) -> RowSource:
    """One dataset of an HDF5 file."""

    def take(file: Any) -> RowSource:
        dataset = _hdf5_dataset(file, selector, label)
        return dataset_source(dataset, label, release=file.close)

    return from_hdf5_file(path, label, "HDF5", take)


def from_hdf5_file(
    path: Path, label: str, file_format: str, take: Callable[[Any], RowSource]
) -> RowSource:
    """What `take` makes of an open HDF5 file; it says whether the source closes the file."""
    h5py = require("h5py", "io", f"reading {file_format}")
    with damage_reported(label, file_format):
        file = h5py.File(path, "r", rdcc_nbytes=_HDF5_CHUNK_CACHE)
    try:
        with damage_reported(label, file_format):
            return take(file)
    except BaseException:
        file.close()
        raise


def open_h5py_dataset(data: Any, label: str) -> RowSource:
    """An `h5py.Dataset` of a file that stays the user's to close."""
    return dataset_source(data, label, release=None)


def refuse_h5py_group(data: Any, label: str) -> RowSource:
    """An HDF5 file or group holds datasets; say which there are."""
    raise InputTypeError(
        f"{label} is an HDF5 group, not a dataset: pass one of its datasets. "
        f"There are: {listing(_hdf5_names(data))}."
    )


def open_zarr(path: Path, selector: str | None, label: str) -> RowSource:
    """A Zarr array, or one array of a Zarr group."""
    zarr = require("zarr", "io", "reading Zarr")
    with damage_reported(label, "Zarr"):
        node = zarr.open(store=str(path), mode="r")
        if is_a("zarr", "Array")(node):
            if selector is not None:
                raise SourceFormatError(
                    f"{label}: the store is a single array, so there is no {selector!r} to select. "
                    f"Drop ':{selector}'."
                )
            return _zarr_source(node, label, release=node.store.close)
        names = _zarr_names(node)
        wanted = None if selector is None else selector.strip("/")
        array = node[choose(label, "array", names, wanted)]
        return _zarr_source(array, label, release=array.store.close)


def open_zarr_array(data: Any, label: str) -> RowSource:
    """A `zarr.Array` whose store stays the user's to close."""
    return _zarr_source(data, label, release=None)


def refuse_zarr_group(data: Any, label: str) -> RowSource:
    """A Zarr group holds arrays; say which there are."""
    raise InputTypeError(
        f"{label} is a Zarr group, not an array: pass one of its arrays. "
        f"There are: {listing(_zarr_names(data))}."
    )


def _hdf5_dataset(file: Any, selector: str | None, label: str) -> Any:
    if selector is None:
        return file[choose(label, "dataset", _hdf5_names(file), None)]
    node = file.get(selector)
    if node is None:
        raise nothing_called(label, "dataset", selector, _hdf5_names(file))
    if not is_a("h5py", "Dataset")(node):
        inside = [f"{selector.strip('/')}/{name}".lstrip("/") for name in _hdf5_names(node)]
        raise SourceFormatError(
            f"{label}: {selector!r} is a group, not a dataset. "
            + (f"Inside it are: {listing(inside)}." if inside else "No dataset is inside it.")
        )
    return node


def _hdf5_names(group: Any) -> list[str]:
    names: list[str] = []
    is_dataset = is_a("h5py", "Dataset")
    if is_a("h5py", "Group")(group):
        group.visititems(lambda name, node: names.append(name) if is_dataset(node) else None)
    return names


def dataset_source(
    dataset: Any, label: str, release: Callable[[], None] | None, *, transposed: bool = False
) -> RowSource:
    """The rows of an HDF5 dataset; `transposed`, its columns, as MATLAB stores rows."""
    if not dataset:
        raise InputError(f"{label} is an HDF5 dataset of a closed file. Open the file again.")

    def fetch(start: int, stop: int) -> NDArray[Any]:
        if not dataset:
            raise InputError(f"{label}: the HDF5 file was closed. Keep it open while it is read.")
        with damage_reported(label, "HDF5"):
            rows: NDArray[Any] = dataset[:, start:stop].T if transposed else dataset[start:stop]
            return rows

    # A dataset of no dataspace has no shape: as empty as an array can be.
    shape = (0,) if dataset.shape is None else dataset.shape
    return RowSource(
        label,
        shape=shape[::-1] if transposed else shape,
        dtype=dataset.dtype,
        fetch=fetch,
        random_access=False,
        release=release,
    )


def _zarr_names(group: Any) -> list[str]:
    is_array = is_a("zarr", "Array")
    return sorted(path for path, node in group.members(max_depth=None) if is_array(node))


def _zarr_source(array: Any, label: str, release: Any) -> RowSource:
    def fetch(start: int, stop: int) -> NDArray[Any]:
        with damage_reported(label, "Zarr"):
            return np.asarray(array[start:stop])

    return RowSource(
        label,
        shape=array.shape,
        dtype=array.dtype,
        fetch=fetch,
        random_access=False,
        release=release,
    )
