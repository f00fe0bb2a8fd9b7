"""Taylor features of the RBF kernel: weighted monomials (Cotter, Keshet & Srebro 2011).

A. Cotter, J. Keshet and N. Srebro, *Explicit Approximations of the Gaussian Kernel*, 2011. With u
the row in widths, k(x, z) = exp(-|u|^2 / 2) exp(-|v|^2 / 2) sum_n (u.v)^n / n!, and (u.v)^n / n! is
the sum of u^a v^a / a! over all monomials u^a of degree n.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.arrays.random import View
from knoi.arrays.sparse import empty_rows, is_sparse, row_of_stored, with_data
from knoi.engine import even_slices
from knoi.exceptions import InputError
from knoi.features.base import ArraySpec, FeatureMap, output, require_kernel
from knoi.kernels import RBF, Kernel

# Where rows are a few widths long, no term beyond this degree is above rounding; and up to it the
# largest monomial is a float32.
MAX_DEGREE = 100
# Monomials of low degree that `prepare` computes per row, unless the row itself has more.
KEPT = 8192
# Numbers of sparse rows that are dense at a time.
TILE = 2**20


@dataclass(frozen=True)
class Taylor(FeatureMap):
    """phi_a(x) = exp(-|u|^2 / 2) u^a / sqrt(a!), u = (x - c) / width, for all |a| <= degree D.

    The error is at most (|u| |v|)^(D+1) / (D+1)! (the paper's bound): good where rows are at
    most a few widths long, useless beyond. The centre c changes no value of the kernel, but makes
    rows shorter.

    Monomials come by degree, those of one degree by their largest variable j, then by its power m:
    u_j^m times the monomials of degree n - m in the variables before j, which are the first ones
    of that degree. So any block of them is a few runs of monomials of lower degree, each times one
    number per row.
    """

    kind: ClassVar[str] = "taylor"
    kernel: RBF
    degree: int  # D
    centre: Annotated[Array, ArraySpec(("d",))]  # c

    @classmethod
    def fit(cls, sample: Array, kernel: Kernel, rank: int, seed: int, view: View) -> Self:
        """The largest degree with at most `rank` monomials (and at most 100); no draw, no seed.

        The centre is the mean of a dense sample; 0 for a sparse one, whose rows would become dense.
        """
        kernel = require_kernel(kernel, RBF, "Taylor features")
        d = int(sample.shape[1])
        if rank < d + 1:
            raise InputError(
                f"rank={rank} is too small for Taylor features of {d} columns: degree 1 takes "
                f"{d + 1} of them, degree 2 {count(d + 1, 2)}. Pass a rank of at least {d + 1}, or "
                "use random Fourier features, which come in any number."
            )
        degree = 1
        while degree < MAX_DEGREE and count(d + 1, degree + 1) <= rank:
            degree += 1
        sparse = is_sparse(sample)
        centre = np.zeros(d) if sparse else np.mean(sample, axis=0, dtype=np.float64)
        return cls(kernel, degree, centre)

    @property
    def rank(self) -> int:
        """Number of features: all monomials of degree at most D."""
        return count(self.n_cols + 1, self.degree)

    @cached_property
    def _kept(self) -> int:
        """Up to which degree `prepare` computes monomials; 1 means the row itself."""
        kept = 1
        while kept < self.degree - 1 and count(self.n_cols + 1, kept + 1) <= KEPT:
            kept += 1
        return kept

    @cached_property
    def _centred(self) -> bool:
        return bool((self.centre != 0).any())

    def prepare(self, X: Array) -> Array:
        """exp(-|u|^2 / 2), then the monomials of u up to a low degree, without that factor.

        Wide sparse rows stay as they are, (b, 1 + d), to be taken to u tile by tile.
        """
        if is_sparse(X):
            if self._kept == 1:
                return self._with_factor(X)
            X = X.toarray()  # narrow rows: the monomials kept ready are more
        xp = array_namespace(X)
        width = count(self.n_cols + 1, self._kept)
        rows = empty_rows(X, width)
        u = rows[:, 1 : self.n_cols + 1]
        u[...] = X
        self._to_widths(u, slice(0, self.n_cols))
        with np.errstate(over="ignore"):
            rows[:, 0] = xp.exp(-0.5 * xp.sum(u * u, axis=1))
        # So far out that all features are 0: no power may overflow and make them NaN.
        u[rows[:, 0] == 0] = 0.0
        one = xp.ones((X.shape[0], 1), dtype=X.dtype, device=device(X))
        for degree in range(2, self._kept + 1):
            start, stop = self._start(degree), self._start(degree + 1)
            known = rows, self.n_cols, degree - 1
            fill_monomials(*known, degree, 0, stop - start, one, rows[:, start:stop])
        return rows

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The monomials of these columns, degree by degree, each number written once."""
        out = output(prepared, columns.stop - columns.start, out)
        for degree in range(self.degree + 1):
            start = self._start(degree)
            first = max(columns.start, start)
            last = min(columns.stop, self._start(degree + 1))
            if first >= last:
                continue
            part = out[:, first - columns.start : last - columns.start]
            first, last = first - start, last - start
            if is_sparse(prepared):
                self._fill_sparse(prepared, degree, first, last, part)
            else:
                known = prepared, self.n_cols, self._kept
                fill_monomials(*known, degree, first, last, prepared[:, :1], part)
        return out

    def check_state(self) -> None:
        """The degree is one that `fit` chooses."""
        if not 1 <= self.degree <= MAX_DEGREE:
            raise InputError(f"degree is {self.degree}, expected 1 to {MAX_DEGREE}")

    def _start(self, degree: int) -> int:
        """Monomials of less than this degree."""
        return count(self.n_cols + 1, degree - 1) if degree else 0

    def _to_widths(self, u: Array, columns: slice) -> None:
        """Overwrite the entries of some columns by (x - c) / width."""
        with np.errstate(over="ignore"):
            if self._centred:
                u -= self.centre[columns]
            u /= self.kernel.decided_width

    def _with_factor(self, X: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
        """Sparse rows with exp(-|u|^2 / 2) before their first column."""
        n, d = X.shape
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        squares = np.empty(n, dtype=X.dtype)  # |u|^2
        with np.errstate(over="ignore"):
            if self._centred:
                for rows in _row_slices(n, d):
                    u = X[rows, :].toarray()
                    self._to_widths(u, slice(0, d))
                    squares[rows] = np.sum(u * u, axis=1)
            else:
                values = X.data / self.kernel.decided_width
                values *= values
                squares[:] = with_data(X, values).sum(1)
            factor = np.exp(-0.5 * squares)
        starts = X.indptr[:-1]
        data, indices = np.insert(X.data, starts, factor), np.insert(X.indices + 1, starts, 0)
        indptr = X.indptr + np.arange(n + 1, dtype=X.indptr.dtype)
        return scipy.sparse.csr_array((data, indices, indptr), shape=(n, d + 1))

    def _fill_sparse(
        self,
        prepared: scipy.sparse.csr_array,
        degree: int,
        first: int,
        last: int,
        out: NDArray[Any],
    ) -> None:
        """Monomials first, ..., last - 1 of one degree of sparse rows, made dense tile by tile.

        Without a centre, a row that has none of their largest variables has zeros here, and costs
        no more than to write these.
        """
        factor = prepared.data[prepared.indptr[:-1], None]  # every row begins with it
        if degree == 0:
            out[...] = factor
            return
        low = largest_variable(self.n_cols, degree, first)
        end = largest_variable(self.n_cols, degree, last - 1) + 1
        rows = np.arange(prepared.shape[0])
        if not self._centred:
            out[...] = 0.0
            found = np.flatnonzero((prepared.indices > low) & (prepared.indices <= end))
            rows = np.unique(np.searchsorted(prepared.indptr, found, side="right") - 1)
        # Degree 1 is the variables themselves; above it all of them up to the largest take part.
        begin, place = (low, 0) if degree == 1 else (0, first)
        for some in _row_slices(rows.size, 1 + end - begin):
            chosen = rows[some]
            tile = np.empty((chosen.size, 1 + end - begin), dtype=prepared.dtype)
            tile[:, :1] = factor[chosen]
            _scatter(prepared[chosen, :], slice(1 + begin, 1 + end), tile[:, 1:])
            self._to_widths(tile[:, 1:], slice(begin, end))
            tile[tile[:, 0] == 0] = 0.0
            made = np.empty((chosen.size, last - first), dtype=out.dtype)
            stop = place + last - first
            fill_monomials(tile, end - begin, 1, degree, place, stop, tile[:, :1], made)
            out[chosen] = made

    def scratch_per_row(self) -> int:
        """The prepared row, and its squares on the way."""
        return count(self.n_cols + 1, self._kept) + self.n_cols


def count(variables: int, degree: int) -> int:
    """Monomials of exactly this degree; of d + 1 variables, as many as of d up to this degree."""
    return 1 if degree == 0 else math.comb(variables + degree - 1, degree)


def largest_variable(variables: int, degree: int, monomial: int) -> int:
    """The largest variable of a monomial, by its place among those of its degree >= 1."""
    before = range(variables + 1)
    return bisect_right(before, monomial, key=lambda j: count(j, degree)) - 1


def fill_monomials(
    rows: Array,  # (b, ...), a monomial at its place; the first, which is 1, is not looked at
    variables: int,
    known: int,  # the degree up to which `rows` has them
    degree: int,
    first: int,
    last: int,
    factor: Array,  # (b, 1)
    out: Array,
) -> None:
    """Write monomials first, ..., last - 1 of `degree`, times the factor, into `out`."""
    if degree == 0:
        out[...] = factor
        return
    if degree <= known:
        start = count(variables + 1, degree - 1)
        array_namespace(rows).multiply(rows[:, start + first : start + last], factor, out=out)
        return
    j = largest_variable(variables, degree, first)
    place = count(j, degree)  # of the first monomial in which j is the largest variable
    while place < last:
        power = factor  # times u_j^m / sqrt(m!)
        for m in range(1, degree + 1):
            power = power * (rows[:, 1 + j : 2 + j] * m**-0.5)
            size = count(j, degree - m)
            low, high = max(first, place), min(last, place + size)
            if low < high:
                run = degree - m, low - place, high - place
                part = out[:, low - first : high - first]
                fill_monomials(rows, variables, known, *run, power, part)
            place += size
            if place >= last:
                break
        j += 1


def _scatter(X: scipy.sparse.csr_array, columns: slice, out: NDArray[Any]) -> None:
    """Some columns of sparse rows, dense, into `out`; SciPy's slices take ten times as long."""
    out[...] = 0.0
    inside = (X.indices >= columns.start) & (X.indices < columns.stop)
    out[row_of_stored(X)[inside], X.indices[inside] - columns.start] = X.data[inside]


def _row_slices(n: int, width: int) -> list[slice]:
    """Blocks of rows of at most `TILE` numbers."""
    return even_slices(n, max(1, TILE // width)) if n else []
