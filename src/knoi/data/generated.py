"""Views whose rows are computed when they are read: any number of rows, no file."""

import threading
from collections import OrderedDict
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from knoi.data.row_source import RowSource

# Rows made by one call of the generator.
_ROWS_AT_A_TIME = 4096
# How much of the other view may wait to be read.
_MAX_WAITING_BYTES = 128 * 2**20


class PairGenerator(Protocol):
    """Rows of two aligned views, each row a pure function of its number."""

    n_rows: int
    n_cols: tuple[int, int]
    dtype: np.dtype[Any]

    def pair(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows `start:stop` of both views."""
        ...


def generated_views(
    generator: PairGenerator, *, random_access: bool
) -> tuple[RowSource, RowSource]:
    """Both views of a generator as sources.

    Reading rows of one view and then the same rows of the other, in one thread, makes them once.

    Parameters
    ----------
    generator : PairGenerator
    random_access : bool
        Whether a single row costs no more than its share of a block.
    """
    shared = _SharedRows(generator)
    x, y = (
        RowSource(
            label,
            shape=(generator.n_rows, generator.n_cols[side]),
            dtype=generator.dtype,
            fetch=partial(shared.take, side),
            random_access=random_access,
        )
        for side, label in enumerate("XY")
    )
    return x, y


class _Waiting(threading.local):
    """Rows made but not asked for yet, by (side, start, stop), the oldest first.

    Per thread: readers of different rows must not push out what the others wait for.
    """

    def __init__(self) -> None:
        self.rows: OrderedDict[tuple[int, int, int], NDArray[Any]] = OrderedDict()

    def make_room(self, n_bytes: int) -> bool:
        """Forget the oldest until `n_bytes` fit; False if they never will."""
        if n_bytes > _MAX_WAITING_BYTES:
            return False
        while sum(rows.nbytes for rows in self.rows.values()) + n_bytes > _MAX_WAITING_BYTES:
            self.rows.popitem(last=False)
        return True


class _SharedRows:
    """Makes rows for both views and keeps those of the other view until they are asked for."""

    def __init__(self, generator: PairGenerator) -> None:
        self._generator = generator
        self._waiting = _Waiting()

    def take(self, side: int, start: int, stop: int) -> NDArray[Any]:
        """Rows `start:stop` of one view, in memory that is the caller's."""
        waiting = self._waiting
        rows = waiting.rows.pop((side, start, stop), None)
        if rows is not None:
            return rows
        waiting.rows.pop((1 - side, start, stop), None)  # made anew below, with this side

        n, n_cols, dtype = stop - start, self._generator.n_cols, self._generator.dtype
        wanted = np.empty((n, n_cols[side]), dtype)
        keep_other = waiting.make_room(n * n_cols[1 - side] * dtype.itemsize)
        other = np.empty((n if keep_other else 0, n_cols[1 - side]), dtype)
        for first in range(start, stop, _ROWS_AT_A_TIME):
            last = min(first + _ROWS_AT_A_TIME, stop)
            made = self._generator.pair(first, last)
            wanted[first - start : last - start] = made[side]
            if keep_other:
                other[first - start : last - start] = made[1 - side]
        if keep_other:
            waiting.rows[1 - side, start, stop] = other
        return wanted
