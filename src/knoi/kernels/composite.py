"""Sums and products of kernels: `0.5 * RBF(1.0) + RBF(4.0)`, `RBF() * Chi2()`, `several_widths`."""

import dataclasses
import operator
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, Self

import numpy as np

from knoi import checks
from knoi.arrays.backend import Array
from knoi.arrays.sparse import PreparedParts, is_sparse
from knoi.exceptions import InputError, InputTypeError
from knoi.kernels.base import COMPOSITES, Kernel, WidthKernel, WidthRule, resolve
from knoi.kernels.distances import DirectValues, LandmarkValues


@dataclass(frozen=True, repr=False)
class CompositeKernel(Kernel):
    """A kernel made of kernels."""

    per_part: ClassVar[tuple[str, ...]]
    """Names of the parameters that have one value per part."""

    parts: tuple[Kernel, ...]

    def __call__(self, X: Array, Z: Array) -> Array:
        """Evaluate k between the rows of X (n, d) and Z (m, d), as (n, m)."""
        return _combined(self._weights, (part(X, Z) for part in self.parts))

    def diag(self, X: Array) -> Array:
        """k(x, x) for the rows of X (n, d), as (n,)."""
        return _combined(self._weights, (part.diag(X) for part in self.parts))

    @property
    def has_gradient(self) -> bool:
        """Whether all parts have one."""
        return all(part.has_gradient for part in self.parts)

    def gradient(self, X: Array, Z: Array, C: Array) -> Array:
        """Sum over j of C[i, j] times the gradient of k(x_i, z_j) in x_i, as (n, d)."""
        weights = self._weights
        if weights is not None:
            parts = zip(self.parts, weights, strict=True)
            return sum(part.gradient(X, Z, weight * C) for part, weight in parts)
        values = [part(X, Z) for part in self.parts]
        G = 0.0
        for i, part in enumerate(self.parts):
            others = values[:i] + values[i + 1 :]
            G = G + part.gradient(X, Z, reduce(operator.mul, others, C))
        return G

    def at_landmarks(self, Z: Array) -> LandmarkValues:
        """Each part by its fast method, if it has one; the others together, by the kernel."""
        values = [part.at_landmarks(Z) for part in self.parts]
        slow = [i for i, value in enumerate(values) if isinstance(value, DirectValues)]
        fast = [i for i in range(len(values)) if i not in slow]
        if not fast:
            return DirectValues(self, Z)
        chosen = [values[i] for i in fast]
        weights = self._weights and [self._weights[i] for i in fast]
        if slow:
            chosen.append(DirectValues(self._subset(slow), Z))
            weights = weights and [*weights, 1.0]
        return CombinedValues(chosen, weights, int(Z.shape[0]))

    @property
    def nonnegative(self) -> bool:  # type: ignore[override]
        """Whether some part is defined for nonnegative data only."""
        return any(part.nonnegative for part in self.parts)

    def check(self, X: Array, *, first_row: int = 0) -> None:
        """Raise `InputError` if X (n, d) has values for which some part is not defined."""
        for part in self.parts:
            part.check(X, first_row=first_row)

    @property
    def needs_width(self) -> bool:
        """Whether some part needs one."""
        return any(part.needs_width for part in self.parts)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._expression()})"

    @property
    def _weights(self) -> Sequence[float] | None:
        """Weights of a sum; None for a product."""
        return getattr(self, "weights", None)

    def _subset(self, indices: Sequence[int]) -> Self:
        """The same kernel of some of the parts."""
        kept = {name: tuple(getattr(self, name)[i] for i in indices) for name in self.per_part}
        return dataclasses.replace(self, **kept)

    @abstractmethod
    def _expression(self) -> str:
        """The kernel written with `+` and `*`."""


@dataclass(frozen=True, repr=False)
class SumKernel(CompositeKernel):
    """w_1 k_1 + w_2 k_2 + ...

    Sums among the parts are flattened.

    Parameters
    ----------
    parts : sequence of Kernel or str
        The kernels.
    weights : sequence of float or None
        Factor of each kernel, greater than 0; None for 1 each.
    factors : sequence of float or None
        Factor of the width that a part without one gets; None for 1 each.
    learn : bool
        Whether estimators learn the weights: those that best align the kernels of the two views
        on a sample of the rows (`learn_weights`). Parts with negligible weight are dropped.
    """

    name: ClassVar[str] = "sum"
    per_part: ClassVar[tuple[str, ...]] = ("parts", "weights", "factors")
    weights: tuple[float, ...] = None  # type: ignore[assignment]  # a tuple after __post_init__
    factors: tuple[float, ...] = None  # type: ignore[assignment]
    learn: bool = False

    def __post_init__(self) -> None:
        parts = _kernels(self.parts)
        given = (_numbers(name, getattr(self, name), len(parts)) for name in self.per_part[1:])
        learn = checks.flag("learn", self.learn)
        flat: list[tuple[Kernel, float, float]] = []
        for part, weight, factor in zip(parts, *given, strict=True):
            if factor != 1.0 and not (isinstance(part, WidthKernel) and part.needs_width):
                raise InputError(
                    f"factors has {factor:g} for {part!r}, but a factor is for a kernel whose "
                    "width is not chosen yet, e.g. RBF(). Make it 1."
                )
            if isinstance(part, SumKernel):
                weights = (weight * own for own in part.weights)
                flat += zip(part.parts, weights, part.factors, strict=True)
                learn = learn or part.learn
            else:
                flat.append((part, weight, factor))
        for field, values in zip(self.per_part, zip(*flat, strict=True), strict=True):
            object.__setattr__(self, field, values)
        object.__setattr__(self, "learn", learn)

    def decide_width(self, rule: WidthRule) -> Self:
        """A copy in which every part without a width has what `rule` returns, times its factor."""

        def times(factor: float) -> WidthRule:
            return lambda part: factor * rule(part)

        pairs = zip(self.parts, self.factors, strict=True)
        parts = tuple(part.decide_width(times(factor)) for part, factor in pairs)
        return dataclasses.replace(self, parts=parts, factors=(1.0,) * len(parts))

    def with_weights(self, weights: Sequence[float]) -> Kernel:
        """The sum with learned weights; parts of weight 0 are dropped."""
        kept = [i for i, weight in enumerate(weights) if weight > 0]
        if len(kept) == 1:
            return scaled(self.parts[kept[0]], weights[kept[0]])
        chosen = tuple(weights[i] for i in kept)
        return dataclasses.replace(self._subset(kept), weights=chosen, learn=False)

    def _expression(self) -> str:
        terms = []
        for part, weight, factor in zip(self.parts, self.weights, self.factors, strict=True):
            term = _expression(part)
            if factor != 1.0:
                term = term.replace("width=None", f"width={factor:g} * default")
            terms.append(term if weight == 1.0 else f"{weight:g} * {term}")
        return " + ".join(terms) + (", learn=True" if self.learn else "")


