"""The page that shows a demo's results: the table, the correlations, halves found, run facts."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray

from knoi import __version__
from knoi.datasets import EndlessDigits
from knoi.demo import (
    N_COMPONENTS,
    TABLE_COLUMNS,
    DemoResult,
    MethodResult,
    best_cells,
    table_rows,
)
from knoi.estimators.base import BaseCCA
from knoi.report.page import Cards, Facts, Figure, Gallery, Picture, Report, Section, Strip, Table
from knoi.report.pictures import LineChart, Series

# What stands for the half that is to be found.
_UNKNOWN_GREY = 96


def demo_report(result: DemoResult) -> Report:
    """The page that shows a demo's results."""
    return Report(
        title="The right half of a digit from its left half",
        subtitle=f"knoi {__version__} demo: canonical correlation analysis, linear and with "
        "kernels, on data made without a download.",
        sections=(
            _summary(result),
            _correlations(result),
            _retrieval(result),
            Section("This run", "What is needed to repeat it.", (_facts(result),)),
        ),
    )


def _summary(result: DemoResult) -> Section:
    n = result.linear.retrieval.n_queries
    cards = Cards(
        tuple(
            (
                method.name,
                f"{method.retrieval.recall[1]:.1%}",
                f"found at the first try; total correlation {method.fitted:.2f}",
            )
            for method in result.methods
        )
    )
    table = Table(TABLE_COLUMNS, table_rows(result), best_cells(result), len(result.methods))
    return Section(
        "How well the halves find each other",
        f"Each method learned {N_COMPONENTS} components from {result.samples:,} pairs of halves. "
        f"The numbers are of {n:,} other images, deformed from other handwritten digits. Total "
        f"correlation is at most {N_COMPONENTS}: fitted takes the components as learned, refit "
        "aligns them anew on the test images. Recall@k is how often the true right half is among "
        f"the k nearest of all {n:,}; median rank 1 means it is usually the nearest.",
        (cards, table),
    )


def _correlations(result: DemoResult) -> Section:
    chart = LineChart(
        title="Held-out correlation of each component, by method",
        x_label="component",
        y_label="held-out correlation",
        series=tuple(
            Series(method.name, tuple(float(r) for r in method.correlations))
            for method in result.methods
        ),
    )
    sums = ", ".join(f"{method.name} {method.fitted:.2f}" for method in result.methods)
    return Section(
        "Correlation by component",
        "How strongly each learned component of the left half goes with its partner of the right "
        "half, on the test images. 1 is perfect.",
        (Figure(chart, f"Added up, the fitted total correlation: {sums}."),),
    )


def _retrieval(result: DemoResult) -> Section:
    left, right = _halves(result.digits)
    rows = []
    for i, query in enumerate(result.examples):
        label = int(result.digits.labels_test[query])
        hidden = np.full_like(right[query], _UNKNOWN_GREY)
        given = Strip(
            f"Given: a {label}",
            (
                Picture(np.hstack([left[query], hidden]), f"left half of a {label}", "left half"),
                Picture(np.hstack([left[query], right[query]]), f"the whole {label}", "the truth"),
            ),
        )
        found = (
            _found(method, i, int(query), result, left, right)
            for method in (result.linear, result.best_kernel)
        )
        rows.append((given, *found))
    return Section(
        "Look for yourself",
        "Test images of different digits, drawn at random. The left half is given; each method "
        "looks for the right half among all test images. Its five nearest, best first, are shown "
        "put together with the given half. A frame and a tick mark the true half; the others say "
        "which digit they were cut from.",
        (Gallery(tuple(rows)),),
    )


def _found(
    method: MethodResult,
    i: int,
    query: int,
    result: DemoResult,
    left: NDArray[np.uint8],
    right: NDArray[np.uint8],
) -> Strip:
    pictures = []
    for place, match in enumerate(method.matches[i], start=1):
        label = int(result.digits.labels_test[match])
        correct = int(match) == query
        pictures.append(
            Picture(
                np.hstack([left[query], right[match]]),
                f"{method.name}, place {place}: "
                + ("the true right half" if correct else f"the right half of another {label}"),
                "✓ true" if correct else f"of a {label}",
                marked=correct,
            )
        )
    return Strip(f"Found by {method.name}", tuple(pictures))


def _halves(digits: EndlessDigits) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Left and right halves of the test images as pictures."""
    left, right = (
        np.rint(view * 255).astype(np.uint8).reshape(-1, *shape)
        for view, shape in (
            (digits.X_test, digits.left_shape),
            (digits.Y_test, digits.right_shape),
        )
    )
    return left, right


def _facts(result: DemoResult) -> Facts:
    height, width = result.digits.image_shape
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn"))
    return Facts(
        (
            ("command", f"knoi demo --samples {result.samples} --seed {result.seed}"),
            (
                "data",
                f"scikit-learn's handwritten digits, enlarged to {height} x {width} pixels and "
                f"deformed at random: {result.samples:,} training images, "
                f"{len(result.digits.X_test):,} test images from base digits held out",
            ),
            *((method.name, _settings(method.model)) for method in result.methods),
            ("versions", f"knoi {__version__}, Python {platform.python_version()}, {libraries}"),
            ("machine", f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"),
            ("time", f"{result.seconds:.0f} s for data, fitting and scoring"),
            ("date", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        )
    )


def _settings(model: BaseCCA) -> str:
    """The parameters that make the model what it is."""
    shown = ("n_components", "rank", "kernel", "width", "reg")
    params = model.get_params(deep=False)
    return ", ".join(f"{name}={params[name]}" for name in shown if name in params)
