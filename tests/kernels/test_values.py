"""Every kernel against a double loop, against scikit-learn, and against what a kernel must be."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import pairwise

from knoi.arrays.backend import numpy_backend, torch_backend
from knoi.exceptions import InputError
from knoi.kernels import (
    RBF,
    ArcCosine,
    Cauchy,
    Chi2,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    SphericalPolynomial,
    StationaryKernel,
)
from knoi.kernels.distances import row_blocks
from tests.oracles import kernels as naive

CASES = [
    (RBF(1.7), naive.rbf(1.7)),
    (Laplacian(2.3), naive.laplacian(2.3)),
    (Cauchy(1.1), naive.cauchy(1.1)),
    (Matern(1.3, nu=0.5), naive.matern(1.3, 0.5)),
    (Matern(1.3), naive.matern(1.3, 1.5)),
    (Matern(1.3, nu=2.5), naive.matern(1.3, 2.5)),
    (Matern(2.0, nu=0.8), naive.matern(2.0, 0.8)),
    (Matern(2.0, nu=7.0), naive.matern(2.0, 7.0)),
    (Linear(), naive.linear()),
    (Polynomial(1.5), naive.polynomial(1.5, 3, 1.0)),
    (Polynomial(0.7, degree=6, coef0=0.2), naive.polynomial(0.7, 6, 0.2)),
    (Polynomial(2.0, degree=1, coef0=0.0), naive.polynomial(2.0, 1, 0.0)),
    (SphericalPolynomial(), naive.spherical_polynomial(3, 1.0)),
    (SphericalPolynomial(6, coef0=0.2), naive.spherical_polynomial(6, 0.2)),
    (ArcCosine(order=0), naive.arccosine(0)),
    (ArcCosine(), naive.arccosine(1)),
    (ArcCosine(order=2), naive.arccosine(2)),
    (Chi2(0.9), naive.chi2(0.9)),
]
KERNELS_ONLY = [kernel for kernel, _ in CASES]
STATIONARY = [kernel for kernel in KERNELS_ONLY if isinstance(kernel, StationaryKernel)]
SCALED = [*STATIONARY, Chi2(0.9), Polynomial(1.5)]


def label(value):
    return repr(value) if not callable(value) or hasattr(value, "name") else ""


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
    # An angle of 0 has half of the digits only in the oracle, which goes through arccos.
    atol = 2e-8 if kernel == ArcCosine(order=0) else 1e-11
    np.testing.assert_allclose(backend.to_numpy(K), naive.gram(pair, X, Z), rtol=1e-10, atol=atol)


@pytest.mark.parametrize("kernel", KERNELS_ONLY, ids=repr)
@pytest.mark.parametrize("make_backend", [numpy_backend, torch_backend])
def test_float32_stays_float32_and_is_close_to_float64(make_backend, kernel):
    backend = make_backend(dtype="float32")
    X = data_for(kernel, 40, 30).astype(np.float32)
    Z = data_for(kernel, 20, 30, seed=1).astype(np.float32)
    Z[:5] = X[:5]
    K = kernel(backend.asarray(X), backend.asarray(Z))
    diag = kernel.diag(backend.asarray(X))
    wanted = kernel(X.astype(np.float64), Z.astype(np.float64))
    assert K.dtype == diag.dtype == backend.xp.float32
    np.testing.assert_allclose(
        backend.to_numpy(K), wanted, rtol=2e-4, atol=2e-6 * np.abs(wanted).max()
    )


@pytest.mark.parametrize("kernel", KERNELS_ONLY, ids=repr)
def test_inputs_are_left_as_they_were(kernel):
    X, Z = data_for(kernel, 12, 5), data_for(kernel, 8, 5, seed=1)
    X.setflags(write=False)
    Z.setflags(write=False)
    kernel(X, Z)
    kernel(X, X)
    kernel.diag(X)


@pytest.mark.parametrize("kernel", KERNELS_ONLY, ids=repr)
def test_symmetric_with_its_diagonal(backend, kernel):
    X = data_for(kernel, 30, 6)
    X[4] = X[17]
    X[5] = 0.0
    X = backend.asarray(X)
    K = backend.to_numpy(kernel(X, X))
    np.testing.assert_allclose(K, K.T, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(np.diagonal(K), backend.to_numpy(kernel.diag(X)), rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS_ONLY, ids=repr)
def test_blocks_of_rows_change_nothing(kernel):
    # Tall enough for several blocks of rows, the last one partial.
    X, Z = data_for(kernel, 700, 3), data_for(kernel, 400, 3, seed=1)
    if isinstance(kernel, Matern) and kernel.nu not in (0.5, 1.5, 2.5):
        Z = Z[:300]
    K = kernel(X, Z)
    assert len(list(row_blocks(K))) > 1
    np.testing.assert_allclose(K[650:], kernel(X[650:], Z), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kernel", KERNELS_ONLY, ids=repr)
def test_memory_is_the_result_and_one_more(kernel):
    if isinstance(kernel, Matern) and kernel.nu not in (0.5, 1.5, 2.5):
        kernel = Matern(kernel.width)  # a Bessel function for each of 3 million entries takes long
    X, Z = data_for(kernel, 1500, 40), data_for(kernel, 2000, 40, seed=1)
    tracemalloc.start()
    result = kernel(X, Z).nbytes
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    copies_of_data = 2 * (X.nbytes + Z.nbytes)
    blocks = 12 * 2**20  # temporaries of the size of a block of rows, 1 MB each
    assert peak <= 2 * result + copies_of_data + blocks


@pytest.mark.parametrize("kernel", KERNELS_ONLY, ids=repr)
def test_no_rows_give_no_rows(backend, kernel):
    X, Z = backend.asarray(np.empty((0, 3))), backend.asarray(data_for(kernel, 4, 3))
    assert kernel(X, Z).shape == (0, 4)
    assert kernel.diag(X).shape == (0,)


@pytest.mark.parametrize("kernel", KERNELS_ONLY, ids=repr)
@settings(max_examples=40)
@given(data=st.data())
def test_positive_semidefinite(kernel, data):
    low = 0.0 if kernel.nonnegative else -10.0
    X = data.draw(
        hnp.arrays(
            np.float64,
            hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=8),
            elements=st.floats(low, 10.0, allow_subnormal=False),
        )
    )
    K = kernel(X, X)
    assert np.isfinite(K).all()
    eigenvalues = np.linalg.eigvalsh((K + K.T) / 2)
    assert eigenvalues[0] >= -1e-10 * max(eigenvalues[-1], 0.0)


def test_agrees_with_scikit_learn():
    X, Z = data_for(RBF(), 50, 20), data_for(RBF(), 30, 20, seed=1)
    pairs = [
        (RBF(3.0)(X, Z), pairwise.rbf_kernel(X, Z, gamma=1 / 18)),
        (Laplacian(3.0)(X, Z), pairwise.laplacian_kernel(X, Z, gamma=1 / 3)),
        (
            Polynomial(2.0, degree=4, coef0=0.5)(X, Z),
            pairwise.polynomial_kernel(X, Z, degree=4, gamma=1 / 4, coef0=0.5),
        ),
        (Linear()(X, Z), pairwise.linear_kernel(X, Z)),
        (
            Chi2(3.0)(np.abs(X), np.abs(Z)),
            pairwise.chi2_kernel(np.abs(X), np.abs(Z), gamma=1 / 3),
        ),
    ]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


# --- whatever unit and origin the data have ---------------------------------------------------


@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
@pytest.mark.parametrize(("dtype", "offset"), [("float32", 1e3), ("float64", 1e6)])
def test_far_from_the_origin_no_digits_are_lost(kernel, dtype, offset):
    # The shifted data as they are after rounding are the truth: the kernel must add nothing to it.
    X = (data_for(kernel, 40, 10) + offset).astype(dtype)
    Z = (data_for(kernel, 25, 10, seed=1) + offset).astype(dtype)
    exact = kernel(X.astype(np.float64) - offset, Z.astype(np.float64) - offset)
    atol = 1e-6 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(kernel(X, Z), exact, rtol=0, atol=atol)


@pytest.mark.parametrize("kernel", SCALED, ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_the_unit_of_the_data_does_not_matter(kernel, dtype, unit):
    X, Z = data_for(kernel, 30, 10), data_for(kernel, 20, 10, seed=1)
    scaled = kernel.with_width(kernel.width * unit)
    K = scaled((X * unit).astype(dtype), (Z * unit).astype(dtype))
    wanted = kernel(X, Z)
    tolerance = 5e-6 if dtype == "float32" else 1e-11
    np.testing.assert_allclose(K, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("kernel", [*STATIONARY, Chi2(1.0)], ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("width", "between_different"), [(1e-30, 0.0), (1e300, 1.0)])
def test_absurd_widths_reach_their_limits(kernel, dtype, width, between_different):
    X = data_for(kernel, 20, 10).astype(dtype)
    K = kernel.with_width(width)(X, X)
    assert (np.diagonal(K) == 1.0).all()
    np.testing.assert_allclose(K[~np.eye(20, dtype=bool)], between_different, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_identical_rows_are_at_exactly_one(kernel, dtype):
    X = data_for(kernel, 20, 50).astype(dtype) * 100
    Z = np.concatenate([data_for(kernel, 9, 50, seed=1).astype(dtype), X])
    assert (np.diagonal(kernel(X, Z)[:, 9:]) == 1.0).all()
    assert (np.diagonal(kernel.distance(X, Z)[:, 9:]) == 0.0).all()


def test_nearly_identical_rows_keep_their_digits_in_float32():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 100)).astype(np.float32)
    Z = X + (1e-3 * rng.standard_normal(X.shape)).astype(np.float32)
    exact = np.linalg.norm(X.astype(np.float64) - Z.astype(np.float64), axis=1)
    np.testing.assert_allclose(np.diagonal(RBF().distance(X, Z)), exact, rtol=1e-4)


# --- corners of single kernels ----------------------------------------------------------------


@pytest.mark.parametrize("degree", range(1, 17))
def test_every_degree_is_its_power(degree):
    X = data_for(Linear(), 6, 3)
    wanted = (X @ X.T / 2.25 + 0.5) ** degree
    np.testing.assert_allclose(Polynomial(1.5, degree=degree, coef0=0.5)(X, X), wanted, rtol=1e-9)


@pytest.mark.parametrize("nu", [0.01, 0.3, 1.0, 2.49999, 4.0, 30.0, 50.0, 50.001, 120.0, 1000.0])
def test_matern_of_any_order(nu):
    radii = np.array([0.0, 1e-3, 0.1, 0.7, 1.0, 2.0, 5.0])
    K = Matern(1.0, nu=nu)(np.zeros((1, 1)), radii[:, None])[0]
    wanted = [naive.matern_at(nu, r) for r in radii]
    np.testing.assert_allclose(K, wanted, rtol=0, atol=2e-11)


@pytest.mark.parametrize("nu", [1e-6, 0.2, 3.0, 50.0, 51.0, 1e6, 1e200])
def test_matern_is_decreasing_without_nan_from_0_to_infinity(nu):
    radii = np.concatenate([[0.0], np.logspace(-200, 30, 400)])
    # One by one, since together the nearest ones would round to the farthest one's scale.
    K = np.array([Matern(1.0, nu=nu)(np.zeros((1, 1)), np.full((1, 1), r))[0, 0] for r in radii])
    assert K[0] == 1.0
    assert K[-1] == 0.0
    assert (np.diff(K) <= 1e-11).all()


def test_matern_tends_to_the_gaussian():
    X = data_for(RBF(), 20, 3)
    np.testing.assert_allclose(Matern(1.4, nu=1e9)(X, X), RBF(1.4)(X, X), atol=1e-8)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arccosine_at_parallel_opposite_and_zero_vectors(order, dtype):
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


def test_arccosine_takes_rows_of_very_different_lengths():
    x, z = np.array([[3.0, 4.0]]), np.array([[4.0, 3.0]])
    K = ArcCosine(order=1)(np.vstack([x * 1e-200, x * 1e150]), z)
    wanted = ArcCosine(order=1)(x, z)[0, 0]
    np.testing.assert_allclose(K[:, 0], [wanted * 1e-200, wanted * 1e150], rtol=1e-12)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arccosine_is_the_mean_over_random_layers(order):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4, 3))
    drawn = X @ rng.standard_normal((3, 100_000))
    layer = (drawn > 0) * drawn**order
    products = 2 * layer[:, None, :] * layer[None, :, :]
    error = products.std(axis=2) / math.sqrt(layer.shape[1])
    assert (np.abs(products.mean(axis=2) - ArcCosine(order=order)(X, X)) < 5 * error + 1e-12).all()


def test_chi2_counts_empty_bins_as_nothing(backend):
    X = backend.asarray(np.array([[0.0, 0.0], [0.0, 2.0]]))
    K = backend.to_numpy(Chi2(2.0)(X, X))
    np.testing.assert_allclose(K, [[1.0, math.exp(-1.0)], [math.exp(-1.0), 1.0]], rtol=1e-14)


@pytest.mark.parametrize("call", [lambda k, A, B: k(A, B), lambda k, A, B: k(B, A)])
def test_chi2_refuses_negative_values(backend, call):
    bad = np.ones((4, 3))
    bad[2, 1], bad[3, 0] = -0.3, -5.0
    with pytest.raises(InputError) as raised:
        call(Chi2(1.0), backend.asarray(bad), backend.asarray(np.ones((2, 3))))
    assert str(raised.value) == (
        "row 2, column 1 has -0.3, but the chi2 kernel compares histograms and wants nonnegative "
        "values. Pass counts or frequencies, or use another kernel, e.g. 'rbf'."
    )


def test_check_counts_rows_from_the_start_of_the_data():
    with pytest.raises(InputError, match="row 1002, column 0 has -1,"):
        Chi2().check(np.array([[0.0], [1.0], [-1.0]]), first_row=1000)
    Linear().check(np.array([[-1.0]]))


def test_a_power_that_overflows_is_refused():
    X = np.full((2, 3), 1e6, dtype=np.float32)
    with pytest.raises(InputError) as raised:
        Polynomial(1.0, degree=4)(X, X)
    assert str(raised.value) == (
        "(x.z / width^2 + coef0)^4 with width=1 and x.z up to 3e+12 overflows float32. "
        "Use a larger width or a lower degree, or use float64 data."
    )
    assert np.isfinite(Polynomial(1.0, degree=4)(X.astype(np.float64), X.astype(np.float64))).all()
    with pytest.raises(InputError) as raised:
        ArcCosine(order=2).diag(np.full((1, 1), 1e10, dtype=np.float32))
    assert str(raised.value) == (
        "rows of length up to 1e+10 to the power of 2 overflows float32. "
        "Divide the data by their typical length, or use float64 data."
    )
