"""Kernels of the user's: a function of two tables of rows, or the values themselves."""

import pickle
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from sklearn.metrics.pairwise import chi2_kernel, rbf_kernel

from knoi.exceptions import InputError, InputTypeError, NonFiniteError
from knoi.kernels import RBF, resolve
from knoi.kernels.supplied import Precomputed

GAMMA = 0.3
NAMED = partial(rbf_kernel, gamma=GAMMA)


@pytest.fixture
def rows():
    return np.random.default_rng(0).standard_normal((150, 4))


def test_values_are_those_of_the_function(backend, rows):
    """On every backend; the function gets NumPy arrays."""

    def checked(A, B):
        assert isinstance(A, np.ndarray)
        assert isinstance(B, np.ndarray)
        return rbf_kernel(A, B, gamma=GAMMA)

    kernel, X, Z = resolve(checked), backend.asarray(rows[:20]), backend.asarray(rows[20:])
    expected = RBF(width=np.sqrt(0.5 / GAMMA))
    for found, wanted in ((kernel(X, Z), expected(X, Z)), (kernel(X, X), expected(X, X))):
        assert type(found) is type(wanted)
        np.testing.assert_allclose(backend.to_numpy(found), backend.to_numpy(wanted), atol=1e-12)
    np.testing.assert_allclose(backend.to_numpy(kernel.diag(Z)), np.ones(130), atol=1e-12)
    assert not kernel.needs_width
    assert not kernel.has_gradient


def test_sparse_rows_come_as_they_are(rows):
    X = scipy.sparse.csr_array(np.abs(rows).astype(np.float32))
    seen = []

    def linear(A, B):
        seen.append(type(A))
        return A @ B.T  # sparse

    K = resolve(linear)(X, X)
    assert seen == [scipy.sparse.csr_array]
    assert K.dtype == np.float32
    np.testing.assert_allclose(K, X.toarray() @ X.toarray().T, rtol=1e-6)


def test_names():
    class Counter:
        def __call__(self, A, B):
            return np.ones((len(A), len(B)))

    named = {"chi2_kernel": chi2_kernel, "rbf_kernel": NAMED, "Counter": Counter()}
    for name, function in named.items():
        assert resolve(function).name == repr(resolve(function)) == name


def test_what_it_returns_may_be_overwritten(rows):
    K = rbf_kernel(rows)
    found = resolve(lambda A, B: K)(rows, rows)
    found *= 0
    assert K[0, 0] == 1.0


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (
            lambda a, b: float(a[0] @ b[0]),
            InputTypeError,
            "shape () and dtype float64 for tables",
        ),
        (lambda A, B: A @ A.T, InputTypeError, r"shape (100, 100) .*between all .*shape (100, 50)"),
        (lambda A, B: np.full((len(A), len(B)), "a"), InputTypeError, "dtype <U1"),
        (lambda A, B: np.full((len(A), len(B)), np.nan), NonFiniteError, "NaN or infinite values"),
    ],
)
def test_wrong_values_are_refused(rows, function, error, text):
    kernel = resolve(function)
    text = text.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(error, match=f"the kernel <lambda> returned .*{text}"):
        kernel(rows[:100], rows[100:])


def test_asymmetric_values_are_refused(rows):
    with pytest.raises(InputError, match=r"kernel <lambda> are not symmetric: k\(a, b\) = "):
        resolve(lambda A, B: A @ B.T + A[:, :1])(rows, rows)
    # The rounding of float32 is no asymmetry.
    noise = 1e-7 * np.random.default_rng(1).standard_normal((150, 150))
    resolve(lambda A, B: rbf_kernel(A, B) + noise)(rows, rows)


def test_a_function_has_no_state_but_can_be_pickled(rows):
    kernel = resolve(NAMED)
    with pytest.raises(InputTypeError, match=r"rbf_kernel is a function, .* never saved.*register"):
        kernel.state_dict()
    copied = pickle.loads(pickle.dumps(kernel))
    np.testing.assert_array_equal(copied(rows, rows), kernel(rows, rows))


def test_it_can_be_a_part_of_a_sum(rows):
    kernel = RBF(1.0) + 0.5 * resolve(NAMED)
    expected = RBF(1.0)(rows, rows) + 0.5 * rbf_kernel(rows, gamma=GAMMA)
    np.testing.assert_allclose(kernel(rows, rows), expected)


def test_given_values_cannot_be_evaluated(rows):
    for use in (lambda: Precomputed()(rows, rows), lambda: resolve("precomputed")):
        with pytest.raises(InputTypeError, match=r"kernel='precomputed' is for KernelCCA, whose"):
            use()
