"""Taylor features against their enumeration, for rows of every kind."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse

from knoi.arrays.backend import numpy_backend
from knoi.features import Taylor
from knoi.kernels import RBF
from tests.features.fitting import fit, raises, sparse_rows
from tests.memory import peak_memory_below


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).standard_normal((40, 5)) + 0.7


def taylor(sample, rank, width=2.0):
    return fit(Taylor, sample, RBF(width), rank)


def enumerated(X, centre, width, degree):
    """Every monomial by its exponents: by degree, then by the exponent of the last variable, ..."""
    U = (X - centre) / width
    exponents = [
        a for a in itertools.product(range(degree + 1), repeat=X.shape[1]) if sum(a) <= degree
    ]
    exponents.sort(key=lambda a: (sum(a), a[::-1]))
    factorials = [math.prod(map(math.factorial, a)) for a in exponents]
    monomials = np.stack([np.prod(U**a, axis=1) for a in np.array(exponents)], axis=1)
    return np.exp(-0.5 * (U**2).sum(1))[:, None] * monomials / np.sqrt(factorials)


@pytest.mark.parametrize("kept", [0, 12, 8192])
@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
def test_is_the_enumeration_however_much_is_kept_ready(rows, kept, make, monkeypatch):
    monkeypatch.setattr("knoi.features.taylor.KEPT", kept)
    monkeypatch.setattr("knoi.features.taylor.TILE", 32)  # several tiles of sparse rows
    for columns, degree in [(1, 12), (2, 9), (3, 5), (5, 1), (5, 4)]:
        X = np.where(rows > 0.5, rows, 0.0)[:, :columns]
        for centre in (np.zeros(columns), X.mean(0)):
            features = Taylor(RBF(1.5), degree, centre)
            wanted = enumerated(X, centre, 1.5, degree)
            assert features.rank == wanted.shape[1]
            np.testing.assert_allclose(features.transform(make(X)), wanted, rtol=1e-12, atol=1e-14)


def test_takes_the_largest_degree_that_fits(rows):
    assert [taylor(rows, rank).degree for rank in (6, 20, 21, 55, 56)] == [1, 1, 2, 2, 3]
    # One column has as many degrees as features: the number of them ends somewhere.
    single = taylor(rows[:, :1], 5000)
    assert (single.degree, single.rank) == (100, 101)
    Phi = single.transform(rows[:, :1])
    np.testing.assert_allclose(Phi @ Phi.T, RBF(2.0)(rows[:, :1], rows[:, :1]), atol=1e-13)


def test_the_centre_is_the_mean_of_dense_rows_and_0_of_sparse_ones(rows):
    np.testing.assert_allclose(taylor(rows, 6).centre, rows.mean(0))
    assert (taylor(scipy.sparse.csr_array(rows), 6).centre == 0).all()
    # Far from the origin, only the centre makes the features any good.
    far = rows + 1e3
    Phi = taylor(far, 3003).transform(far)
    np.testing.assert_allclose(Phi @ Phi.T, RBF(2.0)(rows, rows), atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
def test_rows_beyond_all_bounds_have_no_features(rows, dtype, make):
    X = rows.astype(dtype)
    X[3] *= np.finfo(dtype).max / 1e3
    X[4] *= 1e4
    # In these widths the rows exceed every number.
    for degree, width, centre in itertools.product((1, 2, 7), (1e-2, 1e-6), (0.0, 1.0)):
        features = Taylor(RBF(width), degree, np.full(5, centre)).to(numpy_backend(dtype))
        Phi = features.transform(make(X))
        assert Phi.dtype == dtype
        assert (Phi[3:5] == 0).all()
        assert np.isfinite(Phi).all()


def test_a_block_of_half_a_million_features_touches_no_others():
    sample = sparse_rows(128, 1000, 20)
    features = taylor(sample, 501_501, width=1.0)
    assert (features.degree, features.rank) == (2, 501_501)
    wide = slice(400_000, 400_512)
    with peak_memory_below(128 * (1001 + 3 * 512) * 8 + 2**20):  # not the 513 MB of all features
        block = features.block(features.prepare(sample), wide)
    expected = features.block(features.prepare(sample.toarray()), wide)
    np.testing.assert_allclose(block, expected, rtol=1e-12, atol=1e-15)
    assert np.count_nonzero(block) > 0


def test_raises_for_a_rank_without_room_for_degree_1(rows):
    with raises("rank=5 is too small for Taylor features of 5 columns: degree 1 takes 6 of them"):
        taylor(rows, 5)
