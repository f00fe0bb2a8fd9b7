"""Kernel values of sums and products against fixed landmarks, each part in its own fast way."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from knoi.arrays.backend import Array
from knoi.arrays.sparse import PreparedParts, dense, is_sparse
from knoi.kernels.landmark_values import EachTime, KernelValues


class HasValues(Protocol):
    """A kernel, as far as it is needed here."""

    def against(self, Z: Array) -> KernelValues:
        """k(., Z) for fixed landmarks Z (m, d)."""
        ...


@dataclass(frozen=True)
class CombinedValues:
    """Sum (with weights) or product (without) of kernel values against the same landmarks."""

    values: tuple[KernelValues, ...]
    weights: tuple[float, ...] | None
    landmarks: Array  # (m, d)

    @cached_property
    def _rows(self) -> PreparedParts:
        return PreparedParts.of(self.values, dense(self.landmarks[:1, :]))

    def prepare(self, X: Array) -> Array:
        """Rows as all parts want them, side by side."""
        return self._rows.prepare(X)

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The first part in place, the others on top of it."""
        pieces = self._rows.split(prepared)
        if out is None and is_sparse(prepared):  # which may be more precise than the landmarks
            m = len(range(*columns.indices(self.landmarks.shape[0])))
            out = np.empty((prepared.shape[0], m), self.landmarks.dtype)
        rooms = [out] + [None] * (len(pieces) - 1)
        blocks = (
            value.block(piece, columns, room)
            for value, piece, room in zip(self.values, pieces, rooms, strict=True)
        )
        return product_of(blocks) if self.weights is None else sum_of(self.weights, blocks)

    def scratch_per_row(self) -> int:
        """What the parts take, twice as their rows are copied, and the block that is combined."""
        parts = sum(value.scratch_per_row() for value in self.values)
        return 2 * parts + int(self.landmarks.shape[0])


def by_speed(
    parts: tuple[HasValues, ...], Z: Array
) -> tuple[list[tuple[int, KernelValues]], list[int]]:
    """Parts that have a fast way against fixed landmarks, with it; numbers of the others.

    The others then look at the rows together, so that these are not kept once for each of them.
    """
    values = list(enumerate(part.against(Z) for part in parts))
    fast = [(i, value) for i, value in values if not isinstance(value, EachTime)]
    slow = [i for i, value in values if isinstance(value, EachTime)]
    return fast, slow


def sum_of(weights: tuple[float, ...], values: Iterable[Array]) -> Array:
    """Weighted sum of arrays of our own, in the first of them."""
    total = None
    for weight, value in zip(weights, values, strict=True):
        if weight != 1.0:
            value *= weight
        if total is None:
            total = value
        else:
            total += value
    return total


def product_of(values: Iterable[Array]) -> Array:
    """Product of arrays of our own, in the first of them."""
    product = None
    for value in values:
        if product is None:
            product = value
        else:
            product *= value
    return product
