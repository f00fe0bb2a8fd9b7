"""The check every chunk passes as it is read: no NaN, no infinity."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.data.validation import describe_place
from knoi.exceptions import NonFiniteError

_SEARCHED_ROWS_BYTES = 2**24


def check_finite(
    rows: NDArray[Any], name: str, first_row: int, column_names: Sequence[str] | None
) -> None:
    """Refuse NaN and infinite values.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
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
    if rows.dtype.kind != "f":
        return
    if rows.dtype.char in "fd":
        # A sum of squares is finite only if every value is, and BLAS has it in one pass at the
        # speed of memory. The reverse does not hold (large values overflow): then search.
        flat = rows.ravel(order="K")
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.dot(flat, flat)):
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
