"""Distances between rows, and kernel values at fixed landmarks: what kernels are computed from.

Distances take rows brought to a common scale by `rescale`, so that squares neither overflow nor
underflow, whatever the unit of the data, and float32 keeps its precision. Sparse rows are CSR and
may store explicit zeros: only columns that both rows store are compared, and sums are float64, so
that differences of large sums keep their precision. `LandmarkValues` are kernel values k(x, Z) at
fixed landmarks Z; what depends on Z alone is computed once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace, device, is_torch_array
from numpy.typing import NDArray

from knoi.arrays.backend import Array, in_main_memory, power_of_two
from knoi.arrays.fast import exponential, numbers_at_once
from knoi.arrays.sparse import (
    as_csr,
    dense,
    empty_rows,
    inner_blocks,
    is_sparse,
    numbers_per_row,
    row_of_stored,
    row_sums,
    squared_norms,
    with_data,
)
from knoi.engine import even_slices

CSR: TypeAlias = Any  # scipy.sparse.csr_array
Float64: TypeAlias = NDArray[np.float64]
# A function of one or two entries, applied to many at once.
Unary: TypeAlias = Callable[[Float64], Float64]
Binary: TypeAlias = Callable[[Float64, Float64], Float64]
# `term(x, z, out)`: a function of two entries, written into `out` for many pairs at once.
Term: TypeAlias = Callable[[Array, Array, Array], None]

# Pairs of stored values, and numbers of the result, processed at a time.
_PAIRS_AT_ONCE = 2**19
_RESULT_NUMBERS = 2**18
# Comparing two stored values costs this many times as much as comparing two dense entries. So rows
# with many nonzeros are made dense, up to a size.
_SPARSE_COST = 25
_MAX_DENSE_NUMBERS = 2**24
# On an accelerator, the squared distances to at least so many nearest rows are computed from
# differences, and to more of them while the differences are at most so many numbers.
_MIN_NEAREST = 8
_NEAREST_NUMBERS = 2**22


def rescale(X: Array, Z: Array, *, centre: bool) -> tuple[Array, Array, Any]:
    """Subtract one shift (if `centre`) and divide by one scale: entries are then in (-2, 2).

    Return copies Xs (n, d) and Zs (m, d), the same array if `X is Z`, and the scale, with
    X - shift = scale Xs. The mean of Z as the shift saves digits when the data are far from the
    origin. The scale is a power of two, so dividing is exact; for tensors it is a tensor, too. If X
    or Z is sparse, both become CSR and are not centred, which would fill them.
    """
    if is_sparse(X) or is_sparse(Z):
        X, Z = centred(X, Z)
        scale = power_of_two(X.data, Z.data)
        rows = [with_data(A, A.data / scale) for A in ([X] if X is Z else [X, Z])]
        return rows[0], rows[-1], scale
    if not centre:
        scale = power_of_two(X, Z)
        Xs = X / scale
        return Xs, Xs if X is Z else Z / scale, scale
    Xs, Zs = centred(X, Z)
    scale = power_of_two(Xs, Zs)
    Xs /= scale
    if Zs is not Xs:
        Zs /= scale
    return Xs, Zs, scale


def centred(X: Array, Z: Array) -> tuple[Array, Array]:
    """Copies of X and Z, the same array if `X is Z`, minus the mean of Z; CSR if one is sparse."""
    if is_sparse(X) or is_sparse(Z):
        rows = [X] if X is Z else [X, Z]
        rows = [as_csr(A).astype(np.result_type(A.dtype, np.float32), copy=False) for A in rows]
        return rows[0], rows[-1]
    shift = array_namespace(X, Z).mean(Z, axis=0, keepdims=True)  # (1, d)
    Xs = X - shift
    return Xs, Xs if X is Z else Z - shift


def scale_in_widths(scale: Any, width: float, like: Array) -> Any:
    """`scale / width`, capped where the kernel is 0 and powers would overflow the dtype."""
    like = like.data if is_sparse(like) else like
    xp = array_namespace(like)
    cap = float(xp.finfo(like.dtype).max) ** 0.33
    ratio = scale / width
    return xp.where(ratio < cap, ratio, cap) if is_torch_array(ratio) else min(ratio, cap)


def squared_euclidean(X: Array, Z: Array) -> Array:
    """||x - z||^2 for rescaled rows, (n, m); exactly 0 where two rows are identical.

    One matrix product gives |x|^2 + |z|^2 - 2 x.z, which loses its digits where x and z are close.
    Those few pairs are computed again from their differences: otherwise a non-smooth kernel such
    as exp(-r) is off by 1e-3 in float32 between equal rows. On an accelerator the nearest few of
    each row are: the host would have to wait for the number of close pairs.
    """
    if is_sparse(X):
        return _sparse_squared_euclidean(X, Z)
    xp = array_namespace(X, Z)
    x_norms = xp.sum(X * X, axis=1)[:, None]  # (n, 1)
    z_norms = xp.sum(Z * Z, axis=1)[None, :]  # (1, m)
    D = xp.matmul(X, Z.T)  # (n, m)
    # Balances the rounding left in the other pairs (eps / close) against the pairs done twice.
    close = float(xp.finfo(D.dtype).eps) ** (1 / 3)
    for rows in row_blocks(D):
        block = D[rows]
        norms = x_norms[rows] + z_norms
        block *= -2.0
        block += norms
        if in_main_memory(D):
            norms *= close
            _recompute(block, block <= norms, X[rows], Z)
        else:
            _recompute_nearest(block, X[rows], Z)
    return D


def euclidean(X: Array, Z: Array) -> Array:
    """||x - z|| for rows in their own scale, (n, m)."""
    Xs, Zs, scale = rescale(X, Z, centre=True)
    D = squared_euclidean(Xs, Zs)
    D = array_namespace(D).sqrt(D, out=D)
    D *= scale
    return D


def manhattan(X: Array, Z: Array) -> Array:
    """sum_j |x_j - z_j| for rescaled rows, (n, m)."""
    X, Z = dense_if_faster(X, Z)
    if is_sparse(X):
        return _sum_over_stored(
            X, Z, alone=np.abs, saved=lambda x, z: np.abs(x) + np.abs(z) - np.abs(x - z)
        )
    xp = array_namespace(X, Z)
    if not in_main_memory(X):
        return xp.cdist(X, Z, p=1.0)

    def distance(x: Array, z: Array, out: Array) -> None:
        xp.subtract(x, z, out=out)
        xp.abs(out, out=out)

    return sum_over_columns(X, Z, distance)


def chi_square(X: Array, Z: Array) -> Array:
    """sum_j (x_j - z_j)^2 / (x_j + z_j) for nonnegative rescaled rows, (n, m); 0/0 counts as 0."""
    X, Z = dense_if_faster(X, Z)
    if is_sparse(X):
        tiny = float(np.finfo(np.float64).tiny)
        # x + z - (x - z)^2 / (x + z) is saved; the ratio first, since x z could underflow.
        return _sum_over_stored(
            X, Z, alone=np.abs, saved=lambda x, z: 4.0 * x * (z / (x + z + tiny))
        )
    xp = array_namespace(X, Z)
    tiny = float(xp.finfo(X.dtype).smallest_normal)

    def distance(x: Array, z: Array, out: Array) -> None:
        xp.subtract(x, z, out=out)
        # The ratio first, which is in [-1, 1]: the square of a small difference could underflow.
        ratio = x + (z + tiny)
        xp.divide(out, ratio, out=ratio)
        out *= ratio

    return sum_over_columns(X, Z, distance)


def cauchy_product(X: Array, Z: Array) -> Array:
    """prod_j 1 / (1 + (x_j - z_j)^2), (n, m)."""
    X, Z = dense_if_faster(X, Z)
    if is_sparse(X):

        def log_factor(x: Float64) -> Float64:
            return np.log1p(x * x)

        L = _sum_over_stored(
            X,
            Z,
            alone=log_factor,
            saved=lambda x, z: log_factor(x) + log_factor(z) - log_factor(x - z),
        )
        L *= -1.0
        return np.exp(L, out=L)
    xp = array_namespace(X, Z)

    def denominator(x: Array, z: Array, out: Array) -> None:
        xp.subtract(x, z, out=out)
        out *= out
        out += 1.0

    return _fold_columns(X, Z, denominator, product=True)


def sum_over_columns(X: Array, Z: Array, term: Term) -> Array:
    """sum_j term(x_j, z_j) for dense rows, (n, m)."""
    return _fold_columns(X, Z, term, product=False)


def _fold_columns(X: Array, Z: Array, term: Term, *, product: bool) -> Array:
    """The sum over columns, or one over the product, without an array (n, m, d).

    In main memory column by column, for blocks of rows that fit in the cache; on an accelerator
    as many columns at a time as are worth a launch.
    """
    xp = array_namespace(X, Z)
    d, m = int(X.shape[1]), int(Z.shape[0])
    D = xp.full((X.shape[0], m), float(product), dtype=X.dtype, device=device(X))
    columns = empty_rows(Z.T, m)
    columns[...] = Z.T  # contiguous columns of Z: three times as fast
    for rows in row_blocks(D):
        block, x = D[rows], X[rows].T  # (rows, m), (d, rows)
        most = 1 if in_main_memory(D) else numbers_at_once(D) // max(1, block.shape[0] * m)
        together = min(max(1, most), d)
        spare = xp.empty((together, *block.shape), dtype=X.dtype, device=device(X))
        for part in even_slices(d, together):
            terms = spare[: part.stop - part.start]
            term(x[part, :, None], columns[part, None, :], terms)
            if product:  # goes to 0, where the product of all denominators would overflow
                block /= terms[0] if together == 1 else xp.prod(terms, axis=0)
            else:
                block += terms[0] if together == 1 else xp.sum(terms, axis=0)
    return D


def radial_gradient(X: Array, Z: Array, A: Array, scale: Any) -> Array:
    """Sum over j of scale A[i, j] (x_i - z_j) for rescaled rows, (n, d), dense.

    The gradient of kernels of the Euclidean distance, where A (n, m) holds their slopes.
    """
    xp = array_namespace(A)
    G = dense(X) * xp.sum(A, axis=1)[:, None]
    G -= A @ Z
    G *= scale
    return G


def columnwise_gradient(
    X: Array, Z: Array, A: Array, slope: Callable[[Array, Any], Array]
) -> Array:
    """Sum over j of A[i, j] slope(x_i - z_j, xp) for rows in widths, by entry, (n, d), dense.

    The gradient of products of kernels of one column, A (n, m) being their values.
    """
    X, Z = dense(X), dense(Z)
    xp = array_namespace(A)
    d, m = int(X.shape[1]), int(Z.shape[0])
    G = xp.empty((X.shape[0], d), dtype=A.dtype, device=device(A))
    for rows in row_blocks(A):
        a = A[rows]
        for part in even_slices(d, max(1, numbers_at_once(A) // max(1, a.shape[0] * m))):
            u = X[rows][:, None, part] - Z[None, :, part]  # (rows, m, columns)
            G[rows, part] = xp.sum(a[:, :, None] * slope(u, xp), axis=1)
    return G


def row_blocks(D: Array) -> list[slice]:
    """Slices of the rows of D (n, m) to work on at a time."""
    n, m = D.shape
    return even_slices(n, numbers_at_once(D) // max(1, m))


def sum_over_shared(X: CSR, Z: CSR, term: Binary) -> Iterator[tuple[slice, Float64]]:
    """Yield sum_j term(x_j, z_j) over the columns that both rows store, as (rows, block)."""
    by_column = Z.tocsc()
    for rows in even_slices(X.shape[0], _RESULT_NUMBERS // max(1, Z.shape[0])):
        yield rows, _sum_over_shared(X[rows, :], by_column, term)


def _sum_over_shared(X: CSR, by_column: scipy.sparse.csc_array, term: Binary) -> Float64:
    n, m = X.shape[0], by_column.shape[0]
    starts = by_column.indptr[X.indices].astype(np.int64)  # of the column in Z of each stored x
    counts = by_column.indptr[X.indices + 1] - starts
    row = row_of_stored(X).astype(np.int64) * m
    ends = np.cumsum(counts)
    total = np.zeros(n * m)
    first = 0
    while first < len(counts):
        before = int(ends[first] - counts[first])
        # At least one stored x, which has at most m partners.
        stop = max(first + 1, int(np.searchsorted(ends, before + _PAIRS_AT_ONCE, side="right")))
        here = counts[first:stop]
        x = np.repeat(np.arange(first, stop), here)  # which stored x, for each pair
        z = np.arange(before, int(ends[stop - 1])) + np.repeat(
            starts[first:stop] - (ends[first:stop] - here), here
        )
        values = term(X.data[x].astype(np.float64), by_column.data[z].astype(np.float64))
        total += np.bincount(row[x] + by_column.indices[z], weights=values, minlength=n * m)
        first = stop
    return total.reshape(n, m)


def _sum_over_stored(X: CSR, Z: CSR, *, alone: Unary, saved: Binary) -> NDArray[Any]:
    """sum_j g(x_j, z_j), (n, m), where g(x, 0) = g(0, x) = alone(x).

    Each row is first compared with zeros; then `saved`, alone(x) + alone(z) - g(x, z), is
    subtracted in the columns that both rows store.
    """
    x_sums, z_sums = (row_sums(with_data(A, alone(A.data.astype(np.float64)))) for A in (X, Z))
    D = np.empty((X.shape[0], Z.shape[0]), np.result_type(X.dtype, Z.dtype))
    for rows, shared in sum_over_shared(X, Z, saved):
        block = x_sums[rows, None] + z_sums
        block -= shared
        D[rows, :] = np.maximum(block, 0.0, out=block)
    return D


def _sparse_squared_euclidean(X: CSR, Z: CSR) -> NDArray[Any]:
    x_norms, z_norms = squared_norms(X), squared_norms(Z)
    D = np.empty((X.shape[0], Z.shape[0]), np.result_type(X.dtype, Z.dtype))
    close = float(np.finfo(np.float64).eps) ** (1 / 3)
    for rows, block in inner_blocks(X, Z):
        norms = x_norms[rows, None] + z_norms
        block *= -2.0
        block += norms
        # Two empty rows are at distance 0 already, and there may be many of them.
        _recompute(block, (block <= close * norms) & (norms > 0), X[rows, :], Z)
        D[rows, :] = block
    return D


def _recompute(D: Array, inaccurate: Array, X: Array, Z: Array) -> None:
    """Overwrite D[i, j] by ||X[i] - Z[j]||^2 wherever `inaccurate` is true."""
    xp = array_namespace(D)
    # One flat nonzero is ten times faster than a two-dimensional one.
    (flat,) = xp.nonzero(xp.reshape(inaccurate, (-1,)))
    m = Z.shape[0]
    at_once = max(1, 2**18 // max(1, numbers_per_row(X) + numbers_per_row(Z)))
    for start in range(0, flat.shape[0], at_once):
        pairs = flat[start : start + at_once]
        i, j = pairs // m, pairs % m
        D[i, j] = squared_norms(X[i, :] - Z[j, :])


def _recompute_nearest(D: Array, X: Array, Z: Array) -> None:
    """Overwrite the smallest entries of each row of D by ||X[i] - Z[j]||^2, on an accelerator."""
    xp = array_namespace(D)
    (n, d), m = X.shape, int(Z.shape[0])
    k = min(m, max(_MIN_NEAREST, _NEAREST_NUMBERS // max(1, n * d)))
    nearest = xp.topk(D, k, dim=1, largest=False).indices  # (n, k)
    differences = Z[nearest]  # (n, k, d)
    differences -= X[:, None, :]
    differences *= differences
    D.scatter_(1, nearest, xp.sum(differences, axis=2))
    D.clamp_(min=0.0)  # rounding, where more rows are equal


def dense_if_faster(X: Array, Z: Array) -> tuple[Array, Array]:
    """Sparse X and Z made dense, if comparing dense rows is faster and they are not too large."""
    if not is_sparse(X):
        return X, Z
    n, d, m = int(X.shape[0]), int(X.shape[1]), int(Z.shape[0])
    faster = float(X.nnz) * float(Z.nnz) * _SPARSE_COST > float(n) * m * d * d
    return (dense(X), dense(Z)) if faster and (n + m) * d <= _MAX_DENSE_NUMBERS else (X, Z)


# Largest rounding error of the exponent in the fast Gaussian kernel.
_EXPONENT_ERROR = 1e-4


class LandmarkValues(Protocol):
    """k(., Z) for landmarks Z (m, d), evaluated for one block of landmarks at a time."""

    def prepare(self, X: Array) -> Array:
        """Rows (n, d) in the form that `block` takes, (n, any); computed once for all blocks."""

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """K of prepared rows and the landmarks `columns`, (n, columns), in `out` if given."""

    def scratch_per_row(self) -> int:
        """Numbers held per row, prepared and while a block is computed, besides the block."""


@dataclass(frozen=True)
class DirectValues:
    """Any kernel, evaluated directly between the rows and the landmarks of a block."""

    kernel: Callable[[Array, Array], Array]
    Z: Array  # (m, d)

    def prepare(self, X: Array) -> Array:
        """The rows themselves."""
        return X

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """Evaluate the kernel."""
        K = self.kernel(prepared, self.Z[columns, :])
        if out is None:
            return K
        out[...] = K
        return out

    def scratch_per_row(self) -> int:
        """The result, a temporary of its size, and the centred row."""
        return int(2 * self.Z.shape[0] + numbers_per_row(self.Z))


@dataclass(frozen=True)
class GaussianValues:
    """exp(x'z - |x|^2/2 - |z|^2/2), for rows in units of the width minus the mean landmark.

    The norms are two more columns of the matrix product, so that a block is one product and one
    exponential.
    """

    centre: Array  # (d,)
    width: float
    landmarks: Array  # (d + 2, m): z, -|z|^2/2, 1
    shift: Array  # (m,) products of z with the centre, for sparse rows, which are not centred

    @classmethod
    def within_precision(cls, Z: Array, width: float) -> Self | None:
        """None if the landmarks are so many widths apart that the product loses precision."""
        xp = array_namespace(Z)
        centre = xp.mean(Z, axis=0)
        scaled = (Z - centre) / width  # (m, d)
        norms = xp.sum(scaled * scaled, axis=1)
        error = float(xp.max(norms)) * float(xp.finfo(Z.dtype).eps)
        if not error < _EXPONENT_ERROR:  # also when a square overflowed
            return None
        m, d = Z.shape
        landmarks = xp.empty((d + 2, m), dtype=Z.dtype, device=device(Z))
        landmarks[:d, :] = scaled.T
        landmarks[d, :] = norms / -2
        landmarks[d + 1, :] = 1.0
        return cls(centre, width, landmarks, xp.matmul(scaled, centre / width))

    def prepare(self, X: Array) -> Array:
        """(x, 1, -|x|^2/2), (n, d + 2), in units of the width; sparse rows are not centred."""
        if is_sparse(X):
            return self._prepare_sparse(X)
        xp = array_namespace(X)
        d = X.shape[1]
        rows = empty_rows(X, d + 2)
        inside = rows[:, :d]
        inside[...] = X
        inside -= self.centre
        inside /= self.width
        # At this distance k is 0 for every landmark; beyond it squares would overflow.
        furthest = float(xp.finfo(X.dtype).max) ** 0.25
        xp.clip(inside, -furthest, furthest, out=inside)
        rows[:, d] = 1.0
        rows[:, d + 1] = xp.sum(inside * inside, axis=1) / -2
        return rows

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """One product and one exponential."""
        if is_sparse(prepared):
            K = prepared @ self.landmarks[:, columns]
            K -= self.shift[columns]
            return _exponential(K, self.landmarks.dtype, out)
        matmul = array_namespace(prepared).matmul
        return exponential(matmul(prepared, self.landmarks[:, columns], out=out))

    def _prepare_sparse(self, X: Array) -> Array:
        """(x, 1, -|x - centre|^2/2) in float64, which the products need."""
        scaled = _in_widths(X, self.width)
        centre = np.asarray(self.centre, dtype=np.float64) / self.width
        norms = squared_norms(scaled) - 2 * (scaled @ centre) + float(centre @ centre)
        ends = np.stack([np.ones(len(norms)), norms / -2], axis=1)
        return scipy.sparse.hstack([scaled, ends], format="csr")

    def scratch_per_row(self) -> int:
        """The prepared row and its squares."""
        return 2 * int(self.landmarks.shape[0])


@dataclass(frozen=True)
class SparseGaussianValues:
    """`GaussianValues` for sparse landmarks, in float64 and without centring.

    Only the columns in which some landmark is nonzero take part in products; the others count only
    in |x|^2, which is one more column.
    """

    width: float
    landmarks: Array  # (m, c + 1) CSR, in widths: the c columns that occur, and an empty one
    half_norms: Array  # (m,) |z|^2 / 2
    position: NDArray[Any]  # (d,) which of the c columns each column is, c if none of them
    dtype: np.dtype[Any]

    @classmethod
    def within_precision(cls, Z: Array, width: float) -> Self | None:
        """None if the landmarks are so many widths long that the product loses precision."""
        scaled = _in_widths(Z, width)
        norms = squared_norms(scaled)
        if not norms.max(initial=0.0) * np.finfo(np.float64).eps < _EXPONENT_ERROR:
            return None
        columns = np.unique(scaled.indices)
        position = np.full(Z.shape[1], len(columns), dtype=scaled.indices.dtype)
        position[columns] = np.arange(len(columns))
        landmarks = scipy.sparse.csr_array(
            (scaled.data, position[scaled.indices], scaled.indptr),
            shape=(Z.shape[0], len(columns) + 1),
        )
        return cls(width, landmarks, norms / 2, position, Z.dtype)

    def prepare(self, X: Array) -> Array:
        """Rows (n, c + 1) CSR, in widths, ending in |x|^2/2, which is always stored."""
        scaled = _in_widths(as_csr(X), self.width)
        n, c = X.shape[0], self.landmarks.shape[1] - 1
        at = self.position[scaled.indices]
        kept = at < c
        ends = np.zeros(n + 1, dtype=scaled.indptr.dtype)
        np.cumsum(np.bincount(row_of_stored(scaled)[kept], minlength=n) + 1, out=ends[1:])
        last = np.zeros(ends[-1], dtype=bool)
        last[ends[1:] - 1] = True
        data, indices = np.empty(ends[-1]), np.full(ends[-1], c, dtype=at.dtype)
        data[last] = squared_norms(scaled) / 2
        data[~last], indices[~last] = scaled.data[kept], at[kept]
        return scipy.sparse.csr_array((data, indices, ends), shape=(n, c + 1))

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """One sparse product and one exponential."""
        Z, z_norms = self.landmarks[columns, :], self.half_norms[columns]
        x_norms = prepared.data[prepared.indptr[1:] - 1]
        if out is None:
            out = np.empty((prepared.shape[0], Z.shape[0]), self.dtype)
        for rows, block in inner_blocks(prepared, Z):
            block -= x_norms[rows, None]
            block -= z_norms
            _exponential(block, self.dtype, out[rows, :])
        return out

    def scratch_per_row(self) -> int:
        """The prepared row, and sparse and dense products in float64."""
        stored = numbers_per_row(self.landmarks)
        return int((2 * stored + 3 * self.landmarks.shape[0]) * 8 // self.dtype.itemsize)


def _in_widths(X: Array, width: float) -> Array:
    """Sparse rows in float64 and in units of the width."""
    data = X.data.astype(np.float64) / width
    # At this distance k is 0 for every landmark; beyond it squares would overflow.
    furthest = float(np.finfo(np.float64).max) ** 0.25
    return with_data(X, np.clip(data, -furthest, furthest, out=data))


def _exponential(K: NDArray[np.float64], dtype: Any, out: Array | None) -> Array:
    """exp(K) in `dtype`, in `out` if given; rounding may have left K a little above 0."""
    np.minimum(K, 0.0, out=K)
    if out is None:
        out = np.empty(K.shape, dtype)
    out[...] = K
    return exponential(out)
