"""Maps of polynomial, spherical and arc-cosine kernels: contract, exact formulas, error laws."""

import math
import tracemalloc
from itertools import product

import numpy as np
import pytest
import scipy.sparse
from scipy.special import hyp0f1, j0
from sklearn.kernel_approximation import PolynomialCountSketch

from knoi.arrays.random import View
from knoi.exceptions import InputError
from knoi.features.arccosine import ArcCosineFeatures
from knoi.features.maclaurin import CompactMaclaurin, RandomMaclaurin, coefficients, degree_shares
from knoi.features.sketch import TensorSketch
from knoi.features.spherical import SphericalFourier, fit_spectrum, mean_wave
from knoi.kernels import ArcCosine, Linear, Polynomial, SphericalPolynomial
from tests.contracts.feature_map import FeatureMapContract, MapCase

CUBIC = Polynomial(2.0)
MACLAURIN = (RandomMaclaurin, CompactMaclaurin)


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).standard_normal((60, 5))
    X.setflags(write=False)
    return X


@pytest.fixture(scope="module")
def acute():
    """Rows at acute angles, as counts and images are; the mean square of their lengths is 1."""
    X = np.abs(np.random.default_rng(0).standard_normal((40, 20)))
    X /= math.sqrt(np.mean((X**2).sum(1)))
    X.setflags(write=False)
    return X


# name: map, kernel, options, rank, larger rank, features they share
CASES = {
    "sketch": (TensorSketch, CUBIC, {"sketch_size": 4}, 11, 21, 8),
    "sketch-degree-1": (TensorSketch, Polynomial(2.0, 1), {"sketch_size": 4}, 11, None, 0),
    "maclaurin-two-blocks": (RandomMaclaurin, CUBIC, {}, 1100, 2100, 1024),
    "maclaurin-exact": (RandomMaclaurin, CUBIC, {"exact": "linear"}, 11, None, 0),
    "maclaurin-homogeneous": (RandomMaclaurin, Polynomial(2.0, 3, 0.0), {}, 11, None, 0),
    "compact-two-groups": (CompactMaclaurin, CUBIC, {"expansion": 4}, 300, 600, 299),
    "compact-exact": (CompactMaclaurin, CUBIC, {"expansion": 4, "exact": "linear"}, 11, 40, 5),
    "spherical": (SphericalFourier, CUBIC, {}, 11, 1500, 11),
    "arccosine-0": (ArcCosineFeatures, ArcCosine(0), {}, 11, 30, 11),
    "arccosine-2": (ArcCosineFeatures, ArcCosine(2), {}, 11, 30, 11),
}


@pytest.fixture(params=CASES, scope="module")
def case(request, rows):
    kind, kernel, options, rank, larger, shared = CASES[request.param]
    features = kind.fit(rows, kernel, rank, 0, View.X, **options)
    if larger is not None:
        larger = kind.fit(rows, kernel, larger, 0, View.X, **options)
    return MapCase(features, rows[:20], rank, larger, shared)


class TestEveryMap(FeatureMapContract):
    pass


def errors(kind, kernel, rows, rank, seeds=6, **options):
    """Errors of inner products over seeds, (seeds, n, n)."""
    exact = kernel(rows, rows)
    maps = (kind.fit(rows, kernel, rank, seed, View.X, **options) for seed in range(seeds))
    return np.stack([Phi @ Phi.T - exact for Phi in (m.transform(rows) for m in maps)])


def rms(values):
    return math.sqrt(np.mean(values**2))


LAWS = {
    "sketch": (TensorSketch, CUBIC, {"sketch_size": 32}),
    "sketch-degree-1": (TensorSketch, Polynomial(2.0, 1), {"sketch_size": 8}),
    "maclaurin-exact": (RandomMaclaurin, CUBIC, {"exact": "linear"}),
    "maclaurin-linear": (RandomMaclaurin, Linear(), {}),
    "compact-exact": (CompactMaclaurin, CUBIC, {"expansion": 4, "exact": "linear"}),
    "arccosine-0": (ArcCosineFeatures, ArcCosine(0), {}),
    "arccosine-2": (ArcCosineFeatures, ArcCosine(2), {}),
    "arccosine-orthogonal": (ArcCosineFeatures, ArcCosine(), {"frequencies": "orthogonal"}),
}


