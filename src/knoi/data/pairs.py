"""Two views paired row by row: read, split and sampled together, and reading ahead in a thread."""

import threading
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend, DType, compute_dtype
from knoi.arrays.random import HOLD_OUT, Purpose, generator
from knoi.checks import is_integer
from knoi.data.open import one_column, opened_view, pandas_index
from knoi.data.source import (
    CheckedView,
    RowRuns,
    Rows,
    ViewSource,
    part_source,
    plural,
    random_runs,
)
from knoi.exceptions import InputError, InputTypeError

# (n, dx), (n, dy): rows of X and of Y, each an array or CSR
RowPair = tuple[Array, Array]
Item = TypeVar("Item")
# Called by a producer between pieces of long work: True if the consumer has stopped.
Stopped = Callable[[], bool]

# Rows are held out in runs. Neighbours in time resemble each other, so single rows of a recording
# would be known from their neighbours in the rest; and files read faster in runs. At least this
# many runs, of at most so many rows each, represent data that are sorted.
_SPLIT_RUNS = 64
_SPLIT_RUN_ROWS = 512
# A wait without a timeout cannot be interrupted by Ctrl-C on every platform.
_WAIT_SECONDS = 0.5


class Prefetcher(Generic[Item]):
    """Iterate over what `produce(stopped)` yields, made up to `depth` items ahead in a thread.

    With the item in use, at most `depth + 1` items are in memory. An error in the thread is raised
    in the consumer, unchanged, after the items made before it. `close` (or leaving a `with` block)
    ends the thread and waits for it; deleting the iterator ends its thread, too. Long work calls
    `stopped` now and then and ends early if it is true. With `depth` 0 there is no thread: an item
    is made when it is asked for.
    """

    def __init__(
        self, produce: Callable[[Stopped], Generator[Item, None, None]], depth: int
    ) -> None:
        stopped = threading.Event()
        self._items = produce(stopped.is_set)
        self._lazy = depth == 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="knoi-prefetch")
        self._stop = weakref.finalize(self, _stop, stopped, self._thread)
        self._ahead: deque[Future[Item]] = deque()
        for _ in range(depth):
            self._make_next()

    def _make_next(self) -> None:
        self._ahead.append(self._thread.submit(next, self._items))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        if self._lazy:
            return next(self._items)
        if not self._ahead:
            raise StopIteration
        while not self._ahead[0].done():
            with suppress(TimeoutError):
                self._ahead[0].exception(_WAIT_SECONDS)
        item = self._ahead.popleft().result()  # raises StopIteration at the end
        self._make_next()
        return item

    def close(self) -> None:
        """End the thread and wait for it."""
        self._stop()
        self._ahead.clear()
        self._thread.shutdown()
        self._items.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stop(stopped: threading.Event, thread: ThreadPoolExecutor) -> None:
    stopped.set()
    thread.shutdown(wait=False, cancel_futures=True)


