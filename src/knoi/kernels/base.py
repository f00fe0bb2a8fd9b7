"""Base classes of kernels, the registry by name, stored state, and the median rule for widths.

Kernel
├── Linear, ArcCosine, SphericalPolynomial     no length scale
├── AdditiveChi2, Intersection                 no length scale, nonnegative data
├── SumKernel, ProductKernel                   made of kernels: `RBF() + 2 * Linear()`
├── FunctionKernel, Precomputed                supplied by the user
└── WidthKernel                                has a `width`, which may be chosen from data
    ├── Polynomial, Chi2
    └── StationaryKernel                       k(x - z), with a spectral measure to sample
        └── RBF, Laplacian, Cauchy, Matern

Kernels are frozen dataclasses, compared by their parameters. They take arrays of any backend.
"""

import dataclasses
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from knoi import checks
from knoi.arrays.backend import Array
from knoi.arrays.sparse import first_negative
from knoi.exceptions import InputError, InputTypeError
from knoi.kernels.distances import DirectValues, LandmarkValues

WidthRule = Callable[["WidthKernel"], float]
"""Chooses the width of a kernel without one."""

# An eigenvalue of a kernel matrix that is below zero by more than this part of the largest one is
# not rounding.
_NEGATIVE = 1e-4
# Rows of a block of distances in `median_width`.
_DISTANCE_ROWS = 256


