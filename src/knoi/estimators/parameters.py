"""What constructors were given, checked once in `fit`: counts, pairs, kernels, widths."""

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np

from knoi.data.pairs import PairSource, RowPair
from knoi.exceptions import InputError, InputTypeError
from knoi.kernels import Kernel, resolve, with_default_width, with_learned_weights

Value = TypeVar("Value")

# The median trick of the paper looks at this many rows.
WIDTH_SAMPLE = 4000
CHECK_ROWS = 4096


def count(name: str, value: Any) -> int:
    """A whole number >= 1."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputTypeError(f"{name}={value!r}: wanted a whole number >= 1.")
    if value < 1:
        raise InputError(f"{name}={value!r}: wanted a whole number >= 1.")
    return int(value)


def one_per_view(name: str, value: Any, check: Callable[[str, Any], Value]) -> tuple[Value, Value]:
    """`value` for both views, or a pair with one for each."""
    if isinstance(value, list | tuple):
        if len(value) != 2:
            raise InputError(
                f"{name}={value!r} has {len(value)} entries: wanted one value, or a pair (one for "
                "X, one for Y)."
            )
        return check(name, value[0]), check(name, value[1])
    checked = check(name, value)
    return checked, checked


def regulariser(name: str, value: Any) -> float:
    """A finite number >= 0."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputTypeError(f"{name}={value!r}: wanted a number >= 0, or a pair of them.")
    if not 0 <= float(value) < np.inf:
        raise InputError(f"{name}={value!r}: wanted a finite number >= 0, or a pair of them.")
    return float(value)


def rank_for(rank: Any, n_components: int) -> int:
    """A rank that can hold the components."""
    checked = count("rank", rank)
    if checked < count("n_components", n_components):
        raise InputError(
            f"rank={rank} is below n_components={n_components}: features of that rank hold no more "
            "components. Raise rank (a few thousand is usual) or lower n_components."
        )
    return checked


def whole(name: str, value: Any) -> int:
    """A whole number >= 0."""
    return 0 if not isinstance(value, bool) and value == 0 else count(name, value)


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputTypeError(f"{name}={value!r}: wanted True or False.")
    return bool(value)


def positive(name: str, value: Any, *, infinite: bool = False) -> float:
    """A number > 0, finite unless `infinite`."""
    number = _real(name, value, "a number > 0")
    if not number > 0 or (number == np.inf and not infinite):
        raise InputError(f"{name}={value!r}: wanted a {'' if infinite else 'finite '}number > 0.")
    return number


def at_least_zero(name: str, value: Any) -> float:
    """A finite number >= 0."""
    number = _real(name, value, "a number >= 0")
    if not 0 <= number < np.inf:
        raise InputError(f"{name}={value!r}: wanted a finite number >= 0.")
    return number


def fraction(name: str, value: Any) -> float:
    """A number in [0, 1)."""
    number = _real(name, value, "a number from 0 to below 1")
    if not 0 <= number < 1:
        raise InputError(f"{name}={value!r}: wanted a number from 0 to below 1.")
    return number


def _real(name: str, value: Any, wanted: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputTypeError(f"{name}={value!r}: wanted {wanted}.")
    return float(value)


def kernels_for(
    kernel: Any, width: Any, pairs: PairSource, seed: int
) -> tuple[tuple[Kernel, Kernel], RowPair]:
    """One kernel a view, its width decided: its own, else `width`, else the median trick.

    Of a sum or product, every part so; then weights are learned where a sum asks for it. The sample
    of rows that all this came from is handed on.

    A kernel that is not defined everywhere has all the data checked first, so that a value it
    cannot take is named by its row before anything is computed.
    """
    kernels = one_per_view("kernel", kernel, lambda _name, one: resolve(one))
    widths = one_per_view("width", width, _width)
    if any(one.nonnegative for one in kernels):
        for start, stop in pairs.chunks(CHECK_ROWS):
            for name, one, rows in zip("XY", kernels, pairs.read(start, stop), strict=True):
                check_domain(name, one, rows, start)
    samples = pairs.sample(WIDTH_SAMPLE, seed)
    x, y = (_with_width(*view) for view in zip("XY", kernels, widths, samples, strict=True))
    return with_learned_weights((x, y), samples, seed), samples


def check_domain(view: str, kernel: Kernel, rows: Any, first_row: int) -> None:
    """Refuse rows the kernel is not defined for, naming the view."""
    try:
        kernel.check(rows, first_row=first_row)
    except InputError as error:
        raise InputError(f"view {view}: {error}") from None


def _width(name: str, value: Any) -> float | None:
    if isinstance(value, str) and value == "median":
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputTypeError(
            f"{name}={value!r}: wanted a positive number, 'median', or a pair of these (one for X, "
            "one for Y)."
        )
    if not 0 < float(value) < np.inf:
        raise InputError(f"{name}={value!r}: wanted a positive, finite number.")
    return float(value)


def _with_width(view: str, kernel: Kernel, width: float | None, sample: Any) -> Kernel:
    try:
        if width is None:
            return with_default_width(kernel, sample)
        return kernel.decide_width(lambda _part: width)
    except InputError as error:
        raise InputError(f"view {view}: {error}") from None
