"""Products of sparse rows."""

import numpy as np
import pytest
import scipy.sparse

from knoi.arrays.sparse import inner, product, same_rows, squared_norms


@pytest.fixture(params=["few nonzeros", "many"])
def rows(request):
    density = 0.01 if request.param == "few nonzeros" else 0.5
    rng = np.random.default_rng(0)
    return scipy.sparse.random_array((6, 200), density=density, rng=rng, format="csr")


@pytest.mark.parametrize("columns", [slice(0, 12), slice(3, 9)], ids=["all of W", "a block of W"])
def test_product_with_any_part_of_a_matrix(rows, columns):
    W = np.random.default_rng(1).standard_normal((200, 12))[:, columns]
    expected, before = rows.toarray() @ W, rows.copy()
    np.testing.assert_allclose(product(rows, W), expected, atol=1e-14)
    out = np.full((6, W.shape[1] + 1), np.nan)[:, 1:]
    assert product(rows, W, out=out) is out
    np.testing.assert_allclose(out, expected, atol=1e-14)
    assert (rows.indices == before.indices).all()
    assert rows.shape == before.shape


def test_inner_products_and_norms(rows):
    X = rows.toarray()
    for A, B in ((rows, rows), (rows, X), (X, rows), (X, X)):
        np.testing.assert_allclose(inner(A, B), X @ X.T, atol=1e-14)
    np.testing.assert_allclose(squared_norms(rows), np.sum(X * X, axis=1))


def test_same_rows_finds_a_constant_view():
    assert same_rows(scipy.sparse.csr_array(np.tile([0.0, 2.0, 0.0, 1.0], (5, 1))))
    assert same_rows(scipy.sparse.csr_array((5, 3)))
    zeros = scipy.sparse.csr_array(([0.0, 1.0, 1.0], [0, 1, 1], [0, 2, 3]), shape=(2, 3))
    assert same_rows(zeros)  # one zero is stored
    assert not same_rows(scipy.sparse.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]])))
    assert not same_rows(scipy.sparse.csr_array(np.array([[0.0, 1.0], [0.0, 2.0]])))
    assert not same_rows(scipy.sparse.csr_array(np.array([[0.0, 1.0], [0.0, 0.0]])))
