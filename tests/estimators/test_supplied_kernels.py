"""Estimators with kernels of the user's: functions, and precomputed values."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils import get_tags

from knoi import KNOI, DoublyStochasticCCA, FourierCCA, KernelCCA, NystromCCA
from knoi.exceptions import InputError, InputTypeError, InSampleWarning, NotKeptError
from knoi.kernels import RBF
from tests.estimators.models import (
    assert_same_model,
    assert_same_up_to_sign,
    related_views,
    reloaded,
    small,
    streamed,
)

WIDTH = 2.0
NAMED = {"width": WIDTH, "metric": None, "scale": None}


def gaussian(A, B):
    return rbf_kernel(A, B, gamma=0.5 / WIDTH**2)


takes_functions = pytest.mark.parametrize("estimator", [KernelCCA, NystromCCA, KNOI])


def supplied(estimator, kernel=gaussian, **params):
    return small(estimator, **{"kernel": kernel, "width": "auto", "metric": "auto"} | params)


class TestFunctions:
    @takes_functions
    @pytest.mark.parametrize("device", [None, "cpu"])
    def test_a_function_is_the_kernel_it_computes(self, estimator, device):
        X, Y = related_views(300)
        expected = small(estimator, kernel="rbf", device=device, **NAMED).fit(X, Y)
        found = supplied(estimator, device=device).fit(X, Y)
        assert_same_model(found, expected, X, Y, 1e-5)
        assert found.width_ == (None, None)

    def test_each_view_has_its_own(self):
        X, Y = related_views(300)
        expected = small(NystromCCA, width=(WIDTH, "median"), metric=None, scale=None).fit(X, Y)
        # One width is for the views whose kernel has one.
        for width in (("auto", "median"), "median"):
            model = supplied(
                NystromCCA, (gaussian, "rbf"), width=width, metric=None, scale=None
            ).fit(X, Y)
            assert_same_model(model, expected, X, Y, 1e-6)
        learned = supplied(NystromCCA, (gaussian, "rbf"), rank=100).fit(X, Y)
        assert learned.x_metric_ is None

    @pytest.mark.parametrize("landmarks", ["kmeans", "randomly_pivoted_cholesky", "leverage"])
    def test_landmarks_are_chosen(self, landmarks):
        X, Y = related_views(300)
        model = supplied(NystromCCA, landmarks=landmarks).fit(X, Y)
        assert model.score(*related_views(300, seed=1)) > 1.0

    def test_sparse_views_pieces_and_copies(self):
        X, Y = related_views(300)
        X = np.where(X > 0, X, 0)
        dense = supplied(NystromCCA, rank=300).fit(X, Y)
        sparse = supplied(NystromCCA, rank=300).fit(scipy.sparse.csr_array(X), Y)
        assert_same_model(sparse, dense, X, Y, 1e-7)
        model = streamed(supplied(NystromCCA), X, Y, [0, 200, 300])
        copied = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(copied.transform(X), model.transform(X))
        assert clone(model).kernel is gaussian

    def test_grid_search_tries_it(self):
        X, Y = related_views(200)
        grid = {"kernel": [gaussian, "linear"], "reg": [1e-3, 1e-1]}
        search = GridSearchCV(
            NystromCCA(2, rank=50, metric=None, scale=None, random_state=0), grid, cv=2
        )
        search.fit(X, Y)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()

    def test_its_name_is_shown(self):
        model = supplied(NystromCCA).fit(*related_views(100))
        assert "gaussian" in repr(model)
        assert "<td style" in model._repr_html_()
        assert "gaussian</td>" in model._repr_html_()

    @takes_functions
    def test_it_is_not_saved(self, estimator, tmp_path):
        model = supplied(estimator).fit(*related_views(100))
        with pytest.raises(InputTypeError, match=r"gaussian is a function, .* never saved"):
            model.save(tmp_path / "model.knoi")
        assert list(tmp_path.iterdir()) == []

    def test_a_checkpoint_does_not_hold_it_either(self, tmp_path):
        model = supplied(KNOI, batch_size=50, checkpoint=tmp_path / "run")
        with pytest.raises(InputTypeError, match="code is never saved"):
            model.fit(*related_views(200))

    @pytest.mark.parametrize("estimator", [FourierCCA, DoublyStochasticCCA])
    def test_random_features_refuse_it(self, estimator):
        with pytest.raises(InputError, match=r"not 'gaussian'.*NystromCCA, KNOI.*KernelCCA"):
            supplied(estimator).fit(*related_views(100))
        for name in ("random", "tensor_sketch"):
            with pytest.raises(InputError, match=r"NystromCCA, KNOI.*KernelCCA"):
                supplied(FourierCCA, approximation=name).fit(*related_views(100))

    @pytest.mark.parametrize(
        ("params", "text"),
        [
            ({"width": 1.0}, r"width=1.0 with the kernel gaussian of X: .*functools.partial"),
            ({"width": "median"}, "width='median' with the kernel gaussian of X"),
            (
                {"width": ("auto", "0.5x")},
                r"'0.5x'\) with the kernel gaussian of Y",
            ),
            ({"metric": "learned"}, "metric='learned' with the gaussian kernel of X"),
            (
                {"kernel": lambda a, b: a[0] @ b[0]},
                "the kernel <lambda> returned an array",
            ),
            ({"kernel": lambda A, B: -gaussian(A, B)}, "not positive semidefinite"),
        ],
    )
    def test_wrong_parameters(self, params, text):
        for estimator in (KernelCCA, NystromCCA):
            with pytest.raises(InputError, match=text):
                supplied(estimator, **params).fit(*related_views(100))


def matrices(X, Y, X_new=None, Y_new=None):
    """Kernel values of rows, the training rows unless others are given, with the training rows."""
    return gaussian(X if X_new is None else X_new, X), gaussian(Y if Y_new is None else Y_new, Y)


def precomputed(kernel="precomputed", **params):
    return KernelCCA(**{"n_components": 2, "kernel": kernel} | params)


class TestPrecomputed:
    @pytest.mark.parametrize("reg", ["auto", 1e-3])
    @pytest.mark.parametrize("device", [None, "cpu"])
    def test_is_the_kernel_that_was_computed(self, reg, device):
        (X, Y), new = related_views(200), related_views(50, seed=1)
        expected = KernelCCA(2, reg=reg, **NAMED).fit(X, Y)
        model = precomputed(reg=reg, device=device).fit(*matrices(X, Y))
        assert model.reg_ == expected.reg_
        np.testing.assert_allclose(model.correlations_, expected.correlations_, atol=1e-9)
        for Z, wanted in zip(
            model.transform(*matrices(X, Y, *new)), expected.transform(*new), strict=True
        ):
            assert_same_up_to_sign(Z, wanted, atol=1e-6)
        assert model.n_features_in_ == 200

    def test_a_constant_added_to_the_values_changes_nothing(self):
        X, Y = related_views(100)
        Kx, Ky = matrices(X, Y)
        one, other = (precomputed(reg=1e-3).fit(K, Ky) for K in (Kx, Kx + 3.0))
        np.testing.assert_allclose(one.transform(Kx), other.transform(Kx + 3.0), atol=1e-7)
        # Distances squared are a kernel once they are centred.
        squares = np.square(X[:, None] - X).sum(axis=2)
        linear, inner = (precomputed(reg=1e-3).fit(K, Ky) for K in (-squares / 2, X @ X.T))
        np.testing.assert_allclose(linear.correlations_, inner.correlations_, atol=1e-7)

    def test_one_view(self):
        X, Y = related_views(150)
        Kx, Ky = matrices(X, Y)
        expected = KernelCCA(2, width=(WIDTH, "median"), metric=None, scale=None).fit(X, Y)
        for metric, width in (("auto", "auto"), (None, ("auto", "1x"))):
            model = precomputed(("precomputed", "rbf"), metric=metric, width=width).fit(Kx, Y)
            np.testing.assert_allclose(model.correlations_, expected.correlations_, atol=1e-8)
        assert model.width_[1] == expected.width_[1]
        assert model.predict(Kx[:7]).shape == (7, 3)
        assert model.y_loadings_.shape == model.y_cross_loadings_.shape == (3, 2)
        other = precomputed(("linear", "precomputed")).fit(X, Ky)
        assert other.inverse_transform(other.transform(X)).shape == X.shape

    def test_no_columns_to_predict(self):
        X, Y = related_views(100)
        Kx, Ky = matrices(X, Y)
        model = precomputed(("precomputed", "rbf")).fit(Kx, Y)
        for use in (
            lambda: model.predict_x(Y),
            lambda: model.inverse_transform(model.transform(Kx)),
            lambda: model.x_loadings_,
            lambda: model.redundancy(Kx, Y),
            lambda: precomputed().fit(Kx, Ky).predict(Kx),
        ):
            with pytest.raises(NotKeptError, match="was given as kernel values"):
                use()

    def test_the_file_holds_no_kernel_values(self, tmp_path):
        X, Y = related_views(120)
        Ks = matrices(X, Y)
        model = precomputed().fit(*Ks)
        loaded = reloaded(model, tmp_path)
        for Z, wanted in zip(loaded.transform(*Ks), model.transform(*Ks), strict=True):
            np.testing.assert_array_equal(Z, wanted)
        assert (tmp_path / "reloaded.knoi").stat().st_size < Ks[0].nbytes / 4
        assert "precomputed" in str(loaded.projection_.x.features.kernel).lower()
        # Fitted again, it is what it was.
        np.testing.assert_array_equal(loaded.fit(*Ks).correlations_, model.correlations_)

    def test_cross_validation_cuts_both_axes_of_x(self):
        X, Y = related_views(120)
        Kx, Ky = matrices(X, Y)
        given = precomputed(("precomputed", "rbf"), width=("auto", WIDTH), metric=None, scale=None)
        named = KernelCCA(2, **NAMED)
        assert get_tags(given).input_tags.pairwise
        assert not get_tags(named).input_tags.pairwise
        scores = [cross_val_score(model, V, Y, cv=3) for model, V in ((given, Kx), (named, X))]
        np.testing.assert_allclose(*scores, atol=1e-6)
        search = GridSearchCV(given, {"reg": [1e-3, 1e-1]}, cv=2).fit(Kx, Y)
        assert search.best_score_ > 1.0
        with pytest.raises(InputError, match=r"Y has shape \(80, 120\) .*a function as the kernel"):
            cross_val_score(precomputed(), Kx, Ky, cv=3, error_score="raise")

    def test_sparse_and_float32_values(self):
        X, Y = related_views(100)
        Kx, Ky = matrices(X, Y)
        Kx[np.abs(Kx) < 1e-3] = 0.0
        dense = precomputed().fit(Kx, Ky)
        sparse = precomputed().fit(scipy.sparse.csr_array(Kx), Ky)
        np.testing.assert_allclose(sparse.correlations_, dense.correlations_, atol=1e-12)
        np.testing.assert_allclose(sparse.transform(Kx), dense.transform(Kx), atol=1e-8)
        single = precomputed().fit(Kx.astype(np.float32), Ky.astype(np.float32))
        np.testing.assert_allclose(single.correlations_, dense.correlations_, atol=1e-3)

    def test_perfect_correlations_are_noticed(self):
        rng = np.random.default_rng(0)
        A, B = rng.standard_normal((60, 40)), rng.standard_normal((60, 40))
        for weights in (None, np.ones(60)):
            with pytest.warns(InSampleWarning, match="would be for any two views"):
                precomputed(reg=0.0).fit(A @ A.T, B @ B.T, sample_weight=weights)

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            (
                lambda K: K[:, :-1],
                r"X has shape \(60, 59\) and kernel='precomputed': fit takes",
            ),
            (lambda K: K[:-1, :-1], "X has 59 rows but Y has 60"),
            (lambda K: K + np.arange(60.0), r"the kernel values X are not symmetric: k\(a, b\) ="),
            (lambda K: np.where(K == 1.0, np.nan, K), "NaN"),
            (lambda K: -K, "the kernel matrix of view X is not positive semidefinite"),
        ],
    )
    def test_wrong_matrices(self, change, text):
        Kx, Ky = matrices(*related_views(60))
        with pytest.raises(ValueError, match=text):
            precomputed().fit(change(Kx), Ky)

    @pytest.mark.parametrize(
        ("params", "text"),
        [
            ({"width": 2.0}, r"width=2.0 with the kernel Precomputed\(\) of X"),
            (
                {"metric": "learned", "kernel": ("precomputed", "rbf")},
                "kernel values were passed",
            ),
        ],
    )
    def test_wrong_parameters(self, params, text):
        with pytest.raises(InputError, match=text):
            precomputed(**params).fit(*matrices(*related_views(60)))

    @pytest.mark.parametrize("estimator", [NystromCCA, FourierCCA, KNOI, DoublyStochasticCCA])
    def test_other_estimators_refuse_it(self, estimator):
        with pytest.raises(InputTypeError, match=r"'precomputed' is for KernelCCA.* a function"):
            small(estimator, kernel="precomputed").fit(*matrices(*related_views(60)))

    def test_a_projection_needs_values_with_all_training_rows(self):
        Kx, Ky = matrices(*related_views(60))
        with pytest.raises(InputError, match="X has 59 features, but KernelCCA is expecting 60"):
            precomputed().fit(Kx, Ky).transform(Kx[:, :-1])


class TestWidths:
    @pytest.mark.parametrize("estimator", [KernelCCA, NystromCCA, FourierCCA, KNOI])
    def test_a_multiple_of_the_median(self, estimator):
        X, Y = related_views(200)
        medians = small(estimator, width="median").fit(X, Y).width_
        model = small(estimator, width="0.5x").fit(X, Y)
        assert model.width_ == (0.5 * medians[0], 0.5 * medians[1])
        given = small(estimator, width=model.width_).fit(X, Y)
        assert_same_model(model, given, X, Y, 1e-12)
        each = small(estimator, width=("2x", 3.0)).fit(X, Y)
        assert each.width_ == (2 * medians[0], 3.0)

    def test_parts_of_sums_take_it(self):
        X, Y = related_views(100)
        half, whole = (
            small(NystromCCA, kernel=RBF() + RBF(), width=w).fit(X, Y).projection_.x.features.kernel
            for w in ("0.5x", "median")
        )
        assert half.parts[0].width == 0.5 * whole.parts[0].width

    def test_it_is_in_the_model_file(self, tmp_path):
        X, Y = related_views(100)
        model = reloaded(small(NystromCCA, width=("0.5x", "median")).fit(X, Y), tmp_path)
        assert model.width == ("0.5x", "median")
