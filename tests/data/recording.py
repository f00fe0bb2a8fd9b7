"""A source like a file that records its reads and counts the rows in memory."""

import threading
import weakref

import numpy as np

from knoi.data.pairs import PairSource


class RecordingSource:
    """Returns copies of an array's rows as a file would; with `random_access`, views of them."""

    column_names = None
    sparse = False

    def __init__(self, table, *, random_access=False):
        self.table = table
        self.n_rows, self.n_cols = table.shape
        self.dtype = table.dtype
        self.row_bytes = self.n_cols * self.dtype.itemsize
        self.random_access = random_access
        self.reads = []
        self.closed = False
        self.alive_rows = 0
        self.most_alive_rows = 0
        self._counting = threading.Lock()

    def read(self, start, stop):
        assert not self.closed
        assert 0 <= start <= stop <= self.n_rows
        self.reads.append((start, stop))
        if self.random_access:
            rows = self.table[start:stop]
            rows.flags.writeable = False
            return rows
        rows = self.table[start:stop].copy()
        self._count(stop - start)
        weakref.finalize(rows, self._count, start - stop)
        return rows

    def _count(self, change):
        with self._counting:
            self.alive_rows += change
            self.most_alive_rows = max(self.most_alive_rows, self.alive_rows)

    def close(self):
        self.closed = True


def pair_of(n_rows, *, random_access=False):
    """Pairs of numbered rows with 2 and 3 columns, and their two sources."""
    x = RecordingSource(numbered(n_rows, 2), random_access=random_access)
    y = RecordingSource(numbered(n_rows, 3, sign=-1), random_access=random_access)
    return PairSource(x, y), x, y


def numbered(n_rows, n_cols=2, sign=1, dtype=np.float64):
    """A table whose row i is `sign * (i, i + 1/8, i + 2/8, ...)`."""
    table = np.arange(n_rows)[:, None] + np.arange(n_cols) / 8
    return (sign * table).astype(dtype)
