"""The same model from lists, arrays, sparse matrices, data frames, tensors and files."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from knoi import KNOI, KernelCCA, NystromCCA
from tests.estimators.models import assert_same_model, small


@pytest.fixture(scope="module", params=[NystromCCA, KernelCCA, KNOI])
def fitted(request):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, (60, 4)) * (rng.random((60, 4)) < 0.6)
    Y = X[:, :3] + rng.integers(0, 3, (60, 3))
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    for view in (X, Y):
        view.setflags(write=False)
    return request.param, well_conditioned(request.param).fit(X, Y), X, Y


def well_conditioned(estimator):
    """A model that is the same in float32: with fewer features for KNOI."""
    few = {"rank": 10, "approximation": "fourier"} if estimator is KNOI else {}
    return small(estimator, reg=1e-2, **few)


class TestInputTypes:
    """All rows are landmarks: which rows are sampled may depend on the input type."""

    def assert_same(self, fitted, A, B, tolerance=1e-8):
        estimator, expected, X, Y = fitted
        model = well_conditioned(estimator).fit(A, B)
        assert_same_model(model, expected, X, Y, tolerance)
        Zx, Zy = model.transform(A, B)
        np.testing.assert_allclose(Zx, model.transform(X), atol=tolerance * 100)
        np.testing.assert_allclose(Zy, model.transform_y(Y), atol=tolerance * 100)

    def test_lists_and_strided_arrays(self, fitted):
        self.assert_same(fitted, fitted[2].tolist(), fitted[3].tolist())
        self.assert_same(fitted, np.asfortranarray(fitted[2]), fitted[3][::-1][::-1])

    @pytest.mark.parametrize("dtypes", [("u1", "f8"), ("i2", "f2"), ("f4", "f4")])
    def test_narrow_numbers(self, fitted, dtypes):
        self.assert_same(fitted, fitted[2].astype(dtypes[0]), fitted[3].astype(dtypes[1]), 2e-4)

    @pytest.mark.parametrize(
        "kind", [scipy.sparse.csr_array, scipy.sparse.coo_matrix, pd.DataFrame, torch.tensor]
    )
    def test_sparse_arrays_frames_and_tensors(self, fitted, kind):
        self.assert_same(fitted, kind(fitted[2]), kind(fitted[3]))

    def test_files(self, fitted, tmp_path):
        h5py = pytest.importorskip("h5py")
        *_, X, Y = fitted
        np.save(tmp_path / "x.npy", X)
        pd.DataFrame(Y, columns=list("abc")).to_parquet(tmp_path / "y.parquet")
        with h5py.File(tmp_path / "views.h5", "w") as file:
            file["left"], file["right"] = X, Y
        self.assert_same(fitted, tmp_path / "x.npy", str(tmp_path / "y.parquet"))
        self.assert_same(fitted, f"{tmp_path}/views.h5:/left", f"{tmp_path}/views.h5:/right")
