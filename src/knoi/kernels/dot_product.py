"""Kernels of inner products and angles: linear, polynomial, spherical polynomial, arc-cosine."""

import dataclasses
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace
from numpy.typing import NDArray

from knoi import checks
from knoi.arrays.backend import Array, in_main_memory
from knoi.arrays.sparse import (
    dense,
    empty_rows,
    inner,
    is_sparse,
    ones_per_row,
    squared_norms,
    unit_rows,
)
from knoi.exceptions import InputError
from knoi.kernels.base import Kernel, WidthKernel, register
from knoi.kernels.distances import centred, rescale, row_blocks, squared_euclidean


class SmoothKernel(Kernel):
    """A kernel of inner products or angles that has a gradient."""

    @property
    def has_gradient(self) -> bool:
        """True."""
        return True


class DotProductKernel(SmoothKernel):
    """A kernel that is a power series of x.z: k = sum_n a_n (x.z / unit^2)^n, all a_n >= 0."""

    @property
    @abstractmethod
    def unit(self) -> float:
        """The length of x and z that counts as 1."""

    @abstractmethod
    def maclaurin(self, n: int) -> float:
        """The coefficient a_n."""


@register
@dataclass(frozen=True)
class Linear(DotProductKernel):
    """x.z."""

    name: ClassVar[str] = "linear"

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        return inner(X, Z)

    def gradient(self, X: Array, Z: Array, C: Array) -> Array:
        """Sum over j of C[i, j] z_j, as (n, d)."""
        return C @ Z

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
class Polynomial(WidthKernel, DotProductKernel):
    """(x.z / width^2 + coef0)^degree.

    Parameters
    ----------
    width : float or None
        The length of x and z that counts as 1.
    degree : int
        At least 1.
    coef0 : float
        At least 0; weight of the terms of lower degree.
    """

    name: ClassVar[str] = "polynomial"
    degree: int = 3
    coef0: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_polynomial(self)

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        Xs, Zs, scale = rescale(X, Z, centre=False)
        self._check_overflow(scale, Xs, Zs)
        K = inner(Xs, Zs)  # (n, m)
        K *= (scale / self.decided_width) ** 2
        K += self.coef0
        return _integer_power(K, self.degree)

    def gradient(self, X: Array, Z: Array, C: Array) -> Array:
        """Sum over j of C[i, j] times the gradient of k(x_i, z_j) in x_i, as (n, d)."""
        if self.degree == 1:
            return C @ Z / self.decided_width**2
        A = dataclasses.replace(self, degree=self.degree - 1)(X, Z)  # (n, m)
        A *= C
        return A @ Z * (self.degree / self.decided_width**2)

    def diag(self, X: Array) -> Array:
        """(||x||^2 / width^2 + coef0)^degree for the rows of X (n, d), as (n,)."""
        Xs, _, scale = rescale(X, X, centre=False)
        self._check_overflow(scale, Xs, Xs)
        base = squared_norms(Xs)  # (n,)
        base *= (scale / self.decided_width) ** 2
        base += self.coef0
        powers = _integer_power(base, self.degree)
        return powers.astype(Xs.dtype, copy=False) if is_sparse(Xs) else powers

    def default_width(self, sample: NDArray[Any]) -> float:
        """Root mean square length of the rows: x.z / width^2 is then of order 1.

        The median distance would suit centred data only: far from the origin the lengths, which
        the kernel raises to a power, are unrelated to the distances.
        """
        Xs, _, scale = rescale(sample, sample, centre=False)
        width = float(scale) * math.sqrt(float(np.mean(squared_norms(Xs))))
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

    def _check_overflow(self, scale: Any, Xs: Array, Zs: Array) -> None:
        """`InputError` if the power of a product of these rows may overflow."""
        if not in_main_memory(Xs):
            return
        longest = math.sqrt(_largest(squared_norms(Xs)) * _largest(squared_norms(Zs)))
        scale = float(scale)
        ratio = scale / self.decided_width
        base = ratio * ratio * longest + self.coef0
        _check_overflow(
            self.degree * math.log(max(base, 1.0)),
            Xs,
            f"(x.z / width^2 + coef0)^{self.degree} with width={self.decided_width:.6g} and "
            f"x.z up to {longest * scale * scale:.6g}",
            "Use a larger width or a lower degree",
        )


