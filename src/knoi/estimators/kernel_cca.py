"""Exact kernel CCA: every training row is a landmark, N x N kernel matrices are solved."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from knoi.arrays.backend import Array, Backend, pick_backend
from knoi.arrays.random import View, seed_from
from knoi.checks import at_least_zero_or_auto, count, one_per_view
from knoi.data.pairs import PairSource
from knoi.engine import Engine, format_bytes
from knoi.estimators.base import BaseCCA
from knoi.estimators.closed_form import chosen_reg, held_out_parts, held_out_sizes
from knoi.exceptions import MemoryBudgetError
from knoi.features import KernelColumns
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
    kernel : str, Kernel or a pair of these, default="rbf"
        Any kernel.
    width, metric
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
        kernel columns.

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
        self.reg = reg
        self.random_state = random_state
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.device = device

    def _solve(self, pairs: PairSource, backend: Backend, engine: Engine) -> Projection:
        L = count("n_components", self.n_components)
        given = one_per_view("reg", self.reg, at_least_zero_or_auto)
        self._check_memory(pairs, backend)
        space = self._kernel_space(pairs, seed_from(self.random_state))
        # N x N algebra is always float64: kernel matrices are very ill-conditioned.
        exact = pick_backend(self.device, "float64")
        # A copy: the model keeps the rows, and the caller may change theirs.
        rows = space.transformed(pairs.read(0, pairs.n_rows))
        views = [exact.asarray(view.astype(np.float64)) for view in rows]
        Ks = [kernel(X, X) for kernel, X in zip(space.kernels, views, strict=True)]
        means = [exact.to_numpy(exact.xp.mean(K, axis=0)) for K in Ks]
        precision = float(np.finfo(np.float64).eps)
        self.reg_ = chosen_reg(given, _paths(pairs, Ks, exact), L, DEFAULT_REG)
        solution = solve_dual(Ks[0], Ks[1], L, self.reg_, precision, exact)
        x, y = (
            ViewProjection(
                space.features(view, KernelColumns(kernel, exact.to_numpy(X))), mean, weights
            )
            for view, kernel, X, mean, weights in zip(
                View, space.kernels, views, means, (solution.U, solution.V), strict=True
            )
        )
        return Projection(x, y, solution.correlations, solution.singular_values)

    def _check_memory(self, pairs: PairSource, backend: Backend) -> None:
        n_rows, budget = pairs.n_rows, self._budget(backend)
        views = sum(pairs.bytes_on(pick_backend(self.device, "float64")))
        matrices = float(DUAL_MATRICES)
        if None in one_per_view("reg", self.reg, at_least_zero_or_auto):
            matrices += DUAL_AGAIN * max(0, held_out_sizes(n_rows, n_rows)[0] - 1)
        needed = int(8 * matrices * n_rows**2) + DUAL_VIEWS * n_rows * views
        if needed > budget:
            raise MemoryBudgetError(
                f"exact kernel CCA on {n_rows} rows needs about {format_bytes(needed)} but "
                f"memory_budget is {format_bytes(budget)}. Use NystromCCA or FourierCCA, which do "
                "not form N x N matrices, or fit on fewer rows."
            )


def _paths(pairs: PairSource, Ks: list[Array], backend: Backend) -> Iterator[RidgePath]:
    """Solutions without some of the rows, for any regulariser."""
    for part in held_out_parts(pairs, pairs.n_rows):
        held_out = np.zeros(pairs.n_rows, dtype=bool)
        held_out[part.row_numbers()] = True
        yield RidgePath.of_kernels(Ks[0], Ks[1], held_out, backend)
