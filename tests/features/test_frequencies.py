"""Rules for frequencies: what each promises, and that the better ones are better."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from scipy import stats

from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import Purpose, View, generator
from knoi.exceptions import InputError
from knoi.features import RandomFourier
from knoi.features.fourier import DRAW_BLOCK, draw_frequencies
from knoi.kernels import RBF, Cauchy, Laplacian, Matern
from tests.contracts.feature_map import FeatureMapContract, MapCase

KERNELS = [RBF(2.0), Matern(2.0), Laplacian(5.0), Cauchy(2.0)]
RULES = ["iid", "orthogonal", "qmc"]
ALLOWED = [
    (kernel, rule)
    for rule in RULES
    for kernel in KERNELS
    if kernel.isotropic or rule != "orthogonal"
]
BETTER = [(kernel, rule) for kernel, rule in ALLOWED if rule != "iid"]

both_pairings = pytest.mark.parametrize("paired", [False, True], ids=["phases", "paired"])


def rows_of(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def fourier(X, kernel, rank, rule, seed=0, view=View.X, paired=False):
    return RandomFourier.fit(X, kernel, rank, seed, view, frequencies=rule, paired=paired)


def squared_errors(X, kernel, rank, rule, seeds, paired=False):
    """Mean squared error of the kernel off its diagonal, one for each seed."""
    off = np.triu_indices(len(X), 1)
    exact = kernel(X, X)[off]
    errors = []
    for seed in range(seeds):
        Phi = fourier(X, kernel, rank, rule, seed, paired=paired).transform(X)
        errors.append(np.mean(((Phi @ Phi.T)[off] - exact) ** 2))
    return np.array(errors)


def assert_smaller(small, large):
    """The mean of `small` is below that of `large`, by four standard errors of the difference."""
    error = np.hypot(stats.sem(small), stats.sem(large))
    assert np.mean(large) - np.mean(small) > 4 * error


# --- the contract ---------------------------------------------------------------------------

# kernel, rank, columns, paired
CASES = {
    "iid": (RBF(2.0), 11, 5, False),
    "iid-paired-odd": (Matern(2.0), 11, 5, True),
    "orthogonal-paired": (Matern(2.0), 12, 5, True),
    "orthogonal-one-column": (RBF(1.0), 11, 1, False),
    "qmc": (Laplacian(5.0), 11, 5, False),
    "qmc-paired-odd": (Cauchy(2.0), 11, 5, True),
}


@pytest.fixture(params=CASES, scope="module")
def case(request):
    kernel, rank, d, paired = CASES[request.param]
    rule = request.param.split("-")[0]
    X = rows_of(20, d)
    features, larger = (fourier(X, kernel, size, rule, paired=paired) for size in (rank, 40))
    # Of an odd number the last is not paired, but would be in a larger map.
    return MapCase(features, X, rank, larger, shared=rank - rank % 2 if paired else rank)


class TestEveryRule(FeatureMapContract):
    pass


# --- what holds for every rule --------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "rule"), ALLOWED, ids=repr)
@both_pairings
def test_inner_products_are_unbiased(kernel, rule, paired):
    d, rank = (2, 15) if paired else (3, 16)
    X, Z, seeds = rows_of(4, d), rows_of(3, d, 1), 200
    exact = kernel(X, Z)
    found = np.empty((seeds, *exact.shape))
    for seed in range(seeds):
        Phi = fourier(X, kernel, rank, rule, seed, paired=paired).transform(np.vstack([X, Z]))
        found[seed] = Phi[: len(X)] @ Phi[len(X) :].T
    assert (np.abs(found.mean(0) - exact) < 4.5 * stats.sem(found)).all()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("d", [1, 7])
def test_every_frequency_has_the_distribution_of_the_kernel(rule, d):
    # One frequency a seed, at several places of a block: these are independent of each other.
    W = np.stack([draw_frequencies(RBF(2.0), d, 9, s, View.X, rule)[0] for s in range(200)])
    for place in (0, d - 1, 8):
        w = 2.0 * W[:, :, place]  # (seeds, d), standard normal
        for column in w.T:
            assert stats.kstest(column, "norm").pvalue > 1e-3
        assert stats.kstest((w**2).sum(1), stats.chi2(d).cdf).pvalue > 1e-3


@pytest.mark.parametrize("rule", RULES)
@both_pairings
def test_a_larger_draw_begins_with_a_smaller_one(rule, paired):
    kernel = Matern(2.0)
    # Below, at, across and beyond the size of the blocks that are drawn at a time.
    W, phases = draw_frequencies(kernel, 5, 2500, 0, View.X, rule, paired=paired)
    for m in (1, 7, DRAW_BLOCK - 1, DRAW_BLOCK, DRAW_BLOCK + 1, 2100):
        small, turned = draw_frequencies(kernel, 5, m, 0, View.X, rule, paired=paired)
        assert small.shape == (5, m)
        np.testing.assert_array_equal(small, W[:, :m])
        np.testing.assert_array_equal(turned, phases[:m])


@pytest.mark.parametrize("rule", RULES)
def test_views_seeds_and_blocks_differ(rule):
    def draw(seed=0, view=View.X):
        return draw_frequencies(RBF(1.0), 4, 3 * DRAW_BLOCK, seed, view, rule)

    W, phases = draw()
    for other, turned in (draw(seed=1), draw(view=View.Y)):
        assert (other != W).mean() > 0.99
        assert (phases != turned).mean() > 0.99
    columns, counts = np.unique(W, axis=1, return_counts=True)
    assert columns.shape == W.shape
    assert (counts == 1).all()
    np.testing.assert_array_equal(draw()[0], W)


@pytest.mark.parametrize("rule", RULES)
def test_phases_are_spread_over_the_circle(rule):
    _, phases = draw_frequencies(RBF(1.0), 3, 2000, 0, View.X, rule)
    assert stats.kstest(phases / (2 * np.pi), "uniform").pvalue > 1e-3


def test_iid_is_what_the_kernel_draws_block_by_block():
    kernel = Matern(2.0)
    W, phases = draw_frequencies(kernel, 3, DRAW_BLOCK + 5, 8, View.Y)
    for block, columns in enumerate([slice(0, DRAW_BLOCK), slice(DRAW_BLOCK, DRAW_BLOCK + 5)]):
        whole = kernel.sample_frequencies(
            3, DRAW_BLOCK, generator(8, Purpose.FREQUENCIES, View.Y, block)
        )
        turns = generator(8, Purpose.PHASES, View.Y, block).uniform(0, 2 * np.pi, DRAW_BLOCK)
        size = columns.stop - columns.start
        np.testing.assert_array_equal(W[:, columns], whole[:, :size])
        np.testing.assert_array_equal(phases[columns], turns[:size])


# --- orthogonal -----------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 600])
def test_directions_are_orthogonal_set_by_set(d):
    m = 2 * d + d // 2 + 1
    W, _ = draw_frequencies(Matern(2.0), d, m, 0, View.X, "orthogonal")
    directions = W / np.linalg.norm(W, axis=0)
    for start in range(0, m, d):
        one = directions[:, start : start + d]
        np.testing.assert_allclose(one.T @ one, np.eye(one.shape[1]), atol=1e-12)
    if d > 1:  # another set is turned another way
        across = directions[:, :d].T @ directions[:, d : 2 * d]
        assert np.abs(across - np.eye(d)).max() > 0.1


def test_more_columns_than_a_block_are_one_set():
    d = DRAW_BLOCK + 6
    W, _ = draw_frequencies(RBF(1.0), d, d + 2, 0, View.X, "orthogonal")
    small, _ = draw_frequencies(RBF(1.0), d, 30, 0, View.X, "orthogonal")
    np.testing.assert_allclose(small, W[:, :30], atol=1e-12)
    directions = W / np.linalg.norm(W, axis=0)
    np.testing.assert_allclose(directions[:, :d].T @ directions[:, :d], np.eye(d), atol=1e-12)
    assert np.abs(directions[:, :d].T @ directions[:, d:]).max() > 0.01


def test_lengths_of_a_set_are_independent():
    W, _ = draw_frequencies(RBF(1.0), 5, 5000, 0, View.X, "orthogonal")
    lengths = np.linalg.norm(W, axis=0).reshape(-1, 5)  # (sets, 5)
    correlations = np.corrcoef(lengths.T)[np.triu_indices(5, 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(len(lengths))


def test_orthogonal_refuses_a_kernel_that_is_not_isotropic():
    with pytest.raises(InputError) as raised:
        fourier(rows_of(5, 3), Laplacian(5.0), 10, "orthogonal")
    assert str(raised.value) == (
        "frequencies='orthogonal' needs an isotropic kernel: the spectral measure of the "
        "laplacian kernel is not invariant under rotation. Use frequencies='qmc' or 'iid' "
        "with it, or the kernel 'rbf' or 'matern'."
    )


# --- quasi-Monte Carlo ----------------------------------------------------------------------


def test_the_sequence_is_spread_evenly():
    # Of a power of two of points, every interval of that length has one, in every coordinate.
    W, phases = draw_frequencies(RBF(1.0), 3, 256, 0, View.X, "qmc")
    for u in (phases / (2 * np.pi), *stats.norm.cdf(W)):
        np.testing.assert_array_equal(np.sort(np.floor(256 * u)), np.arange(256))


def test_more_columns_than_the_sequence_has_raise():
    with pytest.raises(InputError) as raised:
        fourier(np.zeros((1, 21201)), RBF(1.0), 10, "qmc")
    assert str(raised.value) == (
        "frequencies='qmc' with 21201 columns takes 21202 coordinates of a Sobol sequence, but "
        "there are only 21201. Use frequencies='iid', or 'orthogonal' with an isotropic kernel, "
        "'rbf' or 'matern'."
    )


def test_an_unknown_rule_raises():
    with pytest.raises(InputError) as raised:
        fourier(rows_of(5, 3), RBF(1.0), 10, "sobol")
    assert str(raised.value) == (
        "frequencies='sobol' is not a way to draw frequencies: wanted one of 'iid', 'orthogonal', "
        "'qmc'."
    )


# --- accuracy -------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "rule"), BETTER, ids=repr)
def test_error_is_smaller_than_with_independent_frequencies(kernel, rule):
    X, paired = rows_of(20, 8), kernel.isotropic
    kernel = kernel.with_width(1.5 * kernel.width)  # values away from 0 at 8 columns
    independent, better = (
        squared_errors(X, kernel, 128, which, 100, paired) for which in ("iid", rule)
    )
    assert_smaller(better, independent)


@pytest.mark.parametrize(("kernel", "rule"), ALLOWED, ids=repr)
def test_error_falls_at_least_like_one_over_root_rank(kernel, rule):
    X, paired = rows_of(20, 5), rule != "iid"
    few, many = (
        np.sqrt(squared_errors(X, kernel, rank, rule, 20, paired).mean()) for rank in (64, 1024)
    )
    # The mean of M terms 2 cos(.) cos(.), each of variance at most 3/2, and no better than that.
    assert few < 1.2 * np.sqrt(1.5 / 64)
    assert few / many > 3.0  # sixteen times the rank, a quarter of the error


# --- sparse rows ----------------------------------------------------------------------------


def test_sparse_rows_stay_sparse():
    X = scipy.sparse.random_array((50, 30), density=0.1, format="csr", rng=np.random.default_rng(0))
    features = fourier(X, RBF(2.0), 20, "orthogonal")
    np.testing.assert_allclose(features.centre, X.toarray().mean(axis=0), atol=1e-15)
    prepared = features.prepare(X)
    assert scipy.sparse.issparse(prepared)
    assert prepared.nnz == X.nnz + 50
    centred = X.toarray() - features.centre
    expected = np.sqrt(2 / 20) * np.cos(centred @ features.W + features.phases)
    np.testing.assert_allclose(features.transform(X), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_centre_of_dense_rows_turns_sparse_ones(dtype):
    dense = np.where(rows_of(20, 6) > 0.5, rows_of(20, 6) + 3.0, 0.0)
    backend = numpy_backend(dtype)
    features = fourier(dense, RBF(2.0), 20, "iid").to(backend)
    assert np.abs(features.centre).max() > 0.5
    rows = dense.astype(dtype)
    found = features.transform(scipy.sparse.csr_array(rows))
    assert found.dtype == np.dtype(dtype)
    atol = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(found, features.transform(rows), atol=atol)


def test_many_columns_are_never_made_dense():
    # Dense, these rows would be 100 times what the traced peak may be.
    d, b = 200_000, 500
    rng = np.random.default_rng(0)
    X = scipy.sparse.csr_array(
        (rng.random(b * 5), rng.integers(0, d, b * 5), np.arange(0, b * 5 + 1, 5)), shape=(b, d)
    )
    tracemalloc.start()
    try:
        features = RandomFourier(RBF(1.0), rng.standard_normal((d + 1, 2)), np.zeros(d))
        found = features.transform(X)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.shape == (b, 2)
    assert peak < 8 * b * d / 50
