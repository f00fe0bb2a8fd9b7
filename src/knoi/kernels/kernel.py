"""The contract of a kernel, its registry by name, and its state as plain JSON.

Kernel
├── Linear, ArcCosine                          no length scale
├── SumKernel, ProductKernel                   made of kernels: `RBF() + 2 * Linear()`
└── WidthKernel                                a `width`, given or still to be decided
    ├── Polynomial, Chi2
    └── StationaryKernel                       k(x - z), with a spectral measure to sample
        └── RBF, Laplacian, Cauchy, Matern

Kernels are values: frozen and compared by their parameters; arrays of any backend pass through.
"""

import dataclasses
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.arrays.sparse import first_negative
from knoi.exceptions import InputError, InputTypeError
from knoi.kernels.landmark_values import EachTime, KernelValues

WidthRule = Callable[["WidthKernel"], float]
"""How a kernel without a width gets one."""


@dataclass(frozen=True)
class Kernel(ABC):
    """A positive semidefinite k(x, z), evaluated between the rows of two arrays."""

    name: ClassVar[str]
    """Key in `KERNELS`, and in a model file."""

    nonnegative: ClassVar[bool] = False
    """Whether the kernel is defined for nonnegative data only."""

    @abstractmethod
    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), floats of one dtype, as (n, m)."""

    def against(self, Z: Array) -> KernelValues:
        """k(., Z) for fixed landmarks Z (m, d), what depends on them alone computed once."""
        return EachTime(self, Z)

    @abstractmethod
    def diag(self, X: Array) -> Array:
        """k(x, x) for the rows of X (n, d), as (n,)."""

    @property
    def needs_width(self) -> bool:
        """Whether a width must still be decided before the kernel can be evaluated."""
        return False

    def with_width(self, width: float) -> Self:
        """A copy with this width; of a composite, every part that has none yet gets it."""
        raise InputError(
            f"width={width!r} was given, but the {self.name} kernel has no width. "
            "Leave it out, or choose a kernel that has one, e.g. 'rbf'."
        )

    def default_width(self, sample: NDArray[Any]) -> float:
        """A width that suits the rows of `sample` (n, d): the rule is each kernel's own."""
        raise InputError(f"the {self.name} kernel has no width to choose. Leave width out.")

    def decide_width(self, rule: WidthRule) -> Self:
        """A copy in which whatever has no width yet has the one that `rule` gives it."""
        return self

    def check(self, X: Array, *, first_row: int = 0) -> None:
        """Raise `InputError` if X (n, d) has values the kernel is not defined for.

        For the message, `first_row` is the number of the first row of X in the data it is part of.
        """
        if not self.nonnegative:
            return
        place = first_negative(X)
        if place is None:
            return
        i, j = place
        raise InputError(
            f"row {first_row + i}, column {j} has {float(X[i, j]):.6g}, but the {self.name} kernel "
            "compares histograms and wants nonnegative values. Pass counts or frequencies, or use "
            "another kernel, e.g. 'rbf'."
        )

    def state_dict(self) -> dict[str, Any]:
        """The name and the parameters, all JSON-able; `kernel_from_state` is the way back."""
        parameters = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"name": self.name, **parameters}

    # What NumPy numbers ask before they take a kernel for an array of objects.
    __array_ufunc__: ClassVar[None] = None

    def __add__(self, other: object) -> "Kernel":
        """k1 + k2."""
        from knoi.kernels.composite import added  # built on this module

        return added(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: object) -> "Kernel":
        """k1 k2, or a kernel times a positive number."""
        from knoi.kernels.composite import multiplied, scaled

        if isinstance(other, Kernel):
            return multiplied(self, other)
        if isinstance(other, numbers.Number):
            return scaled(self, positive_number("weight", other))
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
        The length scale; None leaves it to be decided from data, by `default_width`.
    """

    width: float | None = None

    def __post_init__(self) -> None:
        if self.width is None:
            return
        if isinstance(self.width, str):
            raise InputTypeError(
                f"width={self.width!r} was given to a {self.name} kernel, which wants a number or "
                "None. Give a rule such as width='median' to the estimator instead."
            )
        object.__setattr__(self, "width", positive_number("width", self.width))

    @property
    def needs_width(self) -> bool:
        """Whether `width` is None."""
        return self.width is None

    def with_width(self, width: float) -> Self:
        """A copy with this width."""
        return dataclasses.replace(self, width=width)

    @abstractmethod
    def default_width(self, sample: NDArray[Any]) -> float:
        """A width that suits the rows of `sample` (n, d): the rule is each kernel's own."""

    def decide_width(self, rule: WidthRule) -> Self:
        """A copy with the width that `rule` gives this kernel, unless it has one."""
        return self.with_width(rule(self)) if self.needs_width else self

    @property
    def decided_width(self) -> float:
        """The width as a number; `InputError` if it is not decided yet."""
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
"""The kernels made of kernels, by the name of their state; users write `+` and `*` instead."""

