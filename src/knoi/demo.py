"""The demo: find the right half of a handwritten digit from its left half, linearly and not.

`run_demo` does the work and returns plain results. Nothing here prints: whoever runs the demo hands
in what to do at each step.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.random import Purpose, generator
from knoi.datasets import EndlessDigits, endless_digits
from knoi.estimators import KNOI, FourierCCA, LinearCCA, NystromCCA
from knoi.estimators.base import BaseCCA
from knoi.exceptions import InputError
from knoi.metrics import (
    RetrievalScores,
    component_correlations,
    cross_view_retrieval,
    top_matches,
    total_correlation,
)

N_COMPONENTS = 20
# Fewer images cannot carry 20 components of a kernel method.
MIN_SAMPLES = 500
# Making the images; fitting and scoring each method.
N_STEPS = 9
TABLE_COLUMNS = (
    "method",
    "total corr. (fitted)",
    "total corr. (refit)",
    "recall@1",
    "recall@10",
    "median rank",
    "fit, seconds",
)
_N_EXAMPLES, _N_MATCHES = 8, 5


@dataclass(frozen=True)
class MethodResult:
    """A fitted method and what it is worth on pairs it has not seen."""

    model: BaseCCA
    fit_seconds: float
    fitted: float  # total correlation, as `transform` gives it
    refit: float  # total correlation after a fresh linear CCA of the held-out projections
    correlations: NDArray[np.float64]  # (L,), of each component, held out
    retrieval: RetrievalScores
    matches: NDArray[np.int64]  # (examples, 5), test images whose right half was found

    @property
    def name(self) -> str:
        """The estimator's name."""
        return type(self.model).__name__


@dataclass(frozen=True)
class DemoResult:
    """Everything the table and the report show."""

    digits: EndlessDigits
    methods: tuple[MethodResult, ...]  # the linear one first
    examples: NDArray[np.int64]  # test images shown in the report
    seed: int
    samples: int
    seconds: float

    @property
    def linear(self) -> MethodResult:
        """The linear method."""
        return self.methods[0]

    @property
    def best_kernel(self) -> MethodResult:
        """The kernel method of the highest held-out total correlation."""
        return max(self.methods[1:], key=lambda method: method.fitted)

    @property
    def best(self) -> MethodResult:
        """The method of the highest held-out total correlation."""
        return max(self.methods, key=lambda method: method.fitted)


def run_demo(
    samples: int = 30_000, seed: int = 0, *, on_step: Callable[[str], None] = lambda step: None
) -> DemoResult:
    """Make the digits, fit a linear and three kernel methods, score them on held-out pairs.

    Parameters
    ----------
    samples : int
        Training images, at least `MIN_SAMPLES`; a sixth as many, 200 to 5000, are for testing.
    seed : int
        Fixes the digits, the features and the examples.
    on_step : callable
        Told what is about to be done, `N_STEPS` times.
    """
    if samples < MIN_SAMPLES:
        raise InputError(f"samples={samples}: wanted at least {MIN_SAMPLES} training images.")
    started = time.perf_counter()
    n_test = min(5000, max(200, samples // 6))
    on_step(f"Making {samples:,} training and {n_test:,} test images")
    digits = endless_digits(samples, n_test, random_state=seed)
    examples = _one_of_each_digit(digits.labels_test, seed)

    # 1e-6, the estimators' default, at the usual 30,000 images; fewer need more of it.
    settings: dict[str, Any] = {
        "rank": min(1500, samples // 2),
        "reg": 0.03 / samples,
        "random_state": seed,
    }
    models = (
        LinearCCA(N_COMPONENTS),
        FourierCCA(N_COMPONENTS, **settings),
        NystromCCA(N_COMPONENTS, **settings),
        # Twice the rank, at a cost that grows with it and not with its square.
        KNOI(
            N_COMPONENTS, rank=min(3000, samples // 2), epochs=3, random_state=seed, verbose=False
        ),
    )
    methods = tuple(_fit_and_score(model, digits, examples, on_step) for model in models)
    return DemoResult(digits, methods, examples, seed, samples, time.perf_counter() - started)


def table_rows(result: DemoResult) -> tuple[tuple[str, ...], ...]:
    """The comparison as text, under `TABLE_COLUMNS`; the last row is guessing."""
    rows = [
        (
            method.name,
            f"{method.fitted:.2f}",
            f"{method.refit:.2f}",
            f"{method.retrieval.recall[1]:.1%}",
            f"{method.retrieval.recall[10]:.1%}",
            f"{method.retrieval.median_rank:,g}",
            f"{method.fit_seconds:.1f}",
        )
        for method in result.methods
    ]
    n = result.linear.retrieval.n_queries
    chance = ("guessing", "0", "-", f"{1 / n:.2%}", f"{10 / n:.2%}", f"{(n + 1) / 2:,g}", "-")
    return (*rows, chance)


def best_cells(result: DemoResult) -> frozenset[tuple[int, int]]:
    """Row and column of the best measured values of the table; none where all are equal."""
    columns = [
        [method.fitted for method in result.methods],
        [method.refit for method in result.methods],
        [method.retrieval.recall[1] for method in result.methods],
        [method.retrieval.recall[10] for method in result.methods],
        [-method.retrieval.median_rank for method in result.methods],
    ]
    return frozenset(
        (row, column)
        for column, values in enumerate(columns, start=1)
        for row, value in enumerate(values)
        if value == max(values) > min(values)
    )


def _fit_and_score(
    model: BaseCCA,
    digits: EndlessDigits,
    examples: NDArray[np.int64],
    on_step: Callable[[str], None],
) -> MethodResult:
    name = type(model).__name__
    on_step(f"Fitting {name}")
    started = time.perf_counter()
    model.fit(digits.X_train, digits.Y_train)
    seconds = time.perf_counter() - started

    on_step(f"Scoring {name} on the test images")
    Zx, Zy = model.transform(digits.X_test, digits.Y_test)
    return MethodResult(
        model=model,
        fit_seconds=seconds,
        fitted=total_correlation(Zx, Zy, "fitted"),
        refit=total_correlation(Zx, Zy, "refit"),
        correlations=component_correlations(Zx, Zy),
        retrieval=cross_view_retrieval(Zx, Zy, ks=(1, 10)),
        matches=top_matches(Zx[examples], Zy, _N_MATCHES)[0],
    )


def _one_of_each_digit(labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Rows of eight different digits, drawn at random: not chosen by how well they do."""
    order = generator(seed, Purpose.DEMO_EXAMPLES).permutation(len(labels))
    _, first = np.unique(labels[order], return_index=True)
    return np.asarray(order[np.sort(first)[:_N_EXAMPLES]])
