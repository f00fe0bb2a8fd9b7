"""The same model whatever holds the data."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from knoi import KNOI
from knoi.estimators import ESTIMATORS
from tests.estimators.models import assert_same_model, small


@pytest.fixture(scope="module", params=ESTIMATORS)
def fitted(request):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, (60, 4)) * (rng.random((60, 4)) < 0.6)
    Y = X[:, :3] + rng.integers(0, 3, (60, 3))
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    for view in (X, Y):
        view.setflags(write=False)
    return request.param, well_conditioned(request.param).fit(X, Y), X, Y


def well_conditioned(estimator):
    """A model that comes out the same in float32: KNOI's landmarks here are too many for that."""
    few = {"rank": 10, "approximation": "fourier"} if estimator is KNOI else {}
    return small(estimator, reg=1e-2, **few)


class TestWhateverHoldsTheData:
    """All rows are landmarks here: which rows a sample takes may depend on what holds the data."""

    def assert_same(self, fitted, A, B, tolerance=1e-8):
        estimator, expected, X, Y = fitted
        model = well_conditioned(estimator).fit(A, B)
        assert_same_model(model, expected, X, Y, tolerance)
        Zx, Zy = model.transform(A, B)
        np.testing.assert_allclose(Zx, model.transform(X), atol=tolerance * 100)
        np.testing.assert_allclose(Zy, model.transform_y(Y), atol=tolerance * 100)

    def test_lists(self, fitted):
        self.assert_same(fitted, fitted[2].tolist(), fitted[3].tolist())

    def test_fortran_order(self, fitted):
        self.assert_same(fitted, np.asfortranarray(fitted[2]), fitted[3][::-1][::-1])

    @pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float16])
    def test_narrow_numbers(self, fitted, dtype):
        self.assert_same(fitted, fitted[2].astype(dtype), fitted[3].astype(dtype), 2e-4)

    def test_a_narrow_and_a_wide_view(self, fitted):
        self.assert_same(fitted, fitted[2].astype(np.uint8), fitted[3], 2e-4)

    @pytest.mark.parametrize("layout", [scipy.sparse.csr_array, scipy.sparse.coo_matrix])
    def test_sparse(self, fitted, layout):
        self.assert_same(fitted, layout(fitted[2]), layout(fitted[3]))

    def test_pandas(self, fitted):
        self.assert_same(fitted, pd.DataFrame(fitted[2]), pd.DataFrame(fitted[3]))

    def test_torch(self, fitted):
        self.assert_same(fitted, torch.tensor(fitted[2]), torch.tensor(fitted[3]))

    def test_npy(self, fitted, tmp_path):
        np.save(tmp_path / "x.npy", fitted[2])
        np.save(tmp_path / "y.npy", fitted[3])
        self.assert_same(fitted, tmp_path / "x.npy", str(tmp_path / "y.npy"))

    def test_hdf5(self, fitted, tmp_path):
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "views.h5", "w") as file:
            file["left"], file["right"] = fitted[2], fitted[3]
        self.assert_same(fitted, f"{tmp_path}/views.h5:/left", f"{tmp_path}/views.h5:/right")

    def test_parquet(self, fitted, tmp_path):
        for name, view in (("x", fitted[2]), ("y", fitted[3])):
            frame = pd.DataFrame(view, columns=[f"{name}{i}" for i in range(view.shape[1])])
            frame.to_parquet(tmp_path / f"{name}.parquet")
        self.assert_same(fitted, tmp_path / "x.parquet", tmp_path / "y.parquet")
