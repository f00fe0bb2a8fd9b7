"""Input that no metric accepts: the message says what came and what was wanted."""

import re

import numpy as np
import pytest

from knoi import metrics
from knoi.exceptions import InputError, InputTypeError, MemoryBudgetError, NonFiniteError

Z = np.arange(6.0).reshape(3, 2)
ONE = Z[:, :1]
VALUES = [
    ("canonical_correlations", (Z[0], Z), "Zx has shape (2,) and dtype float64: wanted a 2-D"),
    ("canonical_correlations", (Z[:1], Z[:1]), "Zx has shape (1, 2) and dtype float64: wanted"),
    ("canonical_correlations", (Z, Z[:, :0]), "Zy has shape (3, 0) and dtype float64: wanted"),
    ("canonical_correlations", (Z, Z * 1j), "Zy has shape (3, 2) and dtype complex128: wanted"),
    ("canonical_correlations", (Z, Z[:2]), "Zx has 3 rows but Zy has 2: the views are paired"),
    ("redundancy", (Z, Z[:2]), "X has 3 rows but Z has 2: the views are paired row by row"),
    ("top_matches", (Z, ONE, 1), "queries has 2 columns but gallery has 1: component j of one"),
    ("top_matches", (Z, Z, 4), "k=4: wanted a whole number from 1 to 3, the rows of the gallery"),
]
FITTED = {"measure": "fitted", "fit_on": (ONE, Z)}
OPTIONS = [
    ("total_correlation", {"measure": "best"}, "measure='best': wanted one of 'refit', 'fitted'"),
    ("total_correlation", {"fit_on": (Z, Z)}, 'fit_on was given with measure="refit"'),
    ("total_correlation", FITTED, "Zx has 2 columns but fit_on[0] has 1: component j of one"),
    ("permutation_test", {"n_permutations": 0}, "n_permutations=0: wanted a whole number >= 1"),
    ("retrieval_ranks", {"similarity": "near"}, "similarity='near': wanted one of 'cosine'"),
    ("retrieval_ranks", {"direction": "up"}, "direction='up': wanted one of 'x_to_y', 'y_to_x'"),
    ("cross_view_retrieval", {"ks": (0,)}, "ks=(0,): wanted whole numbers of at least 1"),
]


@pytest.mark.parametrize(
    ("metric", "args", "options", "message"),
    [(name, args, {}, message) for name, args, message in VALUES]
    + [(name, (Z, Z), options, message) for name, options, message in OPTIONS],
    ids=range(len(VALUES) + len(OPTIONS)),
)
def test_bad_input_is_explained(metric, args, options, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
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
