"""Rows of one view: sets of rows as sorted runs, and reading them checked to be finite."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend
from knoi.arrays.sparse import is_sparse, stack, stored_position
from knoi.data.source import RowSource, ViewSource, describe_cell
from knoi.exceptions import NonFiniteError

Rows = NDArray[np.int64]

# The search for the first value that is not finite reads this many bytes at a time.
_SEARCH_BYTES = 2**24


@dataclass(frozen=True, eq=False)
class RowRuns:
    """A set of rows of a table: sorted, disjoint runs `starts[k]:stops[k]`.

    Row i *of the set* is the i-th row in sorted order. Adjacent runs are merged.
    """

    starts: Rows  # (k,)
    stops: Rows  # (k,)
    # offsets[k] is the number of rows before run k; the last entry is the number of rows.
    offsets: Rows = field(init=False, repr=False)  # (k + 1,)

    def __post_init__(self) -> None:
        offsets = np.zeros(len(self.starts) + 1, dtype=np.int64)
        np.cumsum(self.stops - self.starts, out=offsets[1:])
        object.__setattr__(self, "offsets", offsets)

    @classmethod
    def whole(cls, n_rows: int) -> Self:
        """All rows of a table."""
        return cls(np.array([0], dtype=np.int64), np.array([n_rows], dtype=np.int64))

    @classmethod
    def joined(cls, starts: Rows, stops: Rows) -> Self:
        """Sorted, disjoint runs, some of which may be adjacent or empty."""
        filled = stops > starts
        starts, stops = starts[filled], stops[filled]
        apart = starts[1:] != stops[:-1]
        begins, ends = np.append(True, apart), np.append(apart, True)
        return cls(starts[begins[: len(starts)]], stops[ends[: len(stops)]])

    @classmethod
    def from_rows(cls, rows: Rows) -> Self:
        """Distinct row numbers, sorted."""
        return cls.joined(rows, rows + 1)

    @property
    def n_rows(self) -> int:
        """Number of rows in the set."""
        return int(self.offsets[-1])

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self) -> Rows:
        """All row numbers, sorted; 8 bytes per row."""
        return self.locate(np.arange(self.n_rows, dtype=np.int64))

    def locate(self, members: Rows) -> Rows:
        """Table rows of the given rows of the set, in the order given."""
        run = np.searchsorted(self.offsets, members, side="right") - 1
        located: Rows = self.starts[run] + (members - self.offsets[run])
        return located

    def part(self, start: int, stop: int) -> "RowRuns":
        """Rows `start:stop` of the set."""
        if stop <= start:
            return RowRuns(self.starts[:0], self.stops[:0])
        first = int(np.searchsorted(self.offsets, start, side="right")) - 1
        last = int(np.searchsorted(self.offsets, stop, side="left"))
        starts, stops = self.starts[first:last].copy(), self.stops[first:last].copy()
        starts[0] += start - self.offsets[first]
        stops[-1] -= self.offsets[last] - stop
        return RowRuns(starts, stops)

    def select(self, members: "RowRuns") -> "RowRuns":
        """A subset, given as rows of this set, as rows of the table."""
        if not len(members):
            return members
        # The runs of `members` are split wherever a run of this set ends inside them.
        run = np.searchsorted(members.starts, self.offsets, side="right") - 1
        inside = (run >= 0) & (self.offsets < members.stops[np.maximum(run, 0)])
        splits = np.union1d(members.starts, self.offsets[inside])
        ends: Rows = np.minimum(
            members.stops[np.searchsorted(members.starts, splits, side="right") - 1],
            self.offsets[np.searchsorted(self.offsets, splits, side="right")],
        )
        starts = self.locate(splits)
        return RowRuns.joined(starts, starts + (ends - splits))

    def complement(self, n_rows: int) -> "RowRuns":
        """The other rows of a table of `n_rows` rows."""
        starts = np.concatenate([[0], self.stops], dtype=np.int64)
        stops = np.concatenate([self.starts, [n_rows]], dtype=np.int64)
        return RowRuns.joined(starts, stops)


def random_runs(n_rows: int, count: int, run_rows: int, rng: np.random.Generator) -> RowRuns:
    """Exactly `count` rows of `n_rows`, in random runs of `run_rows` rows.

    Every row has the same chance, the first and the last included: the runs are placed on a ring
    (all ways to do so are equally likely), which is then cut open at a random place. `run_rows=1`
    draws a uniform set of rows.
    """
    lengths = np.full(-(-count // run_rows), run_rows, dtype=np.int64)
    # The short run can be the last, because the ring is cut at random.
    lengths[-1] = count - run_rows * (len(lengths) - 1)
    # k runs among the free rows: shrink each run to one slot, draw k slots, expand them again.
    slots = rng.choice(n_rows - count + len(lengths), len(lengths), replace=False, shuffle=False)
    slots.sort()
    before = np.cumsum(lengths) - lengths
    starts = (slots - np.arange(len(lengths)) + before + rng.integers(n_rows)) % n_rows
    stops = starts + lengths
    # At most one run crosses the cut: it becomes the end and the beginning of the table.
    spill = np.maximum(stops - n_rows, 0)
    order = np.argsort(starts)
    return RowRuns.joined(
        np.concatenate([[0], starts[order]], dtype=np.int64),
        np.concatenate([[spill.max()], np.minimum(stops[order], n_rows)], dtype=np.int64),
    )


class CheckedView:
    """A `ViewSource` whose rows are checked to be finite, with its name ("X" or "Y") for messages.

    Threads may read at the same time: the source itself is called by one of them at a time.
    """

    def __init__(self, source: ViewSource, name: str) -> None:
        self.source = source
        self.name = name
        self.reading = threading.Lock()  # held while the source reads
        self._table = _storage(source)

    @property
    def indexable(self) -> bool:
        """True if `take` costs no more than copying the rows: the view is an array in memory."""
        return self._table is not None

    def bytes_on(self, backend: Backend) -> int:
        """Bytes per row as an array of `backend`, in its precision."""
        if self.source.sparse and backend.is_numpy:
            # An upper bound: the values may need a wider dtype, the indices do not.
            grown = max(1.0, backend.itemsize / self.source.dtype.itemsize)
            return int(self.source.row_bytes * grown)
        return self.source.n_cols * backend.itemsize

    def read(self, start: int, stop: int) -> Array:
        """Rows `start:stop`; may be a read-only view of the source's memory."""
        with self.reading:
            rows = self.source.read(start, stop)
        check_finite(rows, self.name, start, self.source.column_names)
        return rows

    def read_runs(self, runs: RowRuns) -> Array:
        """The rows of a set, in order, with one read per run."""
        if len(runs) == 1:
            return self.read(int(runs.starts[0]), int(runs.stops[0]))
        if self._table is not None:
            return self.take(runs.rows())
        if self.source.sparse and len(runs):
            limits = zip(runs.starts.tolist(), runs.stops.tolist(), strict=True)
            return stack([self.read(start, stop) for start, stop in limits])
        if self.source.sparse:
            return self.source.read(0, 0)
        table = np.empty((runs.n_rows, self.source.n_cols), dtype=self.source.dtype)
        for k in range(len(runs)):
            table[runs.offsets[k] : runs.offsets[k + 1]] = self.read(
                int(runs.starts[k]), int(runs.stops[k])
            )
        return table

    def take(self, rows: Rows) -> Array:
        """The given rows, in the order given, in a fresh array."""
        if self._table is None:
            distinct, index = np.unique(rows, return_inverse=True)
            return gather(self.read_runs(RowRuns.from_rows(distinct)), index)
        gathered = gather(self._table, rows)
        bad: int | None = None
        try:
            check_finite(gathered, self.name, 0, self.source.column_names)
        except NonFiniteError:
            bad = _first_bad_row(gathered)
        if bad is not None:
            # The first error named a row of `gathered`; this one names the row of the view.
            check_finite(
                gathered[bad : bad + 1], self.name, int(rows[bad]), self.source.column_names
            )
        return gathered


