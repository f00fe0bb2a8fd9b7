"""Kernels that know where the origin is: linear, polynomial, arc-cosine, chi2."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.arrays.sparse import inner, is_sparse, ones_per_row, squared_norms, unit_rows
from knoi.exceptions import InputError
from knoi.kernels.distances import (
    chi_square,
    rescale,
    row_blocks,
    squared_euclidean,
    widths_per_unit,
)
from knoi.kernels.kernel import Kernel, WidthKernel, nonnegative_number, register, whole_number
from knoi.kernels.width import median_width


@runtime_checkable
class DotProductKernel(Protocol):
    """A kernel that is a power series of x.z: k = sum_n a_n (x.z / unit^2)^n, all a_n >= 0."""

    @property
    def unit(self) -> float:
        """The length of x and z that counts as 1."""

    def maclaurin(self, n: int) -> float:
        """The coefficient a_n."""


@register
@dataclass(frozen=True)
class Linear(Kernel):
    """x.z."""

    name: ClassVar[str] = "linear"

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        return inner(X, Z)

    def diag(self, X: Array) -> Array:
        """||x||^2 for the rows of X (n, d), as (n,)."""
        norms = squared_norms(X)
        return norms.astype(np.result_type(X.dtype, np.float32)) if is_sparse(X) else norms

    @property
    def unit(self) -> float:
        """1."""
        return 1.0

    def maclaurin(self, n: int) -> float:
        """1 for n = 1, else 0."""
        return float(n == 1)


@register
@dataclass(frozen=True)
class Polynomial(WidthKernel):
    """(x.z / width^2 + coef0)^degree.

    Parameters
    ----------
    width : float or None
        The length of x and z that counts as 1.
    degree : int
        At least 1.
    coef0 : float
        At least 0; weighs the terms of lower degree.
    """

    name: ClassVar[str] = "polynomial"
    degree: int = 3
    coef0: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "degree", whole_number("degree", self.degree))
        object.__setattr__(self, "coef0", nonnegative_number("coef0", self.coef0))
        if self.degree < 1:
            raise InputError(f"degree={self.degree} cannot be used: an integer >= 1 is wanted.")

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        Xs, Zs, scale = rescale(X, Z, centre=False)
        longest = _longest(squared_norms(Xs)) * _longest(squared_norms(Zs))
        factor = self._squared_ratio(scale, math.sqrt(longest), Xs)
        K = inner(Xs, Zs)  # (n, m)
        K *= factor
        K += self.coef0
        return _integer_power(K, self.degree)

    def diag(self, X: Array) -> Array:
        """(||x||^2 / width^2 + coef0)^degree for the rows of X (n, d), as (n,)."""
        Xs, _, scale = rescale(X, X, centre=False)
        base = squared_norms(Xs)  # (n,)
        base *= self._squared_ratio(scale, _longest(base), Xs)
        base += self.coef0
        powers = _integer_power(base, self.degree)
        return powers.astype(Xs.dtype, copy=False) if is_sparse(Xs) else powers

    def default_width(self, sample: NDArray[Any]) -> float:
        """Root mean square of the lengths of the rows: x.z / width^2 is then of order 1.

        The median distance would do for centred data only: far from the origin the lengths, which
        the kernel raises to a power, have nothing to do with the distances.
        """
        Xs, _, scale = rescale(sample, sample, centre=False)
        width = scale * math.sqrt(float(np.mean(squared_norms(Xs))))
        if width == 0:
            raise InputError(
                f"all {sample.shape[0]} sampled rows are zero, so no width can be chosen from "
                "them. Pass the width as a number, or check the data."
            )
        return width

    @property
    def unit(self) -> float:
        """The width."""
        return self.decided_width

    def maclaurin(self, n: int) -> float:
        """The coefficient of (x.z / width^2)^n: binomial(degree, n) coef0^(degree - n)."""
        if n > self.degree:
            return 0.0
        return math.comb(self.degree, n) * self.coef0 ** (self.degree - n)

    def _squared_ratio(self, scale: float, longest: float, like: Array) -> float:
        """(scale / width)^2, refused if the power overflows for products up to `longest`."""
        ratio = scale / self.decided_width
        base = ratio * ratio * longest + self.coef0
        _refuse_overflow(
            self.degree * math.log(max(base, 1.0)),
            like,
            f"(x.z / width^2 + coef0)^{self.degree} with width={self.decided_width:.6g} and "
            f"x.z up to {longest * scale * scale:.6g}",
            "Use a larger width or a lower degree",
        )
        return ratio * ratio


@register
@dataclass(frozen=True)
class ArcCosine(Kernel):
    """||x||^n ||z||^n J_n(theta) / pi, theta the angle between x and z (Cho & Saul 2009).

    The kernel of an infinitely wide random layer of steps (order 0), ramps (1) or squared ramps
    (2). A zero vector is taken as perpendicular to all, itself included, which is what steps with
    step(0) = 1/2 give.

    Parameters
    ----------
    order : {0, 1, 2}
        n above.
    """

    name: ClassVar[str] = "arccosine"
    order: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", whole_number("order", self.order))
        if self.order not in (0, 1, 2):
            raise InputError(f"order={self.order} cannot be used: 0, 1 or 2 is wanted.")

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        Ux, x_norms = _directions(X)
        Uz, z_norms = (Ux, x_norms) if X is Z else _directions(Z)
        self._refuse_overflow(_longest(x_norms), _longest(z_norms), Ux)
        # From the chord between the directions, not arccos of their product, which loses half of
        # the digits where x and z are nearly parallel.
        Us, Vs, scale = rescale(Ux, Uz, centre=True)
        K = squared_euclidean(Us, Vs)  # (n, m)
        xp = array_api_compat.array_namespace(K)
        z_zero = z_norms[None, :] == 0
        for rows in row_blocks(K):
            block = K[rows]
            norms = x_norms[rows][:, None]
            half = xp.sqrt(block) * (0.5 * scale)  # sin(theta / 2)
            half = xp.clip(half, 0.0, 1.0)
            half = xp.where((norms == 0) | z_zero, math.sqrt(0.5), half)
            block[...] = _angular(self.order, half, xp)
            for _ in range(self.order):
                block *= norms
                block *= z_norms[None, :]
        return K

    def diag(self, X: Array) -> Array:
        """||x||^2n J_n(0) / pi for the rows of X (n, d), as (n,)."""
        _, norms = _directions(X)
        xp = array_api_compat.array_namespace(norms)
        if self.order == 0:
            return xp.where(norms == 0, 0.5, xp.ones_like(norms))
        self._refuse_overflow(_longest(norms), _longest(norms), norms)
        return norms**2 if self.order == 1 else 3.0 * norms**4

    def _refuse_overflow(self, longest_x: float, longest_z: float, like: Array) -> None:
        if self.order == 0 or longest_x == 0 or longest_z == 0:
            return
        largest = self.order * (math.log(longest_x) + math.log(longest_z)) + math.log(3)
        what = f"rows of length up to {max(longest_x, longest_z):.6g} to the power of {self.order}"
        _refuse_overflow(largest, like, what, "Divide the data by their typical length")


@register
@dataclass(frozen=True)
class Chi2(WidthKernel):
    """exp(-sum_j (x_j - z_j)^2 / (x_j + z_j) / width), 0/0 counted as 0, for histograms.

    Parameters
    ----------
    width : float or None
        Length scale, in chi2 distance.
    """

    name: ClassVar[str] = "chi2"
    nonnegative: ClassVar[bool] = True

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        width = self.decided_width
        K, scale = self._scaled_distance(X, Z)
        xp = array_api_compat.array_namespace(K)
        K *= -widths_per_unit(scale, width, K)
        return xp.exp(K, out=K)

    def diag(self, X: Array) -> Array:
        """All ones."""
        self.check(X)
        return ones_per_row(X)

    def distance(self, X: Array, Z: Array) -> Array:
        """sum_j (x_j - z_j)^2 / (x_j + z_j), as (n, m)."""
        D, scale = self._scaled_distance(X, Z)
        D *= scale
        return D

    def default_width(self, sample: NDArray[Any]) -> float:
        """Median distance between rows."""
        return median_width(self, sample)

    def _scaled_distance(self, X: Array, Z: Array) -> tuple[Array, float]:
        self.check(X)
        if Z is not X:
            self.check(Z)
        Xs, Zs, scale = rescale(X, Z, centre=False)
        return chi_square(Xs, Zs), scale


def _directions(X: Array) -> tuple[Array, Array]:
    """Rows of X (n, d) at length 1 (zero rows stay zero), and their lengths (n,)."""
    if is_sparse(X):
        return unit_rows(X)
    xp = array_api_compat.array_namespace(X)
    # Each row by its own largest entry first, so that no square over- or underflows.
    largest = xp.maximum(xp.max(X, axis=1), -xp.min(X, axis=1))  # (n,)
    U = X / xp.where(largest == 0, 1.0, largest)[:, None]
    norms = xp.sqrt(xp.sum(U * U, axis=1))
    U /= xp.where(norms == 0, 1.0, norms)[:, None]
    return U, norms * largest


def _angular(order: int, half: Array, xp: Any) -> Array:
    """J_n(theta) / pi from sin(theta / 2)."""
    supplement = math.pi - 2.0 * xp.asin(half)  # pi - theta
    if order == 0:
        return supplement / math.pi
    cosine = 1.0 - 2.0 * half * half
    sine = 2.0 * half * xp.sqrt(1.0 - half * half)
    if order == 1:
        return (sine + supplement * cosine) / math.pi
    return (3.0 * sine * cosine + supplement * (1.0 + 2.0 * cosine * cosine)) / math.pi


def _integer_power(base: Array, degree: int) -> Array:
    """base^degree by repeated squaring (a general power is ten times slower); overwrites `base`."""
    odd = None  # the product of the squares that odd digits leave behind
    while degree > 1:
        if degree % 2 and odd is None:
            odd = base + 0.0
        elif degree % 2:
            odd *= base
        base *= base
        degree //= 2
    if odd is not None:
        base *= odd
    return base


def _longest(norms: Array) -> float:
    xp = array_api_compat.array_namespace(norms)
    return float(xp.max(norms)) if norms.shape[0] else 0.0


def _refuse_overflow(logarithm: float, like: Array, what: str, remedy: str) -> None:
    """`InputError` if exp(logarithm) is beyond the dtype of `like`."""
    like = like.data if is_sparse(like) else like
    xp = array_api_compat.array_namespace(like)
    if logarithm < math.log(float(xp.finfo(like.dtype).max)):
        return
    dtype = str(like.dtype).removeprefix("torch.")
    wider = ", or use float64 data" if dtype == "float32" else ""
    raise InputError(f"{what} overflows {dtype}. {remedy}{wider}.")
