"""Rows prepared by several parts, side by side in one array, and cut apart again.

What is made of several parts (a sum of kernels, a product of feature maps) hands each of them its
own columns. How many these are is found by preparing one row, as it can differ between dense and
sparse rows.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

import scipy.sparse
from array_api_compat import array_namespace

from knoi.arrays.backend import Array
from knoi.arrays.sparse import dense, is_sparse


class Prepares(Protocol):
    """Something that brings rows into the form it works on."""

    def prepare(self, X: Array) -> Array:
        """Rows (n, d) as an array (n, any)."""
        ...


@dataclass(frozen=True)
class SideBySide:
    """The prepared rows of all parts as one array, (n, total)."""

    parts: tuple[Prepares, ...]
    n_cols: int  # of the rows before they are prepared
    columns: tuple[int, ...]  # what each part prepares of dense rows

    @classmethod
    def of(cls, parts: tuple[Prepares, ...], row: Array) -> Self:
        """Learn the columns from one dense row (1, d), of the kind that will come."""
        columns = tuple(int(part.prepare(row).shape[1]) for part in parts)
        return cls(parts, int(row.shape[1]), columns)

    @property
    def total(self) -> int:
        """Columns of all parts together."""
        return sum(self.columns)

    def prepare(self, X: Array) -> Array:
        """The rows X (n, d), prepared by every part; sparse if any part keeps them so."""
        rows = [part.prepare(X) for part in self.parts]
        if len(rows) == 1:
            return rows[0]
        columns = tuple(int(one.shape[1]) for one in rows)
        # As many columns as dense rows have, but not of the same parts: `cut` could not tell.
        alike = columns != self.columns and sum(columns) == self.total
        if alike or any(is_sparse(one) for one in rows):
            return scipy.sparse.hstack([scipy.sparse.csr_array(one) for one in rows], format="csr")
        return array_namespace(*rows).concat(rows, axis=1)

    def cut(self, prepared: Array) -> list[Array]:
        """What each part has prepared."""
        if len(self.parts) == 1:
            return [prepared]
        columns, sparse = self.columns, (False,) * len(self.parts)
        if is_sparse(prepared) or prepared.shape[1] != self.total:
            columns, sparse = self._of_sparse_rows
        pieces, start = [], 0
        for width, stays in zip(columns, sparse, strict=True):
            piece = prepared[:, start : start + width]
            pieces.append(piece if stays else dense(piece))
            start += width
        return pieces

    @cached_property
    def _of_sparse_rows(self) -> tuple[tuple[int, ...], tuple[bool, ...]]:
        """What each part prepares of sparse rows: how many columns, and whether sparse ones."""
        row = scipy.sparse.csr_array((1, self.n_cols))
        rows = [part.prepare(row) for part in self.parts]
        return tuple(int(one.shape[1]) for one in rows), tuple(is_sparse(one) for one in rows)
