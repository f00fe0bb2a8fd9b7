"""A million sparse columns, never stored as a dense table."""

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from knoi import KNOI, FourierCCA, LinearCCA
from knoi.arrays.backend import numpy_backend
from knoi.engine import Serial
from knoi.exceptions import MemoryBudgetError
from knoi.features import Identity
from knoi.solvers.acceleration import LowRank
from tests.bilingual_text import TOPICS, two_languages


@pytest.fixture(scope="module")
def wide():
    return two_languages(1100, 10**6)


class TestManyColumns:
    @pytest.mark.parametrize(
        ("model", "advice"),
        [
            (FourierCCA(rank=4096, memory_budget="8GiB"), "Use NystromCCA, whose landmarks stay"),
            (
                KNOI(rank=4096, approximation="fourier", memory_budget="8GiB"),
                "Set approximation='nystrom', whose landmarks stay sparse, hash the columns",
            ),
            (LinearCCA(memory_budget="8GiB"), "Drop columns or raise memory_budget."),
        ],
        ids=["FourierCCA", "KNOI", "LinearCCA"],
    )
    def test_too_large_models_raise_before_memory_is_allocated(self, model, advice, wide):
        tracemalloc.start()
        with pytest.raises(MemoryBudgetError, match=advice):
            model.fit(*wide[:2])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**29

    def test_linear_steps_keep_the_rows_sparse(self):
        X, Y, correlation = two_languages(2000, 50_000)
        model = KNOI(TOPICS, kernel="linear", epochs=10, random_state=0, n_jobs=1)
        tracemalloc.start()
        model.fit(X[:1500], Y[:1500])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1500 * 50_000 * 4
        assert model.score(X[1500:], Y[1500:]) > 0.9 * TOPICS * correlation

    @pytest.mark.parametrize("n_cols", [40, 900], ids=["more rows", "more columns"])
    def test_the_preconditioner_is_the_same_for_sparse_and_dense_rows(self, n_cols):
        X, _, _ = two_languages(300, n_cols, dtype=np.float64)
        fit = (Identity(n_cols), X, 100, 1e-6, numpy_backend("float64"), Serial())
        sparse, dense = (LowRank.fit(fit[0], rows, *fit[2:]) for rows in (X, X.toarray()))
        G = np.random.default_rng(0).standard_normal((n_cols, 2))
        expected = dense(G, G)
        assert np.abs(expected - G).max() > 0.1  # it is not the identity
        np.testing.assert_allclose(sparse(G, G), expected, atol=1e-9)


PEAK = """
import json
from knoi import KNOI, NystromCCA
from tests.bilingual_text import TOPICS, two_languages

X, Y, correlation = two_languages(2500, 1_000_000)
models = {
    "NystromCCA": NystromCCA(TOPICS, rank=200, reg=1e-3, random_state=0, n_jobs=1),
    "KNOI": KNOI(TOPICS, rank=300, epochs=4, random_state=0, n_jobs=1),
}
reached = {}
for name, model in models.items():
    model.fit(X[:2000], Y[:2000])
    reached[name] = model.score(X[2000:], Y[2000:]) / (TOPICS * correlation)
# Not ru_maxrss: that starts from the peak of the parent process.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
peak = int(status["VmHWM"].split()[0]) * 1024
print(json.dumps({"reached": reached, "peak": peak}))
"""


def test_a_million_columns_from_end_to_end():
    """2000 rows of a million columns are 8 GB as a dense table."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["peak"] < 2**30
    assert min(result["reached"].values()) > 0.9
