"""HDF5 and Zarr: chunked stores, opened by path or passed as their library's object."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.data.source import (
    RowSource,
    choose,
    listing,
    reject_selector,
    unknown_name,
    wrap_parse_errors,
)
from knoi.exceptions import InputError, InputTypeError, SourceFormatError, require

# HDF5 decodes a chunk again after it left the cache; the default of 1 MiB holds few chunks.
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
    """Open a file and return `take(file)`; the source decides when the file is closed."""
    h5py = require("h5py", "io", f"reading {file_format}")
    with wrap_parse_errors(label, file_format):
        file = h5py.File(path, "r", rdcc_nbytes=_HDF5_CHUNK_CACHE)
    try:
        with wrap_parse_errors(label, file_format):
            return take(file)
    except BaseException:
        file.close()
        raise


def read_hdf5(path: Path, selector: str | None, label: str) -> NDArray[Any]:
    """One dataset of an HDF5 file as an array, of any shape and dtype."""
    h5py = require("h5py", "io", "reading HDF5")
    with h5py.File(path, "r") as file:
        values: NDArray[Any] = np.asarray(_hdf5_dataset(file, selector, label)[()])
    return values


def reject_h5py_group(data: Any, label: str) -> RowSource:
    """An HDF5 file or group is not a view; the error lists its datasets."""
    raise InputTypeError(
        f"{label} is an HDF5 group, not a dataset. Pass one of its datasets: "
        f"{listing(_hdf5_names(data))}."
    )


def open_zarr(path: Path, selector: str | None, label: str) -> RowSource:
    """A Zarr array, or one array of a Zarr group."""
    with wrap_parse_errors(label, "Zarr"):
        array = _zarr_array(path, selector, label)
        return zarr_source(array, label, release=array.store.close)


def read_zarr(path: Path, selector: str | None, label: str) -> NDArray[Any]:
    """A Zarr array, or one array of a Zarr group, of any shape and dtype."""
    return np.asarray(_zarr_array(path, selector, label)[...])


def reject_zarr_group(data: Any, label: str) -> RowSource:
    """A Zarr group is not a view; the error lists its arrays."""
    raise InputTypeError(
        f"{label} is a Zarr group, not an array. Pass one of its arrays: "
        f"{listing(_zarr_names(data))}."
    )


def _hdf5_dataset(file: Any, selector: str | None, label: str) -> Any:
    if selector is None:
        return file[choose(label, "dataset", _hdf5_names(file), None)]
    node = file.get(selector)
    if node is None:
        raise unknown_name(label, "dataset", selector, _hdf5_names(file))
    if not hasattr(node, "shape"):
        inside = [f"{selector.strip('/')}/{name}".lstrip("/") for name in _hdf5_names(node)]
        raise SourceFormatError(
            f"{label}: {selector!r} is a group, not a dataset. "
            + (f"Select one of its datasets: {listing(inside)}." if inside else "It is empty.")
        )
    return node


def _hdf5_names(group: Any) -> list[str]:
    names: list[str] = []
    if hasattr(group, "visititems"):  # a named type is neither a group nor a dataset
        group.visititems(lambda name, node: names.append(name) if hasattr(node, "shape") else None)
    return names


def dataset_source(
    dataset: Any,
    label: str,
    *,
    release: Callable[[], None] | None = None,
    transposed: bool = False,
) -> RowSource:
    """The rows of an `h5py.Dataset`, or its columns if `transposed` (as MATLAB stores rows).

    Closing the source calls `release`; without it, the file stays open.
    """
    if not dataset:
        raise InputError(f"{label} is a dataset of a closed HDF5 file. Open the file again.")

    def fetch(start: int, stop: int) -> NDArray[Any]:
        if not dataset:
            raise InputError(f"{label}: the HDF5 file was closed. Keep it open while it is read.")
        with wrap_parse_errors(label, "HDF5"):
            rows: NDArray[Any] = dataset[:, start:stop].T if transposed else dataset[start:stop]
            return rows

    # A dataset without a dataspace has no shape.
    shape = (0,) if dataset.shape is None else dataset.shape
    return RowSource(
        label,
        shape=shape[::-1] if transposed else shape,
        dtype=dataset.dtype,
        fetch=fetch,
        random_access=False,
        release=release,
    )


def _zarr_array(path: Path, selector: str | None, label: str) -> Any:
    node = require("zarr", "io", "reading Zarr").open(store=str(path), mode="r")
    if hasattr(node, "shape"):
        reject_selector(label, "the store is a single array", selector)
        return node
    wanted = None if selector is None else selector.strip("/")
    return node[choose(label, "array", _zarr_names(node), wanted)]


def _zarr_names(group: Any) -> list[str]:
    members = group.members(max_depth=None)
    return sorted(path for path, node in members if hasattr(node, "shape"))


def zarr_source(array: Any, label: str, *, release: Callable[[], None] | None = None) -> RowSource:
    """The rows of a `zarr.Array`; closing the source calls `release`."""

    def fetch(start: int, stop: int) -> NDArray[Any]:
        with wrap_parse_errors(label, "Zarr"):
            return np.asarray(array[start:stop])

    return RowSource(
        label,
        shape=array.shape,
        dtype=array.dtype,
        fetch=fetch,
        random_access=False,
        release=release,
    )
