"""The learned metric: what it gains, when it is left out, and that everything works with it."""

import numpy as np
import pytest
import scipy.sparse

import knoi
from knoi import (
    KNOI,
    DoublyStochasticCCA,
    FourierCCA,
    KernelCCA,
    LinearCCA,
    NystromCCA,
)
from knoi.exceptions import InputError, InputTypeError, NotKeptError
from knoi.features.composite import Chain
from knoi.kernels import RBF
from tests.estimators.models import assert_equal_models, made, with_value
from tests.fake_cuda import FakeCuda

KERNEL_ESTIMATORS = [FourierCCA, NystromCCA, KernelCCA, KNOI, DoublyStochasticCCA]
each = pytest.mark.parametrize("estimator", KERNEL_ESTIMATORS)


def few_columns_matter(n, seed=0, d=20):
    """Nonlinear relations of two columns per view among d, most of which are noise."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((2, n, d))
    Y[:, 0] = np.sin(1.5 * X[:, 0]) + 0.1 * Y[:, 0]
    Y[:, 1] = X[:, 1] ** 2 + 0.1 * Y[:, 1]
    return X.astype(np.float32), Y.astype(np.float32)


@pytest.fixture(scope="module")
def views():
    return few_columns_matter(1500)


@pytest.fixture(scope="module")
def test_views():
    return few_columns_matter(1000, seed=1)


def fitted(estimator, views, **params):
    given = {"rank": 300, "reg": 1e-3, "random_state": 0, "epochs": 20, "n_jobs": 1, **params}
    return made(estimator, n_components=2, **given).fit(*views)


@each
def test_gains_where_few_columns_matter(estimator, views, test_views):
    plain = fitted(estimator, views, metric=None, scale=None, width="median")
    assert plain.x_metric_ is None
    learned = fitted(estimator, views)
    assert learned.score(*test_views) > plain.score(*test_views) + 0.3
    for importance in learned.column_importance():
        assert set(np.argsort(-importance)[:2]) == {0, 1}
        assert importance.sum() == pytest.approx(1)
    metric = learned.x_metric_
    assert metric.shape == (20, 20)
    np.testing.assert_allclose(metric, metric.T)
    assert learned.projection_.x.features.first.rank < 20  # small directions are cut off


@pytest.mark.parametrize("estimator", [NystromCCA, KNOI])
def test_weights_of_sparse_columns(estimator, views, test_views):
    def sparse(pair):
        return [scipy.sparse.csr_array(np.where(np.abs(view) < 0.3, 0, view)) for view in pair]

    plain = fitted(estimator, sparse(views), metric=None, scale=None, width="median")
    learned = fitted(estimator, sparse(views), metric="diagonal")
    assert learned.x_metric_.shape == (20,)
    assert learned.score(*sparse(test_views)) > plain.score(*sparse(test_views)) + 0.2
    dense = fitted(estimator, [view.toarray() for view in sparse(views)], metric="diagonal")
    assert dense.score(*sparse(test_views)) == pytest.approx(
        learned.score(*sparse(test_views)), abs=0.05
    )
    # Narrow views get a whole transform, stored as they may be.
    pairs = sparse(views), [view.toarray() for view in sparse(views)]
    one, two = (fitted(estimator, pair) for pair in pairs)
    assert one.x_metric_.shape == two.x_metric_.shape == (20, 20)
    # Rounding may decide between metrics that do equally well.
    assert one.score(*pairs[0]) == pytest.approx(two.score(*pairs[1]), abs=0.05)


@each
@pytest.mark.parametrize("kind", ["learned", "diagonal"])
def test_saved_loaded_and_predicted(estimator, kind, views, tmp_path):
    model = fitted(estimator, views, metric=("learned", kind))
    model.save(tmp_path / "m.knoi")
    again = knoi.load(tmp_path / "m.knoi")
    for Z, W in zip(model.transform(*views), again.transform(*views), strict=True):
        np.testing.assert_array_equal(Z, W)
    np.testing.assert_array_equal(again.y_metric_, model.y_metric_)
    np.testing.assert_array_equal(again.predict(views[0]), model.predict(views[0]))
    assert again.get_params()["metric"] == ("learned", kind)


@pytest.mark.parametrize("precondition", ["auto", None])
def test_resumes_to_the_same_bits(precondition, views, tmp_path):
    params = {"precondition": precondition, "batch_size": 200, "epochs": 3}
    straight = fitted(KNOI, views, **params)

    def stop(state, result):
        if state.optimizer.steps == 9:
            raise KeyboardInterrupt
        return state

    with pytest.raises(KeyboardInterrupt):
        fitted(KNOI, views, checkpoint=tmp_path, callbacks=[stop], **params)
    resumed = made(KNOI, n_components=2, rank=300, reg=1e-3, random_state=0, n_jobs=1, **params)
    resumed.set_params(checkpoint=tmp_path).fit(*views, resume=True)
    assert_equal_models(straight, resumed)


@pytest.mark.parametrize("estimator", [NystromCCA, KNOI])
def test_a_stream_keeps_the_metric_of_its_first_piece(estimator, views, test_views):
    X, Y = views
    model = made(estimator, n_components=2, rank=200, reg=1e-3, random_state=0)
    model.partial_fit(X[:900], Y[:900])
    metric = model.x_metric_
    model.partial_fit(X[900:], Y[900:])
    np.testing.assert_array_equal(model.x_metric_, metric)
    assert model.score(*test_views) > 1.2


@pytest.mark.parametrize("n", [500, 2000])
@pytest.mark.parametrize("seed", range(3))
def test_noise_gets_no_metric(n, seed):
    """Held-out rows of unrelated views gain by chance only."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((2, n, 10))
    model = NystromCCA(2, rank=100, random_state=seed).fit(X, Y)
    test = model.permutation_test(*rng.standard_normal((2, 1000, 10)), 199, 0)
    assert test.p_values[0] > 0.01


