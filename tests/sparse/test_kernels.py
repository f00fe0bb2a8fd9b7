"""Kernels and their columns give the same for sparse rows as for dense ones."""

import tracemalloc

import numpy as np
import pytest

from knoi.features import KernelColumns
from knoi.kernels import (
    RBF,
    ArcCosine,
    Cauchy,
    Chi2,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    default_width,
)
from tests.sparse.models import csr
from tests.topics import two_languages

KERNELS = {
    "rbf": RBF(9.0),
    "laplacian": Laplacian(60.0),
    "cauchy": Cauchy(9.0),
    "matern-0.5": Matern(9.0, nu=0.5),
    "matern-1.5": Matern(9.0),
    "matern-0.7": Matern(9.0, nu=0.7),
    "linear": Linear(),
    "polynomial": Polynomial(9.0),
    "arccosine-0": ArcCosine(0),
    "arccosine-1": ArcCosine(1),
    "arccosine-2": ArcCosine(2),
    "chi2": Chi2(60.0),
}


@pytest.fixture(params=[0.03, 0.6], ids=["sparse", "hardly sparse"], scope="module")
def rows(request):
    rng = np.random.default_rng(0)

    def draw(n):
        return rng.poisson(3.0, (n, 90)) * (rng.random((n, 90)) < request.param)

    X, Z = draw(40).astype(np.float64), draw(30).astype(np.float64)
    X[3:5], Z[7] = 0.0, 0.0  # rows of nothing
    Z[2], X[8] = X[1], X[1]  # the same row
    Z[4] = X[6] * (1 + 1e-9)  # all but the same
    return X, Z


class TestKernels:
    @pytest.mark.parametrize("name", KERNELS)
    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
    def test_as_of_dense_rows(self, name, dtype, rows):
        kernel, wanted = KERNELS[name], np.float32 if dtype == np.float32 else np.float64
        X, Z = (table.astype(dtype) for table in rows)
        expected = kernel(X.astype(np.float64), Z.astype(np.float64))
        atol = 2e-6 if dtype == np.float32 else 1e-13
        for one, other in ((csr(X), csr(Z)), (X, csr(Z)), (csr(X), Z)):
            K = kernel(one, other)
            assert type(K) is np.ndarray
            assert K.dtype == wanted
            np.testing.assert_allclose(K, expected, atol=atol * np.abs(expected).max())
        own = kernel(X.astype(np.float64), X.astype(np.float64))
        K = kernel(csr(X), csr(X))
        np.testing.assert_allclose(K, own, atol=atol * np.abs(own).max())
        np.testing.assert_allclose(kernel.diag(csr(X)), np.diag(own), atol=atol * np.abs(own).max())

    @pytest.mark.parametrize("name", [name for name in KERNELS if hasattr(KERNELS[name], "width")])
    def test_widths_as_of_dense_rows(self, name, rows):
        kernel = type(KERNELS[name])()
        found = default_width(kernel, csr(rows[0]))
        assert found == pytest.approx(default_width(kernel, rows[0]), rel=1e-12)

    @pytest.mark.parametrize("name", KERNELS)
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_landmarks(self, name, dtype, rows):
        kernel = KERNELS[name]
        X, Z = (table.astype(dtype) for table in rows)
        expected = kernel(X.astype(np.float64), Z.astype(np.float64))
        atol = (3e-6 if dtype == np.float32 else 1e-12) * np.abs(expected).max()
        for rows_as, landmarks in ((csr, csr(Z)), (csr, Z), (np.asarray, csr(Z))):
            features = KernelColumns(kernel, landmarks)
            prepared = features.prepare(rows_as(X))
            for part in (slice(0, 25), slice(25, 40)):
                for columns in features.slices(11):
                    out = np.empty((part.stop - part.start, columns.stop - columns.start), dtype)
                    assert features.block(prepared[part, :], columns, out=out) is out
                    np.testing.assert_allclose(out, expected[part, columns], atol=atol)
            assert features.block(prepared, slice(3, 5)).dtype == dtype
            assert features.scratch_per_row() > 0

    @pytest.mark.parametrize("unit", [1e-170, 1e170])
    @pytest.mark.parametrize("kernel", [RBF, Laplacian, Cauchy, Matern, Chi2, Polynomial])
    def test_in_any_unit(self, kernel, unit, rows):
        X, Z = rows
        expected = kernel(20.0)(X, Z)
        scaled = kernel(20.0 * unit)
        np.testing.assert_allclose(scaled(csr(X * unit), csr(Z * unit)), expected, rtol=1e-9)
        columns = KernelColumns(scaled, csr(Z * unit))
        np.testing.assert_allclose(columns.transform(csr(X * unit)), expected, rtol=1e-9)

    def test_the_fast_gaussian_gives_way_where_digits_are_lost(self, rows):
        far = KernelColumns(RBF(1e-7), csr(rows[1]))
        near = far.transform(csr(rows[0]))
        np.testing.assert_array_equal(near, RBF(1e-7)(rows[0], rows[1]))

    def test_equal_rows_are_at_no_distance_and_close_ones_keep_their_digits(self):
        rng = np.random.default_rng(0)
        X = 1e3 * rng.random((20, 50)) * (rng.random((20, 50)) < 0.3)
        Z = X.copy()
        Z[Z > 0] += 1e-6
        found = RBF().distance(csr(X), csr(Z))
        apart = np.sqrt(((X - Z) ** 2).sum(axis=1))
        np.testing.assert_allclose(np.diag(found), apart, rtol=1e-6)
        assert not np.diag(RBF().distance(csr(X), csr(X.copy()))).any()

    @pytest.mark.parametrize("name", ["rbf", "laplacian", "cauchy", "chi2", "arccosine-1"])
    def test_a_million_columns_take_little_memory(self, name):
        X, Z, _ = two_languages(300, 10**6)
        kernel = KERNELS[name]
        tracemalloc.start()
        K = kernel(X, Z)
        KernelColumns(kernel, Z).transform(X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 300 * 10**6 * 4 / 8
        columns = np.unique(np.concatenate([X[:20].indices, Z[:20].indices]))
        few = [rows[:20][:, columns].toarray().astype(np.float64) for rows in (X, Z)]
        expected = kernel(*few)
        np.testing.assert_allclose(K[:20, :20], expected, atol=1e-5 * np.abs(expected).max())
