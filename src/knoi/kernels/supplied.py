"""Kernels that the user supplies: a function of two tables of rows, or the kernel values."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NoReturn

import numpy as np
from array_api_compat import array_namespace, device, is_torch_array
from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.arrays.sparse import dense
from knoi.engine import even_slices
from knoi.exceptions import InputError, InputTypeError, NonFiniteError
from knoi.kernels.base import Kernel

# Values k(a, b) and k(b, a) may differ by this part of the largest one: kernels are often computed
# in float32.
_ASYMMETRY = 1e-5
# Rows of a block whose diagonal is taken.
_DIAGONAL_ROWS = 64


@dataclass(frozen=True, repr=False)
class FunctionKernel(Kernel):
    """A function (A, B) -> (n_a, n_b) of two tables of rows, as in `sklearn.metrics.pairwise`.

    It gets NumPy arrays, or `scipy.sparse.csr_array` for sparse views, on every device, and may be
    called by several threads at once.

    Parameters
    ----------
    function : callable
        What is called. Its values are checked: their shape, that they are finite, and symmetric
        where both tables are the same.
    """

    function: Callable[[Any, Any], Any]

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the function."""
        return _name(self.function)

    def __repr__(self) -> str:
        return self.name

    def __call__(self, X: Array, Z: Array) -> Array:
        """The values of the function between the rows of X (n, d) and Z (m, d), as (n, m)."""
        A, shape = _on_host(X), (int(X.shape[0]), int(Z.shape[0]))
        K = np.empty(shape)
        if K.size:  # a function need not know what to do with no rows
            K = self._checked(dense(self.function(A, A if X is Z else _on_host(Z))), shape)
        if K.size and X is Z:
            check_symmetric(K, f"the values of the kernel {self.name}")
        # A copy: the function may keep what it returned, and callers overwrite theirs.
        copied = np.array(K, dtype=A.dtype)
        if not is_torch_array(X):
            return copied
        return array_namespace(X).asarray(copied, device=device(X))

    def diag(self, X: Array) -> Array:
        """The diagonals of small blocks."""
        blocks = [X[rows] for rows in even_slices(int(X.shape[0]), _DIAGONAL_ROWS)]
        values = [np.diagonal(_on_host(self(block, block))) for block in blocks]
        found = np.concatenate(values)
        return array_namespace(X).asarray(found, device=device(X)) if is_torch_array(X) else found

    def state_dict(self) -> dict[str, Any]:
        """`InputTypeError`: a function is code, which is never saved."""
        raise InputTypeError(
            f"the kernel {self.name} is a function, and code is never saved. To save the model, "
            "write the kernel as a subclass of knoi.kernels.Kernel and register it with "
            "knoi.kernels.register (see 'Extending' in docs/architecture.md), or pickle the model "
            "at your own risk."
        )

    def _checked(self, given: Any, wanted: tuple[int, int]) -> NDArray[Any]:
        """What the function returned, as numbers."""
        K = np.asarray(given)
        if K.shape != wanted or K.dtype.kind not in "biuf":
            raise InputTypeError(
                f"the kernel {self.name} returned an array of shape {K.shape} and dtype {K.dtype} "
                f"for tables of {wanted[0]} and {wanted[1]} rows: wanted the numbers k(a, b) "
                f"between all their rows, of shape {wanted}. Pass a function of two tables, such "
                "as those of sklearn.metrics.pairwise, not of two single rows."
            )
        if not np.isfinite(K).all():
            raise NonFiniteError(
                f"the kernel {self.name} returned NaN or infinite values. Check the function and "
                "the scale of the data."
            )
        return K


@dataclass(frozen=True)
class Precomputed(Kernel):
    """Kernel values that the user has computed; it cannot be evaluated between other rows."""

    name: ClassVar[str] = "precomputed"

    def __call__(self, X: Array, Z: Array) -> NoReturn:
        """`InputTypeError`."""
        raise not_evaluated()

    def diag(self, X: Array) -> NoReturn:
        """`InputTypeError`."""
        raise not_evaluated()


# Kernels without any parameter of ours: no width, no metric.
SUPPLIED = (FunctionKernel, Precomputed)


def not_evaluated() -> InputTypeError:
    """The error where a kernel has to be evaluated and its values were given."""
    return InputTypeError(
        "kernel='precomputed' is for KernelCCA, whose views are then the kernel matrices of the "
        "training rows. Everything else evaluates kernels between rows: pass the rows, and a "
        "kernel or a function (A, B) -> (n_a, n_b) of two tables of rows."
    )


def check_symmetric(K: NDArray[Any], what: str) -> None:
    """Check that a matrix of kernel values between the same rows is symmetric, up to rounding."""
    off = np.subtract(K, K.T, dtype=np.float64)
    np.abs(off, out=off)
    i, j = np.unravel_index(int(np.argmax(off)), off.shape)
    if off[i, j] > _ASYMMETRY * float(np.abs(K).max()):
        raise InputError(
            f"{what} are not symmetric: k(a, b) = {float(K[i, j]):.6g} but k(b, a) = "
            f"{float(K[j, i]):.6g} for rows {i} and {j}. A kernel is a symmetric measure of "
            "similarity: check how it is computed."
        )


def _on_host(X: Array) -> Any:
    """Rows or values as a NumPy array or CSR."""
    return X.detach().cpu().numpy() if is_torch_array(X) else X


def _name(function: Any) -> str:
    if isinstance(function, partial):
        return _name(function.func)
    return str(getattr(function, "__name__", type(function).__name__))