@dataclass(frozen=True)
class Kernel(ABC):
    """A positive semidefinite k(x, z), evaluated between the rows of two arrays."""

    name: ClassVar[str]
    """Key in `KERNELS` and in model files."""

    nonnegative: ClassVar[bool] = False
    """Whether the kernel is defined for nonnegative data only."""

    @abstractmethod
    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), floats of one dtype, as (n, m).

        Sparse rows are `scipy.sparse.csr_array` without duplicates (`sum_duplicates()`).
        """

    def at_landmarks(self, Z: Array) -> LandmarkValues:
        """k(., Z) for fixed landmarks Z (m, d); what depends on Z alone is computed once."""
        return DirectValues(self, Z)

    @abstractmethod
    def diag(self, X: Array) -> Array:
        """k(x, x) for the rows of X (n, d), as (n,)."""

    @property
    def has_gradient(self) -> bool:
        """Whether `gradient` is available."""
        return False

    def gradient(self, X: Array, Z: Array, C: Array) -> Array:
        """Sum over j of C[i, j] times the gradient of k(x_i, z_j) in x_i, as (n, d).

        X (n, d) and Z (m, d) are as in a call, C is (n, m) and dense, and so is the result. Where a
        kernel is not differentiable, at x = z for some, its gradient counts as 0.
        """
        raise InputTypeError(
            f"the {self.name} kernel has no gradient, which metric='learned' and 'diagonal' need. "
            "Set metric=None, or use a kernel such as 'rbf', 'matern' or 'polynomial'."
        )

    @property
    def needs_width(self) -> bool:
        """Whether a width must be chosen before the kernel can be evaluated."""
        return False

    def with_width(self, width: float) -> Self:
        """A copy with this width; in a sum or product, in every part that has none yet."""
        if not self.needs_width:
            raise InputError(
                f"width={width!r} was given, but {self!r} needs no width. Omit it, or use a kernel "
                "whose width is open, e.g. RBF()."
            )
        return self.decide_width(lambda _part: width)

    def default_width(self, sample: NDArray[Any]) -> float:
        """A suitable width for data like the rows of `sample` (n, d)."""
        raise InputError(
            f"{self!r} has no width of its own to choose. For the widths of the parts of a sum or "
            "product, use with_default_width(kernel, sample)."
        )

    def decide_width(self, rule: WidthRule) -> Self:
        """A copy in which every part without a width gets the one that `rule` returns."""
        return self

    def check(self, X: Array, *, first_row: int = 0) -> None:
        """Raise `InputError` if X (n, d) has values for which the kernel is not defined.

        `first_row` is the row number of X[0] in the whole data, for the message.
        """
        position = first_negative(X) if self.nonnegative else None
        if position is None:
            return
        i, j = position
        raise InputError(
            f"row {first_row + i}, column {j} has {float(X[i, j]):.6g}, but the {self.name} kernel "
            "compares histograms and needs nonnegative values. Pass counts or frequencies, or use "
            "another kernel, e.g. 'rbf'."
        )

    def state_dict(self) -> dict[str, Any]:
        """The name and the parameters as JSON values; `kernel_from_state` restores the kernel."""
        parameters = {f.name: _to_json(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"name": self.name, **parameters}

    # Makes NumPy scalars defer to `__rmul__` instead of treating a kernel as an array of objects.
    __array_ufunc__: ClassVar[None] = None

    def __add__(self, other: object) -> "Kernel":
        """k1 + k2."""
        from knoi.kernels.composite import SumKernel  # which imports this module

        return SumKernel((self, other)) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: object) -> "Kernel":
        """k1 k2, or a kernel times a positive number."""
        from knoi.kernels.composite import multiplied, scaled

        if isinstance(other, Kernel):
            return multiplied(self, other)
        if isinstance(other, numbers.Number):
            return scaled(self, checks.positive("weight", other))
        return NotImplemented

    def __rmul__(self, other: object) -> "Kernel":
        """A positive number times a kernel."""
        return self * other if isinstance(other, numbers.Number) else NotImplemented


@dataclass(frozen=True)
class WidthKernel(Kernel):
    """A kernel with a length scale.

    Parameters
    ----------
    width : float or None
        Length scale; None to choose it from data, by `default_width`.
    """

    width: float | None = None

    def __post_init__(self) -> None:
        if self.width is None:
            return
        if isinstance(self.width, str):
            raise InputTypeError(
                f"width={self.width!r} was given to a {self.name} kernel: wanted a number or "
                "None. Pass a rule such as width='median' to the estimator instead."
            )
        object.__setattr__(self, "width", checks.positive("width", self.width))

    @property
    def needs_width(self) -> bool:
        """Whether `width` is None."""
        return self.width is None

    def with_width(self, width: float) -> Self:
        """A copy with this width."""
        return dataclasses.replace(self, width=width)

    @abstractmethod
    def default_width(self, sample: NDArray[Any]) -> float:
        """A suitable width for data like the rows of `sample` (n, d)."""

    def decide_width(self, rule: WidthRule) -> Self:
        """A copy with the width that `rule` returns, unless there is one already."""
        return self.with_width(rule(self)) if self.needs_width else self

    @property
    def decided_width(self) -> float:
        """The width as a number; `InputError` if it is None."""
        if self.width is None:
            raise InputError(
                f"the {self.name} kernel has no width yet. Pass one, "
                f"e.g. {type(self).__name__}(width=1.0), or let the estimator choose it by "
                "width='median'."
            )
        return self.width


KERNELS: dict[str, type[Kernel]] = {}
"""The kernels by name."""

COMPOSITES: dict[str, type[Kernel]] = {}
"""Sums and products by the name in their state; users write `+` and `*` instead."""

K = TypeVar("K", bound=Kernel)


def register(kernel: type[K]) -> type[K]:
    """Class decorator: add a kernel to `KERNELS` under its name."""
    KERNELS[kernel.name] = kernel
    return kernel


def resolve(kernel: str | Kernel | Callable[[Any, Any], Any]) -> Kernel:
    """The kernel for a name, with default parameters, or for a function of two tables of rows.

    A kernel object is returned unchanged.
    """
    from knoi.kernels.supplied import FunctionKernel, not_evaluated  # which import this module

    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        if kernel == "precomputed":  # KernelCCA takes it before it comes here
            raise not_evaluated()
        return _kernel_class(kernel, KERNELS)()
    if callable(kernel) and not isinstance(kernel, type):
        return FunctionKernel(kernel)
    given = f"the class {kernel.__name__}" if isinstance(kernel, type) else f"{kernel!r}"
    raise InputTypeError(
        f"kernel is {given}: wanted a name or a kernel object. Pass one of "
        f"{_names()}, an instance such as RBF(width=1.0), or a function (A, B) -> (n_a, n_b) of "
        "two tables of rows."
    )


def kernel_from_state(state: Mapping[str, Any]) -> Kernel:
    """The kernel with this `state_dict`; `InputError` if the state is not valid."""
    parameters = dict(state)
    kernel = _kernel_class(parameters.pop("name", None), KERNELS | COMPOSITES)
    known = {field.name for field in dataclasses.fields(kernel)}
    if unknown := sorted(map(str, parameters.keys() - known)):
        raise InputError(
            f"the {kernel.name} kernel has no parameter {unknown[0]!r}; it has "
            f"{', '.join(sorted(known)) or 'none'}. The state was altered or is from a newer knoi."
        )
    return kernel(**{key: _from_json(value) for key, value in parameters.items()})


def _to_json(value: Any) -> Any:
    if isinstance(value, Kernel):
        return value.state_dict()
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value


def _from_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return kernel_from_state(value)
    return tuple(_from_json(item) for item in value) if isinstance(value, list) else value


def _kernel_class(name: object, known: Mapping[str, type[Kernel]]) -> type[Kernel]:
    if not isinstance(name, str) or name not in known:
        hint = checks.suggestion(name, KERNELS)
        raise InputError(f"there is no kernel {name!r}. Pass one of {_names()}.{hint}")
    return known[name]


def _names() -> str:
    return ", ".join(repr(name) for name in sorted(KERNELS))


def with_default_width(kernel: K, sample: NDArray[Any], factor: float = 1.0) -> K:
    """A copy of `kernel` with the default width for `sample` (n, d) wherever it has no width yet.

    The default is the median distance between rows for kernels that decay with a distance (RBF,
    Laplacian, Cauchy, Matern, Chi2), the root mean square length of the rows for Polynomial. Each
    part of a sum or product follows its own rule; equal parts share the computation. Widths are
    multiplied by `factor`. The paper takes 4000 random rows; time and memory grow with n^2.
    """
    return kernel.decide_width(cache(lambda part: factor * part.default_width(sample)))


def check_definite(smallest: float, largest: float, what: str, rounding: float = 0.0) -> None:
    """Check the extreme eigenvalues of a kernel matrix: none may be below 0, up to rounding."""
    if smallest < -max(_NEGATIVE * abs(largest), rounding):
        raise InputError(
            f"{what} is not positive semidefinite: its eigenvalues range from {smallest:.3g} to "
            f"{largest:.3g}. Pass similarities, such as exp(-distance**2), and not distances."
        )


def median_width(distance: Callable[[Array, Array], Array], sample: NDArray[Any]) -> float:
    """The median distance over all pairs of rows i < j of `sample` (n, d).

    `distance` takes arrays (n, d) and (m, d) and returns distances (n, m).

    If more than half of the pairs are at distance 0 (repeated rows), the median of the others.
    Memory: the n (n - 1) / 2 distances and one block of rows.
    """
    n = sample.shape[0]
    if n < 2:
        raise InputError(
            f"the median distance between rows needs at least 2 rows, but got {n}. "
            "Pass more rows, or the width as a number."
        )
    distances = np.empty(n * (n - 1) // 2, dtype=np.result_type(sample.dtype, np.float32))
    filled = 0
    for start in range(0, n - 1, _DISTANCE_ROWS):
        D = distance(sample[start : start + _DISTANCE_ROWS], sample[start + 1 :])
        for i, row in enumerate(D[: n - 1 - start]):
            later = row[i:]  # row start + i against the rows after it
            distances[filled : filled + later.size] = later
            filled += later.size
    median = float(np.median(distances, overwrite_input=True))
    if median > 0:
        return median
    distances.sort()
    positive = distances[np.searchsorted(distances, 0.0, side="right") :]
    if positive.size == 0:
        raise InputError(
            f"all {n} sampled rows are identical, so no width can be chosen from them. "
            "Pass the width as a number, or check the data: a constant view has no correlations."
        )
    return float(np.median(positive, overwrite_input=True))
