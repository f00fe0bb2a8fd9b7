"""Shuffled, prefetched, resumable minibatches of pairs, from memory or from files of any size."""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from knoi.arrays.backend import Array, numpy_backend
from knoi.arrays.random import Purpose, generator
from knoi.arrays.sparse import stack
from knoi.data.pairs import PairSource, Prefetcher, RowPair, Stopped
from knoi.data.source import Rows, gather
from knoi.engine import format_bytes
from knoi.exceptions import InputError, MemoryBudgetError

# Chunks per window, so that a minibatch mixes rows from all over the file ...
_CHUNKS_PER_WINDOW = 16
# ... unless the chunks become too short for a disk; then fewer, but at least four.
_DISK_CHUNK_BYTES = 1 << 20
_MIN_CHUNKS_PER_WINDOW = 4
# A larger window has no more chunks, so it mixes no better, and delays the first minibatch.
_MAX_WINDOW_BYTES = 1 << 29
# A window comes with the shuffled indices of its rows, 64 bits each.
_INDEX_BYTES = 8
# Minibatches gathered ahead of the one in use.
_BATCHES_AHEAD = 2
# Minibatches in memory: those ahead, the one in use, the rows kept for the last minibatch of the
# epoch, and a copy while one is converted to the compute precision.
_BATCHES_IN_MEMORY = _BATCHES_AHEAD + 3