@pytest.fixture(params=LAWS)
def law(request):
    return LAWS[request.param]


def test_inner_products_are_unbiased(rows, law):
    kind, kernel, options = law
    some = rows[:4]
    found = errors(kind, kernel, some, 24, seeds=200, **options)[:, *np.triu_indices(4)]
    standard_error = found.std(axis=0) / math.sqrt(len(found))
    assert np.all(np.abs(found.mean(axis=0)) < 4.5 * standard_error + 1e-12)


def test_error_falls_like_one_over_root_rank(rows, law):
    kind, kernel, options = law
    few, many = (rms(errors(kind, kernel, rows, rank, 10, **options)) for rank in (64, 1024))
    # Sixteen times the rank, a quarter of the error. Exact features take some of the few.
    assert 3.0 < few / many < 5.3


class TestTensorSketch:
    @pytest.mark.parametrize(("degree", "size"), [(1, 4), (2, 5), (3, 7), (3, 1)])
    def test_is_the_count_sketch_of_the_tensor_power(self, rows, degree, size):
        kernel = Polynomial(2.0, degree, 0.5)
        features = TensorSketch.fit(rows, kernel, size, 0, View.X, sketch_size=size)
        x = np.append(rows[0] / 2.0, math.sqrt(0.5))
        expected = np.zeros(size)
        for places in product(range(len(x)), repeat=degree):
            codes = [int(features.hashes[0, j, i]) for j, i in enumerate(places)]
            sign = math.prod(-1 if code < 0 else 1 for code in codes)
            bucket = sum(~code if code < 0 else code for code in codes) % size
            expected[bucket] += sign * math.prod(x[i] for i in places)
        np.testing.assert_allclose(features.transform(rows[:1])[0], expected, atol=1e-12)

    def test_a_smaller_last_sketch_counts_for_less(self, rows):
        features = TensorSketch.fit(rows, CUBIC, 11, 0, View.X, sketch_size=8)
        whole = TensorSketch.fit(rows, CUBIC, 8, 0, View.X, sketch_size=8)
        expected = math.sqrt(8 / 11) * whole.transform(rows)
        np.testing.assert_allclose(features.transform(rows)[:, :8], expected, atol=1e-12)

    def test_is_as_exact_as_one_large_sketch(self):
        rows = np.abs(np.random.default_rng(1).standard_normal((30, 40)))
        kernel = Polynomial(math.sqrt(40))
        ours = rms(errors(TensorSketch, kernel, rows, 256, seeds=40, sketch_size=64))
        exact, theirs = kernel(rows, rows), []
        for seed in range(40):
            sketch = PolynomialCountSketch(
                gamma=1 / 40, degree=3, coef0=1, n_components=256, random_state=seed
            )
            Phi = sketch.fit_transform(rows)
            theirs.append(Phi @ Phi.T - exact)
        assert 0.7 < ours / rms(np.stack(theirs)) < 1.4

    def test_a_million_sparse_columns_stay_sparse(self):
        rng = np.random.default_rng(0)
        places = (np.repeat(np.arange(8), 20), rng.integers(0, 1_000_000, 160))
        X = scipy.sparse.csr_array((rng.standard_normal(160), places), shape=(8, 1_000_000))
        features = TensorSketch.fit(X, Polynomial(4.0), 700, 0, View.X)
        tracemalloc.start()
        Phi = features.transform(X)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2**20  # a single dense row would take eight times that
        assert features.hashes.nbytes < 13e6  # two sketches, three hashes of two bytes a column
        gathered = X[:, np.unique(X.indices)].toarray()
        exact = Polynomial(4.0)(gathered, gathered)
        assert rms(Phi @ Phi.T - exact) < 0.3 * rms(exact)

    def test_raises_for_sketches_that_have_no_hash(self, rows):
        for size in (0, 40_000):
            with pytest.raises(InputError, match=rf"^sketch_size={size} cannot be used: it must"):
                TensorSketch.fit(rows, CUBIC, 11, 0, View.X, sketch_size=size)


