"""Names, states and parameters of kernels; default widths, the median distance between rows."""

import json
import tracemalloc

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from knoi.exceptions import InputError, InputTypeError
from knoi.kernels import (
    KERNELS,
    RBF,
    ArcCosine,
    Cauchy,
    Chi2,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    SphericalPolynomial,
    kernel_from_state,
    median_width,
    resolve,
)

ROWS = np.ones((2, 2))
NAMES = (
    "'additive_chi2', 'arccosine', 'cauchy', 'chi2', 'intersection', 'laplacian', 'linear', "
    "'matern', 'polynomial', 'rbf', 'spherical_polynomial'"
)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_names_resolve_and_states_survive_json(name):
    kernel = resolve(name)
    assert type(kernel) is KERNELS[name]
    assert resolve(kernel) is kernel
    if kernel.needs_width:
        kernel = kernel.with_width(np.float32(1.5))
        assert kernel.width == 1.5
    assert not kernel.needs_width
    state = json.loads(json.dumps(kernel.state_dict()))
    assert state["name"] == name
    assert kernel_from_state(state) == kernel


def test_state_holds_every_parameter():
    assert Matern(1.3, nu=0.7).state_dict() == {"name": "matern", "width": 1.3, "nu": 0.7}
    assert RBF().state_dict() == {"name": "rbf", "width": None}
    assert Polynomial(2, degree=np.int64(4), coef0=0).state_dict() == {
        "name": "polynomial",
        "width": 2.0,
        "degree": 4,
        "coef0": 0.0,
    }


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Chi2(0), InputError, r"^width=0: wanted a finite number > 0\.$"),
        (lambda: Chi2(float("nan")), InputError, "width=nan: wanted a finite number > 0"),
        (lambda: RBF(float("inf")), InputError, "width=inf: wanted a finite number > 0"),
        (lambda: RBF([1.0]), InputTypeError, r"width=\[1.0\]: wanted a finite number > 0"),
        (
            lambda: RBF("median"),
            InputTypeError,
            r"^width='median' was given to a rbf kernel: wanted a number or None\. "
            r"Pass a rule such as width='median' to the estimator instead\.$",
        ),
        (lambda: Matern(nu=0), InputError, "nu=0: wanted a finite number > 0"),
        (lambda: Polynomial(degree=0), InputError, "degree=0: wanted a whole number >= 1"),
        (lambda: Polynomial(degree=2.0), InputTypeError, "degree=2.0: wanted a whole number"),
        (lambda: Polynomial(coef0=-1), InputError, "coef0=-1: wanted a finite number >= 0"),
        (lambda: SphericalPolynomial(0), InputError, "degree=0: wanted a whole number >= 1"),
        (lambda: ArcCosine(order=3), InputError, "order=3: wanted 0, 1 or 2"),
        (lambda: ArcCosine(order="1"), InputTypeError, "order='1': wanted a whole number"),
        (
            lambda: resolve("gaussian"),
            InputError,
            rf"^there is no kernel 'gaussian'\. Pass one of {NAMES}\.$",
        ),
        (
            lambda: resolve(3),
            InputTypeError,
            rf"^kernel is 3: wanted a name or a kernel object\. Pass one of {NAMES}, or an "
            r"instance such as RBF\(width=1\.0\)\.$",
        ),
        (lambda: resolve(RBF), InputTypeError, "^kernel is the class RBF: wanted a name"),
        (lambda: kernel_from_state({"width": 1.0}), InputError, "there is no kernel None"),
        (lambda: kernel_from_state({"name": ["rbf"]}), InputError, r"no kernel \['rbf'\]"),
        (
            lambda: kernel_from_state({"name": "rbf", "width": 1.0, "gamma": 2.0}),
            InputError,
            r"^the rbf kernel has no parameter 'gamma'; it has width\. The state was altered or is "
            r"from a newer knoi\.$",
        ),
        (lambda: kernel_from_state({"name": "rbf", "width": -1.0}), InputError, r"width=-1\.0: "),
        (
            lambda: Polynomial()(ROWS, ROWS),
            InputError,
            r"^the polynomial kernel has no width yet\. Pass one, e\.g\. Polynomial\(width=1\.0\), "
            r"or let the estimator choose it by width='median'\.$",
        ),
        (lambda: RBF()(ROWS, ROWS), InputError, "rbf kernel has no width yet"),
        (lambda: Chi2()(ROWS, ROWS), InputError, "chi2 kernel has no width"),
        (
            lambda: Linear().with_width(2.0),
            InputError,
            r"^width=2\.0 was given, but Linear\(\) needs no width\. Omit it, or use a kernel "
            r"whose width is open, e\.g\. RBF\(\)\.$",
        ),
        (
            lambda: Linear().default_width(ROWS),
            InputError,
            r"^Linear\(\) has no width of its own to choose\. For .* use with_default_width\(",
        ),
        (
            lambda: RBF().default_width(np.full((10, 3), 0.1)),
            InputError,
            r"^all 10 sampled rows are identical, so no width can be chosen from them\. Pass the "
            r"width as a number, or check the data: a constant view has no correlations\.$",
        ),
        (
            lambda: RBF().default_width(np.ones((1, 3))),
            InputError,
            r"needs at least 2 rows, but got 1\. Pass more rows",
        ),
        (
            lambda: Polynomial().default_width(np.zeros((7, 2))),
            InputError,
            "all 7 sampled rows are zero",
        ),
    ],
)
def test_invalid_uses_raise(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_kernels_are_compared_by_their_parameters():
    kernel = RBF(1.0)
    assert kernel == RBF(1)
    assert hash(kernel) == hash(RBF(1.0))
    assert kernel != Matern(1.0)
    with pytest.raises(AttributeError):
        kernel.width = 2.0


def chi2_between(x, z):
    return np.sum((x - z) ** 2 / (x + z))


@pytest.mark.parametrize(
    ("kernels", "metric"),
    [
        ((RBF(), Matern(), Cauchy()), "euclidean"),
        ((Laplacian(),), "cityblock"),
        ((Chi2(),), chi2_between),
    ],
)
def test_default_width_is_the_median_over_all_pairs(kernels, metric):
    for n in (2, 3, 100):
        X = np.abs(np.random.default_rng(0).standard_normal((n, 5)))
        median = pytest.approx(np.median(pdist(X, metric)), rel=1e-12)
        assert [kernel.default_width(X) for kernel in kernels] == [median] * len(kernels)


@pytest.mark.parametrize("n", [256, 257, 513, 600])
def test_blocks_see_every_pair_once(n):
    # On the line 0, 1, 4, 9, ... nearly all distances differ, so every missing pair is noticed.
    X = (np.arange(n, dtype=np.float64) ** 2)[:, None]
    assert median_width(RBF().distance, X) == pytest.approx(np.median(pdist(X)), rel=1e-13)


def test_the_distances_are_held_once():
    X = np.random.default_rng(0).standard_normal((3000, 4))
    distances = 3000 * 2999 // 2 * 8
    block = 256 * 3000 * 8
    tracemalloc.start()
    median_width(RBF().distance, X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.1 * (distances + 2 * block)


@pytest.mark.parametrize("kernel", [RBF(), Laplacian(), Chi2(), Polynomial()], ids=repr)
def test_scales_with_the_data_in_float32(kernel):
    X = np.abs(np.random.default_rng(0).standard_normal((60, 5)))
    for unit in (1e-12, 1e12):
        width = kernel.default_width((X * unit).astype(np.float32))
        assert width == pytest.approx(kernel.default_width(X) * unit, rel=1e-5)


def test_mostly_repeated_rows_give_the_median_of_the_other_distances():
    X = np.zeros((100, 3))
    X[97:] = [[0.0, 0.1, 0.0], [0.0, 0.0, 0.2], [0.3, 0.0, 0.0]]
    distances = pdist(X)
    assert np.median(distances) == 0
    assert RBF().default_width(X) == pytest.approx(np.median(distances[distances > 0]), rel=1e-12)


def test_polynomial_takes_the_root_mean_square_length():
    X = np.random.default_rng(0).standard_normal((50, 4)) + 30
    expected = np.sqrt(np.mean(np.sum(X**2, axis=1)))
    assert Polynomial().default_width(X) == pytest.approx(expected, rel=1e-12)
