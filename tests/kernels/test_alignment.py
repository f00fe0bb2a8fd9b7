"""Kernel weights learned by the alignment of the two views."""

import numpy as np
import pytest
from scipy.optimize import minimize

from knoi import KernelCCA
from knoi.exceptions import InputError
from knoi.kernels import (
    RBF,
    Laplacian,
    Linear,
    SumKernel,
    learn_weights,
    several_widths,
    with_default_width,
)
from knoi.kernels.alignment import with_learned_weights


def curves(n=300, seed=0, noise=0.1):
    """Two noisy views of one latent variable."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(-3, 3, (n, 1))
    X = np.hstack([np.sin(t), np.cos(t)]) + noise * rng.standard_normal((n, 2))
    Y = np.hstack([t, t**2]) + 3 * noise * rng.standard_normal((n, 2))
    return X, Y


def unbiased_hsic(K, L):
    """Song et al. (2012), equation 5."""
    n = len(K)
    K, L = K - np.diag(np.diag(K)), L - np.diag(np.diag(L))
    one = np.ones(n)
    total = np.trace(K @ L)
    total += (one @ K @ one) * (one @ L @ one) / ((n - 1) * (n - 2))
    total -= 2 / (n - 2) * (one @ K @ L @ one)
    return total / (n * (n - 3))


def alignment(a, b, kernels_x, kernels_y, X, Y):
    n = len(X)
    K = sum(w * kernel(X, X) for w, kernel in zip(a, kernels_x, strict=True))
    L = sum(w * kernel(Y, Y) for w, kernel in zip(b, kernels_y, strict=True))
    H = np.eye(n) - 1 / n
    norms = [np.linalg.norm(H @ M @ H) for M in (K, L)]
    return n**2 * unbiased_hsic(K, L) / np.prod(norms)


def test_weights_maximise_the_alignment():
    X, Y = curves(80)
    kernels_x = [RBF(0.3), RBF(1.0), Linear()]
    kernels_y = [RBF(0.5), Laplacian(4.0)]
    a, b = learn_weights(kernels_x, kernels_y, X, Y)
    reached = alignment(a, b, kernels_x, kernels_y, X, Y)

    def loss(logarithms):
        w = np.exp(logarithms)
        return -alignment(w[:3], w[3:], kernels_x, kernels_y, X, Y)

    # Dropped weights are 0, which the logarithms only approach: the search may be slightly worse.
    best = -minimize(loss, np.zeros(5), method="L-BFGS-B", bounds=[(-12, 4)] * 5).fun
    assert reached >= best * (1 - 1e-6)
    for weights in (a, b):
        assert weights.sum() == pytest.approx(1.0)
        assert (weights >= 0).all()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("narrow", [1e-4, 1e-2])
def test_a_very_narrow_kernel_gets_no_weight(seed, narrow):
    # Its matrix is nearly the identity in both views: with diagonals it would align best.
    X, Y = curves(500, seed)
    x, y = (with_default_width(several_widths("rbf", (narrow, 1.0)), view).parts for view in (X, Y))
    a, b = learn_weights(x, y, X, Y)
    for weights in (a, b):
        assert weights[0] < 0.02
        assert weights[1] > 0.98


def test_degenerate_cases():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((50, 3)), rng.standard_normal((50, 3))
    kernels = [RBF(1.0), Linear()]
    for weights in learn_weights(kernels, kernels, X, Y):  # independent views
        assert np.isfinite(weights).all()
    for weights in learn_weights(kernels, kernels, X, np.ones((50, 2))):  # a constant view
        assert list(weights) == [0.5, 0.5]
    a, _ = learn_weights([RBF(1.0), RBF(1.0)], [RBF(2.0)], *curves(200))  # equal kernels
    np.testing.assert_allclose(a, [0.5, 0.5], atol=1e-3)


def test_the_scale_of_a_kernel_does_not_matter():
    X, Y = curves(200)
    y_parts = [RBF(2.0), Linear()]
    a, b = learn_weights([RBF(0.3), RBF(1.0), Linear()], y_parts, X, Y)
    scaled, same = learn_weights([RBF(0.3), 1e6 * RBF(1.0), 1e-6 * Linear()], y_parts, X, Y)
    kept = scaled * [1.0, 1e6, 1e-6]
    expected = np.where(scaled > 0, a, 0.0)  # parts are dropped by weight
    np.testing.assert_allclose(kept / kept.sum(), expected / expected.sum(), rtol=1e-6)
    np.testing.assert_allclose(same, b, rtol=1e-6)


def test_a_sample_is_enough_and_reproducible():
    X, Y = curves(2500)
    parts = [RBF(0.3), RBF(1.0)]
    one, two, other = (
        learn_weights(parts, parts, X, Y, seed=seed, n_rows=300)[0] for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    np.testing.assert_allclose(one, other, atol=0.2)


def test_unpaired_and_too_few_rows_raise():
    X, Y = curves(10)
    with pytest.raises(InputError, match="X has 10 rows but Y has 9"):
        learn_weights([RBF(1.0)], [RBF(1.0)], X, Y[:9])
    with pytest.raises(InputError, match="cannot be learned from 3 rows: at least 4 are needed"):
        learn_weights([RBF(1.0)], [RBF(1.0)], X[:3], Y[:3])


class TestLearn:
    def test_only_sums_with_learn_are_changed(self):
        X, Y = curves()
        fixed = (several_widths(RBF(1.0)), RBF(0.5) + 0.001 * Linear())
        assert with_learned_weights(fixed, (X, Y), 0) is fixed
        kernel = SumKernel([RBF(1e-4), RBF(0.1), RBF(1.0)], learn=True)
        learned, same = with_learned_weights((kernel, fixed[1]), (X, Y), 0)
        assert same is fixed[1]
        assert learned.parts == (RBF(0.1), RBF(1.0))
        assert not learned.learn
        assert sum(learned.weights) == pytest.approx(1.0)
        assert (2 * kernel + Linear()).learn
        # A single remaining part is the kernel.
        pair = (SumKernel([RBF(1e-4), RBF(1.0)], learn=True),) * 2
        assert with_learned_weights(pair, (X, Y), 0) == (RBF(1.0), RBF(1.0))

    def test_improves_an_estimator_with_bad_weights(self):
        # A kernel near the identity fits any rows and generalises to none.
        X, Y = curves(900)
        scores = {}
        for learn in (False, True):
            kernel = several_widths("rbf", (0.002, 1.0), weights=(20, 1), learn=learn)
            model = KernelCCA(
                2, kernel=kernel, reg=1e-4, metric=None, scale=None, width="median", random_state=0
            ).fit(X[:300], Y[:300])
            scores[learn] = model.score(X[300:], Y[300:])
        assert 2 - scores[True] < 0.5 * (2 - scores[False])
        assert model.kernel.learn  # the parameter is unchanged
        assert model.projection_.x.features.kernel == RBF(RBF().default_width(X[:300]))