@register
@dataclass(frozen=True)
class SphericalPolynomial(SmoothKernel):
    """(cos(x, z) + coef0)^degree: `Polynomial` of rows scaled to unit length.

    Rows of zeros have no direction; they share an extra one, orthogonal to all others.

    Parameters
    ----------
    degree : int
        At least 1.
    coef0 : float
        At least 0; weight of the terms of lower degree.
    """

    name: ClassVar[str] = "spherical_polynomial"
    degree: int = 3
    coef0: float = 1.0

    def __post_init__(self) -> None:
        _check_polynomial(self)

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        self._check_overflow(X)
        Ux = to_sphere(X)
        Uz = Ux if X is Z else to_sphere(Z)
        K = inner(Ux, Uz)  # (n, m)
        K += self.coef0
        return _integer_power(K, self.degree)

    def gradient(self, X: Array, Z: Array, C: Array) -> Array:
        """Sum over j of C[i, j] times the gradient of k(x_i, z_j) in x_i, as (n, d)."""
        rows, norms = unit_rows(X)
        landmarks, _ = unit_rows(Z)
        A = self.degree * C
        if self.degree > 1:
            A *= dataclasses.replace(self, degree=self.degree - 1)(X, Z)
        U = dense(rows)
        G = A @ landmarks  # (n, d)
        G -= array_namespace(U).sum(G * U, axis=1)[:, None] * U  # along the sphere
        return G / _never_zero(norms)[:, None]

    def diag(self, X: Array) -> Array:
        """(1 + coef0)^degree for every row of X (n, d), as (n,)."""
        self._check_overflow(X)
        return ones_per_row(X) * (1 + self.coef0) ** self.degree

    def _check_overflow(self, like: Array) -> None:
        _check_overflow(
            self.degree * math.log1p(self.coef0),
            like,
            f"(1 + coef0)^{self.degree} with coef0={self.coef0:.6g}",
            "Use a smaller coef0 or a lower degree",
        )


@register
@dataclass(frozen=True)
class ArcCosine(SmoothKernel):
    """||x||^n ||z||^n J_n(theta) / pi, theta the angle between x and z (Cho & Saul 2009).

    The kernel of an infinitely wide random layer of step functions (order 0), ramps (1) or squared
    ramps (2). A zero vector counts as orthogonal to all vectors including itself, as step functions
    with step(0) = 1/2 imply.

    Parameters
    ----------
    order : {0, 1, 2}
        n above.
    """

    name: ClassVar[str] = "arccosine"
    order: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", checks.integer("order", self.order))
        if self.order not in (0, 1, 2):
            raise InputError(f"order={self.order}: wanted 0, 1 or 2.")

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        Ux, x_norms = unit_rows(X)
        Uz, z_norms = (Ux, x_norms) if X is Z else unit_rows(Z)
        self._check_overflow(x_norms, z_norms)
        # From the chord between the directions. The arccos of their product would lose half of the
        # digits where x and z are nearly parallel.
        K = squared_euclidean(*centred(Ux, Uz))  # (n, m)
        xp = array_namespace(K)
        z_zero = z_norms[None, :] == 0
        for rows in row_blocks(K):
            block = K[rows]
            norms = x_norms[rows][:, None]
            square = xp.clip(block * 0.25, 0.0, 1.0)  # sin(theta / 2)^2
            square = xp.where((norms == 0) | z_zero, 0.5, square)
            block[...] = _angular(self.order, square, xp)
            for _ in range(self.order):
                block *= norms
                block *= z_norms[None, :]
        return K

    def gradient(self, X: Array, Z: Array, C: Array) -> Array:
        """Sum over j of C[i, j] times the gradient of k(x_i, z_j) in x_i, as (n, d).

        With the unit vectors u and v, |x|^(n-1) |z|^n ((n J_n - Q cos) u + Q v) / pi, where Q is
        -J_n' / sin.
        """
        Ux, x_norms = unit_rows(X)
        Uz, z_norms = unit_rows(Z)
        square = squared_euclidean(*centred(Ux, Uz))  # (n, m)
        xp = array_namespace(square)
        square = xp.clip(square * 0.25, 0.0, 1.0)  # sin(theta / 2)^2
        half = xp.sqrt(square)
        cosine, sine = 1.0 - 2.0 * square, 2.0 * half * xp.sqrt(1.0 - square)
        supplement = 2.0 * xp.acos(half)  # pi - theta
        if self.order == 0:
            Q = xp.where(sine > 0, 1.0 / _never_zero(sine), 0.0)
            along = -Q * cosine
        elif self.order == 1:
            Q, along = supplement, sine
        else:
            Q = 4.0 * (sine + supplement * cosine)
            along = 2.0 * (sine * cosine + supplement)
        A = C * z_norms[None, :] ** self.order * (z_norms > 0)[None, :]
        U = dense(Ux)
        G = (A * Q) @ Uz + xp.sum(A * along, axis=1)[:, None] * U  # (n, d)
        lengths = _never_zero(x_norms) ** (self.order - 1) * (x_norms > 0)
        return G * (lengths / math.pi)[:, None]

    def diag(self, X: Array) -> Array:
        """||x||^2n J_n(0) / pi for the rows of X (n, d), as (n,)."""
        _, norms = unit_rows(X)
        xp = array_namespace(norms)
        if self.order == 0:
            return xp.where(norms == 0, 0.5, xp.ones_like(norms))
        self._check_overflow(norms, norms)
        return norms**2 if self.order == 1 else 3.0 * norms**4

    def _check_overflow(self, x_norms: Array, z_norms: Array) -> None:
        if self.order == 0 or not in_main_memory(x_norms):
            return
        longest_x, longest_z = _largest(x_norms), _largest(z_norms)
        if longest_x == 0 or longest_z == 0:
            return
        _check_overflow(
            self.order * (math.log(longest_x) + math.log(longest_z)) + math.log(3),
            x_norms,
            f"rows of length up to {max(longest_x, longest_z):.6g} to the power of {self.order}",
            "Divide the data by their typical length",
        )


