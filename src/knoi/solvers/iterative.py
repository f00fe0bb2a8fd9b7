"""CCA of views too wide for their covariances: alternating least squares on the rows, accelerated.

The weights of a view are a ridge regression on the projections of the other (Golub & Zha 1995; Lu &
Foster 2014): (Sxx + rx I) U s = Sxy V and (Syy + ry I) V s = Syx U. What is missing from these
equations, times a preconditioner, is where each view's weights should move. The best weights in the
span of the present ones, these steps and the previous steps are a small CCA (LOBPCG, Knyazev 2001,
for both views at once). One pass over the rows multiplies the steps by all covariances; rows that
are sparse stay sparse, and are centred by what is subtracted from the products.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from knoi.arrays.backend import Backend, numpy_backend
from knoi.arrays.random import Purpose, View, generator
from knoi.arrays.sparse import column_sums, is_sparse, with_data
from knoi.data.pairs import PairSource
from knoi.engine import Engine, even_slices
from knoi.solvers.exact import Solution, check_range, check_rank, ordered

logger = logging.getLogger("knoi")

Matrix = NDArray[Any]
# Weights beyond those that are wanted: the iteration converges by the gap to the first without.
EXTRA, EXTRA_SHARE = 10, 5
# Directions of each view that the preconditioner knows, in units of all weights.
KNOWN = 2
# Iterations end after so many passes, or once this many have hardly raised the singular values.
MOST_PASSES, FLAT_PASSES = 150, 10
# Powers of the covariances in the search for these directions.
POWERS = 2
# Directions are dropped if their variance is less than so many roundings of the largest.
NOISE = 100
# Steps that are shorter than this share of the weights are not followed.
AT_REST = 1e-10
# Arrays of the size of all weights of a view, at the peak of an iteration.
ARRAYS = 18


def block_size(n_components: int, n_cols: tuple[int, int]) -> int:
    """How many weights of each view are iterated."""
    return min(n_components + EXTRA + n_components // EXTRA_SHARE, *n_cols)


def fixed_bytes(n_components: int, n_cols: tuple[int, int], itemsize: int) -> int:
    """Bytes that an iteration needs besides the rows."""
    return ARRAYS * itemsize * sum(n_cols) * block_size(n_components, n_cols)


@dataclass(frozen=True)
class Chunk:
    """Some rows of both views, centred if they are dense, and their shares of all weights."""

    rows: tuple[Any, Any]  # (n, dx), (n, dy)
    shares: Matrix  # (n, 1)


class CentredRows:
    """The rows of two views, and products with their covariances: each is one pass.

    Rows are divided by `scales`, powers of two, so that the total variance of a view is about 1.
    """

    def __init__(
        self, pairs: PairSource, chunk_rows: int, engine: Engine, *, keep: bool = False
    ) -> None:
        self.pairs = pairs
        self.backend: Backend = numpy_backend(pairs.dtype)
        self.passes = 0
        self._engine, self.chunk_rows = engine, chunk_rows
        weights = np.ones(pairs.n_rows) if pairs.weights is None else pairs.weights
        self._shares = (weights / weights.sum())[:, None]  # (n, 1)
        self._kept: list[Chunk] | None = None
        self.means, self.scales, self.traces = self._moments()
        if keep:
            self._kept = list(self._chunks())

    def _chunks(self) -> Iterator[Chunk]:
        """All rows in order: from memory if they are kept, or read again."""
        self.passes += 1
        if self._kept is not None:
            yield from self._kept
            return
        start = 0
        with self.pairs.iterate(self.chunk_rows) as pieces:
            for rows in pieces:
                x, y = (self.centred(view, own) for view, own in zip(View, rows, strict=True))
                stop = start + int(x.shape[0])
                yield Chunk((x, y), self._shares[start:stop].astype(self.backend.dtype))
                start = stop

    def centred(self, view: View, rows: Any) -> Any:
        """Rows as `project` takes them: scaled and, if they are dense, centred."""
        rows = self.backend.asarray(rows)
        factor = rows.dtype.type(1.0 / self.scales[view])
        if is_sparse(rows):
            return with_data(rows, rows.data * factor)
        rows = rows - self.means[view].astype(rows.dtype)
        rows *= factor
        return rows

    def project(self, view: View, rows: Any, W: Matrix) -> Matrix:
        """Projections (n, k) of rows that `centred` returned, by weights W (d, k)."""
        Z = self._product(rows, W)
        if is_sparse(rows):
            Z -= ((self.means[view] / self.scales[view]) @ W).astype(Z.dtype)
        return Z

    def covariances(self, W: Matrix, V: Matrix, *, cross: bool = True) -> tuple[Matrix, ...]:
        """Sxx W, Syx W, Syy V and Sxy V of scaled rows, for W (dx, k) and V (dy, m); one pass.

        Without `cross` Sxx W and Syy V alone.
        """
        k, both = W.shape[1], W.shape[1] + V.shape[1]
        own = slice(0, k), slice(k, both)
        taken = (slice(0, both),) * 2 if cross else own
        totals: list[Matrix | None] = [None, None]
        sums = np.zeros(both)  # of the projections: what rounding leaves of 0
        for chunk in self._chunks():
            Z = np.empty((len(chunk.shares), both), self.backend.dtype)
            for view, weights in zip(View, (W, V), strict=True):
                Z[:, own[view]] = self.project(view, chunk.rows[view], weights)
            Z *= chunk.shares
            sums += Z.sum(axis=0, dtype=np.float64)
            for view in View:
                part = self._product(chunk.rows[view].T, Z[:, taken[view]])
                total = totals[view]
                if total is None:
                    # Sums over chunks are in float64.
                    many = len(chunk.shares) < self.pairs.n_rows
                    totals[view] = part.astype(np.float64) if many else part
                else:
                    total += part
        found = []
        for view, total in zip(View, totals, strict=True):
            assert total is not None
            if self.pairs.sparse[view]:
                mean = (self.means[view] / self.scales[view]).astype(total.dtype)
                total -= mean[:, None] * sums[taken[view]].astype(total.dtype)
            found.append(total.astype(self.backend.dtype, copy=False))
        x, y = found
        return (x[:, :k], y[:, :k], y[:, k:], x[:, k:]) if cross else (x, y)

    def _product(self, rows: Any, W: Matrix) -> Matrix:
        """Rows (n, d), or their transpose, times W; workers share the columns of W."""
        if not is_sparse(rows):
            product: Matrix = rows @ W
            return product
        columns = even_slices(W.shape[1], -(-W.shape[1] // self._engine.n_workers))
        parts = self._engine.map(lambda part: rows @ np.ascontiguousarray(W[:, part]), columns)
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def _moments(self) -> tuple[list[Matrix], list[float], list[float]]:
        """Means of the columns, scales, and the total variance of the scaled columns."""
        self.passes += 1
        means, squares = ([np.zeros(d) for d in self.pairs.n_cols] for _ in range(2))
        shifts: list[Any] = [None, None]
        largest, start = [0.0, 0.0], 0
        with (
            self.pairs.iterate(self.chunk_rows) as pieces,
            np.errstate(over="ignore", invalid="ignore"),
        ):
            for rows in pieces:
                shares = self._shares[start : start + int(rows[0].shape[0]), 0]
                start += len(shares)
                for view, given in zip(View, rows, strict=True):
                    own = self.backend.asarray(given)
                    if is_sparse(own):
                        values = own.data
                        means[view] += column_sums(own, shares)
                        squares[view] += column_sums(with_data(own, values * values), shares)
                    else:
                        # Shifted by a mean close to theirs, data far from 0 lose no digits.
                        if shifts[view] is None:
                            shifts[view] = own.mean(axis=0)
                        values, p = own - shifts[view], shares.astype(own.dtype)
                        means[view] += p @ values
                        squares[view] += p @ (values * values)
                    size = float(np.abs(values).max(initial=0.0))
                    largest[view] = max(largest[view], size)
        scales, traces, dtype = [], [], self.backend.dtype
        for view in View:
            mean = means[view]
            with np.errstate(over="ignore", invalid="ignore"):
                variance = squares[view] - mean * mean
            check_range(view.name, variance, largest[view], dtype)
            # What is left of a constant column is rounding.
            variance[variance <= 8 * np.finfo(np.float64).eps * squares[view]] = 0.0
            if shifts[view] is not None:
                means[view] = mean + shifts[view]
            trace = float(variance.sum())
            scales.append(2.0 ** round(np.log2(trace) / 2) if trace > 0 else 1.0)
            traces.append(trace / scales[-1] ** 2)
        return means, scales, traces


@dataclass(frozen=True)
class Preconditioner:
    """An approximate inverse of S + r I from some directions of S; in the others S varies little.

    S / trace(S) is taken to be Q E diag(shares) E' Q', and the least of the shares elsewhere.
    """

    Q: Matrix  # (d, q) orthonormal
    E: Matrix  # (q, q)
    shares: Matrix  # (q,) of the total variance, descending

    @classmethod
    def of(cls, Q: Matrix, SQ: Matrix, trace: float) -> "Preconditioner":
        """From an orthonormal Q and S Q, (d, q) each."""
        values, E = np.linalg.eigh(_symmetric(_inner(Q, SQ)))
        return cls(Q, E[:, ::-1], np.clip(values[::-1], 0.0, None) / trace)

    def __call__(self, R: Matrix, reg: float) -> Matrix:
        """Trace(S) times the approximation of (S + reg trace(S) I)^-1 R."""
        rest = float(self.shares[-1]) + reg
        gains = (self.E * (rest / (self.shares + reg) - 1.0)) @ self.E.T
        known = (gains @ _inner(self.Q, R)).astype(R.dtype)
        D: Matrix = self.Q @ known
        D += R
        D *= R.dtype.type(1.0 / rest)
        return D


@dataclass(frozen=True)
class Start:
    """Where an iteration begins: preconditioners, and weights whose span it takes."""

    preconditioners: tuple[Preconditioner, Preconditioner]
    weights: tuple[Matrix, Matrix]  # (dx, any), (dy, any)


def first_weights(rows: CentredRows, n_components: int) -> Start:
    """Leading directions of each view, by a randomised subspace iteration."""
    check_rank(1, [int(trace > 0) for trace in rows.traces])
    b, dtype = block_size(n_components, rows.pairs.n_cols), rows.backend.dtype
    Q = [
        generator(0, Purpose.WIDE, view).standard_normal((d, min(KNOWN * b, d))).astype(dtype)
        for view, d in zip(View, rows.pairs.n_cols, strict=True)
    ]
    for _ in range(POWERS):
        Q = [np.linalg.qr(S)[0] for S in rows.covariances(Q[0], Q[1], cross=False)]
    images = rows.covariances(Q[0], Q[1], cross=False)
    x, y = (Preconditioner.of(*one) for one in zip(Q, images, rows.traces, strict=True))
    return Start((x, y), (Q[0], Q[1]))


@dataclass(frozen=True)
class Block:
    """Some weights of a view, times the covariances with itself and with the other view."""

    W: Matrix  # (d, k)
    BW: Matrix  # (d, k)        B W, where B = S + r I
    CW: Matrix  # (other d, k)


@dataclass(frozen=True)
class Span:
    """Blocks of a view whose weights are orthonormal in B, Z' B Z = I, and one that is not."""

    orthonormal: list[Block]
    added: Block

    def gram(self) -> Matrix:
        """The weights' inner products in B."""
        m = sum(own.W.shape[1] for own in self.orthonormal)
        strip = np.vstack([_inner(own.W, self.added.BW) for own in (*self.orthonormal, self.added)])
        G = np.eye(len(strip))
        G[:, m:] = strip
        G[m:, :m] = strip[:m].T
        G[m:, m:] = _symmetric(strip[m:])
        return G

    def combined(self, coefficients: Matrix) -> Block:
        """Combinations of all the weights."""
        blocks = (*self.orthonormal, self.added)
        edges = np.cumsum([own.W.shape[1] for own in blocks])[:-1]
        parts = np.split(coefficients.astype(self.added.W.dtype), edges)
        return Block(
            *(
                sum(getattr(own, name) @ part for own, part in zip(blocks, parts, strict=True))
                for name in ("W", "BW", "CW")
            )
        )


