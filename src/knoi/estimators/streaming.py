"""A stream of pieces turned into minibatches: what `partial_fit` remembers between calls."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from knoi.arrays.backend import Array
from knoi.arrays.sparse import stack
from knoi.data.pairs import PairSource, RowPair
from knoi.data.stream import Batch, Position
from knoi.estimators.parameters import check_domain
from knoi.estimators.training import Training
from knoi.solvers.loop import Callback, Run, train

# Latest rows kept to align the components on, for each direction learned.
RECENT_PER_DIRECTION = 50


@dataclass(frozen=True)
class Stream:
    """The run so far, rows that wait for a full minibatch, and the latest rows."""

    training: Training
    run: Run
    waiting: RowPair | None = None
    recent: RowPair = (np.empty((0, 0)), np.empty((0, 0)))
    n_rows: int = 0  # of all pieces

    def after(self, pairs: PairSource, callbacks: Sequence[Callback]) -> "Stream":
        """The stream once the rows of `pairs` have gone through it; itself is left as it was."""
        b = self.training.plan.batch_size
        keep = max(b, RECENT_PER_DIRECTION * self.training.plan.directions)
        rest: list[RowPair] = []
        recent = [self.recent] if self.recent[0].shape[0] else []

        def minibatches() -> Iterator[Batch]:
            pieces = [] if self.waiting is None else [self.waiting]
            step, read = self.run.weights.steps, 0
            with pairs.iterate(b) as chunks:
                for x, y in chunks:
                    for name, features, rows in zip("XY", self.training.maps, (x, y), strict=True):
                        check_domain(name, features.kernel, rows, read)
                    read += int(x.shape[0])
                    piece = x.astype(pairs.dtype), y.astype(pairs.dtype)
                    recent[:] = [_last(_joined([*recent, piece]), keep)]
                    pieces.append(piece)
                    joined = _joined(pieces)
                    pieces = []
                    at, n = 0, int(joined[0].shape[0])
                    while n - at >= b:
                        part = slice(at, at + b)
                        yield Batch(
                            joined[0][part],
                            joined[1][part],
                            np.arange(at, at + b),
                            Position(0, step),
                            Position(0, step + 1),
                        )
                        step, at = step + 1, at + b
                    if at < n:
                        pieces = [(joined[0][at:], joined[1][at:])]
            rest[:] = pieces

        run = train(self.run, minibatches(), self.training.rule, callbacks)
        return replace(
            self,
            run=run,
            waiting=rest[0] if rest else None,
            recent=_joined(recent),
            n_rows=self.n_rows + pairs.n_rows,
        )


def _joined(pieces: list[RowPair]) -> RowPair:
    if len(pieces) == 1:
        return pieces[0]
    x, y = zip(*pieces, strict=True)
    return stack(x), stack(y)


def _last(rows: RowPair, n: int) -> RowPair:
    return _tail(rows[0], n), _tail(rows[1], n)


def _tail(rows: Array, n: int) -> Array:
    return rows[max(0, rows.shape[0] - n) :].copy()