def predicted_error(kernel, rows, rank):
    """RMS error of M random products, by their variances."""
    X = rows / kernel.width
    a = np.array([kernel.maclaurin(n) for n in range(kernel.degree + 1)])
    a[0] = 0
    p = degree_shares(a, X)
    dots = X @ X.T
    v = np.outer((X**2).sum(1), (X**2).sum(1)) + 2 * dots**2 - 2 * (X**2) @ (X**2).T
    variance = sum(a[n] ** 2 / p[n] * (v**n - dots ** (2 * n)) for n in range(1, kernel.degree + 1))
    return math.sqrt(np.mean(variance) / (rank - 1))


class TestMaclaurin:
    @pytest.mark.parametrize("kernel", [Linear(), CUBIC, Polynomial(1.5, 6, 0.3)], ids=repr)
    def test_coefficients_add_up_to_the_kernel(self, rows, kernel):
        a = coefficients(kernel)
        series = sum(a_n * (rows @ rows.T / kernel.unit**2) ** n for n, a_n in enumerate(a))
        exact = kernel(rows, rows)
        np.testing.assert_allclose(series, exact, atol=1e-12 * np.abs(exact).max())

    @pytest.mark.parametrize("kernel", [CUBIC, Polynomial(3.0, 4, 0.5)])
    def test_error_is_the_predicted_one(self, rows, kernel):
        found = rms(errors(RandomMaclaurin, kernel, rows, 512, seeds=12))
        assert found == pytest.approx(predicted_error(kernel, rows, 512), rel=0.2)

    def test_degrees_are_weighed_better_than_by_halves(self, rows):
        kernel = Polynomial(2.0, 5)
        X = rows / 2.0
        a = coefficients(kernel)
        a[0] = 0.0
        p = degree_shares(a, X)
        assert p[0] == 0
        assert p.sum() == pytest.approx(1.0)
        halves = np.array([0, *(0.5 ** np.arange(1, 6))])
        halves /= halves.sum()
        dots = X @ X.T
        v = np.outer((X**2).sum(1), (X**2).sum(1)) + 2 * dots**2 - 2 * (X**2) @ (X**2).T

        def error(shares):
            terms = (a[n] ** 2 / shares[n] * np.mean(v**n - dots ** (2 * n)) for n in range(1, 6))
            return sum(terms)

        assert error(p) < 0.75 * error(halves)
        # No other shares do better, but for the least share every degree has.
        rng = np.random.default_rng(0)
        for _ in range(50):
            other = p * np.exp(0.3 * rng.standard_normal(6))
            assert error(p) < 1.01 * error(other / other.sum())

    def test_every_degree_gets_its_share(self, rows):
        a = coefficients(CUBIC)
        a[0] = 0.0
        shares = degree_shares(a, rows / 2.0)
        degrees = RandomMaclaurin.fit(rows, CUBIC, 2001, 0, View.X).products.degrees
        # Independent draws would be off by 20.
        np.testing.assert_allclose(np.bincount(degrees), 2000 * shares, atol=4)

    @pytest.mark.parametrize("kind", MACLAURIN)
    def test_exact_terms_are_exact(self, rows, kind):
        features = kind.fit(rows, CUBIC, 20, 0, View.X, exact="linear")
        Phi = features.transform(rows)[:, -6:]
        expected = np.hstack([np.ones((60, 1)), math.sqrt(3) * rows / 2.0])
        np.testing.assert_allclose(Phi, expected, atol=1e-14)

    def test_a_sample_of_zeros_still_makes_a_map(self, rows):
        features = RandomMaclaurin.fit(np.zeros((3, 5)), CUBIC, 3000, 0, View.X)
        exact = CUBIC(rows, rows)
        Phi = features.transform(rows)
        assert rms(Phi @ Phi.T - exact) < 0.3 * rms(exact)

    @pytest.mark.parametrize("degree", [2, 5])
    def test_mixtures_have_the_error_of_a_random_projection(self, acute, degree):
        kernel = Polynomial(1.0, degree)
        found = rms(errors(CompactMaclaurin, kernel, acute, 512, seeds=10))
        K = kernel(acute, acute) - 1.0  # the constant is exact
        projected = np.mean(np.outer(K.diagonal(), K.diagonal()) + K**2) / 511
        products = predicted_error(kernel, acute, 512) ** 2 / 8
        assert found == pytest.approx(math.sqrt(projected + products), rel=0.2)

    @pytest.mark.parametrize("kind", MACLAURIN)
    def test_errors(self, rows, kind):
        with pytest.raises(InputError, match=r"^exact='all' is not known: wanted one of"):
            kind.fit(rows, CUBIC, 11, 0, View.X, exact="all")
        with pytest.raises(InputError, match=r"^rank=6 leaves no features besides the 6 that are"):
            kind.fit(rows, CUBIC, 6, 0, View.X, exact="linear")
        with pytest.raises(InputError, match=r"^exact='linear' leaves nothing to approximate: the"):
            kind.fit(rows, Linear(), 11, 0, View.X, exact="linear")
        for unusable in (Polynomial(1.0, 70), Polynomial(1.0, 60, 1e10)):
            with pytest.raises(InputError, match=r"has no finite, nonnegative Maclaurin coeffici"):
                kind.fit(rows, unusable, 11, 0, View.X)

    def test_raises_for_an_expansion_without_a_hadamard_matrix(self, rows):
        for expansion in (1, 6):
            with pytest.raises(InputError, match=rf"^expansion={expansion} cannot be used: it mus"):
                CompactMaclaurin.fit(rows, CUBIC, 11, 0, View.X, expansion=expansion)