@dataclass(frozen=True)
class Found:
    """Weights of both views, the wanted and the extra ones, by descending singular values."""

    weights: tuple[Matrix, Matrix]  # (dx, b), (dy, b), of the scaled rows
    variances: tuple[Matrix, Matrix]  # (b,) of the projections
    singular_values: Matrix  # (b,)
    residual: float  # the largest of those wanted
    converged: bool

    def solution(self, rows: CentredRows, n_components: int) -> Solution:
        """The wanted weights, on the rows as they are."""
        L = n_components
        U, V = (
            W[:, :L].astype(np.float64) / scale
            for W, scale in zip(self.weights, rows.scales, strict=True)
        )
        variances = [own[:L] for own in self.variances]
        return ordered(U, V, self.singular_values[:L], variances, numpy_backend("float64"))


def solve_iteratively(
    rows: CentredRows,
    n_components: int,
    reg: tuple[float, float],
    start: Start,
    tol: float,
    *,
    residual: float | None = None,
    most_passes: int = MOST_PASSES,
) -> Found:
    """Leading weights with regularisers above 0, relative to the total variance of each view.

    The iteration ends when some passes have raised the sum of the singular values by less than
    `tol` of it, or the residuals are at most `residual`, by default the root of the precision. A
    residual R counts as the root of R' (S + r I)^-1 R. Singular values are good to its square, the
    weights to its product with 1 / gap, where gap is the distance of the singular values.
    """
    eps = float(np.finfo(rows.backend.dtype).eps)
    smallest = eps**0.5 if residual is None else residual
    L, b = n_components, block_size(n_components, rows.pairs.n_cols)
    rs = [own * trace for own, trace in zip(reg, rows.traces, strict=True)]
    first = rows.passes

    def block(W: Matrix, V: Matrix) -> tuple[Block, Block]:
        SW, CW, SV, CV = rows.covariances(W, V)
        SW, SV = (S + S.dtype.type(r) * own for S, r, own in zip((SW, SV), rs, (W, V), strict=True))
        return Block(W, SW, CW), Block(V, SV, CV)

    spans = [Span([], one) for one in block(*start.weights)]
    between = np.zeros((0, 0))
    sums: list[float] = []
    while True:
        s, (x, y), between = _best(spans[0], spans[1], between, b)
        present = x[0], y[0]
        residuals = [
            other.CW - own.BW * s.astype(own.BW.dtype) for own, other in (present, present[::-1])
        ]
        steps = [
            precondition(R, r)
            for precondition, R, r in zip(start.preconditioners, residuals, reg, strict=True)
        ]
        errors = np.sqrt(
            np.maximum(
                *(
                    np.einsum("ij,ij->j", R, D, dtype=np.float64) / trace
                    for R, D, trace in zip(residuals, steps, rows.traces, strict=True)
                )
            )
        )  # (b,)
        sums.append(float(s[:L].sum()))
        passes, largest = rows.passes - first, float(errors[:L].max())
        flat = len(sums) > FLAT_PASSES and sums[-1] < (1 + tol) * sums[-1 - FLAT_PASSES]
        logger.debug("pass %d: sum %.6f, residual %.1e", passes, sums[-1], largest)
        if (done := largest <= smallest or flat) or passes >= most_passes:
            break
        moving = errors > smallest / 2
        W, V = (_apart(D[:, moving], own) for D, own in zip(steps, (x, y), strict=True))
        spans = [Span(own, one) for own, one in zip((x, y), block(W, V), strict=True)]
    variances = [
        1.0 - r * np.einsum("ij,ij->j", own.W, own.W, dtype=np.float64)
        for own, r in zip(present, rs, strict=True)
    ]
    weights = present[0].W, present[1].W
    return Found(weights, (variances[0], variances[1]), s, largest, done)