@dataclass(frozen=True, repr=False)
class ProductKernel(CompositeKernel):
    """k_1 k_2 ...

    Products among the parts are flattened.

    Parameters
    ----------
    parts : sequence of Kernel or str
        The kernels.
    """

    name: ClassVar[str] = "product"
    per_part: ClassVar[tuple[str, ...]] = ("parts",)

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

    def decide_width(self, rule: WidthRule) -> Self:
        """A copy in which every part without a width has what `rule` returns."""
        return dataclasses.replace(self, parts=tuple(p.decide_width(rule) for p in self.parts))

    def _expression(self) -> str:
        terms = (
            f"({_expression(part)})" if isinstance(part, SumKernel) else _expression(part)
            for part in self.parts
        )
        return " * ".join(terms)


COMPOSITES.update({"sum": SumKernel, "product": ProductKernel})


def several_widths(
    kernel: str | Kernel,
    factors: Sequence[float] = (0.5, 1.0, 2.0),
    weights: Sequence[float] | None = None,
    *,
    learn: bool = False,
) -> SumKernel:
    """The sum of one kernel at several widths: each factor times its width.

    A kernel without a width gets it in `fit`: `several_widths(RBF())` has half, once and twice the
    median distance. With `learn`, `fit` learns the weights (see `SumKernel`).
    """
    one = resolve(kernel)
    if not isinstance(one, WidthKernel):
        raise InputError(
            f"several_widths needs a kernel with a width, e.g. RBF(), but got {one!r}. "
            "For a sum or product, use several widths of its parts."
        )
    numbers = _numbers("factors", factors, len(tuple(factors)))
    given: Any = weights
    if one.width is None:
        return SumKernel((one,) * len(numbers), given, numbers, learn)
    parts = tuple(one.with_width(factor * one.width) for factor in numbers)
    return SumKernel(parts, given, learn=learn)


def scaled(kernel: Kernel, weight: float) -> Kernel:
    """A weight times a kernel; the kernel itself for weight 1."""
    return kernel if weight == 1.0 else SumKernel((kernel,), (weight,))


def multiplied(one: Kernel, other: Kernel) -> Kernel:
    """k_1 k_2; constant factors of either are moved to the front."""
    weight = 1.0
    parts: list[Kernel] = []
    for kernel in (one, other):
        if isinstance(kernel, SumKernel) and len(kernel.parts) == 1 and kernel.factors == (1.0,):
            weight *= kernel.weights[0]
            parts.append(kernel.parts[0])
        else:
            parts.append(kernel)
    return scaled(ProductKernel(tuple(parts)), weight)


@dataclass(frozen=True)
class CombinedValues:
    """Sum (with weights) or product (without) of kernel values at the same landmarks."""

    values: Sequence[LandmarkValues]
    weights: Sequence[float] | None
    n_landmarks: int

    def prepare(self, X: Array) -> PreparedParts:
        """Rows prepared by each part; sparse rows in float64, as fast parts need them."""
        rows = X.astype(np.float64, copy=False) if is_sparse(X) else X
        return PreparedParts(tuple(value.prepare(rows) for value in self.values))

    def block(self, prepared: PreparedParts, columns: slice, out: Array | None = None) -> Array:
        """Evaluate the first part in place and combine the others with it."""
        blocks = (
            value.block(rows, columns, None if i else out)
            for i, (value, rows) in enumerate(zip(self.values, prepared.parts, strict=True))
        )
        return _combined(self.weights, blocks)

    def scratch_per_row(self) -> int:
        """Scratch of the parts, and the block to combine."""
        return sum(value.scratch_per_row() for value in self.values) + self.n_landmarks


def _combined(weights: Sequence[float] | None, values: Iterable[Array]) -> Array:
    """Sum of arrays with weights, or their product without; overwrites them."""
    result = None
    for i, value in enumerate(values):
        if weights is not None and weights[i] != 1.0:
            value *= weights[i]
        if result is None:
            result = value
        elif weights is None:
            result *= value
        else:
            result += value
    return result


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


def _numbers(what: str, values: Any, expected: int) -> tuple[float, ...]:
    """One positive number per part; None for ones."""
    if values is None:
        return (1.0,) * expected
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputTypeError(f"{what}={values!r}: wanted a list of numbers, one per kernel.")
    numbers = tuple(checks.positive(f"{what}[{i}]", value) for i, value in enumerate(values))
    if len(numbers) != expected or not numbers:
        raise InputError(
            f"{what} has {len(numbers)} numbers for {expected} kernels: wanted one each."
        )
    return numbers
