"""What every metric asks of its arrays, checked once at the door."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.exceptions import InputError, InputTypeError, NonFiniteError

_ROWS_AT_A_TIME = 65_536


def projection_matrix(values: Any, name: str, *, min_rows: int = 1) -> NDArray[Any]:
    """`values` as a finite real 2-D array in the dtype it came in; messages call it `name`."""
    try:
        Z: NDArray[Any] = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputTypeError(
            f"{name} cannot be read as an array ({error}). Pass a 2-D array of numbers."
        ) from error
    if Z.dtype.kind not in "biuf":
        raise InputTypeError(
            f"{name} has dtype {Z.dtype}: projections are real numbers. "
            "Pass a 2-D array of float32 or float64."
        )
    if Z.ndim != 2:
        raise InputError(
            f"{name} has shape {Z.shape}: wanted 2-D, one row per sample and one column per "
            "component. A single component is reshaped with Z[:, None]."
        )
    n, L = Z.shape
    if n < min_rows:
        raise InputError(
            f"{name} has {n} row{'' if n == 1 else 's'}: at least {min_rows} are needed. "
            "Pass more samples."
        )
    if L == 0:
        raise InputError(f"{name} has no columns: at least one component is needed.")
    if Z.dtype.itemsize > 8:  # long double: the metrics work in float64
        Z = Z.astype(np.float64)
    if Z.dtype.kind == "f":
        _refuse_non_finite(Z, name)
    return Z


def paired_projections(
    Zx: Any, Zy: Any, names: tuple[str, str] = ("Zx", "Zy"), *, same_width: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two checked projections with the same rows (at least 2), and the same width if asked."""
    Zx = projection_matrix(Zx, names[0], min_rows=2)
    Zy = projection_matrix(Zy, names[1], min_rows=2)
    if len(Zx) != len(Zy):
        raise InputError(
            f"{names[0]} has {len(Zx)} rows but {names[1]} has {len(Zy)}: "
            "the views are paired row by row. Drop the unpaired rows."
        )
    if same_width:
        refuse_unequal_width(Zx, Zy, names)
    return Zx, Zy


def refuse_unequal_width(A: NDArray[Any], B: NDArray[Any], names: tuple[str, str]) -> None:
    """Raise unless both have the same number of columns."""
    if A.shape[1] != B.shape[1]:
        raise InputError(
            f"{names[0]} has {A.shape[1]} columns but {names[1]} has {B.shape[1]}: component j of "
            "one is compared with component j of the other. Pass the same number of components."
        )


def _refuse_non_finite(Z: NDArray[Any], name: str) -> None:
    # In pieces, so that the mask stays small beside a large Z.
    for start in range(0, len(Z), _ROWS_AT_A_TIME):
        bad = ~np.isfinite(Z[start : start + _ROWS_AT_A_TIME])
        if bad.any():
            row, column = (int(at[0]) for at in np.nonzero(bad))
            raise NonFiniteError(
                f"{name} holds {Z[start + row, column]} at row {start + row}, column {column}: "
                "every value must be finite. Drop that row from both views, or find out where "
                "it comes from."
            )