class PairSource:
    """Paired rows of two views, or a part of them.

    A part (from `split`, `part` or `weighted`) shares the views of the whole. Its rows are numbered
    from 0, but errors name the row of the view as it was opened. `close` closes what
    `PairSource.open` opened, never a view that was passed or is shared.
    """

    def __init__(self, x: ViewSource, y: ViewSource) -> None:
        if x.n_rows != y.n_rows:
            raise InputError(
                f"X has {plural(x.n_rows, 'row')} but Y has {y.n_rows}: the views are paired row "
                "by row. Drop the unpaired rows."
            )
        self._x, self._y = CheckedView(x, "X"), CheckedView(y, "Y")
        self._rows = RowRuns.whole(x.n_rows)
        self._weights: NDArray[np.float64] | None = None  # of all rows as opened
        self._opened = ExitStack()

    @classmethod
    def open(cls, X: Any, Y: Any) -> Self:
        """Open two views of any type; they are closed with the pairs, or at once on an error.

        A Y of one dimension is one column.
        """
        with ExitStack() as opened:
            x = opened.enter_context(opened_view(X, "X"))
            y = opened.enter_context(opened_view(one_column(Y), "Y"))
            pairs = cls(x, y)
            _check_same_index(X, Y)
            pairs._opened = opened.pop_all()
        return pairs

    def _part(self, rows: RowRuns) -> "PairSource":
        part = object.__new__(PairSource)
        part._x, part._y, part._rows, part._opened = self._x, self._y, rows, ExitStack()
        part._weights = self._weights
        return part

    def weighted(self, sample_weight: Any) -> "PairSource":
        """The pairs with a weight each, without those of weight 0; None: the pairs themselves."""
        if sample_weight is None:
            return self
        weights = _checked_weights(sample_weight, self.n_rows)
        part = self._part(self._rows.select(RowRuns.from_rows(np.flatnonzero(weights))))
        part._weights = np.zeros(self.n_rows_opened)
        part._weights[self.row_numbers()] = weights
        return part

    @cached_property
    def weights(self) -> NDArray[np.float64] | None:
        """Weights of these pairs, (n_rows,), all above 0; None if they count alike."""
        return None if self._weights is None else self._weights[self.row_numbers()]

    @property
    def n_rows(self) -> int:
        """Number of pairs."""
        return self._rows.n_rows

    @property
    def n_rows_opened(self) -> int:
        """Number of pairs in the views as they were opened."""
        return self._x.source.n_rows

    @property
    def n_cols(self) -> tuple[int, int]:
        """Number of columns of X and of Y."""
        return self._x.source.n_cols, self._y.source.n_cols

    @property
    def stored_dtypes(self) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """Dtypes of X and of Y as `read` returns them."""
        return self._x.source.dtype, self._y.source.dtype

    @property
    def row_bytes(self) -> int:
        """Average bytes per pair as stored."""
        return self._x.source.row_bytes + self._y.source.row_bytes

    def bytes_on(self, backend: Backend) -> tuple[int, int]:
        """Bytes per row of X and of Y in the precision of `backend`; sparse only with NumPy."""
        return self._x.bytes_on(backend), self._y.bytes_on(backend)

    @property
    def sparse(self) -> tuple[bool, bool]:
        """Whether the rows of X and of Y are CSR."""
        return self._x.source.sparse, self._y.source.sparse

    @property
    def dtype(self) -> DType:
        """The precision to compute in: float32 if both views fit it without loss, else float64."""
        return compute_dtype(*self.stored_dtypes)

    @property
    def random_access(self) -> bool:
        """True if both views are arrays in memory: rows can be taken by index at no extra cost."""
        return self._x.indexable and self._y.indexable

    def settle(self, backend: Backend, budget: int) -> None:
        """Decide where tensors on a device are read, before anything else is.

        They stay there if the backend computes there, in the precision of the pairs. Otherwise they
        are downloaded, if that takes at most half of `budget`, the bytes of main memory that may be
        used; larger ones are read in pieces, like files.
        """
        for view in (self._x, self._y):
            if backend.dtype == self.dtype:
                view.stay_near(backend)
        if self._x.bytes_elsewhere + self._y.bytes_elsewhere <= budget // 2:
            self._x.download()
            self._y.download()

    @property
    def near(self) -> bool:
        """Whether a view is a tensor that stays on its device."""
        return self._x.near or self._y.near

    def read(self, start: int, stop: int, *, near: bool = False) -> RowPair:
        """Pairs `start:stop` as stored; may be read-only views of the sources' memory.

        With `near`, rows of tensors that stay on their device are left there.
        """
        return self._read_runs(self._range(start, stop), near=near)

    def _range(self, start: int, stop: int) -> RowRuns:
        if not 0 <= start <= stop <= self.n_rows:
            raise InputError(
                f"Cannot read rows {start} to {stop} of {plural(self.n_rows, 'row')}. "
                "Pass 0 <= start <= stop <= n_rows."
            )
        return self._rows.part(start, stop)

    def _read_runs(self, runs: RowRuns, *, near: bool = False) -> RowPair:
        return self._x.read_runs(runs, near=near), self._y.read_runs(runs, near=near)

    def take(self, rows: Rows) -> RowPair:
        """The given pairs, in the order given, in fresh arrays; for pairs with `random_access`."""
        rows = self._rows.locate(rows)
        return self._x.take(rows), self._y.take(rows)

    def in_order(self, order: Rows) -> Callable[[slice], RowPair]:
        """A function that takes the pairs at a part of `order`; for pairs with `random_access`.

        Pairs come in fresh arrays, on the device if they stay there.
        """
        x, y = (view.in_order(self._rows, order) for view in (self._x, self._y))
        return lambda part: (x(part), y(part))

    def chunks(self, rows: int) -> Iterator[tuple[int, int]]:
        """Consecutive ranges `(start, stop)` of at most `rows` rows that cover all pairs."""
        return ((start, min(start + rows, self.n_rows)) for start in range(0, self.n_rows, rows))

    def iterate(self, rows: int, *, near: bool = False) -> Prefetcher[RowPair]:
        """All pairs in order, in `chunks(rows)`; the next chunk is read while one is in use.

        With `near`, rows of tensors that stay on their device are left there.
        """
        near = near and self.near
        read = (self.read(start, stop, near=near) for start, stop in self.chunks(rows))
        return Prefetcher(lambda _: read, depth=0 if near else 1)

    def split(self, held_out: float, seed: int) -> tuple["PairSource", "PairSource"]:
        """Split at random into `(rest, held out)`; every pair is in exactly one part.

        Random contiguous runs are held out, about 64 of them; each row is equally likely.
        `held_out` is a fraction of the pairs (float, between 0 and 1) or a number of pairs (int).
        """
        n = self.n_rows
        count = 0
        if is_integer(held_out):
            count = int(held_out)
        elif 0 < held_out < 1:
            count = min(max(round(held_out * n), 1), n - 1)
        if not 0 < count < n:
            raise InputError(
                f"held_out is {held_out!r}, of {plural(n, 'row')}. Pass a fraction between 0 and 1 "
                "or a number of rows, so that each part has at least one row."
            )
        run_rows = max(1, min(count // _SPLIT_RUNS, _SPLIT_RUN_ROWS))
        held = random_runs(n, count, run_rows, generator(seed, Purpose.SAMPLE, HOLD_OUT))
        rest = held.complement(n)
        return self._part(self._rows.select(rest)), self._part(self._rows.select(held))

    def part(self, start: int, stop: int) -> "PairSource":
        """Pairs `start:stop`."""
        return self._part(self._range(start, stop))

    def sample(self, n: int, seed: int, *, run_rows: int = 1, near: bool = False) -> RowPair:
        """`n` random distinct pairs, in row order; all pairs if there are no more than `n`.

        Which rows these are depends on the arguments and the number of pairs, not on how the views
        are stored. Each row is equally likely. Single rows represent the data best, since
        neighbours may resemble each other; runs of `run_rows` are read faster from a file. `near`
        as in `read`.
        """
        if n >= self.n_rows:
            return self.read(0, self.n_rows, near=near)
        rows = random_runs(self.n_rows, n, run_rows, generator(seed, Purpose.SAMPLE))
        return self._read_runs(self._rows.select(rows), near=near)

    def views(self) -> tuple[ViewSource, ViewSource]:
        """X and Y of these pairs, to pass wherever a view is accepted; `close` closes them."""
        if self._rows.n_rows == self._x.source.n_rows:
            return self._x.source, self._y.source
        return part_source(self._x, self._rows), part_source(self._y, self._rows)

    def row_numbers(self) -> Rows:
        """Row numbers of these pairs in the views as they were opened."""
        return self._rows.rows()

    def close(self) -> None:
        """Close what `open` opened, after the current read has ended."""
        with self._x.reading, self._y.reading:
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_same_index(X: Any, Y: Any) -> None:
    """Raise if both views are pandas objects with different indices."""
    x, y = pandas_index(X), pandas_index(Y)
    if x is None or y is None or x.equals(y):
        return
    row = bisect_left(range(len(x)), True, key=lambda k: not x[: k + 1].equals(y[: k + 1]))
    raise InputError(
        f"X and Y have different indices: row {row} is {x[row]} in X but {y[row]} in Y. Rows are "
        "paired by position. Align them with Y = Y.loc[X.index], or, if row i of X belongs to row "
        "i of Y, drop the indices: X.reset_index(drop=True), Y.reset_index(drop=True)."
    )


def _checked_weights(values: Any, n_rows: int) -> NDArray[np.float64]:
    """A copy of nonnegative, finite weights of so many rows, not all zero."""
    given = np.asarray(values)
    if given.dtype.kind not in "biuf":
        raise InputTypeError(
            f"sample_weight is of dtype {given.dtype}: wanted an array of {n_rows} numbers."
        )
    if given.shape != (n_rows,):
        raise InputError(
            f"sample_weight has shape {given.shape}: wanted one weight per row, ({n_rows},)."
        )
    weights = given.astype(np.float64)
    valid = np.isfinite(weights) & (weights >= 0)
    if not valid.all():
        row = int(np.argmin(valid))
        raise InputError(
            f"sample_weight is {weights[row]:g} in row {row}: wanted finite numbers >= 0. A row "
            "of weight 0 does not count."
        )
    if not weights.any():
        raise InputError(
            "sample_weight is zero for all rows, so that none is left. Pass a positive weight for "
            "the rows that count."
        )
    return weights
