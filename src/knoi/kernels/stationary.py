"""Stationary kernels, functions of x - z alone, with samplers of their spectral measures."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, device, to_device
from numpy.typing import NDArray
from scipy import special

from knoi import checks
from knoi.arrays.backend import Array
from knoi.arrays.sparse import is_sparse, ones_per_row
from knoi.exceptions import InputError
from knoi.kernels.base import WidthKernel, median_width, register
from knoi.kernels.distances import (
    Float64,
    GaussianValues,
    LandmarkValues,
    SparseGaussianValues,
    cauchy_product,
    columnwise_gradient,
    euclidean,
    manhattan,
    radial_gradient,
    rescale,
    row_blocks,
    scale_in_widths,
    squared_euclidean,
)


@dataclass(frozen=True)
class StationaryKernel(WidthKernel):
    """k(x, z) = kappa(x - z) with kappa(0) = 1: the Fourier transform of a probability measure.

    At width 1 the entries of a frequency are independent, from the distribution that `_draw`
    samples and `_quantiles` inverts: standard normal unless the kernel says otherwise.
    """

    isotropic: ClassVar[bool] = False
    """Whether k depends on ||x - z|| alone, so that frequencies have no preferred direction."""

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        Xs, Zs, scale = rescale(X, Z, centre=True)
        return self._values(Xs, Zs, scale_in_widths(scale, self.decided_width, Xs))

    def diag(self, X: Array) -> Array:
        """All ones."""
        return ones_per_row(X)

    @property
    def has_gradient(self) -> bool:
        """True."""
        return True

    def gradient(self, X: Array, Z: Array, C: Array) -> Array:
        """Sum over j of C[i, j] times the gradient of k(x_i, z_j) in x_i, as (n, d)."""
        Xs, Zs, scale = rescale(X, Z, centre=True)
        width = self.decided_width
        G = self._gradient(Xs, Zs, C, scale_in_widths(scale, width, Xs))  # (n, d)
        G /= width
        return G

    def distance(self, X: Array, Z: Array) -> Array:
        """The distance in which `width` is measured, Euclidean unless the kernel says otherwise."""
        return euclidean(X, Z)

    def default_width(self, sample: NDArray[Any]) -> float:
        """Median distance between rows."""
        return median_width(self.distance, sample)

    def sample_frequencies(
        self, d: int, m: int, rng: np.random.Generator, keep: int | None = None
    ) -> NDArray[np.float64]:
        """Draw m frequencies w, as (d, m), such that k(x, z) = E cos(w'(x - z)).

        With `keep`, return only the first `keep` of them, without memory for the others.
        """
        if keep is None or keep >= m:
            W = self._draw(rng, (d, m))
        else:
            W = np.empty((d, keep))
            step = max(1, 2**20 // m)
            for start in range(0, d, step):
                rows = W[start : start + step]
                rows[...] = self._draw(rng, (len(rows), m))[:, :keep]
        W /= self._divisors(rng, m)[:keep]
        return W

    def sample_radii(self, d: int, m: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw the lengths |w| of m frequencies in dimension d, (m,); isotropic kernels only."""
        if not self.isotropic:
            raise InputError(
                f"the {self.name} kernel is not isotropic: lengths of frequencies cannot be drawn "
                "without their directions. Draw whole frequencies, or use an isotropic kernel, "
                "'rbf' or 'matern'."
            )
        return np.sqrt(rng.chisquare(d, size=m)) / self._divisors(rng, m)

    def uniforms_per_frequency(self, d: int) -> int:
        """How many uniform numbers `frequencies_at` needs per frequency in dimension d."""
        return d

    def frequencies_at(self, U: NDArray[np.float64]) -> NDArray[np.float64]:
        """Frequencies (d, m) at the points U (m, uniforms) of the unit cube, by inverse CDFs.

        Uniform points give the distribution of `sample_frequencies`; quasi-random points give
        frequencies that are spread more evenly.
        """
        W = self._quantiles(_inside(U))
        W /= self.decided_width
        return W

    @abstractmethod
    def _values(self, X: Array, Z: Array, scale: float) -> Array:
        """The kernel of rescaled rows, which it may overwrite; `scale` times x - z is in widths."""

    @abstractmethod
    def _gradient(self, X: Array, Z: Array, C: Array, scale: float) -> Array:
        """As `gradient`, for the kernel at width 1; rows and `scale` as in `_values`."""

    def _draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
        return rng.standard_normal(shape)

    def _quantiles(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(special.ndtri(u))

    def _divisors(self, rng: np.random.Generator, m: int) -> NDArray[np.float64]:
        """What the m frequencies at width 1 are divided by, (m,)."""
        return np.full(m, self.decided_width)


@register
@dataclass(frozen=True)
class RBF(StationaryKernel):
    """Gaussian kernel exp(-||x - z||^2 / (2 width^2)), of normal frequencies.

    Parameters
    ----------
    width : float or None
        Length scale, in Euclidean distance.
    """

    name: ClassVar[str] = "rbf"
    isotropic: ClassVar[bool] = True

    def at_landmarks(self, Z: Array) -> LandmarkValues:
        """One product and one exponential, where that is accurate enough."""
        fast = SparseGaussianValues if is_sparse(Z) else GaussianValues
        return fast.within_precision(Z, self.decided_width) or super().at_landmarks(Z)

    def _values(self, X: Array, Z: Array, scale: float) -> Array:
        K = squared_euclidean(X, Z)  # (n, m)
        K *= -0.5 * scale**2
        return array_namespace(K).exp(K, out=K)

    def _gradient(self, X: Array, Z: Array, C: Array, scale: float) -> Array:
        A = self._values(X, Z, scale)  # (n, m)
        A *= C
        return radial_gradient(X, Z, A, -scale)


@register
@dataclass(frozen=True)
class Laplacian(StationaryKernel):
    """exp(-||x - z||_1 / width), of Cauchy-distributed frequencies.

    Parameters
    ----------
    width : float or None
        Length scale, in Manhattan distance.
    """

    name: ClassVar[str] = "laplacian"

    def distance(self, X: Array, Z: Array) -> Array:
        """||x - z||_1, as (n, m)."""
        Xs, Zs, scale = rescale(X, Z, centre=True)
        D = manhattan(Xs, Zs)
        D *= scale
        return D

    def _values(self, X: Array, Z: Array, scale: float) -> Array:
        K = manhattan(X, Z)  # (n, m)
        K *= -scale
        return array_namespace(K).exp(K, out=K)

    def _gradient(self, X: Array, Z: Array, C: Array, scale: float) -> Array:
        A = self._values(X, Z, scale)  # (n, m)
        A *= C
        return columnwise_gradient(X, Z, A, lambda u, xp: -xp.sign(u))

    def _draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
        return rng.standard_cauchy(shape)

    def _quantiles(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.tan(np.pi * (u - 0.5))


@register
@dataclass(frozen=True)
class Cauchy(StationaryKernel):
    """prod_j 1 / (1 + (x_j - z_j)^2 / width^2), the product form of Rahimi & Recht (2007).

    Its frequencies are Laplace-distributed.

    Parameters
    ----------
    width : float or None
        Length scale, in Euclidean distance: to second order k is 1 - ||x - z||^2 / width^2.
    """

    name: ClassVar[str] = "cauchy"

    def _values(self, X: Array, Z: Array, scale: float) -> Array:
        X *= scale
        if Z is not X:
            Z *= scale
        return cauchy_product(X, Z)

    def _gradient(self, X: Array, Z: Array, C: Array, scale: float) -> Array:
        A = self._values(X, Z, scale)  # (n, m); X and Z are in widths now
        A *= C
        return columnwise_gradient(X, Z, A, lambda u, xp: -2.0 * u / (1.0 + u * u))

    def _draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
        return rng.laplace(size=shape)

    def _quantiles(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        from_middle = u - 0.5
        return np.asarray(-np.sign(from_middle) * np.log1p(-2 * np.abs(from_middle)))


@register
@dataclass(frozen=True)
class Matern(StationaryKernel):
    """2^(1 - nu) / Gamma(nu) a^nu K_nu(a), with a = sqrt(2 nu) ||x - z|| / width.

    Sample paths are ceil(nu) - 1 times differentiable; nu = 1/2 is exp(-r), nu -> inf is RBF.
    nu = 1/2, 3/2 and 5/2 have closed forms; any other needs a Bessel function, computed on the CPU
    in float64 and a hundred times slower. Frequencies are multivariate t with 2 nu degrees of
    freedom: normal vectors, each divided by the root of a chi-squared variable.

    Parameters
    ----------
    width : float or None
        Length scale, in Euclidean distance.
    nu : float
        Smoothness.
    """

    name: ClassVar[str] = "matern"
    isotropic: ClassVar[bool] = True
    nu: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "nu", checks.positive("nu", self.nu))

    def uniforms_per_frequency(self, d: int) -> int:
        """One for the chi-squared variable that all coordinates share, then one per coordinate."""
        return d + 1

    def frequencies_at(self, U: NDArray[np.float64]) -> NDArray[np.float64]:
        """Normal quantiles over the root of a chi-squared quantile, (d, m)."""
        inside = _inside(U)
        W = self._quantiles(inside[1:])
        W /= self._divisors_from(2 * special.gammaincinv(self.nu, inside[0]))
        return W

    def _values(self, X: Array, Z: Array, scale: float) -> Array:
        R = squared_euclidean(X, Z)  # (n, m)
        xp = array_namespace(R)
        R = xp.sqrt(R, out=R)
        R *= scale
        if self.nu not in (0.5, 1.5, 2.5):
            return _matern_by_bessel(self.nu, R)
        R *= -math.sqrt(2 * self.nu)  # -a from here on
        if self.nu == 0.5:
            return xp.exp(R, out=R)
        if self.nu == 1.5:
            polynomial = 1.0 - R
        else:
            polynomial = R / 3.0  # 1 + a + a^2 / 3 by Horner
            polynomial -= 1.0
            polynomial *= R
            polynomial += 1.0
        polynomial *= xp.exp(R, out=R)
        return polynomial

    def _gradient(self, X: Array, Z: Array, C: Array, scale: float) -> Array:
        # K_nu-1 takes the place of K_nu in the derivative.
        if self.nu > 1:
            lower = Matern(1.0, self.nu - 1)
            A = lower._values(X, Z, scale * math.sqrt(self.nu / lower.nu))  # (n, m)
            A *= -self.nu / lower.nu
        else:
            R = squared_euclidean(X, Z)
            R = array_namespace(R).sqrt(R, out=R)
            R *= scale
            A = _by_profile(_matern_slope, self.nu, R)
        A *= C
        return radial_gradient(X, Z, A, scale)

    def _divisors(self, rng: np.random.Generator, m: int) -> NDArray[np.float64]:
        return self._divisors_from(rng.chisquare(2 * self.nu, size=m))

    def _divisors_from(self, chi2: NDArray[np.float64]) -> NDArray[np.float64]:
        chi2 = np.maximum(chi2, np.finfo(np.float64).tiny)  # it underflows for nu near 0
        return np.sqrt(chi2 / (2 * self.nu)) * self.decided_width


def _inside(U: NDArray[np.float64]) -> NDArray[np.float64]:
    """U' (uniforms, m) clipped to the open interval (0, 1): quantiles at its ends are infinite."""
    return np.clip(U, 2.0**-53, 1 - 2.0**-53).T


def _matern_by_bessel(nu: float, R: Array) -> Array:
    """Matern of any order at the distances R (n, m), in widths; overwrites R."""
    return _by_profile(_matern_direct if nu <= 50 else _matern_debye, nu, R)


def _by_profile(profile: Callable[[float, Float64], Float64], nu: float, R: Array) -> Array:
    """A function of the distances R (n, m) that NumPy computes in float64; overwrites R."""
    xp = array_namespace(R)
    for rows in row_blocks(R):
        r = np.asarray(to_device(R[rows], "cpu"), dtype=np.float64)
        R[rows] = xp.asarray(profile(nu, r), dtype=R.dtype, device=device(R))
    return R


def _matern_slope(nu: float, r: Float64) -> Float64:
    """(dk / dr) / r of Matern with nu <= 1; 0 at r = 0, where it is infinite."""
    a = np.minimum(math.sqrt(2 * nu) * r, 700.0)
    positive = np.where(a > 0, a, 1.0)
    factor = -2 * nu * 2 ** (1 - nu) / special.gamma(nu)
    slope = factor * positive ** (nu - 1) * special.kv(1 - nu, positive)
    values: Float64 = np.where(a > 0, slope, 0.0)
    return values


def _matern_direct(nu: float, r: NDArray[np.float64]) -> NDArray[np.float64]:
    """Matern by SciPy's scaled Bessel function, in logarithms so that no factor overflows."""
    # Beyond 2000 the result underflows to 0, and the Bessel function may fail.
    a = np.minimum(math.sqrt(2 * nu) * r, 2000.0)
    bessel = special.kve(nu, a)
    # Where K_nu overflows near 0, k is 1 to at least 11 digits.
    finite = np.isfinite(bessel)
    a = np.where(finite, a, 1.0)
    logarithm = (1 - nu) * math.log(2) - special.gammaln(nu) + nu * np.log(a) - a
    logarithm += np.log(np.where(finite, bessel, 1.0))
    values: NDArray[np.float64] = np.where(finite, np.exp(np.minimum(logarithm, 0.0)), 1.0)
    return values


def _matern_debye(nu: float, r: NDArray[np.float64]) -> NDArray[np.float64]:
    """Matern of large order, by the uniform expansion of K_nu(nu z) (DLMF 10.41.4).

    K_nu overflows over most of the range here. Divided by its value at z = 0, where k = 1, the
    expansion has no large terms; the truncation error is below 2e-11 for nu > 50.
    """
    z = math.sqrt(2 / nu) * r
    w = np.hypot(1.0, z)
    excess = z * (z / (1 + w))  # w - 1 without cancellation
    logarithm = nu * (np.log1p(excess / 2) - excess) - 0.5 * np.log(w)
    logarithm += np.log(_debye_sum(nu, 1 / w) / _debye_sum(nu, np.ones(1)))
    values: NDArray[np.float64] = np.exp(logarithm)
    return values


def _debye_sum(nu: float, p: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 - U_1(p) / nu + U_2(p) / nu^2 - ..., up to U_4."""
    q = p * p
    u1 = p * (3 - 5 * q) / 24
    u2 = q * (81 + q * (385 * q - 462)) / 1152
    u3 = p * q * (30375 + q * (-369603 + q * (765765 - 425425 * q))) / 414720
    u4 = 4465125 + q * (-94121676 + q * (349922430 + q * (-446185740 + 185910725 * q)))
    u4 *= q * q / 39813120
    return 1 - (u1 - (u2 - (u3 - u4 / nu) / nu) / nu) / nu
