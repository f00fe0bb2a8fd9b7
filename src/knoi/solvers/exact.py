"""CCA in closed form: moments of two views, linear CCA of them, kernel CCA of kernel matrices.

Moments are additive: any partition of the rows gives the same n, means and scatter matrices.
Products run in the precision of the features (float32 at the speed of BLAS), their sums in float64.
Each chunk is centred first, on the means so far and then on its remaining mean, so that data far
from the origin loses no digits. Rows may have weights: a row of weight 2 counts as two rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend, top_svd, whitener
from knoi.engine import even_slices
from knoi.exceptions import InputError, RankError
from knoi.kernels.base import check_definite

Weights = NDArray[np.float64]
# Rows whose weighted sum is one product on torch.
SUMMED_ROWS = 1024
# A projection of less variance, of at most 1 with the regulariser, is constant up to rounding.
_CONSTANT = 1e-12


@dataclass(frozen=True)
class Covariances:
    """What closed forms start from: means and covariances in float64."""

    n: int  # rows
    mean_x: Array  # (Mx,)
    mean_y: Array  # (My,)
    Sxx: Array  # (Mx, Mx)
    Sxy: Array  # (Mx, My)
    Syy: Array  # (My, My)
    precision: float  # relative accuracy of the entries

    def standardised(self, views: tuple[bool, bool]) -> tuple["Covariances", tuple[Array, Array]]:
        """The same of columns divided by their deviations in these views, and the factors.

        Columns that do not vary stay as they are. The matrices are overwritten.
        """
        factors, means = [], []
        for S, mean, chosen in zip(
            (self.Sxx, self.Syy), (self.mean_x, self.mean_y), views, strict=True
        ):
            xp = array_namespace(S)
            w = xp.ones_like(mean)
            if chosen:
                variances = xp.linalg.diagonal(S)
                w = xp.where(variances > 0, variances, w) ** -0.5
                S *= w[:, None]
                S *= w[None, :]
            factors.append(w)
            means.append(mean * w)
        wx, wy = factors
        Sxy = self.Sxy
        Sxy *= wx[:, None]
        Sxy *= wy[None, :]
        return replace(self, mean_x=means[0], mean_y=means[1]), (wx, wy)


class Moments:
    """Running moments. Fill `buffer` with the features of a chunk minus `shifts`, then add it.

    The thread that computes features has them in cache and subtracts the shifts at no cost; what is
    left of the mean of the chunk is small and subtracted here.

    The buffer has one spare row. With n rows seen so far and m in the chunk, moving from the
    scatter about two means to the scatter about their joint mean adds (n m / (n + m)) delta delta',
    where delta is the distance of the means. Written into the spare row as
    sqrt(n m / (n + m)) delta, it is added by the same matrix product at no cost (Chan, Golub &
    LeVeque's update). With weights, n and m are their sums, and each centred row is multiplied by
    the root of its weight.
    """

    def __init__(self, ranks: tuple[int, int], backend: Backend) -> None:
        self.n = 0
        self.mass = 0.0  # sum of the weights, in units
        self.unit = 1.0  # the weight that counts as one row, so that weights may have any scale
        self.ranks = ranks
        self.backend = backend
        self._means = [backend.zeros((rank,), "float64") for rank in ranks]
        self._scatters = {
            (i, j): backend.zeros((ranks[i], ranks[j]), "float64")
            for i, j in ((0, 0), (0, 1), (1, 1))
        }
        self._buffers: list[Array] = []
        self._largest = [0.0, 0.0]  # magnitude of centred features among the first rows

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without the buffer."""
        return {**vars(self), "_buffers": []}

    @property
    def held_bytes(self) -> int:
        """Bytes of the sums, which stay as long as rows may follow."""
        return sum(8 * int(S.shape[0] * S.shape[1]) for S in self._scatters.values())

    @staticmethod
    def fixed_bytes(ranks: tuple[int, int], itemsize: int) -> int:
        """Bytes held however many rows there are: three scatters and the product of one chunk."""
        rank_x, rank_y = ranks
        scatters = rank_x * rank_x + rank_x * rank_y + rank_y * rank_y
        return 8 * scatters + itemsize * max(ranks) ** 2

    @property
    def shifts(self) -> tuple[Array, Array]:
        """What to subtract from the next chunk: the means so far, (Mx,) and (My,)."""
        x, y = (self.backend.asarray(mean) for mean in self._means)
        return x, y

    def buffer(self, rows: int) -> tuple[Array, Array]:
        """Two arrays, (rows, Mx) and (rows, My), to be filled with a chunk."""
        if not self._buffers or self._buffers[0].shape[0] < rows + 1:
            self.free_buffer()  # free the old one first
            self._buffers = [self.backend.empty((rows + 1, rank)) for rank in self.ranks]
        return self._buffers[0][:rows, :], self._buffers[1][:rows, :]

    def free_buffer(self) -> None:
        """Free the memory of the buffer."""
        self._buffers = []

    def update(self, Phi: Array, Psi: Array, weights: Weights | None = None) -> None:
        """Add the rows of Phi (m, Mx) and Psi (m, My), which are left as they are."""
        parts = zip((Phi, Psi), self.shifts, self.buffer(len(Phi)), strict=True)
        for features, shift, buffer in parts:
            self.backend.xp.subtract(features, shift, out=buffer)
        self.add_buffered(len(Phi), weights)

    def add_buffered(self, rows: int, weights: Weights | None = None) -> None:
        """Add the first `rows` rows of the buffer, overwriting them.

        `weights` (rows,) are above 0; they are given for all rows of these moments, or for none.
        """
        if rows == 0:
            return
        xp, mass, shares, roots = self.backend.xp, float(rows), None, None
        if weights is not None:
            self.unit = float(np.mean(weights)) if self.n == 0 else self.unit
            mass = float(np.sum(weights)) / self.unit
            shares = self.backend.asarray(weights / np.sum(weights))
            roots = self.backend.asarray(np.sqrt(weights / self.unit))[:, None]
        weight = self.mass * mass / (self.mass + mass)
        chunk = []
        for view, (buffer, mean, shift) in enumerate(
            zip(self._buffers, self._means, self.shifts, strict=True)
        ):
            features = buffer[:rows, :]
            delta = self.backend.asarray(shift, "float64") - mean
            # What rounding leaves of a mean far from 0 is small, and then seen with all its digits.
            # The first chunk has no shift to bring it near 0. Without this a constant column would
            # seem to vary, by the rounding of its mean.
            for _ in range(2 if self.n == 0 else 1):
                step = self._column_means(features, shares)
                features -= step
                delta += step
            if self.n == 0:
                self._largest[view] = float(xp.max(xp.abs(features)))
            if roots is not None:
                features *= roots
            buffer[rows, :] = delta * weight**0.5
            mean += delta * (mass / (self.mass + mass))
            chunk.append(buffer[: rows + 1, :])
        for (i, j), scatter in self._scatters.items():
            with np.errstate(over="ignore", invalid="ignore"):  # seen, and said, in `covariances`
                # NumPy recognises A' A and calls syrk: half the work of a general product.
                scatter += xp.matmul(chunk[i].T, chunk[j])
        self.n += rows
        self.mass += mass

    def _column_means(self, features: Array, shares: Array | None) -> Array:
        """Means in the precision of the features, by whatever sums columns fast and well."""
        if self.backend.is_numpy:
            if shares is None:
                shares = np.full(len(features), 1 / len(features), features.dtype)
            return shares @ features
        # torch's own product adds up row after row: 2000 roundings off in 16,000 rows of float32.
        xp = self.backend.xp
        if shares is None:
            return xp.mean(features, axis=0)
        pieces = even_slices(len(features), SUMMED_ROWS)
        return sum(xp.sum(features[one] * shares[one, None], axis=0) for one in pieces)

    def merge(self, other: "Moments") -> None:
        """Add the rows another `Moments` of the same features has seen; `other` does not change."""
        ratio = other.unit / self.unit
        share = ratio * other.mass / (self.mass + ratio * other.mass)
        deltas = [theirs - ours for ours, theirs in zip(self._means, other._means, strict=True)]
        for (i, j), scatter in self._scatters.items():
            scatter += ratio * other._scatters[i, j]
            scatter += (self.mass * share) * deltas[i][:, None] * deltas[j][None, :]
        for mean, delta in zip(self._means, deltas, strict=True):
            mean += share * delta
        self._largest = [max(pair) for pair in zip(self._largest, other._largest, strict=True)]
        self.n += other.n
        self.mass += ratio * other.mass

    def covariances(self, *, consume: bool = False) -> Covariances:
        """Means and covariances (divided by n, as in the paper) of the rows seen so far.

        With weights, divided by their sum.

        With `consume` they are made in place, for half the memory, and no rows can follow.
        """
        if self.n < 2:
            raise InputError(
                f"n_samples={self.n}: a covariance needs at least 2 rows. Pass more rows."
            )
        scatters = self._scatters
        if consume:
            self._scatters = {}
            self.free_buffer()
        else:
            scatters = {key: scatter + 0.0 for key, scatter in scatters.items()}
        return self._covariances(self.n, self.mass, [mean + 0.0 for mean in self._means], scatters)

    def without(self, Phi: Array, Psi: Array, weights: Weights | None = None) -> Covariances:
        """The same without some of the rows seen so far, (m, Mx) and (m, My)."""
        n = self.n - int(Phi.shape[0])
        if n < 2:
            raise InputError(f"{n} rows are left: a covariance needs at least 2.")
        xp, means, centred, shifts = self.backend.xp, [], [], []
        weights = np.ones(self.n - n) if weights is None else weights / self.unit
        rest = self.mass - float(np.sum(weights))
        roots = self.backend.asarray(np.sqrt(weights), "float64")
        for features, mean in zip((Phi, Psi), self._means, strict=True):
            rows = self.backend.asarray(features, "float64") - mean
            rows *= roots[:, None]
            centred.append(rows)
            shifts.append(-(roots @ rows) / rest)
            means.append(mean + shifts[-1])
        scatters = {
            (i, j): scatter
            - xp.matmul(centred[i].T, centred[j])
            - rest * shifts[i][:, None] * shifts[j][None, :]
            for (i, j), scatter in self._scatters.items()
        }
        for i in (0, 1):
            # What is left of a column that varied in these rows only is rounding. A sum that
            # overflowed stays, for the error.
            before, after = (xp.linalg.diagonal(part[i, i]) for part in (self._scatters, scatters))
            idle = (after <= 1e-12 * before) & xp.isfinite(before)
            scatters[i, i][idle, :] = 0.0
            scatters[i, i][:, idle] = 0.0
            scatters[0, 1][(idle, slice(None)) if i == 0 else (slice(None), idle)] = 0.0
        return self._covariances(n, rest, means, scatters)

    def _covariances(
        self, n: int, mass: float, means: list[Array], scatters: dict[tuple[int, int], Array]
    ) -> Covariances:
        """From sums about the means, which are overwritten."""
        for scatter in scatters.values():
            scatter /= mass
        Sxx, Sxy, Syy = scatters[0, 0], scatters[0, 1], scatters[1, 1]
        mean_x, mean_y = means
        backend, precision = self.backend, float(np.finfo(self.backend.dtype).eps)
        for own, S, mean in ((0, Sxx, mean_x), (1, Syy, mean_y)):
            variance = backend.to_numpy(backend.xp.linalg.diagonal(S))
            check_range("XY"[own], variance, self._largest[own], backend.dtype)
            # Columns whose spread is no more than the rounding of their mean are constant. Centring
            # is exact to far less than this; numbers that differ at all differ by more.
            rounding = precision / 8 * np.abs(backend.to_numpy(mean))
            constant = np.flatnonzero(variance <= rounding**2)
            if len(constant):
                idle = backend.xp.asarray(constant, device=backend.device)
                S[idle, :] = 0.0
                S[:, idle] = 0.0
                Sxy[(idle, slice(None)) if own == 0 else (slice(None), idle)] = 0.0
        return Covariances(n, mean_x, mean_y, Sxx, Sxy, Syy, precision)


def check_range(view: str, variance: NDArray[Any], largest: float, dtype: str) -> None:
    """`InputError` if variances over- or underflow the precision used."""
    if not np.isfinite(variance).all():
        raise InputError(
            f"view {view} holds numbers so large that their squares overflow {dtype} "
            f"(feature {int(np.argmin(np.isfinite(variance)))}). Divide {view} by a constant: a "
            "change of units changes no correlation."
        )
    limits = np.finfo(dtype)
    if largest > 0 and variance.max() < float(limits.tiny) / float(limits.eps):
        raise InputError(
            f"view {view} holds numbers so small that their squares vanish in {dtype}. "
            f"Multiply {view} by a constant: a change of units changes no correlation."
        )


@dataclass(frozen=True)
class Solution:
    """Weights on the features, ordered by the singular values, in float64 NumPy.

    A regulariser shrinks the singular values below the correlations of the projections.
    """

    U: NDArray[Any]  # (Mx, L)
    V: NDArray[Any]  # (My, L)
    singular_values: NDArray[Any]  # (L,)
    correlations: NDArray[Any]  # (L,), of the projections of the rows solved for


def solve_primal(
    moments: Covariances,
    n_components: int,
    reg: tuple[float, float],
    backend: Backend,
    penalties: Sequence[Array | None] = (None, None),
) -> Solution:
    """The top-L SVD of T = (Sxx + rx I)^-1/2 Sxy (Syy + ry I)^-1/2; overwrites the covariances.

    `reg` is relative to the total variance of the view's features: rx = reg[0] * trace(Sxx). So a
    change of units changes nothing, and the same number means the same whatever the rank. A view
    may have a `penalty` besides: a matrix P (M, M) that is added to its covariance.
    """
    xp, covariances = backend.xp, (moments.Sxx, moments.Syy)
    rs = [own * float(xp.linalg.trace(S)) for S, own in zip(covariances, reg, strict=True)]
    for S, P in zip(covariances, penalties, strict=True):
        if P is not None:
            S += P
    Wx, Wy = (
        whitener(S, r, moments.precision, backend) for S, r in zip(covariances, rs, strict=True)
    )
    check_rank(n_components, [Wx.rank, Wy.rank])
    T = Wy.whiten(Wx.whiten(moments.Sxy).T).T  # (rank_x, rank_y)
    left, s, right = top_svd(T, n_components, backend)
    U, V = Wx.unwhiten(left), Wy.unwhiten(right)
    variances = []
    for W, r, P in zip((U, V), rs, penalties, strict=True):
        variance = 1.0 - r * xp.sum(W * W, axis=0)  # u'(S + P + r I)u = 1
        variances.append(variance if P is None else variance - xp.sum(W * (P @ W), axis=0))
    return ordered(U, V, s, variances, backend)


@dataclass(frozen=True)
class RidgePath:
    """CCA of some rows for any regulariser, and its score on the rows that were held out.

    One eigendecomposition per view serves all regularisers.
    """

    spectra: tuple[Array, Array]  # (rank_x,), (rank_y,): variances along the bases
    bases: tuple[Array, Array]  # (Mx, rank_x), (My, rank_y)
    between: Array  # (rank_x, rank_y): covariance of the views in these bases
    held_out: tuple[Array, Array]  # (n, rank_x), (n, rank_y): held-out rows in these bases
    backend: Backend
    weights: Weights | None = None  # (n,) of the held-out rows

    @classmethod
    def of(
        cls,
        moments: Covariances,
        held_out: tuple[Array, Array],  # features (n, Mx) and (n, My)
        backend: Backend,
        *,
        at_least: int = 0,
        weights: Weights | None = None,
    ) -> "RidgePath":
        """From the moments of features of the rows to fit on, and the features of the others.

        `weights` are those of the others. Directions without variance are left out, but `at_least`
        so many are kept of a view that varies: harmless to regularisers above 0.
        """
        spectra, bases, rotated = [], [], []
        for S, mean, features in (
            (moments.Sxx, moments.mean_x, held_out[0]),
            (moments.Syy, moments.mean_y, held_out[1]),
        ):
            values, vectors = backend.xp.linalg.eigh(S)
            largest = float(values[-1])
            kept = int(backend.xp.sum(values > moments.precision * largest))
            first = int(values.shape[0]) - (max(kept, at_least) if largest > 0 else 0)
            values, vectors = values[max(0, first) :], vectors[:, max(0, first) :]
            spectra.append(backend.xp.clip(values, 0.0, None))
            bases.append(vectors)
            rotated.append((backend.asarray(features, "float64") - mean) @ vectors)
        x, y = bases
        between = x.T @ moments.Sxy @ y
        parts = (spectra[0], spectra[1]), (x, y), between, (rotated[0], rotated[1])
        return cls(*parts, backend, weights)

    @classmethod
    def of_kernels(
        cls,
        Kx: Array,  # (N, N)
        Ky: Array,  # (N, N)
        held_out: NDArray[np.bool_],
        backend: Backend,
        weights: Weights | None = None,  # (N,)
    ) -> "RidgePath":
        """From the kernel matrices of all rows."""
        xp = backend.xp
        rest, others = (
            xp.asarray(np.flatnonzero(part), device=backend.device)
            for part in (~held_out, held_out)
        )
        own = np.ones(int(rest.shape[0])) if weights is None else weights[~held_out]
        shares = backend.asarray(own / own.sum(), "float64")
        spectra, bases, rotated = [], [], []
        for view, K in (("X", Kx), ("Y", Ky)):
            K_rest, K_others = (K[rows, :][:, rest] for rows in (rest, others))
            means = shares @ K_rest
            values, vectors = _dual_spectrum(view, K_rest, shares, xp)
            # Coefficients on kernel columns for features of variance l.
            A = _coefficients(vectors / xp.sqrt(values), shares, xp)
            spectra.append(values)
            bases.append(A)
            rotated.append((K_others - means[None, :]) @ A)
        x, y = bases
        Fx, Fy = (  # sqrt(p) times the features of the rest: A l = sqrt(p) E sqrt(l)
            A * values / xp.sqrt(shares)[:, None] for A, values in zip(bases, spectra, strict=True)
        )
        parts = (spectra[0], spectra[1]), (x, y), Fx.T @ Fy, (rotated[0], rotated[1])
        return cls(*parts, backend, None if weights is None else weights[held_out])

    def solution(self, reg: tuple[float, float], n_components: int) -> Solution:
        """The solution with this regulariser, relative to the total variance of each view."""
        left, s, right = self._solved(reg, n_components)
        variances = [
            values @ (W * W) for values, W in zip(self.spectra, (left, right), strict=True)
        ]
        U, V = self.bases[0] @ left, self.bases[1] @ right
        return ordered(U, V, s, variances, self.backend)

    def score(self, reg: tuple[float, float], n_components: int) -> "HeldOutScore":
        """The score of that solution."""
        left, _, right = self._solved(reg, n_components)
        Zx, Zy = (
            self.backend.to_numpy(rows @ W)
            for rows, W in zip(self.held_out, (left, right), strict=True)
        )
        return HeldOutScore.of(Zx, Zy, self.weights)

    def _solved(self, reg: tuple[float, float], L: int) -> tuple[Array, Array, Array]:
        xp = self.backend.xp
        check_rank(L, [int(values.shape[0]) for values in self.spectra])
        wx, wy = (
            1 / xp.sqrt(values + r * xp.sum(values))
            for values, r in zip(self.spectra, reg, strict=True)
        )
        left, s, right = top_svd(wx[:, None] * self.between * wy[None, :], L, self.backend)
        return wx[:, None] * left, s, wy[:, None] * right


class ScoredPath(Protocol):
    """Solutions for any regulariser, scored on held-out rows."""

    def score(self, reg: tuple[float, float], n_components: int) -> "HeldOutScore":
        """The score of the solution with this regulariser."""
        ...


def choose_reg(
    paths: Sequence[ScoredPath],
    n_components: int,
    regs: Sequence[float],  # increasing
    first: float,
    given: tuple[float | None, float | None] = (None, None),
) -> tuple[tuple[float, float], "HeldOutScore"]:
    """The regulariser of each view for held-out rows, and the score on these.

    `regs` are tried upwards from `first`, then downwards, until the correlation falls by more than
    a standard error. The largest that is not worse than the best by more than that is chosen: few
    rows leave many values to chance, and a large one is the safer. Several paths hold out several
    parts of the rows. A view with a `given` regulariser keeps it.
    """

    def tried(reg: float) -> tuple[tuple[float, float], HeldOutScore]:
        x, y = (reg if own is None else own for own in given)
        return (x, y), HeldOutScore.mean([path.score((x, y), n_components) for path in paths])

    best, at = tried(first), regs.index(first)
    all_tried = {first: best}
    for further in (regs[at + 1 :], regs[:at][::-1]):
        for reg in further:
            all_tried[reg] = found = tried(reg)
            if not found[1].close_to(best[1]):
                break
            best = max(best, found, key=lambda one: one[1].total)
    return all_tried[max(reg for reg, (_, score) in all_tried.items() if score.close_to(best[1]))]


def solve_dual(
    Kx: Array,  # (N, N)
    Ky: Array,  # (N, N)
    n_components: int,
    reg: tuple[float, float],
    backend: Backend,
    weights: Weights | None = None,  # (N,)
) -> Solution:
    """Exact kernel CCA from the kernel matrices of the training rows, which it overwrites.

    Solves the eigenproblem of (Kx + N rx I)^-1 Ky (Ky + N ry I)^-1 Kx on centred kernels through
    the eigenvectors of each: with Kx / N = E diag(l) E', the features sqrt(N) E diag(sqrt(l)) are
    linear CCA's, and its weights turn into coefficients on kernel columns. The coefficients have
    zero sum in every component, so that centring a test row's kernel values needs only their
    training means. With weights, shares p of their sum take the place of 1 / N.
    """
    xp, N = backend.xp, int(Kx.shape[0])
    own = np.ones(N) if weights is None else weights
    shares = backend.asarray(own / own.sum(), "float64")
    bases, spectra, shrunk = [], [], []
    for view, K, relative in (("X", Kx, reg[0]), ("Y", Ky, reg[1])):
        values, vectors = _dual_spectrum(view, K, shares, xp)
        r = relative * float(xp.sum(values))  # total variance of the features
        bases.append(vectors)  # (N, rank)
        spectra.append(values)
        shrunk.append(xp.sqrt(values + r))
    check_rank(n_components, [int(values.shape[0]) for values in spectra])
    (Ex, Ey), (lx, ly), (wx, wy) = bases, spectra, shrunk
    T = (xp.sqrt(lx) / wx)[:, None] * (Ex.T @ Ey) * (xp.sqrt(ly) / wy)[None, :]
    left, s, right = top_svd(T, n_components, backend)
    A = _coefficients(Ex @ (left / (xp.sqrt(lx) * wx)[:, None]), shares, xp)
    B = _coefficients(Ey @ (right / (xp.sqrt(ly) * wy)[:, None]), shares, xp)
    variances = [(lx / wx**2) @ (left * left), (ly / wy**2) @ (right * right)]
    return ordered(A, B, s, variances, backend)


def _coefficients(A: Array, shares: Array, xp: Any) -> Array:
    """(I - p 1') P^1/2 A: coefficients on kernel columns for A (N, k), a mix of eigenvectors.

    They have zero sum, so that of new rows' kernel values only the columns are to be centred.
    Eigenvectors alone are not exact enough: those of small variance mix with what was centred away.
    """
    A = A * xp.sqrt(shares)[:, None]
    A -= shares[:, None] * xp.sum(A, axis=0)
    return A


def _dual_spectrum(view: str, K: Array, shares: Array, xp: Any) -> tuple[Array, Array]:
    """Variances of the features of a kernel, and eigenvectors E; K (N, N) is overwritten.

    For shares p of the rows, P^1/2 (I - 1 p') K (I - p 1') P^1/2 = E diag(l) E', where l are the
    eigenvalues of the covariance of the features. Those at rounding level are left out.
    """
    N, precision = int(K.shape[0]), float(np.finfo(np.float64).eps)
    # Rounding of the means that are subtracted: all that is left of a kernel that does not vary.
    rounding = precision * N**0.5 * float(xp.max(xp.linalg.diagonal(K)))
    K -= (shares @ K)[None, :]
    K -= (K @ shares)[:, None]
    roots = xp.sqrt(shares)
    K *= roots[:, None]
    K *= roots[None, :]
    values, vectors = xp.linalg.eigh(K)
    largest = float(values[-1])
    check_definite(float(values[0]), largest, f"the kernel matrix of view {view}", rounding)
    kept = values > max(precision * N * largest, rounding)
    return values[kept], vectors[:, kept]


def ordered(U: Array, V: Array, s: Array, variances: Sequence[Array], backend: Backend) -> Solution:
    """To NumPy, with the sign of each component fixed so that equal fits look equal.

    The covariance of a component of both views is its singular value; `variances` (L,) are those
    of its projections, at most 1.
    """
    U, V, s, vx, vy = (np.array(backend.to_numpy(a)) for a in (U, V, s, *variances))
    largest = np.argmax(np.abs(U), axis=0)
    signs = np.where(U[largest, np.arange(U.shape[1])] < 0, -1.0, 1.0)
    varies = np.minimum(vx, vy) > _CONSTANT
    deviations = np.sqrt(np.where(varies, vx * vy, np.inf))
    s = np.clip(s, 0.0, 1.0)
    return Solution(U * signs, V * signs, s, np.minimum(s / deviations, 1.0))


def check_rank(n_components: int, ranks: list[int]) -> None:
    """`RankError` if a view varies in fewer directions than there are components."""
    if n_components > min(ranks):
        view = "XY"[int(np.argmin(ranks))]
        raise RankError(
            f"n_components={n_components} but view {view} varies in only {min(ranks)} independent "
            f"directions (constant and duplicated columns do not count). "
            f"Set n_components to at most {min(ranks)}."
            if min(ranks) > 0
            else f"view {view} does not vary: all its rows are the same. Check the data of {view}.",
            min(ranks),
        )


@dataclass(frozen=True)
class HeldOutScore:
    """Total correlation of held-out rows, and the influence of each row on it.

    The influence is what a row adds to the estimate, to first order; so the standard error of the
    difference of two scores on the same rows is that of the mean of the differences.
    """

    total: float
    influence: NDArray[Any]  # (n,)

    @classmethod
    def of(cls, P: NDArray[Any], Q: NDArray[Any], weights: Weights | None = None) -> "HeldOutScore":
        """The score of projections P and Q, (n, k) each, of rows with weights (n,)."""
        counts = np.ones(len(P)) if weights is None else weights / weights.mean()  # float64
        P, Q = (_standardised(Z, counts) for Z in (P, Q))
        products = P * Q
        r = counts @ products / len(P)
        influence = products - r * (P * P + Q * Q) / 2  # of a correlation: (n, k), mean 0
        return cls(float(r.sum()), counts * influence.sum(axis=1))

    @classmethod
    def mean(cls, scores: Sequence["HeldOutScore"]) -> "HeldOutScore":
        """The mean of scores on parts of the rows that are about equally large."""
        total = float(np.mean([score.total for score in scores]))
        return cls(total, np.concatenate([score.influence for score in scores]))

    def close_to(self, best: "HeldOutScore", errors: float = 1.0) -> bool:
        """Whether this score is not below `best` by more than so many standard errors."""
        error = np.std(self.influence - best.influence) / np.sqrt(len(self.influence))
        return bool(self.total >= best.total - errors * error)


def _standardised(Z: NDArray[Any], counts: Weights) -> NDArray[Any]:
    """Z (n, k) with mean 0 and deviation 1, where row i counts as `counts[i]` of n rows."""
    Z = Z - counts @ Z / len(Z)
    deviation = np.sqrt(counts @ (Z * Z) / len(Z))
    scaled: NDArray[Any] = Z / np.maximum(deviation, np.finfo(np.float64).tiny)
    return scaled


def columnwise_correlation(P: NDArray[Any], Q: NDArray[Any]) -> float:
    """Sum over columns of the correlation between P and Q, (n, k) each."""
    P, Q = P - P.mean(axis=0), Q - Q.mean(axis=0)
    norms = np.sqrt(np.sum(P * P, axis=0) * np.sum(Q * Q, axis=0))
    return float(np.sum(np.sum(P * Q, axis=0) / np.maximum(norms, np.finfo(np.float64).tiny)))
