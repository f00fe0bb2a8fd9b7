"""Features of the additive kernels of histograms: each column on its own (Vedaldi & Zisserman).

Such a kernel is homogeneous, so that k(x, z) = sqrt(x z) K(log x - log z) in a column, and K has a
spectrum kappa. A. Vedaldi and A. Zisserman, *Efficient Additive Kernels via Explicit Feature Maps*,
PAMI 34(3), 2012, sample it at 0, L, 2L, ..., nL. No draw is involved: the error falls like
exp(-pi sqrt(n)) for additive chi2, whose K is smooth, and like 1/n for the intersection.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace
from numpy.polynomial.chebyshev import chebval
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from knoi.arrays.backend import Array, in_main_memory
from knoi.arrays.random import View
from knoi.arrays.sparse import empty_rows, is_sparse, row_of_stored, with_data
from knoi.exceptions import InputError
from knoi.features.base import ArraySpec, FeatureMap, Size, output, require_kernel
from knoi.kernels import AdditiveChi2, Intersection, Kernel

# Samples of the spectrum, n: at so many, additive chi2 is exact to rounding.
MAX_SAMPLES = 128

Profile = Callable[[NDArray[Any]], NDArray[Any]]


def _sech(a: NDArray[Any]) -> NDArray[Any]:
    half = np.exp(-a)  # a >= 0: cosh would overflow, this fades
    values: NDArray[Any] = 2 * half / (1 + half * half)
    return values


# K(omega) for omega >= 0, and its spectrum kappa(frequency): Table 1 of the paper.
PROFILES: dict[type[Kernel], tuple[Profile, Profile]] = {
    AdditiveChi2: (lambda omega: _sech(omega / 2), lambda f: _sech(math.pi * f)),
    Intersection: (lambda omega: np.exp(-omega / 2), lambda f: 2 / math.pi / (1 + 4 * f * f)),
}


@dataclass(frozen=True)
class Additive(FeatureMap):
    """sqrt(x) times c_0, c_k cos(kL log x), c_k sin(kL log x), k <= n: 2n + 1 features per column.

    x = 0 gives zeros, so sparse rows cost what their nonzeros cost. Columns go round first: feature
    j + d i is one of column j. Negative entries raise `InputError`, as they do in the kernels.
    """

    kind: ClassVar[str] = "additive"
    kernel: Kernel
    columns: Annotated[int, Size("d")]
    weights: Annotated[Array, ArraySpec(("n + 1",))]  # c
    step: float  # L

    @classmethod
    def fit(cls, sample: Array, kernel: Kernel, rank: int, seed: int, view: View) -> Self:
        """As many features per column as `rank` allows, 1, 3, 5, ... 257; no draw, no seed.

        The sample gives the number of columns and is checked for negative values.
        """
        kernel = require_kernel(kernel, (AdditiveChi2, Intersection), "additive features")
        kernel.check(sample)
        d = int(sample.shape[1])
        if rank < d:
            raise InputError(
                f"rank={rank} is too small for additive features of {d} columns: they take 1, 3, "
                f"5, ... features per column. Pass a rank of at least {d}, better {5 * d}."
            )
        step, weights = fit_weights(kernel, min((rank // d - 1) // 2, MAX_SAMPLES))
        return cls(kernel, d, weights, step)

    @property
    def per_column(self) -> int:
        """Features of one column, 2n + 1."""
        return 2 * int(self.weights.shape[0]) - 1

    @property
    def rank(self) -> int:
        """Number of features, d (2n + 1)."""
        return self.columns * self.per_column

    def prepare(self, X: Array) -> Array:
        """sqrt(x) and log(x) side by side, (b, 2 d), the logarithm of 0 as 0; CSR for CSR."""
        if in_main_memory(X):  # else they were checked when they were read
            self.kernel.check(X)
        if is_sparse(X):
            X = scipy.sparse.csr_array(X, copy=True)
            X.sum_duplicates()
            X.eliminate_zeros()
            # Both halves have an entry where x has, even where the logarithm is 0.
            halves = [with_data(X, of(X.data)) for of in (np.sqrt, np.log)]
            return scipy.sparse.hstack(halves, format="csr")
        xp = array_namespace(X)
        d = self.columns
        rows = empty_rows(X, 2 * d)
        xp.sqrt(X, out=rows[:, :d])
        xp.log(xp.where(X > 0, X, 1.0), out=rows[:, d:])
        return rows

    def block(self, prepared: Array, columns: slice, out: Array | None = None) -> Array:
        """The formula, one k after the other."""
        d = self.columns
        out = output(prepared, columns.stop - columns.start, out)
        for k in range(columns.start // d, -(-columns.stop // d)):
            first, last = max(columns.start, k * d), min(columns.stop, (k + 1) * d)
            part = out[:, first - columns.start : last - columns.start]
            first, last = first - k * d, last - k * d  # columns of the data
            root, logarithm = prepared[:, first:last], prepared[:, d + first : d + last]
            if is_sparse(prepared):
                part[...] = 0.0
                values = self._feature(k, root.data, logarithm.data)
                part[row_of_stored(root), root.indices] = values
            else:
                self._feature(k, root, logarithm, out=part)
        return out

    def _feature(self, k: int, root: Array, logarithm: Array, out: Array | None = None) -> Array:
        """Feature k, counted from 0 to 2n, of entries with these roots and logarithms."""
        xp = array_namespace(root)
        j = (k + 1) // 2
        if k == 0:
            return xp.multiply(root, self.weights[0], out=out)
        F = xp.multiply(logarithm, j * self.step, out=out)
        (xp.cos if k % 2 else xp.sin)(F, out=F)
        F *= root
        F *= self.weights[j]
        return F

    def sparse_features(self, X: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
        """All features of sparse rows, (b, M), as sparse as these."""
        prepared = self.prepare(X)
        root, logarithm = prepared[:, : self.columns], prepared[:, self.columns :]
        parts = [
            with_data(root, self._feature(k, root.data, logarithm.data))
            for k in range(self.per_column)
        ]
        return scipy.sparse.hstack(parts, format="csr")

    def scratch_per_row(self) -> int:
        """The prepared row, and a copy of it on the way."""
        return 3 * self.columns


def fit_weights(kernel: Kernel, n: int) -> tuple[float, NDArray[Any]]:
    """The step L and the weights c_0, ..., c_n of least squared error of k(x, z) and of k(x, x).

    Distances x + z - 2 k(x, z), all that is left of a kernel once it is centred, need both. The
    paper samples the spectrum, c_k^2 = 2 L kappa(kL): as n grows, nothing is better. Few samples
    lose what lies beyond nL; then weights fitted to K by least squares, with a sum of squares of 1
    so that k(x, x) is exact, keep distances several times as well.
    """
    if n == 0:
        return 1.0, np.ones(1)  # k(x, x) is exact; all that one feature can do
    profile, spectrum = PROFILES[type(kernel)]
    # Averaged over entries x, z from a Gamma distribution of shape 1/2, of any scale (most entries
    # of a histogram are small), omega = log(x / z) counts with sech(omega / 2)^3, 1e-15 at its end.
    omega = (np.arange(1024) + 0.5) * (24 / 1024)
    root_weight = _sech(omega / 2) ** 1.5
    exact = profile(omega)

    def sampled(step: float) -> NDArray[Any]:
        squares: NDArray[Any] = step * spectrum(step * np.arange(n + 1))
        squares[1:] *= 2
        return squares

    def fitted(step: float) -> NDArray[Any]:
        A = 1 - np.cos(np.outer(omega, step * np.arange(1, n + 1)))
        wanted = root_weight * (1 - exact)
        squares = np.linalg.lstsq(root_weight[:, None] * A, wanted, rcond=None)[0]
        squares = np.maximum(squares, 0.0)
        return np.append(max(1 - squares.sum(), 0.0), squares)

    def error(squares: NDArray[Any], step: float) -> float:
        made = chebval(np.cos(step * omega), squares)  # sum_k c_k^2 cos(k L omega)
        of_pairs = np.linalg.norm(root_weight * (made - exact))
        return float(np.hypot(of_pairs, np.linalg.norm(root_weight) * (squares.sum() - 1)))

    # From where kappa is cut off early to where K repeats itself, at 2 pi / L, before it has faded.
    bounds = (math.log(0.5 / math.sqrt(n)), math.log(2.0))
    candidates = []
    for rule in (sampled, fitted):
        best = minimize_scalar(
            lambda t, rule=rule: error(rule(math.exp(t)), math.exp(t)),
            bounds=bounds,
            method="bounded",
        )
        candidates.append((best.fun, math.exp(best.x), rule))
    _, step, rule = min(candidates, key=lambda candidate: candidate[0])
    return step, np.sqrt(rule(step))