def gather(table: Array, rows: Rows) -> Array:
    """The given rows of a table, in the order given, in a fresh array."""
    return table[rows] if is_sparse(table) else np.take(table, rows, axis=0)


def _storage(source: ViewSource) -> Array | None:
    """The source's own memory as one array, if it has one; nothing is copied to find out."""
    if not source.random_access:
        return None
    # The same rows read twice share memory only if it is the source's own. Two rows are read,
    # because one row of a strided table, which is copied on reading, is contiguous.
    stop = min(2, source.n_rows)
    if source.sparse:
        while (first := source.read(0, stop)).nnz == 0 and stop < source.n_rows:
            stop = min(2 * stop, source.n_rows)  # empty rows share no memory
        shared = np.may_share_memory(first.data, source.read(0, stop).data)
        return source.read(0, source.n_rows) if shared or first.nnz == 0 else None
    first, again = (source.read(0, stop) for _ in range(2))
    return source.read(0, source.n_rows) if np.may_share_memory(first, again) else None


def part_source(view: CheckedView, rows: RowRuns) -> RowSource:
    """Some rows of a view as a view, numbered from 0; errors name the row of the whole view.

    Closing the part leaves the whole view open.
    """
    source = view.source
    return RowSource(
        view.name,
        shape=(rows.n_rows, source.n_cols),
        dtype=source.dtype,
        fetch=lambda start, stop: view.read_runs(rows.part(start, stop)),
        random_access=False,
        column_names=source.column_names,
        stored_bytes=source.row_bytes * rows.n_rows if source.sparse else None,
    )


