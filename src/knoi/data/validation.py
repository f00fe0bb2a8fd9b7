"""What every view must be: a non-empty two-dimensional table of real numbers.

`label` is how the messages call the view: its name, and its path where it has one. Some phrases are
scikit-learn's, word for word, because its estimator checks look for them.
"""

import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.exceptions import InputError, InputTypeError

REAL_KINDS = "biuf"
# Arrays of these kinds are looked at element by element: they may hold numbers, or say what else.
ELEMENTWISE_KINDS = "OUST"


def check_shape(label: str, shape: tuple[int, ...]) -> None:
    """Refuse anything but at least one row and one column."""
    if len(shape) != 2:
        advice = (
            "Reshape your data with reshape(-1, 1) if it is a single feature "
            "or reshape(1, -1) if it is a single row."
            if len(shape) < 2
            else f"Reshape your data to one row a sample: reshape({shape[0]}, -1)."
        )
        raise InputError(
            f"{label}: Expected 2D array, got {len(shape)}D array instead (shape={shape}). {advice}"
        )
    for size, what in zip(shape, ("sample(s)", "feature(s)"), strict=True):
        if size < 1:
            raise InputError(
                f"{label}: Found array with {size} {what} (shape={shape}) "
                "while a minimum of 1 is required. Check how it was read or selected."
            )


def check_dtype(label: str, dtype: np.dtype[Any]) -> None:
    """Refuse anything but booleans, integers and real floating-point numbers."""
    if dtype.kind in REAL_KINDS:
        return
    if dtype.kind == "c":
        raise InputTypeError(
            f"{label}: Complex data not supported (dtype={dtype}). "
            "Pass the real and imaginary parts as separate columns."
        )
    if dtype.kind in "mM":
        raise InputTypeError(
            f"{label} has dtype {dtype}: dates and durations are not numbers. "
            "Convert them to features first, e.g. days since a date."
        )
    raise InputTypeError(
        f"{label} has dtype {dtype}: only real numbers can be used. "
        "Convert or encode it as numbers first."
    )


def numbers_from_objects(
    label: str,
    values: NDArray[Any],
    column_names: Sequence[str] | None = None,
    first_column: int = 0,
) -> NDArray[np.float64]:
    """A table of Python objects as float64, or an error that says which one is no number."""
    numbers = np.empty(values.shape, dtype=np.float64)  # (n, d)
    for (row, column), value in np.ndenumerate(values):
        try:
            if isinstance(value, str | bytes | complex | np.complexfloating):
                raise TypeError  # float() would take the text
            numbers[row, column] = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            place = describe_place(row, first_column + column, column_names)
            raise _no_number(label, value, place, error) from error
    return numbers


def describe_place(row: int, column: int, column_names: Sequence[str] | None) -> str:
    """Words for one cell of a view: "row 7, column 3 ('age')"."""
    named = "" if column_names is None else f" ({column_names[column]!r})"
    return f"row {row}, column {column}{named}"


def common_dtype(dtypes: Iterable[np.dtype[Any]]) -> np.dtype[Any]:
    """One dtype for the columns of a table: theirs if they agree, else the float that holds all."""
    distinct = set(dtypes)
    if len(distinct) == 1:
        return distinct.pop()
    fits = all(np.can_cast(dtype, np.float32) for dtype in distinct)
    return np.dtype(np.float32 if fits else np.float64)


def names_if_text(names: Iterable[Any]) -> tuple[str, ...] | None:
    """Column names where all of them are strings, else None."""
    listed = tuple(names)
    return listed if all(isinstance(name, str) for name in listed) else None


def _no_number(label: str, value: Any, place: str, error: Exception) -> InputTypeError:
    if isinstance(value, str | bytes):
        text = str(value) if isinstance(value, str) else bytes(value)  # no longer NumPy's own kind
        return InputTypeError(
            f"{label} has the string {reprlib.repr(text)} at {place}: only numbers can be used. "
            f"{_advice_on_text(text)}"
        )
    if isinstance(value, complex | np.complexfloating):
        return InputTypeError(
            f"{label}: Complex data not supported ({value} at {place}). "
            "Pass the real and imaginary parts as separate columns."
        )
    return InputTypeError(
        f"{label} has {reprlib.repr(value)} at {place}: {error}. "
        "Only numbers can be used: drop or encode this value first."
    )


def _advice_on_text(value: str | bytes) -> str:
    try:
        float(value)
    except ValueError:
        return "Encode text as numbers first (e.g. sklearn.preprocessing.OneHotEncoder)."
    return "Convert numbers stored as text first, e.g. with astype(float)."
