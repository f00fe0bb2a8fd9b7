"""Linear CCA: from moments of the columns, from inner products of the rows, or by iterations."""

import logging
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from knoi.arrays.backend import Backend, numpy_backend, pick_backend
from knoi.arrays.random import Purpose, View, derived_seed
from knoi.arrays.sparse import inner, is_sparse
from knoi.checks import at_least_zero, at_least_zero_or_auto, count, one_of, one_per_view
from knoi.data.pairs import PairSource
from knoi.engine import Engine
from knoi.estimators.closed_form import (
    MIN_ROWS,
    ClosedFormCCA,
    chosen_reg,
    held_out_sizes,
)
from knoi.estimators.kernel_cca import dual_bytes, paths_of_kernels
from knoi.estimators.metric import check_scale
from knoi.estimators.setup import Maps, check_n_cols
from knoi.exceptions import InputError, MemoryBudgetError
from knoi.features import Identity
from knoi.projection import Projection, ViewProjection
from knoi.solvers.exact import HeldOutScore, Solution, solve_dual
from knoi.solvers.iterative import (
    CentredRows,
    Start,
    block_size,
    first_weights,
    fixed_bytes,
    solve_iteratively,
)

logger = logging.getLogger("knoi")

SOLVERS = ("auto", "exact", "iterative")
# Floating-point operations of a closed form that is taken in any case, some seconds on two cores;
# and how often those of the iteration, where that is the alternative.
FEW_OPERATIONS, OFTEN = 2e12, 4
# Operations of the decompositions of a d x d matrix in a fit, in units of d^3; passes of a typical
# iteration; and what an operation on sparse rows costs, in operations of a dense product.
DECOMPOSITIONS, PASSES, SPARSE_COST = 100, 60, 15
# Regularisers that `reg="auto"` tries if it has to iterate for each, and the first of them.
WIDE_REGS = tuple(10.0**k for k in range(-6, 1))
FIRST_WIDE_REG = 1e-4
# How far a solution is iterated that is only compared with those of other regularisers.
ROUGH, ROUGH_TOL = 1e-2, 1e-3


