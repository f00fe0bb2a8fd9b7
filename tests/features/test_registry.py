"""Names of approximations: every name makes a map of its kernel, and what `auto` says."""

from functools import partial

import numpy as np
import pytest

from knoi.arrays.random import View
from knoi.exceptions import InputError, InputTypeError
from knoi.features import (
    Chain,
    ConcatenatedMap,
    CountSketch,
    Identity,
    RandomFourier,
    StructuredFourier,
    fit_chi2,
    fit_sketched,
)
from knoi.features.registry import (
    APPROXIMATIONS,
    REGISTRY,
    approximate,
    choose,
    is_dense,
    numbers_kept,
    suited_to,
)
from knoi.kernels import (
    RBF,
    AdditiveChi2,
    ArcCosine,
    Cauchy,
    Chi2,
    Intersection,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    SphericalPolynomial,
)
from tests.features.fitting import kernel_error, sparse_rows


class Own(Kernel):
    name = "own"

    def __call__(self, X, Z):
        raise AssertionError

    def diag(self, X):
        raise AssertionError


EVERY = {
    "fourier": [Cauchy(1.0)],
    "orthogonal": [Matern(1.0)],
    "qmc": [Laplacian(2.0)],
    "hadamard": [RBF(1.0)],
    "fastfood": [Matern(1.0)],
    "hashed_fourier": [RBF(1.0)],
    "tensor_sketch": [Polynomial(1.0, 2)],
    "maclaurin": [Polynomial(1.0, 2)],
    "compact_maclaurin": [Polynomial(1.0, 2)],
    "spherical": [SphericalPolynomial(4)],
    "arccosine": [ArcCosine(1)],
    "taylor": [RBF(1.0)],
    "additive": [AdditiveChi2(), Intersection(), Chi2(1.0)],
}


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).uniform(0.0, 0.6, (40, 4))


@pytest.mark.parametrize(
    ("name", "kernel"),
    [(name, kernel) for name, several in EVERY.items() for kernel in several],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_name_is_a_map_of_its_kernel(rows, name, kernel):
    assert set(APPROXIMATIONS) == {"random", *REGISTRY} == {"random", *EVERY}
    assert isinstance(kernel, REGISTRY[name].kernels)
    features = approximate(name, rows, kernel, 1000, 0, View.X)
    assert features.kernel == kernel
    assert features.rank <= 1000
    tensors = [v for v in features.state_dict().values() if isinstance(v, np.ndarray)]
    assert sum(v.size for v in tensors) <= 2 * numbers_kept(name, kernel, 4, 1000)
    # Random features of rank 1000 are within 1 / sqrt(1000) of the kernel, by a small factor.
    assert kernel_error(features, rows) < 0.15


def test_another_kernel_raises_with_a_remedy(rows):
    named = [entry.fit for entry in REGISTRY.values()]
    for fit in (*named, CountSketch.fit, fit_chi2, partial(fit_sketched, buckets=3)):
        with pytest.raises(InputTypeError, match=r"need the kernel '.*', not 'own'\."):
            fit(rows, Own(), 10, 0, View.X)
    with pytest.raises(InputTypeError, match="need the kernel 'linear' or 'polynomial', not 'own'"):
        REGISTRY["maclaurin"].fit(rows, Own(), 10, 0, View.X)


@pytest.mark.parametrize(
    ("kernel", "n_cols", "name"),
    [
        (RBF(), 3, "qmc"),
        (RBF(), 50, "orthogonal"),
        (Matern(), 392, "hadamard"),
        (Laplacian(), 392, "qmc"),
        (Laplacian(), 5000, "fourier"),
        (Polynomial(), 10, "tensor_sketch"),
        (Chi2(), 10, "additive"),
        (ArcCosine(), 10, "arccosine"),
        (Linear(), 10, "identity"),
    ],
    ids=str,
)
def test_what_suits(kernel, n_cols, name):
    assert suited_to(kernel, n_cols).name == name


def test_sums_and_products_are_made_of_what_suits_their_parts(rows):
    kernel = 2.0 * RBF(1.0) + Polynomial(1.0, 2) + Linear()
    features = approximate("random", rows, kernel, 2000, 0, View.X)
    assert isinstance(features, ConcatenatedMap)
    assert isinstance(features.parts[0], RandomFourier)
    assert isinstance(features.parts[2], Identity)
    assert kernel_error(features, rows) < 0.15
    features = approximate("random", rows, RBF(1.0) * Matern(2.0), 2000, 0, View.X)
    assert kernel_error(features, rows) < 0.15


@pytest.mark.parametrize(
    ("name", "kernel", "columns", "kind"),
    [
        ("random", Linear(), 300, CountSketch),  # of more columns than features
        ("random", RBF(20.0), 300, StructuredFourier),
        ("hashed_fourier", RBF(3.0), 20_000, Chain),
        ("hashed_fourier", RBF(3.0), 300, RandomFourier),
    ],
)
def test_many_columns_are_hashed_and_few_are_not(name, kernel, columns, kind):
    X = sparse_rows(30, columns, 20)
    assert isinstance(approximate(name, X, kernel, 100, 0, View.X), kind)


def test_which_maps_keep_a_number_per_column_and_feature():
    assert is_dense("random")
    assert is_dense("fourier")
    assert not any(map(is_dense, ("hadamard", "nystrom", Identity(5))))
    both = RBF(1.0) + Linear()
    assert numbers_kept("random", both, 4, 1000) == numbers_kept("fourier", RBF(1.0), 4, 1000)
    assert numbers_kept("random", RBF(1.0), 392, 1000) == numbers_kept("hadamard", RBF(), 392, 1000)


def test_what_auto_takes_has_a_reason():
    assert choose(RBF(), 392, sparse=True)[0] == "nystrom"
    name, reason = choose(RBF(), 392, sparse=False)
    assert name == "hadamard"
    assert reason.startswith("with 392 columns")
    assert choose(RBF() + Linear(), 392, sparse=False)[0] == "random"
    assert choose(Own(), 10, sparse=False)[0] == "nystrom"
    with pytest.raises(InputError, match="no random features for the own kernel"):
        suited_to(Own(), 10)
    for kernel in (Polynomial(), ArcCosine(), Laplacian()):
        name, reason = choose(kernel, 392, sparse=False)
        assert name == suited_to(kernel, 392).name
        assert "{" not in reason
