"""The demo: find the right half of a handwritten digit from its left half.

`run_demo` compares a linear and three kernel methods, `demo_report` builds the page. Nothing here
prints.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi import __version__
from knoi.arrays.random import Purpose, generator
from knoi.datasets import EndlessDigits, endless_digits
from knoi.estimators import KNOI, FourierCCA, LinearCCA, NystromCCA
from knoi.estimators.base import BaseCCA
from knoi.estimators.plotting import round_numbers
from knoi.metrics import (
    RetrievalScores,
    component_correlations,
    cross_view_retrieval,
    top_matches,
    total_correlation,
)
from knoi.report import Page
from knoi.report.content import environment_facts
from knoi.report.images import data_uri
from knoi.report.measure import RECALL_DEPTHS, correlation_data, recall_data

N_COMPONENTS = 20
# Generating the images, then fitting and scoring four methods.
N_STEPS = 9
_N_EXAMPLES, _N_MATCHES = 8, 5
# Gray level of the half that is searched for.
_HIDDEN = 96


@dataclass(frozen=True)
class MethodResult:
    """A fitted method and its results on the test images."""

    model: BaseCCA
    fit_seconds: float
    fitted: float  # total correlation of what `transform` returns
    refit: float  # total correlation after a linear CCA of the test projections
    correlations: NDArray[np.float64]  # (L,), of each component
    retrieval: RetrievalScores
    matches: NDArray[np.int64]  # (examples, 5), test images whose right half is nearest

    @property
    def name(self) -> str:
        """Name of the estimator."""
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
    def best(self) -> MethodResult:
        """The method with the highest total correlation."""
        return max(self.methods, key=lambda method: method.fitted)


def run_demo(
    samples: int = 30_000, seed: int = 0, *, on_step: Callable[[str], None] = lambda step: None
) -> DemoResult:
    """Generate the digits, fit a linear and three kernel methods, score them on test images.

    `on_step` is called with a description before each of `N_STEPS` steps.
    """
    started = time.perf_counter()
    n_test = min(5000, max(200, samples // 6))
    on_step(f"Making {samples:,} training and {n_test:,} test images")
    digits = endless_digits(samples, n_test, random_state=seed)
    examples = _one_of_each_digit(digits.labels_test, seed)

    # 1e-6, the default of the estimators, at 30,000 images; fewer images need more.
    settings: dict[str, Any] = {
        "rank": min(1500, samples // 2),
        "reg": 0.03 / samples,
        "random_state": seed,
    }
    models = (
        LinearCCA(N_COMPONENTS),
        # As published; the last one learns a metric, to show what that gains.
        FourierCCA(N_COMPONENTS, metric=None, **settings),
        NystromCCA(N_COMPONENTS, metric=None, **settings),
        # Twice the rank: the cost grows linearly with it, not quadratically.
        KNOI(
            N_COMPONENTS, rank=min(3000, samples // 2), epochs=3, random_state=seed, verbose=False
        ),
    )
    methods = tuple(_fit_and_score(model, digits, examples, on_step) for model in models)
    return DemoResult(digits, methods, examples, seed, samples, time.perf_counter() - started)


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
        retrieval=cross_view_retrieval(Zx, Zy, ks=RECALL_DEPTHS),
        matches=top_matches(Zx[examples], Zy, _N_MATCHES)[0],
    )


def _one_of_each_digit(labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Draw rows of eight different digits at random, whatever the results on them."""
    order = generator(seed, Purpose.DEMO_EXAMPLES).permutation(len(labels))
    _, first = np.unique(labels[order], return_index=True)
    return np.asarray(order[np.sort(first)[:_N_EXAMPLES]])


# Columns of the table: heading, value of a method, its format, and 1 if large values are good, -1
# if small ones are.
_COLUMNS: tuple[tuple[str, Callable[[MethodResult], float], str, int], ...] = (
    ("total corr. (fitted)", lambda method: method.fitted, "{:.2f}", 1),
    ("total corr. (refit)", lambda method: method.refit, "{:.2f}", 1),
    ("recall@1", lambda method: method.retrieval.recall[1], "{:.1%}", 1),
    ("recall@10", lambda method: method.retrieval.recall[10], "{:.1%}", 1),
    ("median rank", lambda method: method.retrieval.median_rank, "{:,g}", -1),
    ("fit, seconds", lambda method: method.fit_seconds, "{:.1f}", 0),
)
TABLE_COLUMNS = ("method", *(heading for heading, *_ in _COLUMNS))


