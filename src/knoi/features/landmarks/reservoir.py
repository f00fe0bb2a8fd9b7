"""A uniform sample of a stream of rows, in bounded memory, however the stream is cut."""

from collections.abc import Iterable

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from knoi.arrays.backend import Array, compute_dtype
from knoi.arrays.random import RESERVOIR, Purpose, View, generator
from knoi.arrays.sparse import is_sparse
from knoi.exceptions import InputError, NonFiniteError

# Keys come in blocks of this many rows, each block with its own address.
_KEYS = 4096


def reservoir(chunks: Iterable[Array], n: int, seed: int, view: View) -> Array:
    """`n` rows at random without repetition, in the order they came; all rows if there are no more.

    Every row has a random key, a pure function of seed, view and its number in the stream, and the
    n rows of the smallest keys stay: each set of n rows is as likely as any other, whatever the
    chunks. No more than 2 n rows and a chunk are held.
    """
    kept: list[Array] = []
    keys: list[NDArray[np.float64]] = []
    limit = np.inf  # no row beyond can be among the n smallest
    source = _Keys(seed, view)
    seen, waiting = 0, 0
    for chunk in chunks:
        rows = _checked(chunk, kept, seen)
        fresh = source.of(seen, seen + rows.shape[0])
        chosen = np.flatnonzero(fresh < limit)
        if len(chosen) or not kept:
            kept.append(rows[chosen])  # a copy: the caller may reuse the chunk
            keys.append(fresh[chosen])
            waiting += len(chosen)
        seen += rows.shape[0]
        if waiting > n:  # seldom, so that chunks of one row cost no more than large ones
            kept, keys = _smallest(kept, keys, n)
            limit, waiting = keys[0].max(), 0
    if not seen:
        raise InputError(
            "the stream of chunks holds no rows to choose landmarks from. An iterator that was "
            "used before is empty: pass a fresh one."
        )
    return _smallest(kept, keys, n)[0][0]


class _Keys:
    """Random numbers of the rows of a stream, by row number; the block in use is remembered."""

    def __init__(self, seed: int, view: View) -> None:
        self._seed, self._view = seed, view
        self._block, self._values = -1, np.empty(0)

    def of(self, start: int, stop: int) -> NDArray[np.float64]:
        """Keys of rows start:stop."""
        keys = np.empty(stop - start)
        for row in range(start - start % _KEYS, stop, _KEYS):
            if self._block != row // _KEYS:
                self._block = row // _KEYS
                draw = generator(self._seed, Purpose.LANDMARKS, self._view, RESERVOIR, self._block)
                self._values = draw.random(_KEYS)
            first, last = max(start, row), min(stop, row + _KEYS)
            keys[first - start : last - start] = self._values[first - row : last - row]
        return keys


def _smallest(
    kept: list[Array], keys: list[NDArray[np.float64]], n: int
) -> tuple[list[Array], list[NDArray[np.float64]]]:
    """The n rows of the smallest keys, in the order they came, as one piece."""
    rows = scipy.sparse.vstack(kept, format="csr") if is_sparse(kept[0]) else np.concatenate(kept)
    joined = np.concatenate(keys)
    chosen = np.sort(np.argsort(joined, kind="stable")[:n])
    return [rows[chosen]], [joined[chosen]]


def _checked(chunk: Array, kept: list[Array], first_row: int) -> Array:
    """The chunk in a precision to compute in, refused if it does not go with those before it."""
    rows = chunk if is_sparse(chunk) else np.asarray(chunk)
    if rows.ndim != 2:
        raise InputError(
            f"the chunk at row {first_row} of the stream has shape {rows.shape}: wanted rows, "
            "(n, d). Reshape a single row to (1, d)."
        )
    if kept and (rows.shape[1] != kept[0].shape[1] or is_sparse(rows) != is_sparse(kept[0])):
        raise InputError(
            f"the chunk at row {first_row} of the stream has {_described(rows)}, those before it "
            f"{_described(kept[0])}. All chunks must be rows of one table."
        )
    rows = rows.astype(compute_dtype(rows.dtype), copy=False)
    if not np.isfinite(rows.data if is_sparse(rows) else rows).all():
        raise NonFiniteError(
            f"the chunk at row {first_row} of the stream holds NaN or infinite values. Drop or "
            "fill them first."
        )
    return rows


def _described(rows: Array) -> str:
    return f"{rows.shape[1]} {'sparse' if is_sparse(rows) else 'dense'} columns"
