"""The check every chunk passes as it is read: no NaN, no infinity."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.arrays.sparse import is_sparse, stored_position
from knoi.data.validation import describe_place
from knoi.exceptions import NonFiniteError

_SEARCHED_ROWS_BYTES = 2**24


def check_finite(
    rows: Array, name: str, first_row: int, column_names: Sequence[str] | None
) -> None:
    """Refuse NaN and infinite values.

    Parameters
    ----------
    rows : ndarray or csr_array of shape (n, d)
        Rows as they were read.
    name : str
        The view, for the message.
    first_row : int
        Number of `rows[0]` in the view.
    column_names : sequence of str or None
        Names of the columns, where the view has them.

    Raises
    ------
    NonFiniteError
        Naming the first offending value by view, row and column.
    """
    if _surely_finite(rows.data if is_sparse(rows) else rows):
        return
    if is_sparse(rows):
        bad = np.flatnonzero(~np.isfinite(rows.data))
        if len(bad):
            row, column = stored_position(rows, int(bad[0]))
            place = describe_place(first_row + row, column, column_names)
            raise _non_finite(rows.data[bad[0]], name, place)
        return
    step = max(1, _SEARCHED_ROWS_BYTES // max(1, rows.shape[1] * rows.itemsize))
    for start in range(0, len(rows), step):
        offending = np.argwhere(~np.isfinite(rows[start : start + step]))
        if len(offending):
            row, column = (int(index) for index in offending[0])
            raise _non_finite(
                rows[start + row, column],
                name,
                describe_place(first_row + start + row, column, column_names),
            )


def first_bad_row(rows: Array) -> int:
    """The first row that holds NaN or infinity; there must be one."""
    if is_sparse(rows):
        return stored_position(rows, int(np.argmin(np.isfinite(rows.data))))[0]
    return int(np.argmin(np.isfinite(rows).all(axis=1)))


def _surely_finite(values: NDArray[Any]) -> bool:
    if values.dtype.kind != "f":
        return True
    if values.dtype.char not in "fd":
        return False
    # A sum of squares is finite only if every value is, and BLAS has it in one pass at the speed of
    # memory. The reverse does not hold (large values overflow): then search.
    flat = values.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.dot(flat, flat)))


def _non_finite(value: Any, name: str, place: str) -> NonFiniteError:
    if np.isnan(value):
        return NonFiniteError(
            f"{name} has NaN at {place}: CCA needs complete rows. Drop the row or impute the value "
            "(e.g. sklearn.impute.SimpleImputer) before fitting."
        )
    return NonFiniteError(
        f"{name} has {value} at {place}: CCA needs finite values. Drop the row or clip the value "
        "(e.g. numpy.clip) before fitting."
    )
