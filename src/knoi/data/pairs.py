"""Two views paired row by row: read, split, partitioned and sampled together, never copied."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from numbers import Integral
from typing import Any, Self

import numpy as np

from knoi.arrays.backend import Array, Backend, DType, compute_dtype, numpy_backend
from knoi.arrays.random import HOLD_OUT, Purpose, generator
from knoi.data.checked import CheckedView, RowRuns, Rows, part_source, random_runs
from knoi.data.open import open_view
from knoi.data.prefetch import ReadAhead, Stopped
from knoi.data.source import ViewSource, plural
from knoi.exceptions import InputError

# (rows, dx), (rows, dy): rows of X and their partners, each an array or CSR
RowPair = tuple[Array, Array]

# A random sample of a file is read by runs of this many rows: a sixteenth of the seeks.
_SAMPLE_RUN_ROWS = 16
# A part held out of a file is made of runs of about this size, so that both parts read fast ...
_SPLIT_RUN_BYTES = 1 << 20
# ... but of at least this many runs, so that it still represents a file that is in some order.
_SPLIT_RUNS = 64


class PairSource:
    """Rows of two views that belong together, or a part of them.

    A part (from `split` or `partitions`) borrows the views of the whole: it has its own row
    numbers, 0 to `n_rows`, but errors name the row of the view as it was opened. Who opens closes:
    `close` closes what `PairSource.open` opened, never a view that was passed or borrowed.

    Parameters
    ----------
    x, y : ViewSource
        The views, with as many rows.
    """

    def __init__(self, x: ViewSource, y: ViewSource) -> None:
        if x.n_rows != y.n_rows:
            missing = abs(x.n_rows - y.n_rows)
            raise InputError(
                f"X has {plural(x.n_rows, 'row')} but Y has {y.n_rows}: the views are paired row "
                f"by row. Drop the unpaired row{'s' if missing > 1 else ''}."
            )
        self._x, self._y = CheckedView(x, "X"), CheckedView(y, "Y")
        self._rows = RowRuns.whole(x.n_rows)
        self._opened = ExitStack()

    @classmethod
    def open(cls, X: Any, Y: Any) -> Self:
        """Open two views of any kind `open_view` knows.

        What is opened here is closed with the pairs, or at once if they do not pair.
        """
        with ExitStack() as opened:
            views = []
            for data, name in ((X, "X"), (Y, "Y")):
                views.append(view := open_view(data, name))
                if view is not data:
                    opened.callback(view.close)
            pairs = cls(*views)
            pairs._opened = opened.pop_all()
        return pairs

    def _part(self, rows: RowRuns) -> "PairSource":
        part = object.__new__(PairSource)
        part._x, part._y, part._rows, part._opened = self._x, self._y, rows, ExitStack()
        return part

    @property
    def n_rows(self) -> int:
        """How many pairs there are."""
        return self._rows.n_rows

    @property
    def n_cols(self) -> tuple[int, int]:
        """Columns of X and of Y."""
        return self._x.source.n_cols, self._y.source.n_cols

    @property
    def stored_dtypes(self) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """The dtypes `read` returns, of X and of Y."""
        return self._x.source.dtype, self._y.source.dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of one pair as stored, on average."""
        return self._x.source.row_bytes + self._y.source.row_bytes

    def bytes_on(self, backend: Backend) -> tuple[int, int]:
        """Bytes of a row of X and of one of Y where `backend` has them, in its precision.

        Sparse rows stay sparse beside NumPy and are dense on a device.
        """
        return self._x.bytes_on(backend), self._y.bytes_on(backend)

    @property
    def compute_bytes(self) -> int:
        """Bytes of one pair in the precision to compute in, in main memory."""
        return sum(self.bytes_on(numpy_backend(self.dtype)))

    @property
    def sparse(self) -> tuple[bool, bool]:
        """Whether the rows of X, and those of Y, are CSR."""
        return self._x.source.sparse, self._y.source.sparse

    @property
    def dtype(self) -> DType:
        """The precision to compute in: single if both views fit it without loss, else double."""
        return compute_dtype(*self.stored_dtypes)

    @property
    def random_access(self) -> bool:
        """True when rows can be taken by index at no extra cost: both views are arrays in memory.

        Files are not; nor are frames that turn into arrays as they are read.
        """
        return self._x.indexable and self._y.indexable

    def read(self, start: int, stop: int) -> RowPair:
        """Pairs `start:stop` as stored; may be read-only views of the sources' memory."""
        if not 0 <= start <= stop <= self.n_rows:
            raise InputError(
                f"Rows {start} to {stop} were asked for, of {plural(self.n_rows, 'row')}. "
                "Ask for 0 <= start <= stop <= n_rows."
            )
        runs = self._rows.part(start, stop)
        return self._x.runs(runs), self._y.runs(runs)

    def take(self, rows: Rows) -> RowPair:
        """The given pairs, in the order given, in fresh arrays; meant for `random_access` pairs."""
        rows = self._rows.locate(rows)
        return self._x.rows(rows), self._y.rows(rows)

    def chunks(self, rows: int) -> Iterator[tuple[int, int]]:
        """Consecutive ranges `(start, stop)` of at most `rows` rows that cover all pairs."""
        if rows < 1:
            raise InputError(f"rows is {rows}: a chunk needs at least 1 row. Pass a larger number.")
        return ((start, min(start + rows, self.n_rows)) for start in range(0, self.n_rows, rows))

    def iterate(self, rows: int) -> ReadAhead[RowPair]:
        """All pairs in order, `chunks(rows)` at a time, the next chunk read while one is in use.

        Two chunks are alive at most. The iterator is a context manager; leaving a `for` loop early
        and dropping it ends the reading too.
        """
        ranges = self.chunks(rows)

        def read_in_order(stopped: Stopped) -> Iterator[RowPair]:
            return (self.read(start, stop) for start, stop in ranges)

        return ReadAhead(read_in_order, depth=1)

    def split(self, held_out: float, seed: int) -> tuple["PairSource", "PairSource"]:
        """Two parts at random, `(rest, held out)`; every pair is in exactly one.

        With `random_access` the part held out is a uniform set of rows. Else it is random
        contiguous runs, so that both parts still read by long runs; each row is as likely as any
        other.

        Parameters
        ----------
        held_out : float or int
            A fraction of the pairs (float, between 0 and 1) or a number of pairs (int).
        seed : int
            The same seed gives the same parts.
        """
        n = self.n_rows
        if n < 2:
            raise InputError(
                f"Cannot hold out a part of {plural(n, 'row')}: each part needs at least one. "
                "Pass more rows."
            )
        if isinstance(held_out, Integral):
            count = int(held_out)
            valid = 0 < count < n
        else:
            valid = 0.0 < held_out < 1.0
            count = min(max(round(held_out * n), 1), n - 1) if valid else 0
        if not valid:
            raise InputError(
                f"held_out is {held_out!r}, of {plural(n, 'row')}. Pass a fraction between 0 and 1 "
                f"or a number of rows from 1 to {n - 1}, which leaves both parts a row."
            )
        run_rows = 1 if self.random_access else self._split_run_rows(count)
        rng = generator(seed, Purpose.SAMPLE, HOLD_OUT)
        held = random_runs(n, count, run_rows, rng)
        rest = held.complement(n)
        return self._part(self._rows.select(rest)), self._part(self._rows.select(held))

    def _split_run_rows(self, count: int) -> int:
        return max(1, min(_SPLIT_RUN_BYTES // self.row_bytes, count // _SPLIT_RUNS))

    def partitions(self, n: int) -> list["PairSource"]:
        """`n` contiguous parts of nearly equal size, in order; fewer if there are fewer pairs."""
        if n < 1:
            raise InputError(f"n is {n}: wanted at least 1 partition. Pass a larger number.")
        n = min(n, self.n_rows)
        edges = [self.n_rows * k // n for k in range(n + 1)]
        return [self.part(start, stop) for start, stop in pairwise(edges)]

    def part(self, start: int, stop: int) -> "PairSource":
        """Pairs `start:stop`."""
        if not 0 <= start < stop <= self.n_rows:
            raise InputError(
                f"rows {start} to {stop} of {plural(self.n_rows, 'row')}: wanted "
                f"0 <= start < stop <= {self.n_rows}."
            )
        return self._part(self._rows.part(start, stop))

    def sample(self, n: int, seed: int) -> RowPair:
        """`n` pairs at random without repetition, in row order; all of them if there are no more.

        Each row is as likely as any other. Without `random_access` they are taken in short
        contiguous runs, to spare a disk the seeks.
        """
        if n < 1:
            raise InputError(f"n is {n}: wanted a sample of at least 1 row. Pass a larger number.")
        if n >= self.n_rows:
            return self.read(0, self.n_rows)
        run_rows = 1 if self.random_access else _SAMPLE_RUN_ROWS
        rng = generator(seed, Purpose.SAMPLE)
        runs = self._rows.select(random_runs(self.n_rows, n, run_rows, rng))
        return self._x.runs(runs), self._y.runs(runs)

    def views(self) -> tuple[ViewSource, ViewSource]:
        """X and Y of these pairs, to pass wherever views are taken; borrowed, as parts are."""
        if self._rows.n_rows == self._x.source.n_rows:
            return self._x.source, self._y.source
        return part_source(self._x, self._rows), part_source(self._y, self._rows)

    def row_numbers(self) -> Rows:
        """Where these pairs stand in the views as they were opened."""
        return self._rows.rows()

    def close(self) -> None:
        """Close what `open` opened, after a read under way has ended."""
        with self._x.reading, self._y.reading:
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
