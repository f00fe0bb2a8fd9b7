"""Input that no metric accepts: the message says what came, what was wanted and what to do."""

import re

import numpy as np
import pytest

from knoi import metrics
from knoi.exceptions import InputError, InputTypeError, MemoryBudgetError, NonFiniteError

Z = np.arange(6.0).reshape(3, 2)
SHAPE = (
    "{} has shape {} and dtype {}: wanted a 2-D array of real numbers, with 2 or more rows "
    "(samples) and one column per component. A single component is reshaped with Z[:, None]."
)
UNPAIRED = "{} has 3 rows but {} has 2: the views are paired row by row. Drop the unpaired rows."
WIDTH = (
    "{} has 2 columns but {} has 1: component j of one is compared with component j of the other. "
    "Pass the same number of components."
)
VALUES = [
    ("canonical_correlations", (Z[0], Z), SHAPE.format("Zx", "(2,)", "float64")),
    ("canonical_correlations", (Z[:1], Z[:1]), SHAPE.format("Zx", (1, 2), "float64")),
    ("canonical_correlations", (Z, Z[:, :0]), SHAPE.format("Zy", (3, 0), "float64")),
    ("canonical_correlations", (Z, Z * 1j), SHAPE.format("Zy", (3, 2), "complex128")),
    ("canonical_correlations", (Z, Z[:2]), UNPAIRED.format("Zx", "Zy")),
    ("redundancy", (Z, Z[:2]), UNPAIRED.format("X", "Z")),
    ("top_matches", (Z, Z[:, :1], 1), WIDTH.format("queries", "gallery")),
    ("top_matches", (Z, Z, 4), "k=4: wanted a whole number from 1 to 3, the rows of the gallery."),
]
OPTIONS = [
    ("total_correlation", {"measure": "best"}, "measure='best': wanted one of 'refit', 'fitted'."),
    (
        "total_correlation",
        {"fit_on": (Z, Z)},
        'fit_on was given with measure="refit", which fits on the projections it scores. '
        'Leave fit_on out, or pass measure="fitted".',
    ),
    (
        "total_correlation",
        {"measure": "fitted", "fit_on": (Z[:, :1], Z)},
        WIDTH.format("Zx", "fit_on[0]"),
    ),
    (
        "permutation_test",
        {"n_permutations": 0},
        "n_permutations=0: wanted a whole number >= 1, such as 999.",
    ),
    (
        "retrieval_ranks",
        {"similarity": "near"},
        "similarity='near': wanted one of 'cosine', 'euclidean', 'dot'.",
    ),
    ("retrieval_ranks", {"direction": "up"}, "direction='up': wanted one of 'x_to_y', 'y_to_x'."),
    (
        "cross_view_retrieval",
        {"ks": (0,)},
        "ks=(0,): wanted whole numbers of at least 1, e.g. (1, 5, 10).",
    ),
]


@pytest.mark.parametrize(
    ("metric", "args", "options", "message"),
    [(name, args, {}, message) for name, args, message in VALUES]
    + [(name, (Z, Z), options, message) for name, options, message in OPTIONS],
    ids=range(len(VALUES) + len(OPTIONS)),
)
def test_bad_input_is_explained(metric, args, options, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        getattr(metrics, metric)(*args, **options)


def test_errors_of_other_classes():
    with pytest.raises(InputTypeError, match=r"^Zx cannot be read as an array"):
        metrics.canonical_correlations([[1.0, 2.0], [3.0]], Z)
    with pytest.raises(InputTypeError, match=r"^n_permutations=9\.0: wanted a whole number"):
        metrics.permutation_test(Z, Z, 9.0)
    with pytest.raises(NonFiniteError, match=r"^Zy has NaN at row 1, column 1: "):
        metrics.canonical_correlations(Z, np.where(Z == 3, np.nan, Z))
    with pytest.raises(MemoryBudgetError, match=r"takes 120 bytes\. Raise block_bytes\.$"):
        metrics.retrieval_ranks(Z, Z, block_bytes=10)
