"""Relate a view's columns to the variates: loadings, predictions, redundancy, in-sample warning.

After a fit, moments of the columns of both views with the variates of both are computed on a sample
of the training rows: d x 2 L numbers per view. `predict`, `inverse_transform` and the loadings need
nothing else.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from knoi.arrays.backend import Array, compute_dtype, numpy_backend, projecting_backend
from knoi.arrays.random import View
from knoi.arrays.sparse import dense
from knoi.data.pairs import PairSource
from knoi.engine import Engine, Threads, even_slices, worker_count
from knoi.exceptions import InputError, MemoryBudgetError, NotKeptError
from knoi.features.base import PROJECTED_COLUMNS
from knoi.features.metric import metric_of
from knoi.features.nystrom import GivenColumns
from knoi.metrics.correlation import projection_matrix
from knoi.metrics.redundancy import JointMoments, Redundancy, Variables, Variates
from knoi.projection import PIECE_ROWS, Projection, ViewProjection

# The structure is computed on all rows up to FULL_ROWS; beyond, on a sixteenth of them, so that the
# pass costs at most a sixteenth of another look at the data; never on more than MAX_ROWS. There the
# error of a regression on L variates grows by about L / rows, and correlations are good to
# 1 / sqrt(rows).
FULL_ROWS = 8192
MAX_ROWS = 65_536
# A view is left out if it has more numbers (columns x components): 20 components of 10^6 columns.
MAX_NUMBERS = 20_000_000
# The seed of the sample. It differs from that of a fit, whose held-out rows `split` draws too.
_SAMPLE_SEED = 0x6B6E6F69

# Correlations above this are perfect for practical purposes.
PERFECT = 0.999
# Directions are counted on at most this many rows: the count then costs little next to a fit.
_COUNTED_ROWS = 1000
# Share of the variance below which a direction may be rounding noise.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Structure:
    """Moments of the columns of both views with the variates of both: L of X, then L of Y.

    A view with more columns than can be kept is None, and so is one of kernel values.
    """

    variates: Variates
    x: Variables | None
    y: Variables | None

    def correlations(self) -> NDArray[np.float64]:
        """Correlation of each variate of X with its partner of Y, (L,)."""
        L = len(self.variates.mean) // 2
        return np.diagonal(self.variates.correlations, offset=L).copy()

    def regress(self, view: View, Z: NDArray[Any], given: View) -> NDArray[Any]:
        """Predict the columns of `view` from variates Z (n, L) of the view `given`, (n, d)."""
        columns, which = self._moments(view, given)
        return columns.regress(Z, self.variates, which, compute_dtype(Z.dtype))

    def loadings(self, view: View, given: View) -> NDArray[Any]:
        """Correlations of the columns of `view` with the variates of the view `given`, (d, L)."""
        columns, which = self._moments(view, given)
        return columns.correlations(which)

    def redundancy(self, view: View, given: View) -> Redundancy:
        """Redundancy of the columns of `view` given the variates of the view `given`."""
        columns, which = self._moments(view, given)
        return columns.redundancy(self.variates, which)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to build it again."""
        return asdict(self)

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        x, y = (None if state[view] is None else Variables(**state[view]) for view in "xy")
        return cls(Variates(**state["variates"]), x, y)

    def _moments(self, view: View, given: View) -> tuple[Variables, slice]:
        """The columns of `view`, and which of the variates are those of the view `given`."""
        columns = (self.x, self.y)[view]
        if columns is None:
            raise NotKeptError(
                f"{view.name} is too wide to be predicted or to have loadings: its columns times "
                f"the components exceed the {MAX_NUMBERS} numbers that are kept. Lower "
                "n_components, pass fewer columns, or regress the columns you need on the output "
                "of transform."
            )
        L = len(self.variates.mean) // 2
        return columns, slice(given * L, (given + 1) * L)


