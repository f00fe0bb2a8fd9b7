"""The polynomial kernel of directions: rows are scaled to length 1 first."""

import math
from dataclasses import dataclass
from typing import ClassVar

import array_api_compat
import numpy as np
import scipy.sparse

from knoi.arrays.backend import Array
from knoi.arrays.sparse import inner, is_sparse, unit_rows
from knoi.exceptions import InputError
from knoi.kernels.kernel import Kernel, nonnegative_number, register, whole_number


@register
@dataclass(frozen=True)
class SphericalPolynomial(Kernel):
    """(cos(x, z) + coef0)^degree: `Polynomial` of rows scaled to the length that counts as 1.

    Rows of zeros have no direction; they share one of their own, at right angles to all others.

    Parameters
    ----------
    degree : int
        At least 1.
    coef0 : float
        At least 0; weighs the terms of lower degree.
    """

    name: ClassVar[str] = "spherical_polynomial"
    degree: int = 3
    coef0: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", whole_number("degree", self.degree))
        object.__setattr__(self, "coef0", nonnegative_number("coef0", self.coef0))
        if self.degree < 1:
            raise InputError(f"degree={self.degree} cannot be used: an integer >= 1 is wanted.")

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        self._refuse_overflow(X)
        Ux = to_sphere(X)
        Uz = Ux if X is Z else to_sphere(Z)
        base = inner(Ux, Uz)  # (n, m)
        base += self.coef0
        K = base + 0.0
        for _ in range(self.degree - 1):
            K *= base
        return K

    def diag(self, X: Array) -> Array:
        """(1 + coef0)^degree for every row of X (n, d), as (n,)."""
        self._refuse_overflow(X)
        values = X.data if is_sparse(X) else X
        xp = array_api_compat.array_namespace(values)
        placed = {"dtype": X.dtype, "device": array_api_compat.device(values)}
        return xp.full((X.shape[0],), (1 + self.coef0) ** self.degree, **placed)

    def _refuse_overflow(self, like: Array) -> None:
        dtype = str(like.dtype).removeprefix("torch.")
        if self.degree * math.log1p(self.coef0) < math.log(float(np.finfo(dtype).max)):
            return
        wider = ", or use float64 data" if dtype == "float32" else ""
        raise InputError(
            f"(1 + coef0)^{self.degree} with coef0={self.coef0:.6g} overflows {dtype}. "
            f"Use a smaller coef0 or a lower degree{wider}."
        )


def to_sphere(X: Array) -> Array:
    """The rows of X (n, d) at length 1, and a column that is 1 for rows of zeros: (n, d + 1)."""
    if is_sparse(X):
        rows, lengths = unit_rows(X)
        zero = scipy.sparse.csr_array((lengths == 0).astype(rows.dtype)[:, None])
        return scipy.sparse.hstack([rows, zero], format="csr")
    xp = array_api_compat.array_namespace(X)
    n, d = X.shape
    U = xp.empty((n, d + 1), dtype=X.dtype, device=array_api_compat.device(X))
    rows = U[:, :-1]
    # Each row by its own largest entry first, so that no square over- or underflows.
    xp.abs(X, out=rows)
    largest = xp.max(rows, axis=1)  # (n,)
    xp.divide(X, xp.where(largest == 0, xp.ones_like(largest), largest)[:, None], out=rows)
    lengths = xp.sqrt(xp.sum(rows * rows, axis=1))
    rows /= xp.where(lengths == 0, xp.ones_like(lengths), lengths)[:, None]
    U[:, -1] = xp.astype(largest == 0, X.dtype)
    return U
