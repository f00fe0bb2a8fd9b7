"""The order of an epoch: chunks in random order, rows shuffled within windows of chunks."""

from dataclasses import dataclass

import numpy as np

from knoi.arrays.blocks import format_bytes
from knoi.arrays.random import Purpose, generator
from knoi.data.runs import Rows
from knoi.exceptions import MemoryBudgetError

# Chunks a window is made of, so that a minibatch mixes rows from all over the file ...
_CHUNKS_PER_WINDOW = 16
# ... unless that makes them shorter than a disk likes; then fewer, but never fewer than four.
_DISK_CHUNK_BYTES = 1 << 20
_FEWEST_CHUNKS_PER_WINDOW = 4
# A larger window mixes no better, as it has no more chunks, and delays the first minibatch.
_MOST_WINDOW_BYTES = 1 << 29
# A window comes with the shuffled places of its rows, one 64-bit number each.
_PLACE_BYTES = 8


@dataclass(frozen=True)
class ShufflePlan:
    """How n rows are shuffled. With one window, an epoch is a uniform permutation of all rows."""

    n_rows: int
    chunk_rows: int
    window_chunks: int

    @property
    def n_chunks(self) -> int:
        """Contiguous chunks the rows are cut into; the last may be shorter."""
        return -(-self.n_rows // self.chunk_rows)

    @property
    def one_window(self) -> bool:
        """True when a single window holds all rows."""
        return self.window_chunks >= self.n_chunks

    def windows(self, seed: int, epoch: int) -> "list[ShuffledWindow]":
        """The windows of an epoch in the order they are visited."""
        order = generator(seed, Purpose.STREAM, epoch).permutation(self.n_chunks)
        windows: list[ShuffledWindow] = []
        start = 0
        for first in range(0, self.n_chunks, self.window_chunks):
            chunks = np.sort(order[first : first + self.window_chunks])
            missing = self.n_chunks * self.chunk_rows - self.n_rows
            n_rows = len(chunks) * self.chunk_rows - missing * int(chunks[-1] == self.n_chunks - 1)
            address = (seed, epoch, len(windows))
            windows.append(ShuffledWindow(self, chunks, start, start + n_rows, address))
            start += n_rows
        return windows


@dataclass(frozen=True, eq=False)
class ShuffledWindow:
    """The part `start:stop` of an epoch's order: the rows of some chunks, shuffled.

    A place is a row's number within the window when its chunks are laid out in file order.
    """

    plan: ShufflePlan
    chunks: Rows  # (k,), sorted
    start: int
    stop: int
    address: tuple[int, int, int]  # seed, epoch, number of the window

    def ranges(self) -> list[tuple[int, int]]:
        """Rows `(start, stop)` of each chunk, in file order."""
        size = self.plan.chunk_rows
        return [(c * size, min((c + 1) * size, self.plan.n_rows)) for c in self.chunks.tolist()]

    def shuffle(self) -> Rows:
        """The places of the window in the order they are visited."""
        seed, epoch, window = self.address
        rng = generator(seed, Purpose.STREAM, epoch, window)
        places: Rows = rng.permutation(self.stop - self.start)
        return places

    def rows(self, places: Rows) -> Rows:
        """The row numbers at the given places."""
        # Only the last chunk of the file can be short, and then it lies last in its window.
        chunk, offset = np.divmod(places, self.plan.chunk_rows)
        rows: Rows = self.chunks[chunk] * self.plan.chunk_rows + offset
        return rows


def plan_shuffle(
    n_rows: int, row_bytes: int, batch_bytes: int, window_bytes: int, random_access: bool
) -> ShufflePlan:
    """Bytes to chunks and windows, a pure function.

    What `window_bytes` leaves after `batch_bytes` (all minibatches alive) is given two fifths to
    the window in use, two fifths to the one being read, and one fifth to the chunk on its way into
    it and the check of its values, or less where that is more than mixing needs. A file that fits
    four fifths, with the places of two epochs, is one window and stays in memory. Pairs with
    `random_access` are in memory already: one window.

    Raises
    ------
    MemoryBudgetError
        When not even chunks of one row fit.
    """
    spare = window_bytes - batch_bytes
    room = spare * 2 // 5
    window = min(room, max(_MOST_WINDOW_BYTES, batch_bytes))
    chunk = max(
        window // _CHUNKS_PER_WINDOW, min(_DISK_CHUNK_BYTES, window // _FEWEST_CHUNKS_PER_WINDOW)
    )
    row_cost = row_bytes + _PLACE_BYTES
    if spare < 0 or (not random_access and chunk < row_cost):
        rows_ahead = 0 if random_access else -(-_FEWEST_CHUNKS_PER_WINDOW * row_cost * 5 // 2)
        raise MemoryBudgetError(
            f"window_bytes is {format_bytes(window_bytes)}, but the minibatches in use and ahead "
            f"need at least {format_bytes(batch_bytes + rows_ahead)}. "
            "Lower batch_size or allow more memory."
        )
    if random_access:
        return ShufflePlan(n_rows, chunk_rows=n_rows, window_chunks=1)
    chunk_rows = min(chunk // row_cost, n_rows)
    if n_rows * (row_bytes + 2 * _PLACE_BYTES) <= 2 * room:
        return ShufflePlan(n_rows, chunk_rows, window_chunks=-(-n_rows // chunk_rows))
    return ShufflePlan(n_rows, chunk_rows, window_chunks=window // (chunk_rows * row_cost))