class TestSphericalFourier:
    def test_mean_wave_is_the_bessel_function(self):
        z = np.linspace(0, 40, 81)[None, :]
        np.testing.assert_allclose(mean_wave(z, 2), j0(z), atol=1e-12)
        np.testing.assert_allclose(mean_wave(z, 3), np.sinc(z / np.pi), atol=1e-12)
        np.testing.assert_allclose(mean_wave(z, 20), hyp0f1(10, -(z**2) / 4), atol=1e-12)
        # Coordinates of many dimensions are nearly normal.
        z = np.linspace(0, 5, 11)[None, :]
        np.testing.assert_allclose(mean_wave(1e3 * z, 10**6), np.exp(-(z**2) / 2), atol=1e-5)

    @pytest.mark.parametrize("d", [10, 784])
    def test_bias_is_small_and_falls_with_the_degree(self, d):
        # The paper's (1 - s^2 / a^2)^p with a = 2 and sqrt(8).
        for coef0 in (1.0, 3.0):
            biases = [fit_spectrum(SphericalPolynomial(p, coef0), d + 1)[2] for p in (3, 5, 7, 10)]
            assert biases[0] < 0.05
            assert biases[-1] < 0.015
            assert biases == sorted(biases, reverse=True)

    @pytest.mark.parametrize("degree", [3, 10])
    def test_error_falls_to_the_bias(self, degree):
        rows = np.random.default_rng(0).standard_normal((40, 10))
        rows[7] = 0.0
        kernel = SphericalPolynomial(degree)
        largest = 2.0**degree

        def error(rank):
            return rms(errors(SphericalFourier, kernel, rows, rank)) / largest

        bias = SphericalFourier.fit(rows, kernel, 1, 0, View.X).bias
        for rank in (64, 1024):
            assert error(rank) < bias + 1.2 * math.sqrt(1.5 / rank)
        assert error(64) - bias > 2.5 * (error(1024) - bias)

    def test_inner_products_are_those_of_the_fitted_kernel(self):
        rows = np.random.default_rng(0).standard_normal((4, 6))
        rows[3] = 0.0
        kernel = SphericalPolynomial(4, 1.5)
        radii, weights, _ = fit_spectrum(kernel, 7)
        units = np.hstack([rows, np.zeros((4, 1))])
        units[:3] /= np.linalg.norm(units[:3], axis=1)[:, None]
        units[3, -1] = 1.0
        chords = np.linalg.norm(units[:, None] - units[None], axis=2)
        fitted = 2.5**4 * (mean_wave(chords.reshape(-1, 1) * radii, 7) @ weights).reshape(4, 4)
        found = errors(SphericalFourier, kernel, rows, 24, seeds=200) + kernel(rows, rows) - fitted
        standard_error = found.std(axis=0) / math.sqrt(200)
        assert np.all(np.abs(found.mean(axis=0)) < 4.5 * standard_error)

    def test_only_directions_count(self, rows):
        features = SphericalFourier.fit(rows, CUBIC, 11, 0, View.X)
        assert features.kernel == SphericalPolynomial(3, 1.0)
        lengths = np.geomspace(1e-150, 1e150, 60)[:, None]
        np.testing.assert_allclose(
            features.transform(rows * lengths), features.transform(rows), atol=1e-12
        )

    @pytest.mark.parametrize("kernel", [Polynomial(1.0, 3, 0.0), SphericalPolynomial(2, 0.1)])
    def test_raises_for_kernels_without_a_positive_spectrum(self, rows, kernel):
        expected = (
            r"in 5 columns has no positive spectrum near it: the best has an error of 0\.\d+ "
        )
        with pytest.raises(InputError, match=expected):
            SphericalFourier.fit(rows, kernel, 11, 0, View.X)
        features = SphericalFourier.fit(rows, kernel, 11, 0, View.X, tolerance=1.0)
        assert 0.05 < features.bias < 1.0