@pytest.mark.parametrize("kernel", ["matern", "laplacian", "polynomial", "arccosine"])
def test_other_kernels(kernel, views, test_views):
    plain = fitted(NystromCCA, views, kernel=kernel, metric=None, scale=None, width="median")
    learned = fitted(NystromCCA, views, kernel=kernel)
    assert learned.score(*test_views) > plain.score(*test_views) + 0.02


def test_kernels_without_a_gradient_are_left_as_they_are(views):
    X, Y = (np.abs(view) for view in views)
    model = fitted(NystromCCA, (X, Y), kernel="chi2")
    assert model.x_metric_ is None
    with pytest.raises(InputError, match="metric='learned' with the chi2 kernel of X"):
        fitted(NystromCCA, (X, Y), kernel="chi2", metric="learned")
    mixed = fitted(NystromCCA, (X, Y), kernel=("chi2", "rbf"))
    assert mixed.x_metric_ is None
    assert mixed.y_metric_ is not None
    with pytest.raises(NotKeptError, match="has no learned metric"):
        model.plot_column_importance()


def test_the_width_is_chosen_in_the_same_rounds(views):
    model = fitted(NystromCCA, views, metric=None, scale=None, width="auto")
    median = fitted(NystromCCA, views, metric=None, scale=None, width="median")
    factor = model.projection_.x.features.kernel.width / median.projection_.x.features.kernel.width
    assert any(factor == pytest.approx(one) for one in (0.35, 0.5, 0.7, 1.0, 1.4))
    given = fitted(NystromCCA, views, width=(3.0, "auto"))
    assert given.projection_.x.features.kernel.width == 3.0


def test_a_multiple_of_the_median_is_that_of_transformed_rows(views):
    for width, times in (("median", 1.0), ("0.5x", 0.5)):
        model = fitted(NystromCCA, views, width=width)
        rows = model.projection_.x.features.first.transform(views[0])
        assert model.width_[0] == pytest.approx(times * RBF().default_width(rows), rel=1e-5)


@pytest.mark.parametrize("estimator", [NystromCCA, KNOI])
def test_odd_columns(estimator):
    X, Y = few_columns_matter(600, d=6)
    X = np.hstack([X, np.full((600, 1), 3, X.dtype), X[:, :1]])  # a constant and a duplicate
    model = fitted(estimator, (X, Y))
    assert np.isfinite(model.transform(X)).all()
    assert model.x_metric_[6, 6] == pytest.approx(0, abs=1e-6 * model.x_metric_.max())
    one = made(estimator, n_components=1, rank=50, random_state=0).fit(X[:, 1:2], Y[:, 1:2])
    assert one.score(X[:, 1:2], Y[:, 1:2]) > 0.8


def test_few_rows_get_no_metric(views):
    assert fitted(NystromCCA, [view[:80] for view in views], rank=50).x_metric_ is None


def test_the_metric_does_not_depend_on_the_storage(views, tmp_path):
    X, Y = views
    np.save(tmp_path / "X.npy", X)
    models = [
        fitted(KernelCCA, pair)
        for pair in ((X, Y), (np.asfortranarray(X), Y), (tmp_path / "X.npy", Y))
    ]
    for other in models[1:]:
        np.testing.assert_allclose(other.x_metric_, models[0].x_metric_, rtol=1e-3, atol=1e-6)


def test_on_a_device(views):
    X, Y = (view[:400] for view in views)
    params = {"n_components": 2, "rank": 60, "reg": 1e-3, "random_state": 0, "n_jobs": 1}
    with FakeCuda():
        there = NystromCCA(**params, device="cuda").fit(X, Y)
    here = NystromCCA(**params, device="cpu").fit(X, Y)
    np.testing.assert_allclose(there.correlations_, here.correlations_, atol=1e-4)
    assert isinstance(there.projection_.x.features, Chain)


@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        ({"metric": "best"}, InputError, "metric='best': wanted one of 'auto', 'learned'"),
        ({"metric": 3}, InputError, "metric=3: wanted one of"),
        ({"kernel": "linear", "metric": "learned"}, InputError, "with the linear kernel of X"),
        ({"width": "mean"}, InputTypeError, "wanted a positive, finite number, 'median', 'auto'"),
    ],
)
def test_bad_parameters(params, error, text, views):
    with pytest.raises(error, match=text):
        fitted(NystromCCA, views, **params)


def test_bad_rows_are_reported_before_anything_is_learned(views):
    X, Y = views
    with pytest.raises(InputError, match="X has NaN at row 7, column 2"):
        fitted(NystromCCA, (with_value(X, 7, 2, np.nan), Y))
    wide = scipy.sparse.random_array((len(Y), 3000), density=0.01, format="csr", rng=0)
    with pytest.raises(InputError, match="metric='learned' with 3000 columns of X"):
        fitted(NystromCCA, (wide, Y), metric="learned")
    with pytest.raises(InputError, match="view X: all 1500 sampled rows are identical"):
        fitted(NystromCCA, (np.ones_like(X), Y))


def test_linear_cca_has_none(views):
    assert LinearCCA(2).fit(*views).x_metric_ is None
