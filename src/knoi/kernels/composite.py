"""Sums and products of kernels: `0.5 * RBF(1.0) + RBF(4.0)`, `RBF() * Chi2()`, `several_widths`."""

import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from knoi.arrays.backend import Array
from knoi.exceptions import InputError, InputTypeError
from knoi.kernels.combined_values import CombinedValues, by_speed, product_of, sum_of
from knoi.kernels.kernel import (
    Kernel,
    WidthKernel,
    WidthRule,
    positive_number,
    register_composite,
    resolve,
)
from knoi.kernels.landmark_values import EachTime, KernelValues


@dataclass(frozen=True, repr=False)
class CompositeKernel(Kernel):
    """A kernel made of kernels."""

    parts: tuple[Kernel, ...]

    @property
    def nonnegative(self) -> bool:  # type: ignore[override]
        """Whether some part is defined for nonnegative data only."""
        return any(part.nonnegative for part in self.parts)

    def check(self, X: Array, *, first_row: int = 0) -> None:
        """Raise `InputError` if X (n, d) has values that some part is not defined for."""
        for part in self.parts:
            part.check(X, first_row=first_row)

    @property
    def needs_width(self) -> bool:
        """Whether some part needs one."""
        return any(part.needs_width for part in self.parts)

    def with_width(self, width: float) -> Self:
        """A copy in which every part without a width has this one, times its factor if any."""
        if not self.needs_width:
            raise InputError(
                f"width={width!r} was given, but every part of {self!r} has its width, or has "
                "none to choose. Leave it out, or leave the width of a part open, e.g. RBF()."
            )
        return self.decide_width(lambda _part: width)

    def default_width(self, sample: NDArray[Any]) -> float:
        """Refused: each part has a width of its own."""
        raise InputError(
            f"a {self.name} of kernels has no single width: each part of {self!r} has its own. Use "
            "with_default_width(kernel, sample), which decides them all."
        )

    @abstractmethod
    def decide_width(self, rule: WidthRule) -> Self:
        """A copy in which whatever has no width yet has the one that `rule` gives it."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._expression()})"

    @abstractmethod
    def _expression(self) -> str:
        """How it is written by `+` and `*`."""


@register_composite
@dataclass(frozen=True, repr=False)
class SumKernel(CompositeKernel):
    """w_1 k_1 + w_2 k_2 + ...

    A sum among the parts is taken apart, so that sums are flat.

    Parameters
    ----------
    parts : sequence of Kernel or str
        The kernels.
    weights : sequence of float or None
        What each is multiplied by, greater than 0; None for 1 each.
    factors : sequence of float or None
        What the width is multiplied by that a part without one gets; None for 1 each.
    learn : bool
        Whether estimators learn the weights: those that align the kernels of the two views best
        on a sample of the rows (`learn_weights`). Parts of no use are dropped.
    """

    name: ClassVar[str] = "sum"
    weights: tuple[float, ...] = None  # type: ignore[assignment]  # a tuple once it is made
    factors: tuple[float, ...] = None  # type: ignore[assignment]
    learn: bool = False

    def __post_init__(self) -> None:
        given = _kernels(self.parts)
        if not isinstance(self.learn, bool):
            raise InputTypeError(f"learn={self.learn!r}: wanted True or False.")
        parts: list[Kernel] = []
        weights: list[float] = []
        factors: list[float] = []
        learn = self.learn
        for part, weight, factor in zip(
            given,
            _numbers("weights", self.weights, len(given)),
            _numbers("factors", self.factors, len(given)),
            strict=True,
        ):
            if factor != 1.0 and not (isinstance(part, WidthKernel) and part.needs_width):
                raise InputError(
                    f"factors has {factor:g} for {part!r}, but a factor is for a kernel whose "
                    "one width is still to be decided, e.g. RBF(). Make it 1."
                )
            if isinstance(part, SumKernel):
                parts += part.parts
                weights += [weight * own for own in part.weights]
                factors += part.factors
                learn = learn or part.learn
            else:
                parts.append(part)
                weights.append(weight)
                factors.append(factor)
        for field, value in (("parts", parts), ("weights", weights), ("factors", factors)):
            object.__setattr__(self, field, tuple(value))
        object.__setattr__(self, "learn", learn)

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        return sum_of(self.weights, (part(X, Z) for part in self.parts))

    def against(self, Z: Array) -> KernelValues:
        """Every part in its own fast way, where it has one."""
        fast, slow = by_speed(self.parts, Z)
        if not fast:
            return EachTime(self, Z)
        values = [value for _, value in fast]
        weights = [self.weights[i] for i, _ in fast]
        if slow:
            rest = SumKernel(
                tuple(self.parts[i] for i in slow), tuple(self.weights[i] for i in slow)
            )
            values.append(EachTime(rest, Z))
            weights.append(1.0)
        return CombinedValues(tuple(values), tuple(weights), Z)

    def diag(self, X: Array) -> Array:
        """k(x, x) for the rows of X (n, d), as (n,)."""
        return sum_of(self.weights, (part.diag(X) for part in self.parts))

    def decide_width(self, rule: WidthRule) -> Self:
        """A copy in which every part without a width has what `rule` gives it, times its factor."""

        def times(factor: float) -> WidthRule:
            return lambda part: factor * rule(part)

        parts = tuple(
            part.decide_width(times(factor))
            for part, factor in zip(self.parts, self.factors, strict=True)
        )
        return dataclasses.replace(self, parts=parts, factors=(1.0,) * len(parts))

    def with_weights(self, weights: Sequence[float]) -> Kernel:
        """The sum with weights that were learned; parts of weight 0 are dropped."""
        kept = [i for i, weight in enumerate(weights) if weight > 0]
        if len(kept) == 1:
            return scaled(self.parts[kept[0]], weights[kept[0]])
        return SumKernel(
            tuple(self.parts[i] for i in kept),
            tuple(weights[i] for i in kept),
            tuple(self.factors[i] for i in kept),
        )

    def _expression(self) -> str:
        terms = []
        for part, weight, factor in zip(self.parts, self.weights, self.factors, strict=True):
            term = _expression(part)
            if factor != 1.0:
                term = term.replace("width=None", f"width={factor:g} * default")
            terms.append(term if weight == 1.0 else f"{weight:g} * {term}")
        return " + ".join(terms) + (", learn=True" if self.learn else "")


@register_composite
@dataclass(frozen=True, repr=False)
class ProductKernel(CompositeKernel):
    """k_1 k_2 ...

    A product among the parts is taken apart, so that products are flat.

    Parameters
    ----------
    parts : sequence of Kernel or str
        The kernels.
    """

    name: ClassVar[str] = "product"

    def __post_init__(self) -> None:
        parts: list[Kernel] = []
        for part in _kernels(self.parts):
            if isinstance(part, SumKernel) and part.learn:
                raise InputError(
                    f"{part!r} is a factor of a product, where its weights cannot be learned. "
                    "Multiply out: a sum of products, SumKernel([...], learn=True)."
                )
            parts += part.parts if isinstance(part, ProductKernel) else (part,)
        object.__setattr__(self, "parts", tuple(parts))

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        return product_of(part(X, Z) for part in self.parts)

    def against(self, Z: Array) -> KernelValues:
        """Every part in its own fast way, where it has one."""
        fast, slow = by_speed(self.parts, Z)
        if not fast:
            return EachTime(self, Z)
        values = [value for _, value in fast]
        if slow:
            values.append(EachTime(ProductKernel(tuple(self.parts[i] for i in slow)), Z))
        return CombinedValues(tuple(values), None, Z)

    def diag(self, X: Array) -> Array:
        """k(x, x) for the rows of X (n, d), as (n,)."""
        return product_of(part.diag(X) for part in self.parts)

    def decide_width(self, rule: WidthRule) -> Self:
        """A copy in which every part without a width has what `rule` gives it."""
        return dataclasses.replace(self, parts=tuple(p.decide_width(rule) for p in self.parts))

    def _expression(self) -> str:
        terms = (
            f"({_expression(part)})" if isinstance(part, SumKernel) else _expression(part)
            for part in self.parts
        )
        return " * ".join(terms)


def several_widths(
    kernel: str | Kernel,
    factors: Sequence[float] = (0.5, 1.0, 2.0),
    weights: Sequence[float] | None = None,
    *,
    learn: bool = False,
) -> SumKernel:
    """The sum of one kernel at several widths: each factor times its width.

    A kernel without a width gets it in `fit`, as always: `several_widths(RBF())` is half, once and
    twice the median distance. With `learn`, `fit` weighs the widths (see `SumKernel`).
    """
    one = resolve(kernel)
    if not isinstance(one, WidthKernel):
        raise InputError(
            f"several_widths wants a kernel with a width, e.g. RBF(), but got {one!r}. "
            "Of a sum or product, take several widths of its parts."
        )
    numbers = _numbers("factors", factors, len(tuple(factors)))
    if one.width is None:
        return SumKernel((one,) * len(numbers), _tuple(weights), numbers, learn)
    own = one.width
    parts = tuple(one.with_width(factor * own) for factor in numbers)
    return SumKernel(parts, _tuple(weights), learn=learn)


def added(one: Kernel, other: Kernel) -> SumKernel:
    """k_1 + k_2."""
    return SumKernel((one, other))


def scaled(kernel: Kernel, weight: float) -> Kernel:
    """A weight times a kernel; 1 times it is the kernel itself."""
    return kernel if weight == 1.0 else SumKernel((kernel,), (weight,))


def multiplied(one: Kernel, other: Kernel) -> Kernel:
    """k_1 k_2; numbers that either is multiplied by go in front."""
    weight = 1.0
    parts: list[Kernel] = []
    for kernel in (one, other):
        if isinstance(kernel, SumKernel) and len(kernel.parts) == 1 and kernel.factors == (1.0,):
            weight *= kernel.weights[0]
            parts.append(kernel.parts[0])
        else:
            parts.append(kernel)
    return scaled(ProductKernel(tuple(parts)), weight)


def _expression(kernel: Kernel) -> str:
    """A kernel inside the repr of another."""
    return kernel._expression() if isinstance(kernel, CompositeKernel) else repr(kernel)


def _kernels(parts: Any) -> tuple[Kernel, ...]:
    if isinstance(parts, str | Kernel) or not isinstance(parts, Iterable):
        raise InputTypeError(f"parts={parts!r}: wanted a list of kernels, e.g. [RBF(), Linear()].")
    kernels = tuple(resolve(part) for part in parts)
    if not kernels:
        raise InputError("parts is empty: wanted at least one kernel.")
    return kernels


def _numbers(what: str, values: Any, wanted: int) -> tuple[float, ...]:
    """One positive number a part; None for ones."""
    if values is None:
        return (1.0,) * wanted
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputTypeError(f"{what}={values!r}: wanted a list of numbers, one for each kernel.")
    numbers = tuple(positive_number(f"{what}[{i}]", value) for i, value in enumerate(values))
    if len(numbers) != wanted or not numbers:
        raise InputError(
            f"{what} has {len(numbers)} numbers for {wanted} kernels: wanted one for each."
        )
    return numbers


def _tuple(values: Sequence[float] | None) -> Any:
    return None if values is None else tuple(values)
