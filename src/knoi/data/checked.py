"""One view, read by run or by row, every row checked to be finite under its true number."""

import threading

import numpy as np

from knoi.arrays.backend import Array, Backend
from knoi.arrays.sparse import is_sparse, stack
from knoi.data.finite import check_finite, first_bad_row
from knoi.data.runs import RowRuns, Rows
from knoi.data.source import ViewSource
from knoi.exceptions import NonFiniteError


class CheckedView:
    """A `ViewSource` under its name ("X" or "Y"), for reading that ends in numbers to trust.

    Threads may read at the same time: a source is asked by one of them at a time.
    """

    def __init__(self, source: ViewSource, name: str) -> None:
        self.source = source
        self.name = name
        self.reading = threading.Lock()  # held while the source is asked
        self._table = _storage(source)

    @property
    def indexable(self) -> bool:
        """True when `rows` costs no more than copying the rows: the view is an array in memory."""
        return self._table is not None

    def bytes_on(self, backend: Backend) -> int:
        """Bytes of a row once it is where `backend` has it, in its precision."""
        if self.source.sparse and backend.is_numpy:
            # The numbers may grow, the places stay as they are: no more than this.
            grown = max(1.0, backend.itemsize / self.source.dtype.itemsize)
            return int(self.source.row_bytes * grown)
        return self.source.n_cols * backend.itemsize

    def run(self, start: int, stop: int) -> Array:
        """Rows `start:stop`; may be a read-only view of the source's memory."""
        with self.reading:
            rows = self.source.read(start, stop)
        check_finite(rows, self.name, start, self.source.column_names)
        return rows

    def runs(self, runs: RowRuns) -> Array:
        """The rows of a set, in order, by one read a run."""
        if len(runs) == 1:
            return self.run(int(runs.starts[0]), int(runs.stops[0]))
        if self._table is not None:
            return self.rows(runs.rows())
        if self.source.sparse and len(runs):
            limits = zip(runs.starts.tolist(), runs.stops.tolist(), strict=True)
            return stack([self.run(start, stop) for start, stop in limits])
        if self.source.sparse:
            return self.source.read(0, 0)
        table = np.empty((runs.n_rows, self.source.n_cols), dtype=self.source.dtype)
        for k in range(len(runs)):
            table[runs.offsets[k] : runs.offsets[k + 1]] = self.run(
                int(runs.starts[k]), int(runs.stops[k])
            )
        return table

    def rows(self, rows: Rows) -> Array:
        """The given rows, in the order given, in a fresh array."""
        if self._table is None:
            distinct, place = np.unique(rows, return_inverse=True)
            return gather(self.runs(RowRuns.from_rows(distinct)), place)
        gathered = gather(self._table, rows)
        bad: int | None = None
        try:
            check_finite(gathered, self.name, 0, self.source.column_names)
        except NonFiniteError:
            bad = first_bad_row(gathered)
        if bad is not None:
            # The first error named a place in `gathered`; this one names the row of the view.
            check_finite(
                gathered[bad : bad + 1], self.name, int(rows[bad]), self.source.column_names
            )
        return gathered


def gather(table: Array, rows: Rows) -> Array:
    """The given rows of a table, in the order given, in a fresh array."""
    return table[rows] if is_sparse(table) else np.take(table, rows, axis=0)


def _storage(source: ViewSource) -> Array | None:
    """The source's own memory as one array, where it has such; nothing is copied to find out."""
    if not source.random_access:
        return None
    # The same rows read twice lie in one place only if they are the source's own memory; two rows
    # tell a table whose rows are apart (it is copied on reading), one would not.
    stop = min(2, source.n_rows)
    if source.sparse:
        while (first := source.read(0, stop)).nnz == 0 and stop < source.n_rows:
            stop = min(2 * stop, source.n_rows)  # where nothing is stored nothing is shared
        shared = np.may_share_memory(first.data, source.read(0, stop).data)
        return source.read(0, source.n_rows) if shared or first.nnz == 0 else None
    first, again = (source.read(0, stop) for _ in range(2))
    return source.read(0, source.n_rows) if np.may_share_memory(first, again) else None