def table_rows(result: DemoResult) -> tuple[tuple[str, ...], ...]:
    """Return the comparison as text, under `TABLE_COLUMNS`; the last row is chance."""
    rows = [
        (method.name, *(text.format(value(method)) for _, value, text, _ in _COLUMNS))
        for method in result.methods
    ]
    n = result.linear.retrieval.n_queries
    chance = ("chance", "0", "-", f"{1 / n:.2%}", f"{10 / n:.2%}", f"{(n + 1) / 2:,g}", "-")
    return (*rows, chance)


def best_cells(result: DemoResult) -> frozenset[tuple[int, int]]:
    """Return (row, column) of the best values in the table; none where all are equal."""
    columns = [[sign * value(m) for m in result.methods] for _, value, _, sign in _COLUMNS]
    return frozenset(
        (row, column)
        for column, values in enumerate(columns, start=1)
        for row, value in enumerate(values)
        if value == max(values) > min(values)
    )


def demo_report(result: DemoResult) -> Page:
    """Build the page: results, charts, examples, and what is needed to repeat the run."""
    n_test = result.linear.retrieval.n_queries
    cards = [
        (
            method.name,
            f"{method.retrieval.recall[1]:.1%}",
            f"recall@1; total correlation {method.fitted:.2f}",
        )
        for method in result.methods
    ]
    values = {
        "title": "The right half of a digit from its left half",
        "subtitle": "Canonical correlation analysis, linear and with kernels, on generated data. "
        f"Demo of knoi {__version__}.",
        "result": result,
        "n_components": N_COMPONENTS,
        "n_test": n_test,
        "cards": cards,
        "columns": TABLE_COLUMNS,
        "rows": table_rows(result),
        "best": best_cells(result),
        "examples": _examples(result),
        "command": f"knoi demo --samples {result.samples} --seed {result.seed}",
        "facts": _facts(result),
    }
    recalls = {m.name: [m.retrieval.recall[k] for k in RECALL_DEPTHS] for m in result.methods}
    data = {
        "correlations": correlation_data({m.name: m.correlations for m in result.methods}),
        "recall": recall_data(RECALL_DEPTHS, recalls, n_test),
    }
    return Page("demo.html", values, data)


def _examples(result: DemoResult) -> list[list[dict[str, Any]]]:
    """For each example: strips of images, the query first, then what two methods found."""
    digits, labels = result.digits, result.digits.labels_test
    left, right = (
        np.rint(view * 255).astype(np.uint8).reshape(-1, *shape)
        for view, shape in (
            (digits.X_test, digits.left_shape),
            (digits.Y_test, digits.right_shape),
        )
    )

    def tile(query: int, half: NDArray[np.uint8], description: str, caption: str) -> dict[str, Any]:
        uri = data_uri(np.hstack([left[query], half]))
        return {"uri": uri, "description": description, "caption": caption, "correct": False}

    def found(method: MethodResult, query: int, place: int, match: int) -> dict[str, Any]:
        about, correct = f"{method.name}, rank {place}: ", match == query
        what = "the true right half" if correct else f"the right half of another {labels[match]}"
        caption = "✓ true" if correct else f"of a {labels[match]}"
        return {**tile(query, right[match], about + what, caption), "correct": correct}

    best_kernel = max(result.methods[1:], key=lambda method: method.fitted)
    rows = []
    for i, query in enumerate(result.examples):
        label, hidden = labels[query], np.full_like(right[query], _HIDDEN)
        given = [
            tile(query, hidden, f"left half of a {label}", "left half"),
            tile(query, right[query], f"the whole {label}", "whole"),
        ]
        strips = [{"title": f"Given: a {label}", "tiles": given}]
        for method in (result.linear, best_kernel):
            tiles = [found(method, query, k + 1, m) for k, m in enumerate(method.matches[i])]
            strips.append({"title": f"Found by {method.name}", "tiles": tiles})
        rows.append(strips)
    return rows


def _facts(result: DemoResult) -> list[tuple[str, str]]:
    height, width = result.digits.image_shape
    facts = [
        (
            "data",
            f"handwritten digits of scikit-learn, enlarged to {height} x {width} pixels and "
            f"randomly deformed: {result.samples:,} training images, and "
            f"{len(result.digits.X_test):,} test images made from other digits",
        )
    ]
    shown = ("n_components", "rank", "kernel", "width", "reg")
    for method in result.methods:
        params = method.model.get_params(deep=False)
        text = ", ".join(f"{name}={params[name]}" for name in shown if name in params)
        facts.append((method.name, round_numbers(text)))
    facts.append(("time", f"{result.seconds:.0f} s for data, fitting and scoring"))
    return facts + environment_facts()
