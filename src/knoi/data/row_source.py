"""The concrete source behind every view: how rows are fetched is handed in, the rules live here."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.data.validation import check_dtype, check_shape
from knoi.exceptions import InputError


class RowSource:
    """A `ViewSource` made of a function that fetches rows.

    Parameters
    ----------
    label : str
        How messages call the view.
    shape : tuple of int
        (n_rows, n_cols); anything that is not a non-empty table is refused.
    dtype : numpy.dtype
        What `fetch` returns; anything but real numbers is refused.
    fetch : callable
        `fetch(start, stop)` gives the rows of a valid, non-empty range. Memory it shares with the
        data must come read-only; memory of its own may be writable. CSR if `stored_bytes` is given.
    random_access : bool
        Whether any row costs the same as any other.
    column_names : tuple of str, optional
        Names of the columns, where the data has them.
    release : callable, optional
        Closes what was opened for this source; nothing the user passed.
    stored_bytes : int, optional
        Bytes of all rows, for rows that are sparse; None: they are dense.
    """

    def __init__(
        self,
        label: str,
        *,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        fetch: Callable[[int, int], Array],
        random_access: bool,
        column_names: tuple[str, ...] | None = None,
        release: Callable[[], None] | None = None,
        stored_bytes: int | None = None,
    ) -> None:
        check_shape(label, shape)
        check_dtype(label, dtype)
        self.n_rows, self.n_cols = (int(size) for size in shape)
        self.dtype = dtype.newbyteorder("=")
        self.sparse = stored_bytes is not None
        self.row_bytes = (
            self.n_cols * self.dtype.itemsize
            if stored_bytes is None
            else -(-stored_bytes // self.n_rows)
        )
        self.random_access = random_access
        self.column_names = column_names
        self._label = label
        self._fetch: Callable[[int, int], Array] | None = fetch
        self._release = release

    def read(self, start: int, stop: int) -> Array:
        """Rows `start:stop`, shape (stop - start, n_cols), in the source's dtype."""
        if self._fetch is None:
            raise InputError(f"{self._label} is closed: no rows can be read. Open it again.")
        if not 0 <= start <= stop <= self.n_rows:
            raise InputError(
                f"{self._label} has rows 0 to {self.n_rows}, but rows {start} to {stop} were asked "
                "for. Ask for 0 <= start <= stop <= n_rows."
            )
        if self.sparse:
            if start == stop:
                return scipy.sparse.csr_array((0, self.n_cols), dtype=self.dtype)
            return self._fetch(start, stop)
        if start == stop:
            return np.empty((0, self.n_cols), dtype=self.dtype)
        # Copies only rows that are strided, of foreign byte order or of an array subclass's making.
        return np.ascontiguousarray(self._fetch(start, stop), dtype=self.dtype)

    def close(self) -> None:
        """Release files held open; reading afterwards is an error, closing again is not."""
        release, self._release, self._fetch = self._release, None, None
        if release is not None:
            release()


def read_only(rows: NDArray[Any]) -> NDArray[Any]:
    """The same memory as a plain array that cannot be written through."""
    plain = rows.view(np.ndarray)
    plain.flags.writeable = False
    return plain
