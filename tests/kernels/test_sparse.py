"""Kernels and their columns give the same values for sparse rows as for dense ones."""

import numpy as np
import pytest
import scipy.sparse

from knoi.features import KernelColumns
from knoi.kernels import (
    RBF,
    AdditiveChi2,
    ArcCosine,
    Cauchy,
    Chi2,
    Intersection,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    SphericalPolynomial,
    WidthKernel,
)
from tests.bilingual_text import two_languages
from tests.memory import peak_memory_below

csr = scipy.sparse.csr_array

KERNELS = [
    RBF(9.0),
    Laplacian(60.0),
    Cauchy(9.0),
    Matern(9.0),
    Matern(9.0, nu=0.7),
    Linear(),
    Polynomial(9.0),
    SphericalPolynomial(),
    ArcCosine(0),
    ArcCosine(2),
    Chi2(60.0),
    AdditiveChi2(),
    Intersection(),
]


@pytest.fixture(params=[0.03, 0.6], ids=["few nonzeros", "many nonzeros"], scope="module")
def rows(request):
    rng = np.random.default_rng(0)

    def draw(n):
        return rng.poisson(3.0, (n, 90)) * (rng.random((n, 90)) < request.param)

    X, Z = draw(40).astype(np.float64), draw(30).astype(np.float64)
    X[3:5], Z[7] = 0.0, 0.0  # empty rows
    Z[2], X[8] = X[1], X[1]  # equal rows
    Z[4] = X[6] * (1 + 1e-9)  # nearly equal rows
    return X, Z


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_values(kernel, rows):
    for dtype, expected_dtype, tolerance in (
        (np.float64, np.float64, 1e-13),
        (np.float32, np.float32, 2e-6),
        (np.int32, np.float64, 1e-13),
    ):
        X, Z = (table.astype(dtype) for table in rows)
        expected = kernel(X.astype(np.float64), Z.astype(np.float64))
        # Dense rows are always floats.
        for one, other in ((csr(X), csr(Z)), (1.0 * X, csr(Z)), (csr(X), 1.0 * Z)):
            K = kernel(one, other)
            assert type(K) is np.ndarray
            assert K.dtype == expected_dtype
            atol = tolerance * np.abs(expected).max()
            np.testing.assert_allclose(K, expected, atol=atol)
            if dtype != np.int32:
                features = KernelColumns(kernel, other)
                prepared = features.prepare(one)
                blocks = [features.block(prepared, part) for part in features.slices(11)]
                columns = np.hstack(blocks)
                assert columns.dtype == dtype
                np.testing.assert_allclose(columns, expected, atol=10 * atol)
        expected = kernel(X.astype(np.float64), X.astype(np.float64))
        atol = tolerance * np.abs(expected).max()
        np.testing.assert_allclose(kernel(csr(X), csr(X)), expected, atol=atol)
        np.testing.assert_allclose(kernel.diag(csr(X)), np.diag(expected), atol=atol)
    if isinstance(kernel, WidthKernel):
        widths = [kernel.default_width(X) for X in (csr(rows[0]), rows[0])]
        assert widths[0] == pytest.approx(widths[1], rel=1e-12)


@pytest.mark.parametrize("kernel", [RBF, Laplacian, Cauchy, Matern, Chi2, Polynomial])
def test_the_unit_of_the_data_does_not_matter(kernel, rows):
    X, Z = rows
    expected = kernel(20.0)(X, Z)
    for unit in (1e-170, 1e170):
        scaled = kernel(20.0 * unit)
        np.testing.assert_allclose(scaled(csr(X * unit), csr(Z * unit)), expected, rtol=1e-9)
        columns = KernelColumns(scaled, csr(Z * unit))
        np.testing.assert_allclose(columns.transform(csr(X * unit)), expected, rtol=1e-9)


def test_the_fast_gaussian_is_not_used_where_it_is_inaccurate(rows):
    expected = RBF(1e-7)(rows[0], rows[1])
    for landmarks in (rows[1], csr(rows[1])):
        found = KernelColumns(RBF(1e-7), landmarks).transform(csr(rows[0]))
        np.testing.assert_array_equal(found, expected)


def test_equal_rows_have_distance_0_and_close_ones_keep_their_digits():
    rng = np.random.default_rng(0)
    X = 1e3 * rng.random((20, 50)) * (rng.random((20, 50)) < 0.3)
    Z = X.copy()
    Z[Z > 0] += 1e-6
    found = RBF().distance(csr(X), csr(Z))
    expected = np.sqrt(((X - Z) ** 2).sum(axis=1))
    np.testing.assert_allclose(np.diag(found), expected, rtol=1e-6)
    assert not np.diag(RBF().distance(csr(X), csr(X.copy()))).any()


@pytest.mark.parametrize("kernel", [RBF(9.0), Laplacian(60.0), ArcCosine(1)], ids=repr)
def test_a_million_columns_take_little_memory(kernel):
    X, Z, _ = two_languages(300, 10**6)
    with peak_memory_below(300 * 10**6 * 4 / 8):
        K = kernel(X, Z)
        KernelColumns(kernel, Z).transform(X)
    columns = np.unique(np.concatenate([X[:20].indices, Z[:20].indices]))
    few = [rows[:20][:, columns].toarray().astype(np.float64) for rows in (X, Z)]
    expected = kernel(*few)
    np.testing.assert_allclose(K[:20, :20], expected, atol=1e-5 * np.abs(expected).max())
