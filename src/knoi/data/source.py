"""The contract of one view: a table of numbers that is read by contiguous rows."""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from knoi.arrays.backend import Array


@runtime_checkable
class ViewSource(Protocol):
    """One view, wherever it lives. Rows come out as a C-contiguous real NumPy array, or as CSR.

    `read` never hands out memory the caller could damage the source through: a source that returns
    a view of its own storage returns it read-only.
    """

    n_rows: int
    n_cols: int
    dtype: np.dtype[Any]
    # True when `read` returns `scipy.sparse.csr_array` rows: sorted, no place stored twice.
    sparse: bool
    # Bytes of a row as `read` returns it, on average: what memory is planned by.
    row_bytes: int
    # True when any row can be had at the price of any other (the data is in memory); False when
    # `read` should be called on long runs in order (a file).
    random_access: bool
    # Column names, where the data has them (frames, Parquet); else None.
    column_names: tuple[str, ...] | None

    def read(self, start: int, stop: int) -> Array:
        """Rows `start:stop`, shape (stop - start, n_cols), in the source's dtype."""
        ...

    def close(self) -> None:
        """Release files held open; reading afterwards is an error."""
        ...