class StructureMixin:
    """Predictions, reconstructions, loadings and redundancy of a fitted estimator."""

    # Provided by the estimator.
    projection_: Projection
    n_jobs: int | None
    device: str | None
    transform: Callable[..., Any]
    transform_y: Callable[[Any], Any]
    _rows_that_fit: Callable[..., int]
    _remember_columns: Callable[..., None]
    _column_names: Callable[[View], list[str]]
    _variate_names: Callable[[View], list[str]]
    _framed: Callable[[NDArray[Any], Any, list[str]], Any]

    def predict(self, X: Any) -> Any:
        """Predict the second view from the first, by least squares on its variates.

        Y_hat = mean(Y) + (Zx - mean(Zx)) B, the best linear prediction of Y from the output of
        `transform`, with B from the training rows (at most 65,536 of them). What the variates do
        not explain is predicted by its mean. In-sample predictions are optimistic: evaluate it on
        rows not used in `fit`.

        Returns
        -------
        Y_hat : ndarray (n_samples, n_features_y_), in the precision of X
            A data frame if `set_output` asks for one, with the column names of Y.
        """
        structure = self._structure(View.Y)
        Y_hat = structure.regress(View.Y, np.asarray(self.transform(X)), View.X)
        return self._framed(Y_hat, X, self._column_names(View.Y))

    def predict_x(self, Y: Any) -> Any:
        """Predict the first view from the second, as `predict` does the second from the first."""
        structure = self._structure(View.X)
        X_hat = structure.regress(View.X, np.asarray(self.transform_y(Y)), View.Y)
        return self._framed(X_hat, Y, self._column_names(View.X))

    def inverse_transform(self, Zx: Any, Zy: Any = None) -> Any:
        """Reconstruct X, or both views, from their own variates, by least squares.

        Exact for linear methods with as many components as a view has directions; otherwise the
        best linear reconstruction. Variates of kernel methods are not linear in the columns, so
        for them it is an approximation for any number of components.

        Returns
        -------
        X_hat : ndarray (n_samples, n_features_in_), or the pair (X_hat, Y_hat) if Zy is given
        """
        found = []
        for view, Z in zip(View, (Zx, Zy), strict=True):
            if view == View.X or Z is not None:
                checked = self._checked_variates(Z, f"Z{view.name.lower()}")
                columns = self._structure(view).regress(view, checked, view)
                found.append(self._framed(columns, Z, self._column_names(view)))
        return found[0] if Zy is None else tuple(found)

    @property
    def x_loadings_(self) -> Any:
        """Correlations of the columns of X with the variates of X on training rows, (dx, L).

        An array, or a data frame with the names of columns and variates if `set_output` asks for
        one; polars, which has no index, has the names in the first column, "column".
        """
        return self._loadings(View.X, View.X)

    @property
    def y_loadings_(self) -> Any:
        """Correlations of the columns of Y with the variates of Y on training rows, (dy, L)."""
        return self._loadings(View.Y, View.Y)

    @property
    def x_cross_loadings_(self) -> Any:
        """Correlations of the columns of X with the variates of Y on training rows, (dx, L)."""
        return self._loadings(View.X, View.Y)

    @property
    def y_cross_loadings_(self) -> Any:
        """Correlations of the columns of Y with the variates of X on training rows, (dy, L)."""
        return self._loadings(View.Y, View.X)

    def _loadings(self, view: View, given: View) -> Any:
        values = self._structure(view).loadings(view, given)
        made = self._framed(values, None, self._variate_names(given))
        if hasattr(made, "insert_column"):  # polars
            names = type(made)({"column": self._column_names(view)})
            return made.insert_column(0, names["column"])
        if made is not values:
            made.index = self._column_names(view)
        return made

    @property
    def width_(self) -> tuple[float | None, float | None]:
        """Width of the kernel of X and of Y; None for a kernel that has none."""
        check_is_fitted(self)
        projection = self.projection_
        kernels = projection.x.features.kernel, projection.y.features.kernel
        x, y = (getattr(kernel, "width", None) for kernel in kernels)
        return x, y

    @property
    def x_metric_(self) -> NDArray[Any] | None:
        """The metric in front of the kernel of X: (dx, dx), (dx,) if diagonal, None without one.

        The kernel works on distances (x - z)' M (x - z), up to the median distance as its unit.
        """
        check_is_fitted(self)
        return metric_of(self.projection_.x.features)

    @property
    def y_metric_(self) -> NDArray[Any] | None:
        """The metric in front of the kernel of Y, as `x_metric_`."""
        check_is_fitted(self)
        return metric_of(self.projection_.y.features)

    def column_importance(self) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
        """How much each column of X and of Y matters: its share of the learned metric.

        The entry of the metric for the column times the variance of the column on training rows,
        divided by the sum over columns. None for a view without a metric.

        Returns
        -------
        of_x, of_y : ndarray (d,) or None
        """
        found: list[NDArray[Any] | None] = []
        structure = self._structure()
        sides = (self.x_metric_, structure.x), (self.y_metric_, structure.y)
        for metric, columns in sides:
            if metric is None or columns is None:
                found.append(None)
                continue
            own = (metric if metric.ndim == 1 else np.diag(metric)) * columns.deviation**2
            found.append(own / max(float(own.sum()), np.finfo(np.float64).tiny))
        return found[0], found[1]

    def redundancy(self, X: Any, Y: Any) -> tuple[Redundancy, Redundancy]:
        """Share of each view's variance that the variates of the other explain, on these pairs.

        Returns
        -------
        of_x, of_y : Redundancy
            Of the columns of X given the variates of Y, and the other way round.
        """
        check_is_fitted(self)
        with PairSource.open(X, Y) as pairs, Threads(worker_count(self.n_jobs)) as engine:
            self._remember_columns(pairs, reset=False)
            self._check_has_columns(*View)
            structure = self._structure_on(pairs, engine)
        return structure.redundancy(View.X, View.Y), structure.redundancy(View.Y, View.X)

    def _check_has_columns(self, *views: View) -> None:
        """Check that views were given as columns, which can be predicted and have loadings."""
        for view in views:
            if isinstance((self.projection_.x, self.projection_.y)[view].features, GivenColumns):
                raise NotKeptError(
                    f"{view.name} was given as kernel values (kernel='precomputed'), so there are "
                    "no columns to predict or to have loadings. Regress the columns you need on "
                    "the output of transform."
                )

    def _structure(self, *of: View) -> Structure:
        """The structure of the fit, or `NotKeptError` that says why there is none."""
        check_is_fitted(self)
        self._check_has_columns(*of)
        structure: Structure | None = getattr(self, "structure_", None)
        if structure is None:
            reason, remedy = (
                ("fitted within a memory_budget too small to relate", "a larger memory_budget")
                if hasattr(self, "structure_")
                else ("saved, or learned by partial_fit or solve, without relating", "fit")
            )
            raise NotKeptError(
                f"This {type(self).__name__} was {reason} its variates to the columns of the "
                "views, which predict, inverse_transform and loadings need. Fit it again with "
                f"{remedy}."
            )
        return structure

    def _fit_structure(self, pairs: PairSource, engine: Engine, *, held: int = 0) -> None:
        """Set `structure_` from a sample of the training rows, or None if memory is too small."""
        self.structure_: Structure | None = None
        with suppress(MemoryBudgetError):
            self.structure_ = self._structure_on(structure_sample(pairs), engine, held=held)

    def _structure_on(self, pairs: PairSource, engine: Engine, *, held: int = 0) -> Structure:
        """Compute the structure on all rows of `pairs`; `held` bytes are in use elsewhere."""
        projection = self.projection_
        L = int(projection.x.weights.shape[1])
        sides = (projection.x, projection.y)
        kept = [
            view
            for view, own in zip(View, sides, strict=True)
            if pairs.n_cols[view] * L <= MAX_NUMBERS and not isinstance(own.features, GivenColumns)
        ]
        n_columns = tuple(pairs.n_cols[view] for view in kept)
        placed = []
        scratch = uploaded = 0
        for view, own in zip(View, sides, strict=True):
            precision = compute_dtype(pairs.stored_dtypes[view], own.features.dtype)
            backend = projecting_backend(self.device, precision)
            placed.append((own.folded.to(backend), backend))
            numbers = own.folded.numbers_per_row()
            scratch += pairs.bytes_on(backend)[view] + numbers * backend.itemsize
            uploaded += 0 if backend.in_main_memory else pairs.bytes_on(backend)[view]
        rows = self._rows_that_fit(
            projecting_backend(self.device, pairs.dtype),
            there=(held + min(engine.n_workers * PIECE_ROWS, pairs.n_rows) * scratch, uploaded),
            here=(
                JointMoments.fixed_bytes(n_columns, 2 * L),
                # One chunk in use and one read ahead; then scaled and centred in float64.
                2 * pairs.row_bytes + sum(pairs.bytes_on(numpy_backend("float64"))) + 48 * L,
            ),
            n_rows=pairs.n_rows,
            purpose="relating columns to variates",
            remedy="Raise memory_budget.",
        )
        moments = JointMoments(n_columns, 2 * L)

        def project(piece: slice, rows: list[Any], Z: NDArray[np.float64]) -> None:
            for view, (own, backend) in zip(View, placed, strict=True):
                found = backend.to_numpy(own(backend.asarray(rows[view][piece])))
                Z[piece, view * L : (view + 1) * L] = found

        weights, start = pairs.weights, 0
        with pairs.iterate(rows) as read:
            for chunks in read:
                n = int(chunks[0].shape[0])
                Z = np.empty((n, 2 * L))
                there = [one.uploaded(rows) for rows, (_, one) in zip(chunks, placed, strict=True)]
                engine.map(project, even_slices(n, PIECE_ROWS), there, Z)
                own_weights = None if weights is None else weights[start : start + n]
                moments.add(Z, tuple(chunks[view] for view in kept), own_weights)
                start += n
        variates, variables = moments.finish(pairs.dtype)
        columns = dict(zip(kept, variables, strict=True))
        return Structure(variates, columns.get(View.X), columns.get(View.Y))

    def _checked_variates(self, Z: Any, name: str) -> NDArray[Any]:
        checked = projection_matrix(Z, name)
        L = int(self.projection_.x.weights.shape[1])
        if checked.shape[1] != L:
            raise InputError(
                f"{name} has {checked.shape[1]} columns, but {type(self).__name__} has {L} "
                "components. Pass the output of transform."
            )
        return checked


