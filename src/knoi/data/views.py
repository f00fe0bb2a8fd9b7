"""The door to the data path: whatever a user may pass as a view becomes a `ViewSource`."""

import os
from collections.abc import Callable, Sequence
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse

from knoi.data.frames import open_pandas, open_polars
from knoi.data.in_memory import open_array_like, open_ndarray, open_sparse, open_tensor
from knoi.data.locator import open_locator
from knoi.data.optional import is_a
from knoi.data.source import ViewSource
from knoi.data.stores import (
    open_h5py_dataset,
    open_zarr_array,
    refuse_h5py_group,
    refuse_zarr_group,
)
from knoi.data.tabular import open_arrow_table
from knoi.exceptions import InputTypeError

_ACCEPTED = (
    "pass a 2-D array (NumPy, scipy.sparse, pandas, polars, torch, h5py, zarr), nested lists of "
    "numbers, or a path PATH or PATH:SELECTOR to a .npy, .npz, .h5, .zarr, .parquet, .csv or .mat "
    "file"
)


def open_view(data: Any, name: str) -> ViewSource:
    """One view, ready to be read by rows.

    Parameters
    ----------
    data : object
        An array, sparse matrix, frame, tensor or dataset, nested lists of numbers, a locator
        `PATH` or `PATH:SELECTOR`, or a `ViewSource`, which is returned as it is.
    name : str
        "X" or "Y": how error messages call the view.

    Raises
    ------
    InputError
        The data is not a non-empty table of real numbers. (Whether they are finite is checked as
        they are read, see `knoi.data.finite`.)
    SourceNotFoundError, SourceFormatError
        The file is not there, or cannot be read.
    """
    for matches, opener in _OPENERS:
        if matches(data):
            return opener(data, name)
    raise InputTypeError(f"{name} is a {type(data).__qualname__}: {_ACCEPTED}.")


def _as_it_is(data: Any, name: str) -> ViewSource:
    source: ViewSource = data
    return source


def _refuse_none(data: Any, name: str) -> ViewSource:
    # The first sentence is scikit-learn's: its checks look for it.
    raise InputTypeError(
        f"{name}: Expected array-like (array or non-string sequence), got None. "
        f"CCA needs both views: {_ACCEPTED}."
    )


# The first test that holds decides. Libraries that are optional are recognised by the names of
# their classes, so that none is imported for a user who does not have it; a further kind of data is
# one further line here, before the last.
_OPENERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, str], ViewSource]], ...] = (
    (lambda data: data is None, _refuse_none),
    (lambda data: isinstance(data, str | os.PathLike), open_locator),
    (lambda data: isinstance(data, np.ndarray), open_ndarray),
    (scipy.sparse.issparse, open_sparse),
    (is_a("pandas", "DataFrame"), open_pandas),
    (is_a("polars", "DataFrame"), open_polars),
    (is_a("pyarrow", "Table"), open_arrow_table),
    (is_a("torch", "Tensor"), open_tensor),
    (is_a("h5py", "Dataset"), open_h5py_dataset),
    (is_a("h5py", "Group"), refuse_h5py_group),
    (is_a("zarr", "Array"), open_zarr_array),
    (is_a("zarr", "Group"), refuse_zarr_group),
    # Asking whether something is a source touches its attributes, which a closed dataset resents.
    (lambda data: isinstance(data, ViewSource), _as_it_is),
    (
        lambda data: isinstance(data, Sequence | Number) or hasattr(data, "__array__"),
        open_array_like,
    ),
)