def _best(
    X: Span, Y: Span, between: Matrix, b: int
) -> tuple[Matrix, tuple[list[Block], list[Block]], Matrix]:
    """The best b weights in two spans: a small CCA.

    Returns singular values (b,), and for each view a block of the weights and one of the steps that
    led to them, orthonormal in B; then the covariances between these. `between` are those between
    the orthonormal blocks of the spans.
    """
    G = X.gram(), Y.gram()
    m, k = between.shape
    K = np.zeros((len(G[0]), len(G[1])))
    K[:m, :k] = between
    K[:, k:] = np.vstack([_inner(own.W, Y.added.CW) for own in (*X.orthonormal, X.added)])
    if k:
        K[m:, :k] = np.hstack([_inner(X.added.CW, own.W) for own in Y.orthonormal])
    eps = float(np.finfo(X.added.W.dtype).eps)
    F = [_whitening(own, eps) for own in G]
    left, s, right = scipy.linalg.svd(F[0].T @ K @ F[1], full_matrices=False)
    found, blocks = [], []
    for span, own, coefficients in zip((X, Y), G, (F[0] @ left, F[1] @ right.T), strict=True):
        best = coefficients[:, :b]
        chosen = [best]
        if span.orthonormal:
            # What the new weights have besides the present ones, orthonormal to the new ones.
            moved = best.copy()
            moved[: span.orthonormal[0].W.shape[1]] = 0.0
            for _ in range(2):  # once more for what rounding leaves
                moved -= best @ (best.T @ (own @ moved))
                lengths = np.sqrt(np.clip(np.einsum("ij,ij->j", moved, own @ moved), 0.0, None))
                moved = moved[:, lengths > AT_REST] / lengths[lengths > AT_REST]
            chosen.append(moved @ _whitening(moved.T @ own @ moved, eps))
        found.append(np.hstack(chosen))
        blocks.append([span.combined(one) for one in chosen])
    return s[:b], (blocks[0], blocks[1]), found[0].T @ K @ found[1]


