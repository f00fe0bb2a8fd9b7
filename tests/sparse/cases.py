"""Models to fit on sparse rows, and a comparison of two models."""

import numpy as np
import scipy.sparse
from sklearn.base import clone

from knoi import KNOI, FourierCCA, KernelCCA, LinearCCA, NystromCCA

N, D = 1050, 60
csr = scipy.sparse.csr_array

SMALL_KNOI = KNOI(2, rank=50, epochs=2, random_state=0, n_jobs=1)
MODELS = {
    "linear": LinearCCA(2, reg=1e-3, n_jobs=1),
    "fourier": FourierCCA(2, rank=50, random_state=0, n_jobs=1),
    "nystrom": NystromCCA(2, rank=50, random_state=0, n_jobs=1),
    "nystrom chi2": NystromCCA(2, rank=20, kernel="chi2", random_state=0, n_jobs=1),
    "nystrom kmeans": NystromCCA(2, rank=20, landmarks="kmeans++", random_state=0, n_jobs=1),
    "kernel": KernelCCA(2, kernel=("rbf", "polynomial"), random_state=0, n_jobs=1),
    "knoi": SMALL_KNOI,
    "knoi low rank": clone(SMALL_KNOI).set_params(precondition="low_rank"),
    "knoi fourier": clone(SMALL_KNOI).set_params(approximation="fourier"),
    "knoi linear": clone(SMALL_KNOI).set_params(kernel="linear"),
    "knoi mixed": clone(SMALL_KNOI).set_params(kernel=("linear", "matern")),
}


def rows_for(name):
    return 250 if name == "kernel" else N


def assert_same(found, expected, tables, tolerance=1e-6):
    np.testing.assert_allclose(found.correlations_, expected.correlations_, atol=tolerance)
    X, Y = (table[:50] for table in tables)
    for Z, W in zip(found.transform(X, Y), expected.transform(X, Y), strict=True):
        np.testing.assert_allclose(Z, W, atol=tolerance * np.abs(W).max())
