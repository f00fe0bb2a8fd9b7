"""The real data that feature maps are evaluated on: training rows and test rows.

MNIST's pixels are divided by 255, Wikipedia's visual words are unscaled histograms, and the columns
of articulation have unit variance.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper import two_views

SAMPLE = 4000  # as many as an estimator looks at to fit widths and maps


class Rows(NamedTuple):
    """One view of a data set, float64."""

    sample: NDArray[np.float64]  # training rows: widths, centres and landmarks come from these
    test: NDArray[np.float64]  # all others


def mnist() -> Rows:
    """Left halves of digits, 392 columns."""
    return _rows(*_two_views("mnist", 0))


def mocha_windows() -> Rows:
    """Where the tongue, lips and jaw are in seven successive frames, 98 columns."""
    return _rows(*_two_views("mocha", 1))


def mocha() -> Rows:
    """The same in one frame, 14 columns."""
    train, test = _two_views("mocha", 1)
    columns = train.shape[1] // 7
    middle = slice(3 * columns, 4 * columns)
    return _rows(train[:, middle], test[:, middle])


def wikipedia() -> Rows:
    """How often each of 128 visual words is found in a picture, as a share of all."""
    return _rows(*_two_views("wikipedia", 0))


DATA_SETS = {
    "mnist": mnist,
    "mocha-windows": mocha_windows,
    "mocha": mocha,
    "wikipedia": wikipedia,
}


@cache
def load(name: str) -> Rows:
    """The data set of that name, read once."""
    return DATA_SETS[name]()


@cache
def _two_views(name: str, view: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    data = two_views.DATA_SETS[name]()
    return data.train[view], data.test[view]


def _rows(train: NDArray[np.float32], test: NDArray[np.float32]) -> Rows:
    """Rows in random order: neighbouring frames of speech are nearly the same."""
    draw = np.random.default_rng(0)
    chosen = draw.permutation(len(train))[:SAMPLE]
    order = draw.permutation(len(test))
    return Rows(train[chosen].astype(np.float64), test[order].astype(np.float64))