def to_sphere(X: Array) -> Array:
    """Rows of X (n, d) at length 1, and one more column, 1 for rows of zeros: (n, d + 1)."""
    if is_sparse(X):
        rows, norms = unit_rows(X)
        zero = scipy.sparse.csr_array((norms == 0).astype(rows.dtype)[:, None])
        return scipy.sparse.hstack([rows, zero], format="csr")
    U = empty_rows(X, X.shape[1] + 1)
    _, norms = unit_rows(X, out=U[:, :-1])
    U[:, -1] = array_namespace(X).astype(norms == 0, X.dtype)
    return U


def _check_polynomial(kernel: Polynomial | SphericalPolynomial) -> None:
    object.__setattr__(kernel, "degree", checks.count("degree", kernel.degree))
    object.__setattr__(kernel, "coef0", checks.at_least_zero("coef0", kernel.coef0))


def _never_zero(values: Array) -> Array:
    """The values, 1 in the place of 0."""
    xp = array_namespace(values)
    return xp.where(values > 0, values, xp.ones_like(values))


def _angular(order: int, square: Array, xp: Any) -> Array:
    """J_n(theta) / pi from sin(theta / 2)^2."""
    half = xp.sqrt(square)
    supplement = 2.0 * xp.acos(half)  # pi - theta
    if order == 0:
        return supplement / math.pi
    cosine = 1.0 - 2.0 * square
    sine = 2.0 * half * xp.sqrt(1.0 - square)
    if order == 1:
        return (sine + supplement * cosine) / math.pi
    return (3.0 * sine * cosine + supplement * (1.0 + 2.0 * cosine * cosine)) / math.pi


def _integer_power(base: Array, degree: int) -> Array:
    """base^degree by repeated squaring, 10x faster than a general power; overwrites `base`."""
    odd = None  # the product of the factors that odd digits of the degree leave
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


def _largest(norms: Array) -> float:
    xp = array_namespace(norms)
    return float(xp.max(norms)) if norms.shape[0] else 0.0


def _check_overflow(logarithm: float, like: Array, what: str, remedy: str) -> None:
    """`InputError` if exp(logarithm) exceeds the dtype in which `like` is computed.

    Callers know lengths of rows in main memory only: for those of a device the host would have to
    wait. There an overflow is found in the moments or scores.
    """
    # Integers, which only sparse rows may have, are computed as floats.
    dtype = np.result_type(str(like.dtype).removeprefix("torch."), np.float32)
    if logarithm < math.log(float(np.finfo(dtype).max)):
        return
    wider = ", or use float64 data" if dtype == "float32" else ""
    raise InputError(f"{what} overflows {dtype}. {remedy}{wider}.")