def check_finite(
    rows: Array, name: str, first_row: int, column_names: Sequence[str] | None
) -> None:
    """Raise if a value is NaN or infinite.

    Parameters
    ----------
    rows : ndarray or csr_array of shape (n, d)
    name : str
        What the message calls the view.
    first_row : int
        Row number of `rows[0]` in the view.
    column_names : sequence of str or None
        Names of the columns, if the view has them.

    Raises
    ------
    NonFiniteError
        Names the view, row and column of the first such value.
    """
    if _surely_finite(rows.data if is_sparse(rows) else rows):
        return
    if is_sparse(rows):
        bad = np.flatnonzero(~np.isfinite(rows.data))
        if len(bad):
            row, column = stored_position(rows, int(bad[0]))
            cell = describe_cell(first_row + row, column, column_names)
            raise _non_finite(rows.data[bad[0]], name, cell)
        return
    step = max(1, _SEARCH_BYTES // max(1, rows.shape[1] * rows.itemsize))
    for start in range(0, len(rows), step):
        offending = np.argwhere(~np.isfinite(rows[start : start + step]))
        if len(offending):
            row, column = (int(index) for index in offending[0])
            raise _non_finite(
                rows[start + row, column],
                name,
                describe_cell(first_row + start + row, column, column_names),
            )


def _first_bad_row(rows: Array) -> int:
    """The first row with NaN or infinity; there must be one."""
    if is_sparse(rows):
        return stored_position(rows, int(np.argmin(np.isfinite(rows.data))))[0]
    return int(np.argmin(np.isfinite(rows).all(axis=1)))


def _surely_finite(values: NDArray[Any]) -> bool:
    if values.dtype.kind != "f":
        return True
    if values.dtype.char not in "fd":
        return False
    # A sum of squares is finite only if every value is, and BLAS computes it at the speed of
    # memory. The converse does not hold (large values overflow): then search.
    flat = values.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.dot(flat, flat)))


def _non_finite(value: Any, name: str, cell: str) -> NonFiniteError:
    if np.isnan(value):
        return NonFiniteError(
            f"{name} has NaN at {cell}: CCA needs complete rows. Drop the row or impute the value "
            "(e.g. sklearn.impute.SimpleImputer) before fitting."
        )
    return NonFiniteError(
        f"{name} has {value} at {cell}: CCA needs finite values. Drop the row or clip the value "
        "(e.g. numpy.clip) before fitting."
    )
