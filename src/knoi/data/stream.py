"""Shuffled, prefetched, resumable minibatches of pairs, from memory or from files of any size."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Self

import numpy as np

from knoi.arrays.backend import Array
from knoi.arrays.blocks import format_bytes
from knoi.arrays.random import Purpose, generator
from knoi.arrays.sparse import is_sparse, stack
from knoi.data.checked import Rows, gather
from knoi.data.pairs import PairSource, RowPair
from knoi.data.prefetch import ReadAhead, Stopped
from knoi.exceptions import InputError, MemoryBudgetError

# Chunks a window is made of, so that a minibatch mixes rows from all over the file ...
_CHUNKS_PER_WINDOW = 16
# ... unless that makes them shorter than a disk likes; then fewer, but never fewer than four.
_DISK_CHUNK_BYTES = 1 << 20
_FEWEST_CHUNKS_PER_WINDOW = 4
# A larger window mixes no better, as it has no more chunks, and delays the first minibatch.
_MOST_WINDOW_BYTES = 1 << 29
# A window comes with the shuffled places of its rows, one 64-bit number each.
_PLACE_BYTES = 8
# Minibatches gathered ahead of the one in use.
_BATCHES_AHEAD = 2
# Minibatches' worth of memory: those ahead, the one in use, the rows kept for the last minibatch
# of the epoch, and a copy while one is converted to the compute precision.
_BATCHES_ALIVE = _BATCHES_AHEAD + 3


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


@dataclass(frozen=True)
class Position:
    """A minibatch's place in a stream: its epoch, and its number within the epoch."""

    epoch: int = 0
    batch: int = 0

    def to_dict(self) -> dict[str, int]:
        """Plain numbers, for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: dict[str, int]) -> Self:
        """The position `to_dict` described."""
        return cls(epoch=int(state["epoch"]), batch=int(state["batch"]))


@dataclass(frozen=True, eq=False)
class Batch:
    """One minibatch of b pairs; its arrays are fresh, C-contiguous and the consumer's to keep."""

    x: Array  # (b, dx), in the pairs' compute precision; CSR if the view is sparse
    y: Array  # (b, dy)
    rows: Rows  # (b,), which pairs these are
    position: Position
    # Where to start a stream that goes on after this minibatch.
    next_position: Position


@dataclass(frozen=True, eq=False)
class _Window:
    """Rows of one shuffled window, at hand: `gather` fetches those at given places."""

    epoch: int
    drawn: ShuffledWindow
    order: Rows  # places in the order they are visited
    gather: "_Gather"

    def piece(self, start: int, stop: int) -> "_Piece":
        """Rows `start:stop` of the epoch's order, which must lie in this window."""
        places = self.order[start - self.drawn.start : stop - self.drawn.start]
        return (*self.gather(places), self.drawn.rows(places))


_Gather = Callable[[Rows], RowPair]
_Piece = tuple[Array, Array, Rows]  # x, y and which rows these are


class _Abandoned(Exception):  # noqa: N818 - not an error: the consumer has gone
    """Ends the reading of a window that nobody waits for."""