def structure_sample(pairs: PairSource) -> PairSource:
    """The rows to compute the structure on: all of few, a random part of many; always the same."""
    n = structure_rows(pairs.n_rows)
    return pairs if n == pairs.n_rows else pairs.split(n, _SAMPLE_SEED)[1]


def structure_rows(n_rows: int) -> int:
    """How many of the rows that is."""
    return min(n_rows, MAX_ROWS, max(FULL_ROWS, n_rows // 16))


def in_sample_warning(projection: Projection, pairs: PairSource, reg: Any) -> str | None:
    """Warn if all in-sample correlations are perfect and would be for any views; else None.

    n centred rows span n - 1 dimensions. Views that vary in p and q directions share at least
    p + q - (n - 1) of them: as many correlations are 1, by geometry, whatever the data. A
    regularization r excludes a direction of variance v where it keeps its correlation v / (v + r)
    below 1.

    `reg` is the parameter of the estimator; if it is not a number nothing is excluded.
    """
    n, L = pairs.n_rows, len(projection.correlations)
    views = projection.x, projection.y
    given = [isinstance(view.features, GivenColumns) for view in views]
    if any(own and pairs.n_cols[v] != pairs.n_rows_opened for v, own in enumerate(given)):
        return None  # kernel values of other rows than those of the fit
    most = [min(view.features.rank, n - 1) for view in views]
    if projection.correlations.min() < PERFECT or sum(most) < n - 1 + L:
        return None
    regs = reg if isinstance(reg, list | tuple) else (reg, reg)
    sample = list(pairs.sample(_COUNTED_ROWS, _SAMPLE_SEED))
    found = []
    for view, own, bound in zip(View, views, most, strict=True):
        if given[view]:  # kernel values between the rows of a sample of their own
            some = slice(None, None, -(-n // _COUNTED_ROWS))
            K = dense(pairs.read(0, n)[view])[some]
            sample[view] = K[:, pairs.row_numbers()[some]]
        m = int(sample[view].shape[0])
        r = float(regs[view]) if isinstance(regs[view], int | float) else 0.0
        directions = min(bound, _directions(own, sample[view], r))
        # If a sample has as many as it can have, all rows may have as many as they can.
        found.append(bound if m < n and directions >= min(m - 1, bound) else directions)
    if sum(found) < n - 1 + L:
        return None
    return (
        f"the {L} correlations found are at least {PERFECT}, but would be for any two views, "
        f"related or not: X varies in {found[0]} directions and Y in {found[1]}, together more "
        f"than the {n} rows can separate. correlations_ is meaningless here. Use score or "
        "permutation_test on rows not used in fit; pass more rows, or raise reg."
    )


def _directions(view: ViewProjection, rows: Array, reg: float) -> int:
    """Directions of the rows' features that `reg` leaves free to correlate perfectly."""
    backend = numpy_backend("float64")
    features = view.features.to(backend)
    X = backend.asarray(rows)
    given = isinstance(features, GivenColumns)
    if given or features.kernel_columns is not None:
        # Weights on kernel columns stand for features whose inner products are the kernel itself.
        if not given:
            X = features.kernel_rows(X)
            X = np.asarray(dense(features.kernel_columns.kernel(X, X)))
        G = X - X.mean(axis=0)
        G = G - G.mean(axis=1, keepdims=True)
    else:
        G = np.zeros((int(rows.shape[0]),) * 2)
        prepared = features.prepare(X)
        for columns in features.slices(PROJECTED_COLUMNS):
            F = features.block(prepared, columns)
            largest = np.abs(F).max(axis=0)
            F = F - F.mean(axis=0)
            if reg == 0.0:  # the scale of a column does not matter then
                deviation = F.std(axis=0)
                F /= np.where(deviation <= _ROUNDING * largest, np.inf, deviation)
            G += F @ F.T
    values = np.linalg.eigvalsh(G)
    # v / (v + r) >= PERFECT, with r relative to the total variance
    least = max(reg * PERFECT / (1.0 - PERFECT), _ROUNDING)
    return int((values > least * values.sum()).sum())