def _apart(D: Matrix, blocks: Sequence[Block]) -> Matrix:
    """D without what it has in common, in B, with orthonormal blocks; columns of length 1.

    Columns of which rounding alone is left are left out.
    """
    limits = np.finfo(D.dtype)
    D = D / np.maximum(np.linalg.norm(D, axis=0), limits.tiny)
    for own in blocks:
        D -= own.W @ (own.BW.T @ D)
    lengths = np.linalg.norm(D, axis=0)
    kept = lengths > NOISE * limits.eps
    return np.ascontiguousarray(D[:, kept] / lengths[kept])


def _whitening(G: Matrix, eps: float) -> Matrix:
    """F with F' G F = I, for the directions that are known to more than rounding."""
    scale = 1.0 / np.sqrt(np.maximum(np.diag(G), np.finfo(np.float64).tiny))
    values, vectors = np.linalg.eigh(_symmetric(G * scale[:, None] * scale))
    kept = values > NOISE * eps * values.max(initial=0.0)
    whitening: Matrix = scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])
    return whitening


def _inner(A: Matrix, B: Matrix) -> Matrix:
    """A' B in float64."""
    return (A.T @ B).astype(np.float64)


def _symmetric(G: Matrix) -> Matrix:
    return (G + G.T) / 2