class TestArcCosine:
    @pytest.mark.parametrize("order", [0, 1, 2])
    def test_is_the_formula(self, rows, order):
        features = ArcCosineFeatures.fit(rows, ArcCosine(order), 30, 0, View.X)
        A = rows @ features.W
        expected = math.sqrt(2 / 30) * np.heaviside(A, 0.5) * A**order
        np.testing.assert_allclose(features.transform(rows), expected, atol=1e-12)

    def test_a_zero_row_is_at_right_angles_to_all(self, rows):
        X = rows[:3].copy()
        X[0] = 0.0
        Phi = ArcCosineFeatures.fit(X, ArcCosine(0), 20_000, 0, View.X).transform(X)
        K = Phi @ Phi.T
        assert K[0, 0] == pytest.approx(0.5)
        np.testing.assert_allclose(K[0, 1:], 0.5, atol=0.02)


@pytest.mark.parametrize("kind", [TensorSketch, *MACLAURIN])
def test_a_width_must_be_decided(rows, kind):
    with pytest.raises(InputError, match="polynomial kernel has no width yet"):
        kind.fit(rows, Polynomial(), 11, 0, View.X)


@pytest.mark.parametrize(
    ("kind", "kernel"),
    [*((kind, CUBIC) for kind in (TensorSketch, *MACLAURIN)), (ArcCosineFeatures, ArcCosine(2))],
)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_powers_beyond_float32_raise(rows, kind, kernel, form):
    features = kind.fit(rows, kernel, 11, 0, View.X)
    far = form(rows.astype(np.float32) * np.float32(1e12))
    with pytest.raises(InputError, match="overflows float32"):
        features.transform(far)
    assert np.isfinite(features.transform(far.astype(np.float64))).all()


def test_a_spherical_power_beyond_float32_raises(rows):
    kernel = SphericalPolynomial(10, 1e4)
    expected = r"^\(1 \+ coef0\)\^10 with coef0=10000 overflows float32\. Use a smaller coef0 or a "
    for call in (kernel.diag, lambda X: kernel(X, X)):
        with pytest.raises(InputError, match=expected):
            call(rows.astype(np.float32))
        assert np.isfinite(call(rows)).all()
