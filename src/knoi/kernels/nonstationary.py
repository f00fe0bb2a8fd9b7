"""Kernels that know where the origin is: linear, polynomial, arc-cosine, chi2."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array
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


@register
@dataclass(frozen=True)
class Linear(Kernel):
    """x.z."""

    name: ClassVar[str] = "linear"

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        return array_api_compat.array_namespace(X, Z).matmul(X, Z.T)

    def diag(self, X: Array) -> Array:
        """||x||^2 for the rows of X (n, d), as (n,)."""
        return array_api_compat.array_namespace(X).sum(X * X, axis=1)


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
        xp = array_api_compat.array_namespace(X, Z)
        Xs, Zs, scale = rescale(X, Z, centre=False)
        longest = _longest(xp.sum(Xs * Xs, axis=1)) * _longest(xp.sum(Zs * Zs, axis=1))
        factor = self._squared_ratio(scale, math.sqrt(longest), X)
        K = xp.matmul(Xs, Zs.T)  # (n, m)
        K *= factor
        K += self.coef0
        return _integer_power(K, self.degree)

    def diag(self, X: Array) -> Array:
        """(||x||^2 / width^2 + coef0)^degree for the rows of X (n, d), as (n,)."""
        xp = array_api_compat.array_namespace(X)
        Xs, _, scale = rescale(X, X, centre=False)
        base = xp.sum(Xs * Xs, axis=1)  # (n,)
        base *= self._squared_ratio(scale, _longest(base), X)
        base += self.coef0
        return _integer_power(base, self.degree)

    def default_width(self, sample: NDArray[Any]) -> float:
        """Root mean square of the lengths of the rows: x.z / width^2 is then of order 1.

        The median distance would do for centred data only: far from the origin the lengths, which
        the kernel raises to a power, have nothing to do with the distances.
        """
        Xs, _, scale = rescale(sample, sample, centre=False)
        width = scale * math.sqrt(float(np.mean(np.sum(Xs * Xs, axis=1))))
        if width == 0:
            raise InputError(
                f"all {sample.shape[0]} sampled rows are zero, so no width can be chosen from "
                "them. Pass the width as a number, or check the data."
            )
        return width

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
        xp = array_api_compat.array_namespace(X, Z)
        Ux, x_norms = _directions(X)
        Uz, z_norms = (Ux, x_norms) if X is Z else _directions(Z)
        self._refuse_overflow(_longest(x_norms), _longest(z_norms), X)
        # From the chord between the directions, not arccos of their product, which loses half of
        # the digits where x and z are nearly parallel.
        Us, Vs, scale = rescale(Ux, Uz, centre=True)
        K = squared_euclidean(Us, Vs)  # (n, m)
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
        xp = array_api_compat.array_namespace(X)
        _, norms = _directions(X)
        if self.order == 0:
            return xp.where(norms == 0, 0.5, xp.ones_like(norms))
        self._refuse_overflow(_longest(norms), _longest(norms), X)
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
        xp = array_api_compat.array_namespace(X, Z)
        width = self.decided_width
        K, scale = self._scaled_distance(X, Z)
        K *= -widths_per_unit(scale, width, K)
        return xp.exp(K, out=K)

    def diag(self, X: Array) -> Array:
        """All ones."""
        self.check(X)
        xp = array_api_compat.array_namespace(X)
        return xp.ones((X.shape[0],), dtype=X.dtype, device=array_api_compat.device(X))

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
    xp = array_api_compat.array_namespace(like)
    if logarithm < math.log(float(xp.finfo(like.dtype).max)):
        return
    dtype = str(like.dtype).removeprefix("torch.")
    wider = ", or use float64 data" if dtype == "float32" else ""
    raise InputError(f"{what} overflows {dtype}. {remedy}{wider}.")