K = TypeVar("K", bound=type[Kernel])


def register(kernel: K) -> K:
    """Class decorator: enter a kernel into `KERNELS` under its name."""
    KERNELS[kernel.name] = kernel
    return kernel


def register_composite(kernel: K) -> K:
    """Class decorator: enter a kernel made of kernels into `COMPOSITES` under its name."""
    COMPOSITES[kernel.name] = kernel
    return kernel


def resolve(kernel: str | Kernel) -> Kernel:
    """The kernel meant by a name, with default parameters, or by a kernel object."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        return _kernel_class(kernel)()
    came = f"the class {kernel.__name__}" if isinstance(kernel, type) else f"{kernel!r}"
    raise InputTypeError(
        f"kernel is {came}; a name or a kernel object is wanted. "
        f"Pass one of {_names()}, or an instance such as RBF(width=1.0)."
    )


def kernel_from_state(state: Mapping[str, Any]) -> Kernel:
    """The kernel whose `state_dict` this is; `InputError` if it cannot be one."""
    parameters = dict(state)
    name = parameters.pop("name", None)
    composite = COMPOSITES.get(name) if isinstance(name, str) else None
    kernel = composite or _kernel_class(name)
    known = {field.name for field in dataclasses.fields(kernel)}
    if unknown := sorted(map(str, parameters.keys() - known)):
        raise InputError(
            f"the {kernel.name} kernel has no parameter {unknown[0]!r}; it has "
            f"{', '.join(sorted(known)) or 'none'}. The state was altered or is from a newer knoi."
        )
    return kernel(**{key: _parsed(value) for key, value in parameters.items()})


def _plain(value: Any) -> Any:
    """A parameter as JSON holds it."""
    if isinstance(value, Kernel):
        return value.state_dict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _parsed(value: Any) -> Any:
    """The parameter that `_plain` wrote."""
    if isinstance(value, Mapping):
        return kernel_from_state(value)
    return tuple(_parsed(item) for item in value) if isinstance(value, list) else value


def positive_number(parameter: str, value: object) -> float:
    """`value` as a float, refused unless finite and > 0."""
    number = _real(parameter, value)
    if not (math.isfinite(number) and number > 0):
        raise InputError(
            f"{parameter}={value!r} cannot be used: a finite number greater than 0 is wanted."
        )
    return number


def nonnegative_number(parameter: str, value: object) -> float:
    """`value` as a float, refused unless finite and >= 0."""
    number = _real(parameter, value)
    if not (math.isfinite(number) and number >= 0):
        raise InputError(
            f"{parameter}={value!r} cannot be used: a finite number of at least 0 is wanted."
        )
    return number


def whole_number(parameter: str, value: object) -> int:
    """`value` as an int, refused if it is of any other kind (3.0 and True included)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputTypeError(f"{parameter}={value!r} cannot be used: an integer is wanted.")
    return int(value)


def _real(parameter: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputTypeError(f"{parameter}={value!r} cannot be used: a number is wanted.")
    return float(value)


def _kernel_class(name: object) -> type[Kernel]:
    if not isinstance(name, str) or name not in KERNELS:
        raise InputError(f"there is no kernel {name!r}. Pass one of {_names()}.")
    return KERNELS[name]


def _names() -> str:
    return ", ".join(repr(name) for name in sorted(KERNELS))
