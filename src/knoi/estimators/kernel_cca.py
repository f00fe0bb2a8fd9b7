"""Exact kernel CCA: every training row is a landmark, N x N kernel matrices are solved."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend, pick_backend
from knoi.arrays.random import View, seed_from
from knoi.arrays.sparse import dense
from knoi.checks import at_least_zero_or_auto, count, one_per_view
from knoi.data.pairs import PairSource
from knoi.data.source import Rows
from knoi.engine import Engine, format_bytes
from knoi.estimators.base import BaseCCA
from knoi.estimators.closed_form import chosen_reg, held_out_parts, held_out_sizes
from knoi.exceptions import InputError, MemoryBudgetError
from knoi.features import FeatureMap, KernelColumns
from knoi.features.nystrom import GivenColumns
from knoi.kernels import Kernel, resolve
from knoi.kernels.supplied import Precomputed, check_symmetric
from knoi.projection import Projection, ViewProjection
from knoi.solvers.exact import RidgePath, solve_dual

# N x N matrices in memory at the peak: both kernels, both eigenbases and the workspace of an
# eigendecomposition; measured by benchmarks/speed/memory.py.
DUAL_MATRICES = 8
DUAL_AGAIN = 2.3  # for each further part of the rows that is held out to choose a regulariser
DUAL_VIEWS = 3  # copies of the rows in float64 while they are centred and scaled
# Regularisation of a few rows, and where the search for a better one starts.
DEFAULT_REG = 1e-3


class KernelCCA(BaseCCA):
    r"""Exact regularised kernel CCA, for up to about ten thousand rows.

    The projections are :math:`f(x) = \sum_i \alpha_i k_x(x, x_i)` and likewise for y, where the
    coefficients solve the eigenproblem of
    :math:`(K_x + N r_x I)^{-1} K_y (K_y + N r_y I)^{-1} K_x` on centred kernels. Memory grows with
    N^2 and time with N^3: beyond that use `NystromCCA` or `FourierCCA`.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions to project to, L.
    kernel : str, Kernel, callable or a pair of these, default="rbf"
        Any kernel, also a function as in `NystromCCA`. With "precomputed", the view in `fit` is the
        square matrix of kernel values between the training rows, and in `transform` it has a row
        of kernel values with all training rows for each new row. Cross-validation by scikit-learn
        then works if X alone is precomputed: it does not cut the columns of Y.
    width, metric, scale
        As in `FourierCCA`.
    reg : float, "auto", or a pair of these, default="auto"
        Regularisation relative to the total variance of the view in feature space:
        r_x = reg * trace(K_x) / N. Without it, kernel CCA correlates any two views perfectly.
        "auto" as in `LinearCCA`; it takes about as long again as a fit with a number.
    random_state : int, RandomState, Generator or None, default=None
        Fixes the sample rows of the median trick and of the metric.
    memory_budget, n_jobs, device
        As in `LinearCCA`.

    Attributes
    ----------
    correlations_, reg_, x_weights_, y_weights_, x_mean_, y_mean_, n_features_in_, n_features_y_
        As in `LinearCCA`; weights are the coefficients on the N training rows, means those of their
        kernel columns. A precomputed view has N features, which cannot be predicted and have no
        loadings.

    Examples
    --------
    >>> from knoi import KernelCCA
    >>> from knoi.datasets import make_two_views
    >>> views = make_two_views(300, correlations=(0.9,), random_state=0)
    >>> KernelCCA(n_components=1).fit(views.X, views.Y).transform(views.X).shape
    (300, 1)
    """

    _facts = (*BaseCCA._facts, "reg_")

    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: Any = "rbf",
        width: Any = "auto",
        metric: Any = "auto",
        scale: Any = "auto",
        reg: Any = "auto",
        random_state: Any = None,
        memory_budget: Any = None,
        n_jobs: int | None = None,
        device: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.width = width
        self.metric = metric
        self.scale = scale
        self.reg = reg
        self.random_state = random_state
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.device = device

    def _solve(self, pairs: PairSource, backend: Backend, engine: Engine) -> Projection:
        L = count("n_components", self.n_components)
        given = one_per_view("reg", self.reg, at_least_zero_or_auto)
        kernels = one_per_view("kernel", self.kernel, _kernel)
        for view, kernel in zip(View, kernels, strict=True):
            if isinstance(kernel, Precomputed):
                _check_square(view, pairs)
        self._check_memory(pairs, backend, kernels)
        space = self._kernel_space(pairs, seed_from(self.random_state), kernel=kernels)
        # N x N algebra is always float64: kernel matrices are very ill-conditioned.
        exact, weights = pick_backend(self.device, "float64"), pairs.weights
        rows, numbers = space.transformed(pairs.read(0, pairs.n_rows)), pairs.row_numbers()
        Ks: list[Array] = []
        maps: list[FeatureMap] = []
        for view, kernel, X in zip(View, space.kernels, rows, strict=True):
            if isinstance(kernel, Precomputed):
                Ks.append(exact.asarray(_kernel_values(view, X, numbers)))
                maps.append(GivenColumns(pairs.n_cols[view]))
                continue
            # A copy: the model keeps the rows, and the caller may change theirs.
            placed = exact.asarray(X.astype(np.float64))
            Ks.append(kernel(placed, placed))
            maps.append(space.features(view, KernelColumns(kernel, exact.to_numpy(placed))))
        shares = np.ones(pairs.n_rows) if weights is None else weights
        shares = exact.asarray(shares / shares.sum())
        means = [exact.to_numpy(shares @ K) for K in Ks]
        self.reg_, _ = chosen_reg(given, paths_of_kernels(pairs, Ks, exact), L, DEFAULT_REG)
        solution = solve_dual(Ks[0], Ks[1], L, self.reg_, exact, weights)
        x, y = (
            ViewProjection(features, *_for_features(features, numbers, mean, W))
            for features, mean, W in zip(maps, means, (solution.U, solution.V), strict=True)
        )
        return Projection(x, y, solution.correlations, solution.singular_values)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        kernel = self.kernel[0] if isinstance(self.kernel, list | tuple) else self.kernel
        tags.input_tags.pairwise = isinstance(kernel, str) and kernel == "precomputed"
        return tags

    def _check_memory(
        self, pairs: PairSource, backend: Backend, kernels: tuple[Kernel, Kernel]
    ) -> None:
        n_rows, budget = pairs.n_rows, self._budget(backend)
        row_bytes = pairs.bytes_on(pick_backend(self.device, "float64"))
        views = sum(row_bytes[v] for v in View if not isinstance(kernels[v], Precomputed))
        auto = None in one_per_view("reg", self.reg, at_least_zero_or_auto)
        needed = dual_bytes(n_rows, views, auto=auto)
        if needed > budget:
            raise MemoryBudgetError(
                f"exact kernel CCA on {n_rows} rows needs about {format_bytes(needed)} but "
                f"memory_budget is {format_bytes(budget)}. Use NystromCCA or FourierCCA, which do "
                "not form N x N matrices, or fit on fewer rows."
            )


def dual_bytes(n_rows: int, row_bytes: int, *, auto: bool) -> int:
    """Bytes at the peak of a fit to rows of this size in float64; `auto` if it chooses `reg`."""
    matrices = float(DUAL_MATRICES)
    if auto:
        matrices += DUAL_AGAIN * max(0, held_out_sizes(n_rows, n_rows)[0] - 1)
    return int(8 * matrices * n_rows**2) + DUAL_VIEWS * n_rows * row_bytes


def _kernel(name: str, value: Any) -> Kernel:
    return Precomputed() if isinstance(value, str) and value == "precomputed" else resolve(value)


def _check_square(view: View, pairs: PairSource) -> None:
    """Check that a precomputed view has a column for each row."""
    n, columns = pairs.n_rows_opened, pairs.n_cols[view]
    if columns == n:
        return
    sliced = " Cross-validation by scikit-learn cuts rows and columns of X, but only rows of Y:"
    raise InputError(
        f"{view.name} has shape ({n}, {columns}) and kernel='precomputed': fit takes the square "
        "matrix of kernel values between the training rows. Pass the rows with a kernel or a "
        f"function, or cut rows and columns alike, {view.name}[np.ix_(rows, rows)]."
        + (f"{sliced} pass a function as the kernel of Y." if view == View.Y else "")
    )


def _kernel_values(view: View, rows: Array, numbers: Rows) -> NDArray[np.float64]:
    """A copy of the kernel values between the training rows, which have these numbers."""
    K: NDArray[np.float64] = dense(rows)[:, numbers].astype(np.float64)
    check_symmetric(K, f"the kernel values {view.name}")
    return K


def _for_features(
    features: FeatureMap, numbers: Rows, mean: NDArray[Any], W: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and weights of all features, where rows without weight still are kernel columns."""
    if features.rank == len(mean):
        return mean, W
    whole = np.zeros((features.rank, 1 + W.shape[1]))
    whole[numbers] = np.column_stack([mean, W])
    return whole[:, 0], whole[:, 1:]


def paths_of_kernels(pairs: PairSource, Ks: list[Array], backend: Backend) -> Iterator[RidgePath]:
    """Solutions without some of the rows, for any regulariser."""
    for part in held_out_parts(pairs, pairs.n_rows):
        held_out = np.isin(pairs.row_numbers(), part.row_numbers())
        yield RidgePath.of_kernels(Ks[0], Ks[1], held_out, backend, pairs.weights)
