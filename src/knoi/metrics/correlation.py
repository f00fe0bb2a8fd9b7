r"""Correlation of projections: total canonical correlation by two measures, and per component.

*refit*, :math:`\sum_i \sigma_i` of a fresh linear CCA on the projections themselves, is what the
KNOI paper's Table 1 reports. *fitted*, :math:`\sum_i \mathrm{corr}(Z_x[:, i], Z_y[:, i])`, takes
the components as they are; it is what a user of `transform` gets, and what Lopez-Paz et al. (2014)
report.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from knoi.checks import one_of
from knoi.data.source import check_finite
from knoi.exceptions import InputError, InputTypeError

Float64 = NDArray[np.float64]
RowFunction = Callable[[NDArray[Any]], Float64]  # of rows (n, L)
Measure = Literal["refit", "fitted"]

# Rows per block: 2048 x 2 L doubles stay in cache, which makes the QR 3x faster than one of all
# rows.
_BLOCK_ROWS = 2048


def canonical_correlations(Zx: Any, Zy: Any) -> Float64:
    """Canonical correlations of a fresh linear CCA between two projections.

    Parameters
    ----------
    Zx : array of shape (n, Lx)
    Zy : array of shape (n, Ly)

    Returns
    -------
    array of shape (min(Lx, Ly),)
        In [0, 1], descending. Directions a view does not have (constant, duplicated or otherwise
        dependent columns, fewer rows than columns) count as 0.

    Notes
    -----
    Invariant to an invertible linear map of either view. A direction is taken to be absent when
    its spread is within the rounding of the dtype the projections came in, so the columns may
    differ in scale and offset by many orders of magnitude.
    """
    Zx, Zy = paired_projections(Zx, Zy, same_width=False)
    return _linear_cca(Zx, Zy)[0]


def component_correlations(Zx: Any, Zy: Any) -> Float64:
    """Pearson correlation of each column of `Zx` with the same column of `Zy`.

    Parameters
    ----------
    Zx, Zy : arrays of shape (n, L)

    Returns
    -------
    array of shape (L,)
        In [-1, 1]; 0 where either column is constant.
    """
    Zx, Zy = paired_projections(Zx, Zy, same_width=True)
    x, y = _standardizer(Zx), _standardizer(Zy)
    Sxx, Syy, Sxy = np.zeros((3, Zx.shape[1]))
    for rows in row_blocks(len(Zx)):
        A, B = x(Zx[rows]), y(Zy[rows])
        Sxx += (A * A).sum(axis=0)
        Syy += (B * B).sum(axis=0)
        Sxy += (A * B).sum(axis=0)
    varies = _varies(Sxx, Zx) & _varies(Syy, Zy)
    correlations = np.zeros(len(Sxy))
    correlations[varies] = Sxy[varies] / (np.sqrt(Sxx[varies]) * np.sqrt(Syy[varies]))
    return np.clip(correlations, -1.0, 1.0)


def total_correlation(
    Zx: Any,
    Zy: Any,
    measure: Measure = "refit",
    *,
    fit_on: tuple[Any, Any] | None = None,
    n_components: int | None = None,
) -> float:
    """Total canonical correlation of two projections, by one of its two measures.

    Parameters
    ----------
    Zx, Zy : arrays of shape (n, L)
        Projections of held-out pairs. "refit" allows different widths.
    measure : {"refit", "fitted"}
        "refit": the sum of `canonical_correlations`. "fitted": the sum of
        `component_correlations`.
    fit_on : (Zx_train, Zy_train), optional
        For "fitted": align the components first by a linear CCA fitted on these training
        projections. For projections no CCA has aligned yet; the widths may then differ.
    n_components : int, optional
        Add up only this many leading components; all of them by default.

    Returns
    -------
    float
        At most min(Lx, Ly).

    Notes
    -----
    "refit" is at least "fitted" when the components of each view are uncorrelated among
    themselves, as those of a fitted CCA are on its training data. In general
    ``fitted <= refit * sqrt(ax * ay)``, with ax and ay the largest eigenvalues of the correlation
    matrices of `Zx` and `Zy`: "fitted" counts a repeated component each time, "refit" once.
    """
    one_of("measure", measure, get_args(Measure))
    if measure == "refit":
        if fit_on is not None:
            raise InputError(
                'fit_on was given with measure="refit", which fits on the projections it scores. '
                'Leave fit_on out, or pass measure="fitted".'
            )
        return float(canonical_correlations(Zx, Zy)[:n_components].sum())
    if fit_on is None:
        return float(component_correlations(Zx, Zy)[:n_components].sum())

    Zx, Zy = paired_projections(Zx, Zy, same_width=False)
    names = ("fit_on[0]", "fit_on[1]")
    Zx_train, Zy_train = paired_projections(*fit_on, names, same_width=False)
    check_same_width(Zx, Zx_train, ("Zx", names[0]))
    check_same_width(Zy, Zy_train, ("Zy", names[1]))
    _, x, y = _linear_cca(Zx_train, Zy_train)
    aligned = component_correlations(x(Zx), y(Zy))
    return float(aligned[:n_components].sum())


def unit_columns(Z: NDArray[Any]) -> tuple[Float64, Float64]:
    """Columns of checked Z (n, L) centred and at length 1, and weights that make them orthonormal.

    Constant columns become 0. The weights (L, rank) leave out directions that Z does not have, by
    the measure of `canonical_correlations`.
    """
    centred = _standardizer(Z)(Z)
    sum_of_squares = (centred * centred).sum(axis=0)
    length = np.where(_varies(sum_of_squares, Z), np.sqrt(sum_of_squares), 0.0)
    R = np.asarray(np.linalg.qr(centred, mode="r"))
    _, weights = _whitened(R, len(Z), _resolution(Z, Z.shape[1]))
    return centred / np.where(length == 0.0, np.inf, length), length[:, None] * weights


def _linear_cca(Zx: NDArray[Any], Zy: NDArray[Any]) -> tuple[Float64, RowFunction, RowFunction]:
    """Correlations (min(Lx, Ly),) and projections of a linear CCA after Bjoerck and Golub.

    It works on the triangle of one QR of both views side by side: covariances would square the
    condition number. The orthonormal factor is never needed, since the views and the rows of their
    triangle have the same inner products.
    """
    n, Lx, Ly = len(Zx), Zx.shape[1], Zy.shape[1]
    x, y = _standardizer(Zx), _standardizer(Zy)

    def triangle(start: int, stop: int) -> Float64:
        # Halved like a pairwise sum, so that rounding grows with the log of n and not with n.
        if stop - start <= _BLOCK_ROWS:
            rows = slice(start, stop)
            both = np.concatenate([x(Zx[rows]), y(Zy[rows])], axis=1)
        else:
            middle = (start + stop) // 2
            both = np.concatenate([triangle(start, middle), triangle(middle, stop)])
        return np.asarray(np.linalg.qr(both, mode="r"))

    R = triangle(0, n)  # (min(n, Lx + Ly), Lx + Ly)
    Bx, Wx = _whitened(R[:, :Lx], n, _resolution(Zx, Lx))
    By, Wy = _whitened(R[:, Lx:], n, _resolution(Zy, Ly))
    left, found, right = np.linalg.svd(Bx.T @ By, full_matrices=False)

    k = min(Lx, Ly)
    correlations = np.zeros(k)
    correlations[: len(found)] = np.clip(found, 0.0, 1.0)
    x_weights, y_weights = np.zeros((Lx, k)), np.zeros((Ly, k))
    x_weights[:, : len(found)] = Wx @ left
    y_weights[:, : len(found)] = Wy @ right.T
    return correlations, lambda Z: x(Z) @ x_weights, lambda Z: y(Z) @ y_weights


def _standardizer(Z: NDArray[Any]) -> RowFunction:
    """The function that scales rows by the largest values of the columns of Z and centres them.

    The largest absolute value, not the deviation: rounding noise of a column is proportional to
    it, so that after the division one threshold separates signal from rounding in every column,
    whatever its scale and offset.
    """
    largest, smallest = Z.max(axis=0).astype(np.float64), Z.min(axis=0).astype(np.float64)
    scale = np.maximum(largest, -smallest)
    scale[scale == 0.0] = 1.0
    mean = np.zeros(Z.shape[1])
    # Twice, since an error of the mean is a direction that both views share: the second round
    # removes the rounding error of the first.
    for _ in range(2):
        mean += sum((Z[rows] / scale - mean).sum(axis=0) for rows in row_blocks(len(Z))) / len(Z)
    return lambda rows: np.asarray(rows / scale - mean, dtype=np.float64)


def _whitened(R: Float64, n: int, resolution: float) -> tuple[Float64, Float64]:
    """An orthonormal basis B = R W of the columns of R that stand above rounding, and W."""
    basis, spread, axes = np.linalg.svd(R, full_matrices=False)
    present = spread > resolution * np.sqrt(n)
    return basis[:, present], axes[present].T / spread[present]


def _resolution(Z: NDArray[Any], n_columns: int) -> float:
    """Root mean square under which a mix of `n_columns` columns scaled to 1 is rounding noise."""
    eps = np.finfo(Z.dtype if Z.dtype.kind == "f" else np.float64).eps
    return 4.0 * float(eps) * float(np.sqrt(n_columns))


def _varies(sum_of_squares: Float64, Z: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(np.sqrt(sum_of_squares / len(Z)) > _resolution(Z, 1))


def row_blocks(n: int, size: int = _BLOCK_ROWS) -> Iterator[slice]:
    """Consecutive slices of at most `size` rows that cover `n` rows."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def projection_matrix(values: Any, name: str, *, min_rows: int = 1) -> NDArray[Any]:
    """Check a finite real 2-D array; its dtype stays, and messages call it `name`."""
    try:
        Z: NDArray[Any] = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputTypeError(
            f"{name} cannot be read as an array ({error}). Pass a 2-D array of numbers."
        ) from error
    if Z.dtype.kind not in "biuf" or Z.ndim != 2 or len(Z) < min_rows or Z.shape[1] == 0:
        raise InputError(
            f"{name} has shape {Z.shape} and dtype {Z.dtype}: wanted a 2-D array of real numbers, "
            f"with {min_rows} or more rows (samples) and one column per component. A single "
            "component is reshaped with Z[:, None]."
        )
    if Z.dtype.itemsize > 8:  # long double: the metrics work in float64
        Z = Z.astype(np.float64)
    if Z.dtype.kind == "f":
        check_finite(Z, name, 0, None)
    return Z


def paired_projections(
    Zx: Any, Zy: Any, names: tuple[str, str] = ("Zx", "Zy"), *, same_width: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Check two projections of the same rows, at least 2; `same_width`: of the same columns."""
    Zx = projection_matrix(Zx, names[0], min_rows=2)
    Zy = projection_matrix(Zy, names[1], min_rows=2)
    if len(Zx) != len(Zy):
        raise InputError(
            f"{names[0]} has {len(Zx)} rows but {names[1]} has {len(Zy)}: "
            "the views are paired row by row. Drop the unpaired rows."
        )
    if same_width:
        check_same_width(Zx, Zy, names)
    return Zx, Zy


def check_same_width(A: NDArray[Any], B: NDArray[Any], names: tuple[str, str]) -> None:
    """Raise unless both have the same number of columns."""
    if A.shape[1] != B.shape[1]:
        raise InputError(
            f"{names[0]} has {A.shape[1]} columns but {names[1]} has {B.shape[1]}: component j of "
            "one is compared with component j of the other. Pass the same number of components."
        )
