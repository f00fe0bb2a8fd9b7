"""Maps side by side: the features of a sum of kernels are those of its parts."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Self

import numpy as np

from knoi.arrays.backend import Array, Backend
from knoi.arrays.sparse import PreparedParts
from knoi.features.base import FeatureMap
from knoi.features.parts import check_parts, from_states, prepared_parts, room, scratch, states
from knoi.kernels import Kernel, SumKernel

# Columns of a part that come in a row, on average over the parts.
SEGMENT = 64


@dataclass(frozen=True)
class ConcatenatedMap(FeatureMap):
    """phi(x) = (sqrt(w_1) phi_1(x), sqrt(w_2) phi_2(x), ...), for the kernel w_1 k_1 + w_2 k_2...

    The columns of the parts take turns, some of each at a time, as many as are its share: so the
    first columns are a fair sample of all, as the start of training takes them to be.
    """

    kind: ClassVar[str] = "concatenated"
    parts: tuple[FeatureMap, ...]
    weights: tuple[float, ...]
    rows: PreparedParts = field(default=None, compare=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_parts(self.parts)
        SumKernel(tuple(part.kernel for part in self.parts), self.weights)  # checks the weights
        if self.rows is None:
            object.__setattr__(self, "rows", prepared_parts(self.parts))

    @cached_property
    def _segments(self) -> list[tuple[int, int, int]]:
        """Runs of columns: of which part, the first of them there, how many."""
        return _take_turns([part.rank for part in self.parts])

    @cached_property
    def _starts(self) -> list[int]:
        """The column each run begins with."""
        return list(accumulate((size for _, _, size in self._segments), initial=0))

    @property
    def kernel(self) -> Kernel:  # type: ignore[override]
        """The weighted sum of those of the parts."""
        return SumKernel(tuple(part.kernel for part in self.parts), self.weights)

    @property
    def n_cols(self) -> int:
        """Columns of the input, d."""
        return self.parts[0].n_cols

    @property
    def rank(self) -> int:
        """Columns of the output: those of all parts."""
        return sum(part.rank for part in self.parts)

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the most precise part."""
        return np.result_type(*(part.dtype for part in self.parts))

    @property
    def grain(self) -> int:
        """Columns among which every part has as many as it makes together."""
        grains = [-(-p.grain * self.rank // p.rank) for p in self.parts if p.grain > 1]
        return max(grains, default=1)

    def prepare(self, X: Array) -> Array:
        """What the parts prepare, side by side."""
        return self.rows.prepare(X)

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Each part makes those of its columns that are asked for, which then take their places."""
        start, stop = columns.start, columns.stop
        if out is None:
            out = room(prepared, stop - start)
        pieces = self.rows.split(prepared)
        for i, (part, weight) in enumerate(zip(self.parts, self.weights, strict=True)):
            places = self._places(i, start, stop)
            if not places:
                continue
            first, (last, size, _) = places[0][0], places[-1]
            Phi = part.block(pieces[i], slice(first, last + size))
            for own, size, at in places:
                target = out[:, at : at + size]
                target[...] = Phi[:, own - first : own - first + size]
                if weight != 1.0:
                    target *= math.sqrt(weight)
        return out

    def _places(self, part: int, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Runs of columns of a part among `start` to `stop`: (column of it, how many, where)."""
        places = []
        for k in range(bisect_right(self._starts, start) - 1, len(self._segments)):
            of, own, size = self._segments[k]
            begin = self._starts[k]
            if begin >= stop:
                break
            if of == part:
                cut = max(start - begin, 0)
                places.append((own + cut, min(size, stop - begin) - cut, max(begin - start, 0)))
        return places

    def to(self, backend: Backend) -> Self:
        """All parts on the backend."""
        parts = tuple(part.to(backend) for part in self.parts)
        return replace(self, parts=parts, rows=replace(self.rows, parts=parts))

    def scratch_per_row(self) -> int:
        """What the parts take, twice as their rows are copied, and the columns of one of them."""
        return scratch(self.parts) + max(part.rank for part in self.parts)

    def state_dict(self) -> dict[str, Any]:
        """The parts and their weights."""
        return {"kind": self.kind, "parts": states(self.parts), "weights": list(self.weights)}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        return cls(from_states(state["parts"]), tuple(map(float, state["weights"])))


def _take_turns(ranks: list[int]) -> list[tuple[int, int, int]]:
    """Runs of columns (part, first of them, how many), each part in turn by its share."""
    shares = [max(1, round(SEGMENT * len(ranks) * rank / sum(ranks))) for rank in ranks]
    segments = []
    done = [0] * len(ranks)
    while done != ranks:
        for part, (share, rank) in enumerate(zip(shares, ranks, strict=True)):
            size = min(share, rank - done[part])
            if size:
                segments.append((part, done[part], size))
                done[part] += size
    return segments
