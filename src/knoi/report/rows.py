"""Rows of paired views and their variates, a sample of them where there are many."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.random import Purpose, generator
from knoi.data.checked import random_runs
from knoi.data.open import open_view
from knoi.data.pairs import PairSource
from knoi.estimators.base import BaseCCA

Rows = NDArray[np.int64]
Names = tuple[str, ...] | None

# Rows that are measured on: correlations are good to 0.01.
MEASURED_ROWS = 10_000
# Rows that can be looked at one by one: what an SVG plot can bear.
SHOWN_ROWS = 2000
# Bytes of data read at a time.
_CHUNK_BYTES = 64 << 20
# Rows of a file are taken by runs of so many, to spare it the seeks.
_RUN_ROWS = 16


@dataclass(frozen=True)
class Views:
    """Two paired views, open."""

    pairs: PairSource
    names: tuple[Names, Names]  # of the columns, where the data has them


@dataclass(frozen=True)
class Variates:
    """Rows of paired views, projected."""

    rows: Rows  # (n,), sorted
    Zx: NDArray[np.float64]  # (n, L)
    Zy: NDArray[np.float64]  # (n, L)
    n_available: int  # rows there are

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, members: Rows) -> "Variates":
        """Some of the rows."""
        return Variates(self.rows[members], self.Zx[members], self.Zy[members], self.n_available)

    def leading(self, n_components: int) -> "Variates":
        """The same rows, the first components only."""
        Zx, Zy = self.Zx[:, :n_components], self.Zy[:, :n_components]
        return Variates(self.rows, Zx, Zy, self.n_available)


@contextmanager
def opened(X: Any, Y: Any) -> Iterator[Views]:
    """Both views, and the names of their columns; what is opened here is closed."""
    with ExitStack() as closing:
        views = []
        for data, name in ((X, "X"), (Y, "Y")):
            views.append(view := open_view(data, name))
            if view is not data:
                closing.callback(view.close)
        x, y = views
        yield Views(PairSource(x, y), (x.column_names, y.column_names))


def measured(model: BaseCCA, pairs: PairSource, seed: int) -> Variates:
    """Project all rows, or `MEASURED_ROWS` of them at random."""
    rows = _drawn(pairs.n_rows, MEASURED_ROWS, 1 if pairs.random_access else _RUN_ROWS, seed)
    parts = []
    for x, y in _read(pairs, rows):
        with warnings.catch_warnings():
            # The rows of a data frame, without its names: they were not lost, only not carried.
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            parts.append(model.transform(x, y))
    Zx, Zy = (np.concatenate(Z).astype(np.float64, copy=False) for Z in zip(*parts, strict=True))
    return Variates(rows, Zx, Zy, pairs.n_rows)


def shown(variates: Variates, seed: int) -> Variates:
    """All rows, or `SHOWN_ROWS` of them at random, in order."""
    if len(variates) <= SHOWN_ROWS:
        return variates
    chosen = generator(seed, Purpose.REPORT_POINTS).choice(len(variates), SHOWN_ROWS, False)
    return variates.part(np.sort(chosen))


def _drawn(n: int, count: int, run_rows: int, seed: int) -> Rows:
    if n <= count:
        return np.arange(n, dtype=np.int64)
    return random_runs(n, count, run_rows, generator(seed, Purpose.REPORT_ROWS)).rows()


def _read(pairs: PairSource, rows: Rows) -> Iterator[tuple[Any, Any]]:
    step = max(1, _CHUNK_BYTES // max(1, pairs.row_bytes))
    return (pairs.take(rows[start : start + step]) for start in range(0, len(rows), step))


def read_view(pairs: PairSource, rows: Rows, view: int) -> Iterator[Any]:
    """Chunks of the given rows of one view, as stored."""
    return (both[view] for both in _read(pairs, rows))
