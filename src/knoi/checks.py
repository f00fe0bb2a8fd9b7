"""Checks of parameter values: counts, positive numbers, fractions, flags, names, pairs.

Each check returns the value as a plain Python int, float or bool. A value of the wrong type raises
`InputTypeError`, a value out of range `InputError`; the message says what came and what was wanted.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from math import inf
from numbers import Integral, Real
from typing import Any, TypeVar

from knoi.exceptions import InputError, InputTypeError

Value = TypeVar("Value")

# Names more similar than this, of 1 for equal ones, may be meant.
SIMILAR = 0.6


def is_integer(value: Any) -> bool:
    """Whether `value` is an integer of Python or NumPy; booleans and 3.0 are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_real(value: Any) -> bool:
    """Whether `value` is a real number of Python or NumPy; booleans are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def integer(name: str, value: Any, *, minimum: int | None = None, hint: str = "") -> int:
    """Check an integer, of at least `minimum` if given; `hint` is added to the message."""
    wanted = "a whole number" if minimum is None else f"a whole number >= {minimum}"
    if is_integer(value) and (minimum is None or value >= minimum):
        return int(value)
    error = InputError if is_integer(value) else InputTypeError
    raise error(f"{name}={value!r}: wanted {wanted}{hint}.")


def count(name: str, value: Any) -> int:
    """Check a whole number >= 1."""
    return integer(name, value, minimum=1)


def whole(name: str, value: Any) -> int:
    """Check a whole number >= 0."""
    return integer(name, value, minimum=0)


def positive(name: str, value: Any, *, infinite: bool = False) -> float:
    """Check a number > 0, finite unless `infinite`."""
    if infinite:
        return _number(name, value, lambda v: v > 0, "a number > 0")
    return _number(name, value, lambda v: 0 < v < inf, "a finite number > 0")


def at_least_zero(name: str, value: Any) -> float:
    """Check a finite number >= 0."""
    return _number(name, value, lambda v: 0 <= v < inf, "a finite number >= 0")


def at_least_zero_or_auto(name: str, value: Any) -> float | None:
    """Check a finite number >= 0, or "auto", which is returned as None."""
    if isinstance(value, str) and value == "auto":
        return None
    return _number(name, value, lambda v: 0 <= v < inf, "a finite number >= 0, or 'auto'")


def fraction(name: str, value: Any) -> float:
    """Check a number in [0, 1)."""
    return _number(name, value, lambda v: 0 <= v < 1, "a number from 0 to below 1")


@dataclass(frozen=True)
class Factor:
    """A width as a multiple of the median distance."""

    times: float


def width(name: str, value: Any) -> float | Factor | None:
    """Check a width: a number, "median" or a multiple of it ("0.5x"), or "auto", as None."""
    if isinstance(value, str):
        if value == "auto":
            return None
        times = 1.0 if value == "median" else 0.0
        if value.endswith("x"):
            with suppress(ValueError):
                times = float(value[:-1])
        if 0 < times < inf:
            return Factor(times)
    if is_real(value) and 0 < value < inf:
        return float(value)
    raise (InputError if is_real(value) else InputTypeError)(
        f"{name}={value!r}: wanted a positive, finite number, 'median', 'auto', a multiple of the "
        "median such as '0.5x', or a pair of these (one for X, one for Y)."
        f"{suggestion(value, ('median', 'auto'))}"
    )


def flag(name: str, value: Any) -> bool:
    """Check True or False."""
    import numpy as np  # here, so that `knoi --help` does not load it

    if not isinstance(value, bool | np.bool_):
        raise InputTypeError(f"{name}={value!r}: wanted True or False.")
    return bool(value)


def one_of(name: str, value: Any, known: Collection[str | None]) -> Any:
    """Check a name (or None) that is among the `known` ones."""
    if isinstance(value, str | None) and value in known:
        return value
    raise InputError(
        f"{name}={value!r}: wanted one of {', '.join(map(repr, known))}.{suggestion(value, known)}"
    )


def suggestion(value: Any, known: Iterable[str | None]) -> str:
    """The end of a message: " Did you mean 'rbf'?", or nothing if no known name is similar."""
    text = value if isinstance(value, str) else ""

    def similarity(name: str) -> float:
        # Of the letters in order, and in any order: letters are often swapped.
        pairs = (text, name), (sorted(text), sorted(name))
        return sum(SequenceMatcher(None, a, b).ratio() for a, b in pairs) / 2

    best = max(filter(None, known), key=similarity, default="")
    return f" Did you mean {best!r}?" if similarity(best) > SIMILAR else ""


def optional(check: Callable[[str, Any], Value], name: str, value: Any) -> Value | None:
    """Check `value` unless it is None."""
    return None if value is None else check(name, value)


def one_per_view(name: str, value: Any, check: Callable[[str, Any], Value]) -> tuple[Value, Value]:
    """Check one value for both views, or a pair with one for each."""
    if isinstance(value, list | tuple):
        if len(value) != 2:
            raise InputError(
                f"{name}={value!r} has {len(value)} entries: wanted one value, or a pair (one for "
                "X, one for Y)."
            )
        return check(name, value[0]), check(name, value[1])
    checked = check(name, value)
    return checked, checked


def _number(name: str, value: Any, valid: Callable[[float], bool], wanted: str) -> float:
    if is_real(value) and valid(float(value)):
        return float(value)
    error = InputError if is_real(value) else InputTypeError
    raise error(f"{name}={value!r}: wanted {wanted}.")