@dataclass(frozen=True)
class ShufflePlan:
    """How n rows are shuffled; with one window, an epoch is a uniform permutation of all rows."""

    n_rows: int
    chunk_rows: int
    window_chunks: int

    @property
    def n_chunks(self) -> int:
        """Number of contiguous chunks; the last may be shorter."""
        return -(-self.n_rows // self.chunk_rows)

    @property
    def one_window(self) -> bool:
        """True if a single window holds all rows."""
        return self.window_chunks >= self.n_chunks

    def windows(self, seed: int, epoch: int) -> "list[ShuffledWindow]":
        """The windows of an epoch in the order they are visited."""
        order = generator(seed, Purpose.SHUFFLE, epoch).permutation(self.n_chunks)
        windows: list[ShuffledWindow] = []
        start = 0
        for first in range(0, self.n_chunks, self.window_chunks):
            chunks = np.sort(order[first : first + self.window_chunks])
            missing = self.n_chunks * self.chunk_rows - self.n_rows
            n_rows = len(chunks) * self.chunk_rows - missing * int(chunks[-1] == self.n_chunks - 1)
            address = seed, epoch, len(windows)
            windows.append(ShuffledWindow(self, chunks, start, start + n_rows, *address))
            start += n_rows
        return windows


@dataclass(frozen=True, eq=False)
class ShuffledWindow:
    """The part `start:stop` of an epoch's order: the rows of some chunks, shuffled.

    Indices are those of the window's rows in file order.
    """

    plan: ShufflePlan
    chunks: Rows  # (k,), sorted
    start: int
    stop: int
    seed: int
    epoch: int
    index: int  # of the window

    def ranges(self) -> list[tuple[int, int]]:
        """Rows `(start, stop)` of each chunk, in file order."""
        size = self.plan.chunk_rows
        return [(c * size, min((c + 1) * size, self.plan.n_rows)) for c in self.chunks.tolist()]

    def shuffle(self) -> Rows:
        """The indices of the window in the order they are visited."""
        rng = generator(self.seed, Purpose.SHUFFLE, self.epoch, self.index)
        indices: Rows = rng.permutation(self.stop - self.start)
        return indices

    def rows(self, indices: Rows) -> Rows:
        """The row numbers at the given indices of the window."""
        # Only the last chunk of the file can be short, and it is the last of its window.
        chunk, offset = np.divmod(indices, self.plan.chunk_rows)
        rows: Rows = self.chunks[chunk] * self.plan.chunk_rows + offset
        return rows


def plan_shuffle(
    n_rows: int, row_bytes: int, batch_bytes: int, window_bytes: int, random_access: bool
) -> ShufflePlan:
    """Sizes of chunks and windows that fit in memory; a pure function.

    `window_bytes` minus `batch_bytes` (all minibatches in memory) is split into two fifths for the
    window in use, two fifths for the one being read, and one fifth for the chunk being copied into
    it and the check of its values; a window is smaller if it need not be that large to mix well. A
    file that fits into four fifths, with the indices of two epochs, is one window and stays in
    memory. Pairs with `random_access` are in memory already: one window.
    """
    spare = window_bytes - batch_bytes
    share = spare * 2 // 5
    window = min(share, max(_MAX_WINDOW_BYTES, batch_bytes))
    chunk = max(
        window // _CHUNKS_PER_WINDOW, min(_DISK_CHUNK_BYTES, window // _MIN_CHUNKS_PER_WINDOW)
    )
    row_cost = row_bytes + _INDEX_BYTES
    if spare < 0 or (not random_access and chunk < row_cost):
        rows_ahead = 0 if random_access else -(-_MIN_CHUNKS_PER_WINDOW * row_cost * 5 // 2)
        raise MemoryBudgetError(
            f"window_bytes is {format_bytes(window_bytes)}, but the minibatches in use and ahead "
            f"need at least {format_bytes(batch_bytes + rows_ahead)}. "
            "Lower batch_size or allow more memory."
        )
    if random_access:
        return ShufflePlan(n_rows, chunk_rows=n_rows, window_chunks=1)
    chunk_rows = min(chunk // row_cost, n_rows)
    if n_rows * (row_bytes + 2 * _INDEX_BYTES) <= 2 * share:
        return ShufflePlan(n_rows, chunk_rows, window_chunks=-(-n_rows // chunk_rows))
    return ShufflePlan(n_rows, chunk_rows, window_chunks=window // (chunk_rows * row_cost))


@dataclass(frozen=True)
class Position:
    """The position of a minibatch in a stream: its epoch, and its index within the epoch."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True, eq=False)
class Batch:
    """One minibatch of b pairs, in fresh C-contiguous arrays; or what `place` made of them."""

    x: Array  # (b, dx), in the pairs' compute precision; CSR if the view is sparse
    y: Array  # (b, dy)
    rows: Rows  # (b,), row numbers of the pairs
    position: Position
    # Start of a stream that continues after this minibatch.
    next_position: Position


_Take = Callable[[Rows], RowPair]
_Gather = Callable[[slice], RowPair]
_Piece = tuple[Array, Array, Rows]  # x, y and their row numbers


@dataclass(frozen=True, eq=False)
class _Window:
    """One shuffled window in memory: `gather` returns the pairs at a part of its order."""

    drawn: ShuffledWindow
    order: Rows  # indices in the order they are visited
    gather: _Gather

    def piece(self, start: int, stop: int) -> _Piece:
        """Rows `start:stop` of the epoch's order, all of which are in this window."""
        part = slice(start - self.drawn.start, stop - self.drawn.start)
        return (*self.gather(part), self.drawn.rows(self.order[part]))


class PairStream:
    """Minibatches in random order, epoch after epoch; each `iter` begins at `start`.

    Minibatch t of an epoch is rows `order[t * b : (t + 1) * b]` of that epoch's order. The last one
    wraps around to the first rows of the same order, so each has exactly b pairs. The order is a
    pure function of the seed, the epoch and `plan`: a stream started at a `Position` with the same
    pairs, `batch_size`, `seed` and `window_bytes` continues bit for bit.

    Pairs in memory, and files that fit in `window_bytes`, are shuffled uniformly, all in the same
    order. A larger file is split into contiguous chunks. Each epoch reads them in a random order, a
    window of several chunks at a time (each chunk at once, in file order), and shuffles the rows of
    each window. Two threads read and gather ahead of the consumer; tensors that stay on their
    device are gathered there, when the minibatch is asked for. `place`, a function per view, is
    called with the rows of each minibatch, by the thread that gathers them.

    `window_bytes` is the memory for all rows that the stream holds: five minibatches (one in use,
    two ahead, the rows for the last one, a conversion) and, for files, two windows (one in use, one
    being read) with the chunk being copied. Views in memory are not included, nor are the 16 bytes
    per row for their order. The stream ends before epoch `epochs`, wherever it starts.
    """

    def __init__(
        self,
        pairs: PairSource,
        batch_size: int,
        seed: int,
        *,
        window_bytes: int,
        epochs: int | None = None,
        start: Position | None = None,
        place: Sequence[Callable[[Array], Any]] | None = None,
    ) -> None:
        n = pairs.n_rows
        if not 1 <= batch_size <= n:
            raise InputError(
                f"batch_size is {batch_size} but the data has {n} rows. The rows of a minibatch "
                f"are distinct: pass a batch_size from 1 to {n}."
            )
        self.pairs = pairs
        self.batch_size = batch_size
        self.seed = seed
        self.epochs = epochs
        self.start = start or Position()
        self.place = place
        self.batches_per_epoch = -(-n // batch_size)
        # Rows that the last minibatch of an epoch takes from its first.
        self._wrapped = self.batches_per_epoch * batch_size - n
        if self.start.epoch < 0 or not 0 <= self.start.batch < self.batches_per_epoch:
            raise InputError(
                f"start is minibatch {self.start.batch} of epoch {self.start.epoch}, but an epoch "
                f"has minibatches 0 to {self.batches_per_epoch - 1}. "
                "Use the batch_size and the data that the position was saved with."
            )
        compute_bytes = sum(pairs.bytes_on(numpy_backend(pairs.dtype)))
        self.plan: ShufflePlan = plan_shuffle(
            n_rows=n,
            row_bytes=pairs.row_bytes,
            batch_bytes=_BATCHES_IN_MEMORY * batch_size * max(compute_bytes, pairs.row_bytes),
            window_bytes=window_bytes,
            random_access=pairs.random_access,
        )

    def __iter__(self) -> Prefetcher[Batch]:
        return Prefetcher(self._batches, depth=0 if self.pairs.near else _BATCHES_AHEAD)

    def _batches(self, stopped: Stopped) -> Generator[Batch, None, None]:
        """Gather minibatches from the windows; usually runs in a separate thread."""
        n, b, wrapped = self.pairs.n_rows, self.batch_size, self._wrapped
        with Prefetcher(lambda _: self._windows(stopped), depth=1) as windows:
            head: list[_Piece] = []
            pieces: list[_Piece] = []
            while (window := next(windows, None)) is not None:
                epoch, start, stop = window.drawn.epoch, window.drawn.start, window.drawn.stop
                if start == 0:
                    head = []
                if start < wrapped:
                    head.append(window.piece(start, min(stop, wrapped)))
                at = max(start, self._first_row(epoch))
                while at < stop:
                    end = min((at // b + 1) * b, stop)
                    pieces.append(window.piece(at, end))
                    if end == n:
                        pieces += head
                    if end == n or end % b == 0:
                        yield self._batch(pieces, Position(epoch, at // b))
                        pieces = []
                    at = end
                # Freed before the next is requested, so that two windows are in memory, not three.
                del window

    def _first_row(self, epoch: int) -> int:
        """The index in the order of this epoch at which the stream begins."""
        return self.start.batch * self.batch_size if epoch == self.start.epoch else 0

    def _batch(self, pieces: list[_Piece], position: Position) -> Batch:
        *views, rows = zip(*pieces, strict=True)
        x, y = (_joined(view, self.pairs.dtype) for view in views)
        if self.place is not None:
            x, y = (place(view) for place, view in zip(self.place, (x, y), strict=True))
        epochs, following = divmod(position.batch + 1, self.batches_per_epoch)
        return Batch(
            x=x,
            y=y,
            rows=np.concatenate(rows),
            position=position,
            next_position=Position(position.epoch + epochs, following),
        )

    def _windows(self, stopped: Stopped) -> Generator[_Window, None, None]:
        """Read the windows, beginning with the first that is needed; runs in a separate thread."""
        resident: _Take | None = None
        first = self.start.epoch
        for epoch in count(first) if self.epochs is None else range(first, self.epochs):
            for drawn in self.plan.windows(self.seed, epoch):
                # A stream resumed within an epoch also needs the first rows of the epoch, for its
                # last minibatch.
                if drawn.stop <= self._first_row(epoch) and drawn.start >= self._wrapped:
                    continue
                order = drawn.shuffle()
                if self.pairs.random_access:
                    yield _Window(drawn, order, self.pairs.in_order(order))
                    continue
                if resident is None and self.plan.one_window:
                    resident = self._load(drawn, stopped)
                # No name for the rows: it would keep them in memory while the next are read.
                yield _Window(drawn, order, _by_part(resident or self._load(drawn, stopped), order))

    def _load(self, drawn: ShuffledWindow, stopped: Stopped) -> _Take:
        """Read a window's chunks in file order into memory."""
        n_rows = drawn.stop - drawn.start
        # Of each view, an array to fill, or a list of CSR chunks.
        windows: list[Any] = [
            [] if sparse else np.empty((n_rows, d), dtype)
            for d, dtype, sparse in zip(
                self.pairs.n_cols, self.pairs.stored_dtypes, self.pairs.sparse, strict=True
            )
        ]
        at = 0
        for start, stop in drawn.ranges():
            if stopped():
                raise CancelledError  # nobody waits for it
            _add(windows, at, self.pairs.read(start, stop))
            at += stop - start
        x, y = (stack(rows) if isinstance(rows, list) else rows for rows in windows)
        return lambda indices: (gather(x, indices), gather(y, indices))


def _by_part(take: _Take, order: Rows) -> _Gather:
    return lambda part: take(order[part])


def _add(windows: list[Any], at: int, chunk: RowPair) -> None:
    # A function, so that no name keeps a chunk in memory while the next one is read.
    for window, rows in zip(windows, chunk, strict=True):
        if isinstance(window, list):
            window.append(rows)
        else:
            window[at : at + len(rows)] = rows


def _joined(pieces: tuple[Array, ...], dtype: str) -> Array:
    """Concatenate in the compute precision; a single piece of that precision is not copied."""
    if hasattr(pieces[0], "detach"):  # tensors on a device
        xp = array_namespace(pieces[0])
        joined = xp.concat(pieces, axis=0) if len(pieces) > 1 else pieces[0]
        return joined.to(getattr(xp, dtype))
    return stack(pieces, dtype) if len(pieces) > 1 else pieces[0].astype(dtype, copy=False)
