"""Names, states and parameters of kernels; default widths, the median distance between rows."""

import json
import re

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
    resolve,
)
from knoi.kernels.base import check_definite
from tests.memory import peak_memory_below

ROWS = np.ones((2, 2))


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
    assert type(Polynomial(2, degree=np.int64(4)).state_dict()["degree"]) is int


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Chi2(0), InputError, "width=0: wanted a finite number > 0"),
        (lambda: RBF(float("inf")), InputError, "width=inf: wanted a finite number > 0"),
        (lambda: RBF("median"), InputTypeError, "width='median' was given to a rbf kernel: wanted"),
        (lambda: Matern(nu=0), InputError, "nu=0: wanted a finite number > 0"),
        (lambda: Polynomial(degree=0), InputError, "degree=0: wanted a whole number >= 1"),
        (lambda: Polynomial(coef0=-1), InputError, "coef0=-1: wanted a finite number >= 0"),
        (lambda: SphericalPolynomial(0), InputError, "degree=0: wanted a whole number >= 1"),
        (lambda: ArcCosine(order=3), InputError, "order=3: wanted 0, 1 or 2"),
        (lambda: ArcCosine(order="1"), InputTypeError, "order='1': wanted a whole number"),
        (lambda: resolve("gaussian"), InputError, "no kernel 'gaussian'. Pass one of 'additive_ch"),
        (lambda: resolve(3), InputTypeError, "kernel is 3: wanted a name or a kernel object"),
        (lambda: resolve(RBF), InputTypeError, "kernel is the class RBF: wanted a name"),
        (lambda: kernel_from_state({"width": 1.0}), InputError, "there is no kernel None"),
        (lambda: kernel_from_state({"name": ["rbf"]}), InputError, "no kernel ['rbf']"),
        (lambda: kernel_from_state({"name": "rbf", "nu": 2}), InputError, "no parameter 'nu'; it"),
        (lambda: kernel_from_state({"name": "rbf", "width": -1.0}), InputError, "width=-1.0: "),
        (lambda: Polynomial()(ROWS, ROWS), InputError, "the polynomial kernel has no width yet"),
        (lambda: RBF()(ROWS, ROWS), InputError, "rbf kernel has no width yet"),
        (lambda: Chi2()(ROWS, ROWS), InputError, "chi2 kernel has no width"),
        (
            lambda: Linear().with_width(2.0),
            InputError,
            "width=2.0 was given, but Linear() need",
        ),
        (
            lambda: Linear().default_width(ROWS),
            InputError,
            "Linear() has no width of its own",
        ),
        (lambda: RBF().default_width(ROWS), InputError, "all 2 sampled rows are identical"),
        (lambda: RBF().default_width(ROWS[:1]), InputError, "needs at least 2 rows, but got 1"),
        (lambda: Polynomial().default_width(0 * ROWS), InputError, "all 2 sampled rows are zero"),
    ],
)
def test_invalid_uses_raise(make, error, text):
    with pytest.raises(error, match=re.escape(text)):
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
    for n in (2, 3, 257, 520):  # blocks of 256 rows see every pair once
        X = np.abs(np.random.default_rng(0).standard_normal((n, 5)))
        median = pytest.approx(np.median(pdist(X, metric)), rel=1e-12)
        assert [kernel.default_width(X) for kernel in kernels] == [median] * len(kernels)


def test_the_distances_are_held_once():
    X = np.random.default_rng(0).standard_normal((3000, 4))
    distances = 3000 * 2999 // 2 * 8
    block = 256 * 3000 * 8
    with peak_memory_below(1.1 * (distances + 2 * block)):
        RBF().default_width(X)


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


def test_negative_eigenvalues_are_refused_unless_they_are_rounding():
    check_definite(-1e-6, 1.0, "it")
    with pytest.raises(InputError, match=r"it is not positive semidefinite: .* from -0.1 to 1"):
        check_definite(-0.1, 1.0, "it")
