"""Sets of rows as sorted runs: what a part of a table is, however large the table."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RowRuns:
    """A set of rows of a table: sorted, disjoint runs `starts[k]:stops[k]`.

    Row i *of the set* is the i-th row in sorted order; two runs that touch are one.
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
        """Sorted, disjoint runs, some of which may touch or be empty."""
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
        """How many rows the set has."""
        return int(self.offsets[-1])

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self) -> Rows:
        """All row numbers, sorted: 8 bytes a row."""
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
        """A set of rows of this set, as rows of the table."""
        if not len(members):
            return members
        # The runs of `members` are cut wherever a run of this set ends inside them.
        run = np.searchsorted(members.starts, self.offsets, side="right") - 1
        inside = (run >= 0) & (self.offsets < members.stops[np.maximum(run, 0)])
        cuts = np.union1d(members.starts, self.offsets[inside])
        ends: Rows = np.minimum(
            members.stops[np.searchsorted(members.starts, cuts, side="right") - 1],
            self.offsets[np.searchsorted(self.offsets, cuts, side="right")],
        )
        starts = self.locate(cuts)
        return RowRuns.joined(starts, starts + (ends - cuts))

    def complement(self, n_rows: int) -> "RowRuns":
        """The other rows of a table of `n_rows` rows."""
        starts = np.concatenate([[0], self.stops], dtype=np.int64)
        stops = np.concatenate([self.starts, [n_rows]], dtype=np.int64)
        return RowRuns.joined(starts, stops)


def random_runs(n_rows: int, count: int, run_rows: int, rng: np.random.Generator) -> RowRuns:
    """Exactly `count` rows of `n_rows`, in runs of `run_rows` at random places.

    Every row has the same chance, the first and the last included: the runs are placed on a ring
    (all ways to do so are equally likely), which is then cut open at a random place. `run_rows=1`
    draws a uniform set of rows.
    """
    lengths = np.full(-(-count // run_rows), run_rows, dtype=np.int64)
    # The short run may be anywhere: on a turned ring that is no loss of generality.
    lengths[-1] = count - run_rows * (len(lengths) - 1)
    # k runs among the free rows: shrink each run to one place, draw k places, let them grow again.
    places = rng.choice(n_rows - count + len(lengths), len(lengths), replace=False, shuffle=False)
    places.sort()
    before = np.cumsum(lengths) - lengths
    starts = (places - np.arange(len(lengths)) + before + rng.integers(n_rows)) % n_rows
    stops = starts + lengths
    # At most one run lies across the cut: it becomes the end and the beginning of the table.
    spill = np.maximum(stops - n_rows, 0)
    order = np.argsort(starts)
    return RowRuns.joined(
        np.concatenate([[0], starts[order]], dtype=np.int64),
        np.concatenate([[spill.max()], np.minimum(stops[order], n_rows)], dtype=np.int64),
    )
