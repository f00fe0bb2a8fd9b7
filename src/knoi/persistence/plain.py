"""What a header may hold: JSON values in Python's own types, NaN and infinities included."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from knoi.exceptions import InputError, InputTypeError

# JSON has no NaN or infinity, so these travel as {"$float": "nan"}.
_FLOAT_TAG = "$float"
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# Bounds that keep every header readable: Python's recursion, and its refusal to print or parse
# integers beyond 4300 digits.
_MAX_DEPTH = 100
_MAX_INTEGER_BITS = 4096


def plain_mapping(value: Mapping[str, Any], where: str, depth: int = 0) -> dict[str, Any]:
    """The mapping and all in it in Python's own types; `where` is its path, for errors."""
    if not isinstance(value, Mapping):
        raise InputTypeError(f"{where} is of type {type(value).__name__}. Give a dict.")
    check_depth(depth, where)
    plain = {}
    for key, item in value.items():
        name = checked_key(key, where)
        plain[name] = plain_value(item, f"{where}[{name!r}]", depth + 1)
    return plain


def plain_value(value: Any, where: str, depth: int) -> Any:
    """Return the value in Python's own types, or refuse it by the path that leads to it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, str):
        return str.__str__(value)  # a subclass may print as something else
    if isinstance(value, int | np.integer):
        number = int(value)
        if number.bit_length() > _MAX_INTEGER_BITS:
            raise InputError(
                f"{where} is an integer of {number.bit_length()} bits; a model file takes at most "
                f"{_MAX_INTEGER_BITS}. Store it as a string."
            )
        return number
    if isinstance(value, float) or (isinstance(value, np.floating) and value.itemsize <= 8):
        return float(value)
    if isinstance(value, list | tuple):
        check_depth(depth, where)
        return [plain_value(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return plain_mapping(value, where, depth)
    advice = (
        "Store arrays as tensors, in dicts and not in lists."
        if isinstance(value, np.ndarray)
        else "Convert it first."
    )
    raise InputTypeError(
        f"{where} is of type {type(value).__name__}; a model file takes strings, numbers, "
        f"booleans, None, lists and dicts. {advice}"
    )


def checked_key(key: Any, where: str) -> str:
    """The key, if a model file can hold it."""
    if not isinstance(key, str):
        raise InputTypeError(
            f"{where} has the key {key!r} of type {type(key).__name__}; the keys of a model file "
            "are strings. Convert it first."
        )
    if key == _FLOAT_TAG:
        raise InputError(
            f"{where} has the key {key!r}, by which a model file marks NaN and infinities. "
            "Rename the key."
        )
    return str.__str__(key)


def check_depth(depth: int, where: str) -> None:
    """Refuse what is nested without end."""
    if depth > _MAX_DEPTH:
        raise InputError(
            f"{where[:60]}... is nested more than {_MAX_DEPTH} deep; perhaps it contains itself. "
            "Flatten it."
        )


def tag_non_finite(value: Any) -> Any:
    """The value with NaN and infinities as tagged dicts."""
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT_TAG: repr(value)}
    if isinstance(value, list):
        return [tag_non_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: tag_non_finite(item) for key, item in value.items()}
    return value


def untag_non_finite(read: dict[str, Any]) -> Any:
    """Back from a tagged dict; a hook for `json.loads`."""
    return _NON_FINITE[read[_FLOAT_TAG]] if _FLOAT_TAG in read else read


def refuse_constant(token: str) -> None:
    """Refuse the NaN that Python's JSON would otherwise read; a hook for `json.loads`."""
    raise ValueError(f"{token} is not JSON")
