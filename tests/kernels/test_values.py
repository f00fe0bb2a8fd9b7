"""Every kernel against a double loop, and against what a kernel must be."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from knoi.arrays.backend import numpy_backend, torch_backend
from knoi.exceptions import InputError
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
)
from knoi.kernels.distances import row_blocks
from tests.memory import peak_memory_below
from tests.oracles import kernels as naive

CASES = [
    (RBF(1.7), naive.rbf(1.7)),
    (Laplacian(2.3), naive.laplacian(2.3)),
    (Cauchy(1.1), naive.cauchy(1.1)),
    (Matern(1.3, nu=0.5), naive.matern(1.3, 0.5)),
    (Matern(1.3), naive.matern(1.3, 1.5)),
    (Matern(1.3, nu=2.5), naive.matern(1.3, 2.5)),
    (Matern(2.0, nu=0.8), naive.matern(2.0, 0.8)),
    (Linear(), naive.linear()),
    (Polynomial(1.5), naive.polynomial(1.5, 3, 1.0)),
    (Polynomial(0.7, degree=6, coef0=0.2), naive.polynomial(0.7, 6, 0.2)),
    (Polynomial(2.0, degree=1, coef0=0.0), naive.polynomial(2.0, 1, 0.0)),
    (SphericalPolynomial(6, coef0=0.2), naive.spherical_polynomial(6, 0.2)),
    (ArcCosine(order=0), naive.arccosine(0)),
    (ArcCosine(), naive.arccosine(1)),
    (ArcCosine(order=2), naive.arccosine(2)),
    (Chi2(0.9), naive.chi2(0.9)),
    (AdditiveChi2(), naive.additive_chi2()),
    (Intersection(), naive.intersection()),
]
STATIONARY = [RBF(1.7), Laplacian(2.3), Cauchy(1.1), Matern(1.3), Matern(2.0, nu=0.8)]
WITH_WIDTH = [*STATIONARY, Chi2(0.9), Polynomial(1.5)]
EACH = [
    *WITH_WIDTH,
    Linear(),
    SphericalPolynomial(),
    ArcCosine(),
    AdditiveChi2(),
    Intersection(),
]

for_each = pytest.mark.parametrize("kernel", EACH, ids=repr)


def label(value):
    return repr(value) if hasattr(value, "name") else ""


def data_for(kernel, n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if kernel.nonnegative:
        X = np.abs(X)
        X[rng.random(X.shape) < 0.3] = 0.0  # empty bins, often in both histograms
    return X


@pytest.mark.parametrize(("kernel", "pair"), CASES, ids=label)
def test_equals_the_double_loop(backend, kernel, pair):
    X, Z = data_for(kernel, 9, 4), data_for(kernel, 7, 4, seed=1)
    Z[2] = X[3]  # a pair at distance 0
    K = kernel(backend.asarray(X), backend.asarray(Z))
    assert K.shape == (9, 7)
    # The oracle uses arccos, which has half of the digits at an angle of 0.
    atol = 2e-8 if kernel == ArcCosine(order=0) else 1e-11
    np.testing.assert_allclose(backend.to_numpy(K), naive.gram(pair, X, Z), rtol=1e-10, atol=atol)


@for_each
@pytest.mark.parametrize("make_backend", [numpy_backend, torch_backend])
def test_float32_stays_float32_and_is_close_to_float64(make_backend, kernel):
    backend = make_backend(dtype="float32")
    X = data_for(kernel, 40, 30).astype(np.float32)
    Z = data_for(kernel, 20, 30, seed=1).astype(np.float32)
    Z[:5] = X[:5]
    K = kernel(backend.asarray(X), backend.asarray(Z))
    diag = kernel.diag(backend.asarray(X))
    expected = kernel(X.astype(np.float64), Z.astype(np.float64))
    assert K.dtype == diag.dtype == backend.xp.float32
    atol = 2e-6 * np.abs(expected).max()
    np.testing.assert_allclose(backend.to_numpy(K), expected, rtol=2e-4, atol=atol)


@for_each
def test_symmetric_with_its_diagonal_and_inputs_unchanged(backend, kernel):
    rows = data_for(kernel, 30, 6)
    rows[4] = rows[17]
    rows[5] = 0.0
    rows.setflags(write=False)
    X = backend.asarray(rows)
    K = backend.to_numpy(kernel(X, X))
    np.testing.assert_allclose(K, K.T, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(np.diagonal(K), backend.to_numpy(kernel.diag(X)), rtol=1e-12)
    np.testing.assert_allclose(backend.to_numpy(kernel(X[:9], X)), K[:9], rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(backend.to_numpy(X), rows)
    assert kernel(X[:0], X).shape == (0, 30)
    assert kernel.diag(X[:0]).shape == (0,)


@for_each
def test_blocks_of_rows_change_nothing(kernel):
    X, Z = data_for(kernel, 700, 3), data_for(kernel, 300, 3, seed=1)
    K = kernel(X, Z)
    assert len(row_blocks(K)) > 1
    np.testing.assert_allclose(K[650:], kernel(X[650:], Z), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "kernel",
    [RBF(1.7), Laplacian(2.3), Matern(1.3), Polynomial(1.5), ArcCosine(), Chi2(0.9)],
    ids=repr,
)
def test_memory_is_twice_the_result(kernel):
    X, Z = data_for(kernel, 1500, 40), data_for(kernel, 2000, 40, seed=1)
    result = 8 * 1500 * 2000
    copies_of_data = 2 * (X.nbytes + Z.nbytes)
    blocks = 12 * 2**20  # temporaries of one block of rows, 1 MB each
    with peak_memory_below(2 * result + copies_of_data + blocks):
        kernel(X, Z)


@for_each
@settings(max_examples=40)
@given(data=st.data())
def test_positive_semidefinite(kernel, data):
    low = 0.0 if kernel.nonnegative else -10.0
    shapes = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=8)
    numbers = st.floats(low, 10.0, allow_subnormal=False)
    X = data.draw(hnp.arrays(np.float64, shapes, elements=numbers))
    K = kernel(X, X)
    assert np.isfinite(K).all()
    eigenvalues = np.linalg.eigvalsh((K + K.T) / 2)
    assert eigenvalues[0] >= -1e-10 * max(eigenvalues[-1], 0.0)


class TestUnitsAndOrigins:
    """The unit and the origin of the data do not change a kernel."""

    @pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
    @pytest.mark.parametrize(("dtype", "offset"), [("float32", 1e3), ("float64", 1e6)])
    def test_no_digits_are_lost_far_from_the_origin(self, kernel, dtype, offset):
        # The reference is the shifted data after rounding: the kernel must add no error to it.
        X = (data_for(kernel, 40, 10) + offset).astype(dtype)
        Z = (data_for(kernel, 25, 10, seed=1) + offset).astype(dtype)
        exact = kernel(X.astype(np.float64) - offset, Z.astype(np.float64) - offset)
        atol = 1e-6 if dtype == "float32" else 1e-13
        np.testing.assert_allclose(kernel(X, Z), exact, rtol=0, atol=atol)

    @pytest.mark.parametrize("kernel", WITH_WIDTH, ids=repr)
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_the_unit_of_the_data_does_not_matter(self, kernel, dtype):
        X, Z = data_for(kernel, 30, 10), data_for(kernel, 20, 10, seed=1)
        expected = kernel(X, Z)
        tolerance = (5e-6 if dtype == "float32" else 1e-11) * np.abs(expected).max()
        for unit in (1e-12, 1e12):
            scaled = kernel.with_width(kernel.width * unit)
            K = scaled((X * unit).astype(dtype), (Z * unit).astype(dtype))
            np.testing.assert_allclose(K, expected, rtol=0, atol=tolerance)

    @pytest.mark.parametrize("kernel", [AdditiveChi2(), Intersection()], ids=repr)
    def test_additive_kernels_scale_with_the_data(self, kernel):
        X, Z = data_for(kernel, 30, 20), data_for(kernel, 20, 20, seed=1)
        expected = kernel(X, Z)
        for unit in (1e-30, 1e30):  # their squares are not float32 numbers
            K = kernel((X * unit).astype(np.float32), (Z * unit).astype(np.float32))
            K = K.astype(np.float64) / unit
            np.testing.assert_allclose(K, expected, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("kernel", [*STATIONARY, Chi2(1.0)], ids=repr)
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_extreme_widths_reach_their_limits(self, kernel, dtype):
        X = data_for(kernel, 20, 10).astype(dtype)
        off_diagonal = ~np.eye(20, dtype=bool)
        for width, limit in ((1e-30, 0.0), (1e300, 1.0)):
            K = kernel.with_width(width)(X, X)
            assert (np.diagonal(K) == 1.0).all()
            np.testing.assert_allclose(K[off_diagonal], limit, rtol=1e-6, atol=1e-30)

    @pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_identical_rows_have_exactly_one(self, kernel, dtype):
        X = data_for(kernel, 20, 50).astype(dtype) * 100
        Z = np.concatenate([data_for(kernel, 9, 50, seed=1).astype(dtype), X])
        assert (np.diagonal(kernel(X, Z)[:, 9:]) == 1.0).all()
        assert (np.diagonal(kernel.distance(X, Z)[:, 9:]) == 0.0).all()

    def test_nearly_identical_rows_keep_their_digits_in_float32(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((30, 100)).astype(np.float32)
        Z = X + (1e-3 * rng.standard_normal(X.shape)).astype(np.float32)
        exact = np.linalg.norm(X.astype(np.float64) - Z.astype(np.float64), axis=1)
        np.testing.assert_allclose(np.diagonal(RBF().distance(X, Z)), exact, rtol=1e-4)


class TestMatern:
    def test_of_any_order(self):
        radii = np.array([0.0, 1e-3, 0.1, 0.7, 1.0, 2.0, 5.0])
        for nu in (0.01, 0.3, 1.0, 2.49999, 4.0, 30.0, 50.0, 50.001, 120.0, 1000.0):
            K = Matern(1.0, nu=nu)(np.zeros((1, 1)), radii[:, None])[0]
            expected = [naive.matern_at(nu, r) for r in radii]
            np.testing.assert_allclose(K, expected, rtol=0, atol=2e-11)

    @pytest.mark.parametrize("nu", [1e-6, 3.0, 50.0, 51.0, 1e200])
    def test_decreases_without_nan_from_0_to_infinity(self, nu):
        radii = np.concatenate([[0.0], np.logspace(-200, 30, 400)])
        kernel, zero = Matern(1.0, nu=nu), np.zeros((1, 1))
        # One at a time: together the smallest would be rounded to the scale of the largest.
        K = np.array([kernel(zero, np.full((1, 1), r))[0, 0] for r in radii])
        assert K[0] == 1.0
        assert K[-1] == 0.0
        assert (np.diff(K) <= 1e-11).all()


class TestArcCosine:
    @pytest.mark.parametrize("order", [0, 1, 2])
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_at_parallel_opposite_and_zero_vectors(self, order, dtype):
        x = np.array([0.3, -1.2, 0.7])
        X = np.stack([x, 5 * x, -2 * x, 0 * x]).astype(dtype)
        length = np.linalg.norm(x)
        K = ArcCosine(order=order)(X, X)
        at_zero_angle = (1.0, 1.0, 3.0)[order]
        tolerance = {"float32": 3e-4, "float64": 1e-7}[dtype] * length ** (2 * order)
        np.testing.assert_allclose(K[0, 0], at_zero_angle * length ** (2 * order), rtol=1e-5)
        np.testing.assert_allclose(K[0, 1], at_zero_angle * (5 * length**2) ** order, rtol=1e-3)
        np.testing.assert_allclose(K[0, 2], 0.0, atol=tolerance)
        np.testing.assert_allclose(K[3], 0.5 if order == 0 else 0.0, rtol=1e-6)

    def test_takes_rows_of_very_different_lengths(self):
        x, z = np.array([[3.0, 4.0]]), np.array([[4.0, 3.0]])
        K = ArcCosine(order=1)(np.vstack([x * 1e-200, x * 1e150]), z)
        expected = ArcCosine(order=1)(x, z)[0, 0]
        np.testing.assert_allclose(K[:, 0], [expected * 1e-200, expected * 1e150], rtol=1e-12)


def test_every_degree_is_its_power():
    X = data_for(Linear(), 6, 3)
    for degree in range(1, 17):
        K = Polynomial(1.5, degree=degree, coef0=0.5)(X, X)
        np.testing.assert_allclose(K, (X @ X.T / 2.25 + 0.5) ** degree, rtol=1e-9)


def test_a_power_that_overflows_raises():
    X = np.full((2, 3), 1e6, dtype=np.float32)
    with pytest.raises(InputError, match=r"with width=1 and x.z up to 3e\+12 overflows float32"):
        Polynomial(1.0, degree=4)(X, X)
    assert np.isfinite(Polynomial(1.0, degree=4)(X.astype(np.float64), X.astype(np.float64))).all()
    with pytest.raises(InputError, match=r"rows of length up to 1e\+10 to the power of 2"):
        ArcCosine(order=2).diag(np.full((1, 1), 1e10, dtype=np.float32))
    for call in (lambda kernel: kernel(X, X), lambda kernel: kernel.diag(X)):
        with pytest.raises(InputError, match=r"\^9 with coef0=1e\+10 overflows float32"):
            call(SphericalPolynomial(9, coef0=1e10))


class TestHistograms:
    @pytest.mark.parametrize("kernel", [AdditiveChi2(), Intersection()], ids=repr)
    @pytest.mark.parametrize("d", [40, 4000], ids=["made dense", "sparse"])
    def test_stored_duplicates_and_zeros(self, kernel, d):
        csr = scipy.sparse.csr_array
        Z = np.zeros((7, d))
        Z[:, :40] = data_for(kernel, 7, 40)
        halves = csr((np.full(18, 0.25), np.repeat(np.arange(9), 2), np.arange(0, 19, 2)), (9, d))
        halves.has_canonical_format = False  # every entry is stored in two halves
        zeros = csr(Z)
        zeros.data[::3] = 0.0
        for X in (halves, zeros):
            expected = kernel(X.toarray(), Z)
            np.testing.assert_allclose(kernel(X, csr(Z)), expected, rtol=1e-12, atol=1e-14)

    @pytest.mark.parametrize("kernel", [Chi2(1.0), AdditiveChi2()], ids=repr)
    @pytest.mark.parametrize("make", [np.asarray, torch_backend().asarray, scipy.sparse.csr_array])
    def test_negative_values_raise(self, kernel, make):
        bad = np.ones((4, 3))
        bad[2, 1], bad[3, 0] = -0.3, -5.0
        good = make(np.ones((2, 3)))
        for call in (lambda b: kernel(b, good), lambda b: kernel(good, b), kernel.diag):
            with pytest.raises(InputError, match=f"row 2, column 1 .* the {kernel.name} kernel"):
                call(make(bad))