class PairStream:
    """Minibatches in random order, epoch after epoch; each `iter` begins at `start`.

    Minibatch t of an epoch is rows `order[t * b : (t + 1) * b]` of that epoch's order; the last one
    wraps round to the first rows of the same order, so each has exactly b pairs. The order is a
    pure function of the seed, the epoch and `plan`, so a stream started at a `Position` with the
    same pairs, `batch_size`, `seed` and `window_bytes` yields what the first one would have, bit
    for bit.

    Pairs in memory, and files that fit the memory given, are shuffled exactly. A larger file is cut
    into contiguous chunks; each epoch reads them in a random order, a window of several chunks at
    a time (each chunk in one go, in the order of the file), and shuffles the rows of each window.
    Reading and gathering happen in two threads, ahead of the consumer.

    Parameters
    ----------
    pairs : PairSource
        What to stream.
    batch_size : int
        b, pairs in a minibatch.
    seed : int
        Decides the order.
    window_bytes : int
        Memory for all rows the stream holds at a time: five minibatches (one in use, two ahead, the
        rows for the last one, a conversion) and, for files, two windows (one in use, one being
        read) with the chunk on its way into the second. Views in memory come on top, as they are
        not the stream's, and so do 16 bytes a row for the order of theirs.
    epochs : int, optional
        The stream ends before this epoch, counted from 0 wherever it starts; None: it does not end.
    start : Position
        The first minibatch.
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
    ) -> None:
        n = pairs.n_rows
        if not 1 <= batch_size <= n:
            raise InputError(
                f"batch_size is {batch_size} but the data has {n} rows: a minibatch is made of "
                f"distinct rows. Pass a batch_size from 1 to {n}."
            )
        self.pairs = pairs
        self.batch_size = batch_size
        self.seed = seed
        self.epochs = epochs
        self.start = Position() if start is None else start
        self.batches_per_epoch = -(-n // batch_size)
        if self.start.epoch < 0 or not 0 <= self.start.batch < self.batches_per_epoch:
            raise InputError(
                f"start is minibatch {self.start.batch} of epoch {self.start.epoch}, but an epoch "
                f"has minibatches 0 to {self.batches_per_epoch - 1}: the position is of another "
                "stream. Use the batch_size and the data it was saved with."
            )
        self.plan: ShufflePlan = plan_shuffle(
            n_rows=n,
            row_bytes=pairs.row_bytes,
            batch_bytes=_BATCHES_ALIVE * batch_size * max(pairs.compute_bytes, pairs.row_bytes),
            window_bytes=window_bytes,
            random_access=pairs.random_access,
        )

    def epoch_order(self, epoch: int) -> Rows:
        """The rows of one epoch in the order they are visited: 8 bytes a row."""
        drawn = self.plan.windows(self.seed, epoch)
        return np.concatenate([window.rows(window.shuffle()) for window in drawn])

    def __iter__(self) -> ReadAhead[Batch]:
        return ReadAhead(self._batches, depth=_BATCHES_AHEAD)

    def _batches(self, stopped: Stopped) -> Iterator[Batch]:
        """Gather minibatches from the windows; runs in a thread of its own."""
        n, b = self.pairs.n_rows, self.batch_size
        wrapped = self.batches_per_epoch * b - n  # rows the last minibatch takes from the first
        with ReadAhead(lambda _: self._windows(stopped), depth=1) as windows:
            head: list[_Piece] = []
            pieces: list[_Piece] = []
            while (window := next(windows, None)) is not None:
                epoch, start, stop = window.epoch, window.drawn.start, window.drawn.stop
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
                # Let go before asking for the next: then two windows are alive, never three.
                del window

    def _first_row(self, epoch: int) -> int:
        """Where in the order of this epoch the stream begins."""
        return self.start.batch * self.batch_size if epoch == self.start.epoch else 0

    def _batch(self, pieces: list[_Piece], position: Position) -> Batch:
        x, y, rows = zip(*pieces, strict=True)
        following = position.batch + 1
        return Batch(
            x=_joined(x, self.pairs.dtype),
            y=_joined(y, self.pairs.dtype),
            rows=np.concatenate(rows),
            position=position,
            next_position=(
                Position(position.epoch, following)
                if following < self.batches_per_epoch
                else Position(position.epoch + 1, 0)
            ),
        )

    def _windows(self, stopped: Stopped) -> Iterator[_Window]:
        """Read the windows from the first that is needed on; runs in a thread of its own."""
        wrapped = self.batches_per_epoch * self.batch_size - self.pairs.n_rows
        in_memory = self.pairs.random_access and self.plan.one_window
        resident: _Gather | None = self.pairs.take if in_memory else None
        try:
            for epoch in count(self.start.epoch):
                if self.epochs is not None and epoch >= self.epochs:
                    return
                for drawn in self.plan.windows(self.seed, epoch):
                    # A stream resumed in mid-epoch needs the rows it starts from, and the first
                    # rows of the epoch for its last minibatch.
                    if drawn.stop <= self._first_row(epoch) and drawn.start >= wrapped:
                        continue
                    if resident is None and self.plan.one_window:
                        resident = self._load(drawn, stopped)
                    # The rows are not given a name: it would keep them while the next are read.
                    yield _Window(
                        epoch, drawn, drawn.shuffle(), resident or self._load(drawn, stopped)
                    )
        except _Abandoned:
            return

    def _load(self, drawn: ShuffledWindow, stopped: Stopped) -> _Gather:
        """Read a window's chunks in file order into memory of its own."""
        rooms = [
            _Room(drawn.stop - drawn.start, d, dtype, sparse=sparse)
            for d, dtype, sparse in zip(
                self.pairs.n_cols, self.pairs.stored_dtypes, self.pairs.sparse, strict=True
            )
        ]
        for start, stop in drawn.ranges():
            if stopped():
                raise _Abandoned
            _add(rooms, self.pairs.read(start, stop))
        x, y = (room.table() for room in rooms)
        return lambda places: (gather(x, places), gather(y, places))


class _Room:
    """Memory for the rows of a window, chunk by chunk; CSR has no room to be filled."""

    def __init__(self, n_rows: int, n_cols: int, dtype: np.dtype[Any], *, sparse: bool) -> None:
        self._chunks: list[Array] = []
        self._table = None if sparse else np.empty((n_rows, n_cols), dtype)
        self._at = 0

    def add(self, rows: Array) -> None:
        if self._table is None:
            self._chunks.append(rows)
            return
        self._table[self._at : self._at + len(rows)] = rows
        self._at += len(rows)

    def table(self) -> Array:
        return stack(self._chunks) if self._table is None else self._table


def _add(rooms: list[_Room], rows: RowPair) -> None:
    # A function, so that no name keeps a chunk while the next one is read.
    for room, part in zip(rooms, rows, strict=True):
        room.add(part)


def _joined(pieces: tuple[Array, ...], dtype: str) -> Array:
    """The pieces under each other, in the compute precision; a lone piece of it is not copied."""
    if len(pieces) > 1:
        return stack(pieces, dtype)
    if is_sparse(pieces[0]):
        return pieces[0].astype(dtype, copy=False)
    return pieces[0].astype(dtype, order="C", copy=False)