class LinearCCA(ClosedFormCCA):
    r"""Linear canonical correlation analysis, also of sparse views of very many columns.

    Finds weights U, V that maximise :math:`\mathrm{tr}(U^\top \Sigma_{xy} V)` subject to
    :math:`U^\top (\Sigma_{xx} + r_x I) U = V^\top (\Sigma_{yy} + r_y I) V = I`.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions to project to, L.
    reg : float, "auto", or a pair of these, default="auto"
        Regularisation relative to the total variance of the view: r_x = reg * trace(Sigma_xx).
        "auto" chooses among the powers of ten from 1e-8 to 1 by the correlation of held-out rows (a
        fifth, at most 5000; several fifths of fewer than 5000 rows) and then solves for all rows.
        0 is the textbook's CCA; directions without variance are left out, so duplicated columns
        are harmless, but columns that vary in few rows only (border pixels of images) can have
        arbitrary effects on new rows.
    scale : {"auto", "standard", "none"}, None or a pair of these, default="auto"
        "standard" regularises columns relative to their variance, as if they were standardised.
        "auto" does so, for both views, where held-out rows do better with it and `reg` is "auto".
        None or "none": columns as they are. Without a regulariser their scale does not matter.
        Weights, means and predictions are always those of the columns as they are. Only covariances
        are scaled: where they are not formed, "auto" takes the columns as they are.
    solver : {"auto", "exact", "iterative"}, default="auto"
        "exact" is the closed form: from d x d covariances, in one streamed pass, or with fewer rows
        than columns from n x n inner products of the rows. "iterative" is alternating least squares
        on the rows, which forms neither: views may have any number of columns, sparse rows stay
        sparse and files are read once per iteration, some 20 to 100 times. It takes `reg` above 0;
        "auto" tries the powers of ten from 1e-6. It computes with NumPy in main memory. "auto"
        takes the closed form where it fits in `memory_budget` and is not much slower.
    tol : float, default=1e-6
        The iterations stop when ten of them have raised the total canonical correlation by less
        than this fraction. Correlations are then about as good. Weights of components that are
        nearly equal in correlation take longer; 0 iterates up to the precision of the data.
    memory_budget : int, str or None, default=None
        Bytes that the fit may use besides the data itself, such as "4GiB"; None is half of the free
        memory. On a GPU it limits main memory and the memory of the device separately.
    n_jobs : int or None, default=None
        Threads; None and -1 use all cores.
    device : str or None, default=None
        None computes with NumPy; a torch device such as "cuda" with torch. Tensors that are on this
        device stay there; others are copied.

    Attributes
    ----------
    correlations_ : ndarray (L,)
        In-sample correlations: of the columns of Zx and Zy for the training rows. Components are
        ordered by the canonical correlations of the regularised problem, which are smaller unless
        `reg` is 0. Use `score` on other rows to know how good a model is.
    reg_ : pair of floats
        Regularisation of X and of Y that was used.
    scale_ : pair of {"standard", None}
        How the columns of X and of Y were scaled.
    x_weights_, y_weights_ : ndarray (dx, L), (dy, L)
        U and V.
    x_mean_, y_mean_ : ndarray
        Training means, subtracted before projecting.
    n_features_in_, n_features_y_ : int
        Columns of X and of Y.
    n_samples_ : int
        Rows fitted to.

    References
    ----------
    Y. Lu and D. P. Foster, Large scale canonical correlation analysis with iterative least squares,
    NeurIPS 2014.
    A. V. Knyazev, Toward the optimal preconditioned eigensolver, SIAM J. Sci. Comput. 23, 2001.

    Examples
    --------
    >>> from knoi import LinearCCA
    >>> from knoi.datasets import make_two_views
    >>> views = make_two_views(5000, correlations=(0.9, 0.5), random_state=0)
    >>> model = LinearCCA(n_components=2).fit(views.X, views.Y)
    >>> [round(float(rho), 1) for rho in model.correlations_]
    [0.9, 0.5]
    """

    _remedy = "Call fit with solver='auto', which can do without these, drop columns"
    _first_reg = 0.0
    _scales_features = True

    def __init__(
        self,
        n_components: int = 2,
        *,
        reg: Any = "auto",
        scale: Any = "auto",
        solver: str = "auto",
        tol: float = 1e-6,
        memory_budget: Any = None,
        n_jobs: int | None = None,
        device: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.reg = reg
        self.scale = scale
        self.solver = solver
        self.tol = tol
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.device = device

    def _fit_maps(self, pairs: PairSource) -> Maps:
        for view, n_cols in sorted(zip(View, pairs.n_cols, strict=True), key=lambda one: one[1]):
            check_n_cols(view, n_cols, count("n_components", self.n_components))
        return Identity(pairs.n_cols[0]), Identity(pairs.n_cols[1])

    def _solve(self, pairs: PairSource, backend: Backend, engine: Engine) -> Projection:
        maps = self._fit_maps(pairs)
        given = one_per_view("reg", self.reg, at_least_zero_or_auto)
        way = self._way(pairs, maps, backend, engine, given)
        if way == "moments":
            return self._from_moments(pairs, backend, engine)
        logger.info("solver: %s.", way)
        self.scale_ = (None, None)
        solve = self._from_rows if way == "inner products of the rows" else self._iterate
        means, solution = solve(pairs, engine, given)
        x, y = (
            ViewProjection(features.to(numpy_backend(backend.dtype)), mean, weights)
            for features, mean, weights in zip(maps, means, (solution.U, solution.V), strict=True)
        )
        return Projection(x, y, solution.correlations, solution.singular_values)

    def _way(
        self,
        pairs: PairSource,
        maps: Maps,
        backend: Backend,
        engine: Engine,
        given: tuple[float | None, float | None],
    ) -> str:
        """How to solve: what fits in memory and takes the fewest operations."""
        solver = one_of("solver", self.solver, SOLVERS)
        if True in one_per_view("scale", self.scale, check_scale):
            if solver == "iterative":
                raise InputError(
                    f"solver='iterative' with scale={self.scale!r}: iterations take the columns as "
                    "they are. Scale them first, e.g. by sklearn.preprocessing.StandardScaler("
                    "with_mean=False), and set scale=None."
                )
            return "moments"
        if solver == "iterative":
            if 0 in given:
                raise InputError(
                    f"solver='iterative' with reg={self.reg!r}: least squares without a "
                    "regulariser are singular in wide views. Set reg to a number above 0 or "
                    "'auto', or set solver to 'exact'."
                )
            return "iterations"
        n, (dx, dy), L = pairs.n_rows, pairs.n_cols, self.n_components
        too_large, ways = None, {}
        try:
            self._rows_per_chunk(pairs, maps, backend, engine, held=0, keep=False)
        except MemoryBudgetError as error:
            too_large = error
        else:
            ways["moments"] = n * (dx + dy) ** 2 + DECOMPOSITIONS * (dx**3 + dy**3)
            if ways["moments"] <= FEW_OPERATIONS:
                return "moments"
        auto = None in given
        row_bytes = sum(pairs.bytes_on(numpy_backend("float64")))
        if n < max(dx, dy) and dual_bytes(n, row_bytes, auto=auto) <= self._budget(backend):
            decompositions = 2 * DECOMPOSITIONS * (max(1, held_out_sizes(n, n)[0]) if auto else 1)
            ways["inner products of the rows"] = n**2 * (dx + dy) + decompositions * n**3
        best = min(ways, key=lambda way: ways[way], default=None)
        if best is not None and (solver == "exact" or 0 in given or ways[best] <= FEW_OPERATIONS):
            return best
        if best is None and (solver == "exact" or 0 in given):
            assert too_large is not None
            raise too_large
        b, itemsize = block_size(L, pairs.n_cols), backend.itemsize
        per_row = sum(
            SPARSE_COST * size // (2 * itemsize) if sparse else size // itemsize
            for size, sparse in zip(
                pairs.bytes_on(numpy_backend(backend.dtype)), pairs.sparse, strict=True
            )
        )
        iterations = PASSES * b * (12 * n * per_row + 54 * b * (dx + dy))
        return best if best is not None and ways[best] <= OFTEN * iterations else "iterations"

    def _from_rows(
        self, pairs: PairSource, engine: Engine, given: tuple[float | None, float | None]
    ) -> tuple[list[Any], Solution]:
        """The closed form from the inner products of the rows, of which there are few."""
        backend = pick_backend(self.device, "float64")
        own = np.ones(pairs.n_rows) if pairs.weights is None else pairs.weights
        shares = own / own.sum()
        means, rows, Ks = [], [], []
        for given_rows in pairs.read(0, pairs.n_rows):
            X = numpy_backend("float64").asarray(given_rows)
            mean = shares @ X
            if not is_sparse(X):  # those of sparse rows are centred with their inner products
                X = X - mean
                mean = mean + shares @ X
            means.append(mean)
            rows.append(X)
            Ks.append(backend.asarray(inner(X, X)))
        L = count("n_components", self.n_components)
        paths = paths_of_kernels(pairs, Ks, backend)
        self.reg_, _ = chosen_reg(given, paths, L, self._first_reg)
        found = solve_dual(Ks[0], Ks[1], L, self.reg_, backend, pairs.weights)
        # Coefficients on rows have zero sum, so it does not matter whether these are centred.
        U, V = (X.T @ A for X, A in zip(rows, (found.U, found.V), strict=True))
        return means, Solution(U, V, found.singular_values, found.correlations)

    def _iterate(
        self, pairs: PairSource, engine: Engine, given: tuple[float | None, float | None]
    ) -> tuple[list[Any], Solution]:
        """Alternating least squares on the rows."""
        at_least_zero("tol", self.tol)
        L, start, passes = count("n_components", self.n_components), None, 0
        if None in given and pairs.n_rows >= MIN_ROWS:
            held = held_out_sizes(pairs.n_rows, max(pairs.n_cols))[1]
            rest, others = pairs.split(held, derived_seed(0, Purpose.REG, 0))
            search = _Search(self._centred(rest, engine), others, L)
            self.reg_, _ = chosen_reg(given, [search], L, FIRST_WIDE_REG, WIDE_REGS)
            start, passes = search.start, search.rows.passes
            del search  # frees its rows
        else:
            self.reg_, _ = chosen_reg(given, (), L, FIRST_WIDE_REG)
        rows = self._centred(pairs, engine)
        start = start or first_weights(rows, L)
        found = solve_iteratively(rows, L, self.reg_, start, self.tol)
        logger.info("passes over the rows: %d.", passes + rows.passes)
        if not found.converged:
            warnings.warn(
                f"LinearCCA has not converged after {rows.passes} passes over the rows: an error "
                f"of {found.residual:.0e} is left. Raise reg or lower n_components.",
                ConvergenceWarning,
                stacklevel=5,
            )
        return rows.means, found.solution(rows, L)

    def _centred(self, pairs: PairSource, engine: Engine) -> CentredRows:
        """The rows for iterations: in memory if there is room, or read once per pass."""
        L, backend, n = self.n_components, numpy_backend(pairs.dtype), pairs.n_rows
        columns = f"{pairs.n_cols[0]} and {pairs.n_cols[1]} columns"
        fixed = fixed_bytes(L, pairs.n_cols, backend.itemsize)
        projected = 8 * backend.itemsize * block_size(L, pairs.n_cols)
        own = 3 * sum(pairs.bytes_on(backend)) + projected
        keep = fixed + n * (pairs.row_bytes + own) <= self._host_budget()
        rows = (
            n
            if keep
            else self._rows_that_fit(
                backend,
                there=(fixed, own),
                here=(0, 2 * pairs.row_bytes),
                n_rows=n,
                purpose=f"linear CCA of {columns} by iterations",
                remedy="Lower n_components or raise memory_budget.",
            )
        )
        return CentredRows(pairs, rows, engine, keep=keep)


class _Search:
    """Solutions without the held-out rows, each from where the last has ended, and their scores."""

    def __init__(self, rows: CentredRows, held_out: PairSource, n_components: int) -> None:
        self.rows = rows
        self.start = first_weights(rows, n_components)
        self._held_out = held_out

    def score(self, reg: tuple[float, float], n_components: int) -> HeldOutScore:
        """The score of the solution with this regulariser, which need not be exact."""
        rows, L = self.rows, n_components
        found = solve_iteratively(rows, L, reg, self.start, ROUGH_TOL, residual=ROUGH)
        self.start = Start(self.start.preconditioners, found.weights)
        projected: tuple[list[Any], list[Any]] = [], []
        with self._held_out.iterate(rows.chunk_rows) as pieces:
            for piece in pieces:
                for view, W in zip(View, found.weights, strict=True):
                    own = rows.centred(view, piece[view])
                    projected[view].append(rows.project(view, own, W[:, :L]))
        Zx, Zy = (np.concatenate(parts).astype(np.float64) for parts in projected)
        return HeldOutScore.of(Zx, Zy, self._held_out.weights)
