"""Predictions, reconstructions, loadings and redundancy; and the in-sample warning."""

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import knoi
from knoi import KNOI, DoublyStochasticCCA, FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.data.pairs import PairSource
from knoi.datasets import make_two_views
from knoi.estimators import ESTIMATORS, structure
from knoi.exceptions import InputError, InSampleWarning, NotKeptError
from knoi.metrics import component_correlations, permutation_test, redundancy
from knoi.persistence import read_model, write_model
from tests.estimators import models
from tests.estimators.models import every_estimator, reloaded

small = partial(models.small, n_components=2, rank=40)


def least_squares(Z, Y):
    """Fitted values of Y on Z, with an intercept."""
    design = np.column_stack([np.ones(len(Z)), Z])
    return design @ np.linalg.lstsq(design, Y, rcond=None)[0]


def correlations(X, Z):
    return np.corrcoef(X.T, Z.T)[: X.shape[1], X.shape[1] :]


@pytest.mark.parametrize(
    ("estimator", "device"), [*((one, None) for one in ESTIMATORS), (FourierCCA, "cpu")]
)
def test_all_is_least_squares_on_the_variates(estimator, device, two_views):
    X, Y = two_views
    model = small(estimator, device=device).fit(X, Y)
    Zx, Zy = model.transform(X, Y)
    X_hat, Y_hat = model.inverse_transform(Zx, Zy)
    np.testing.assert_array_equal(model.inverse_transform(Zx), X_hat)
    for found, expected in (
        (model.predict(X), least_squares(Zx, Y)),
        (model.predict_x(Y), least_squares(Zy, X)),
        (X_hat, least_squares(Zx, X)),
        (Y_hat, least_squares(Zy, Y)),
        (model.x_loadings_, correlations(X, Zx)),
        (model.y_loadings_, correlations(Y, Zy)),
        (model.x_cross_loadings_, correlations(X, Zy)),
        (model.y_cross_loadings_, correlations(Y, Zx)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_the_output_has_the_precision_of_the_input(two_views):
    X, Y = (view.astype(np.float32) for view in two_views)
    model = small(FourierCCA).fit(X, Y)
    predicted = model.predict(X)
    assert predicted.dtype == model.predict_x(Y).dtype == np.float32
    assert model.inverse_transform(model.transform(X)).dtype == np.float32
    assert model.predict(X.astype(np.float64)).dtype == np.float64
    expected = least_squares(model.transform(X).astype(np.float64), Y)
    np.testing.assert_allclose(predicted, expected, atol=1e-4 * np.abs(Y).max())


@every_estimator
def test_redundancy_and_permutation_test_of_held_out_pairs(estimator, two_views):
    X, Y = two_views
    model = small(estimator).fit(X[:150], Y[:150])
    held_out = X[150:], Y[150:]
    Zx, Zy = model.transform(*held_out)
    expected = redundancy(held_out[0], Zy), redundancy(held_out[1], Zx)
    for found, wanted in zip(model.redundancy(*held_out), expected, strict=True):
        np.testing.assert_allclose(found.per_component, wanted.per_component, rtol=1e-6)
        assert found.total == pytest.approx(wanted.total, rel=1e-6)
    test = model.permutation_test(*held_out, n_permutations=99, random_state=1)
    np.testing.assert_allclose(test.correlations, component_correlations(Zx, Zy), atol=1e-10)
    expected = permutation_test(Zx, Zy, n_permutations=99, random_state=1)
    np.testing.assert_array_equal(test.p_values, expected.p_values)
    assert test.p_values[0] == 0.01


def test_a_file_from_before_loads_and_says_what_it_lacks(two_views, tmp_path):
    X, Y = two_views
    model = small(LinearCCA).fit(X, Y)
    model.save(tmp_path / "new.knoi")
    file = read_model(tmp_path / "new.knoi")
    header = {k: v for k, v in file.header.items() if k not in ("format", "knoi_version", "sha256")}
    del header["projection"]["structure"]
    tensors = {k: v for k, v in file.tensors.items() if not k.startswith("structure/")}
    assert len(tensors) < len(file.tensors)
    write_model(tmp_path / "old.knoi", header, tensors)
    old = knoi.load(tmp_path / "old.knoi")
    np.testing.assert_array_equal(old.transform(X), model.transform(X))
    for one in (old, reloaded(old, tmp_path)):
        with pytest.raises(NotKeptError, match="without relating its variates to the columns"):
            one.predict(X)
    found = [hasattr(one, "x_loadings_") for one in (old, model, LinearCCA())]
    assert found == [False, True, False]


def test_many_rows_are_sampled_few_are_all_used(monkeypatch):
    monkeypatch.setattr(structure, "FULL_ROWS", 200)
    monkeypatch.setattr(structure, "MAX_ROWS", 500)
    views = make_two_views(8000, (5, 4), (0.9, 0.8))

    def rows_used(n):
        with PairSource.open(views.X[:n], views.Y[:n]) as pairs:
            return structure.structure_sample(pairs).n_rows

    assert [rows_used(n) for n in (150, 200, 1000, 4800, 8000)] == [150, 200, 200, 300, 500]
    model = LinearCCA(2).fit(views.X, views.Y)
    again = LinearCCA(2).fit(views.X, views.Y)
    np.testing.assert_array_equal(again.predict(views.X), model.predict(views.X))
    whole = least_squares(model.transform(views.X), views.Y)
    off = np.square(model.predict(views.X) - whole).mean() / np.square(views.Y - whole).mean()
    # Least squares on 500 rows with 3 coefficients: 3/500 more error than the best.
    assert 0 < off < 4 * 3 / 500
    assert np.abs(model.x_loadings_ - correlations(views.X, model.transform(views.X))).max() < 0.2


def test_chunks_do_not_matter(two_views, monkeypatch):
    X, Y = two_views
    whole = small(NystromCCA).fit(X, Y)
    with PairSource.open(X, Y) as pairs, knoi.engine.Threads(1) as engine:
        monkeypatch.setattr(knoi.engine, "MAX_CHUNK_ROWS", 64)
        whole._fit_structure(pairs, engine)
        chunked = whole.predict(X)
        monkeypatch.undo()
        whole._fit_structure(pairs, engine)
    np.testing.assert_allclose(chunked, whole.predict(X), rtol=1e-9, atol=1e-12)


def test_sparse_views_and_files_are_as_good(two_views, tmp_path):
    X, Y = (np.where(np.abs(view) < 0.7, 0.0, view) for view in two_views)
    model = LinearCCA(2).fit(X, Y)
    np.save(tmp_path / "X.npy", X)
    for view in (scipy.sparse.csr_array(X), tmp_path / "X.npy"):
        other = LinearCCA(2).fit(view, Y)
        np.testing.assert_allclose(other.predict(view), model.predict(X), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(other.x_loadings_, model.x_loadings_, atol=1e-10)
        for found, wanted in zip(other.redundancy(view, Y), model.redundancy(X, Y), strict=True):
            np.testing.assert_allclose(found.per_component, wanted.per_component)


def test_a_view_too_wide_is_left_out_and_said_so(two_views, monkeypatch, tmp_path):
    X, Y = two_views
    monkeypatch.setattr(structure, "MAX_NUMBERS", 10)
    model = LinearCCA(2).fit(X, Y)
    Zx = model.transform(X)
    for one in (model, reloaded(model, tmp_path)):
        np.testing.assert_allclose(one.predict(X), least_squares(Zx, Y))
        for call in (
            lambda one=one: one.predict_x(Y),
            lambda one=one: one.inverse_transform(Zx),
            lambda one=one: one.x_loadings_,
            lambda one=one: one.redundancy(X, Y),
        ):
            with pytest.raises(NotKeptError, match=r"X is too wide .* exceed the 10 numbers"):
                call()
        np.testing.assert_allclose(one.y_cross_loadings_, correlations(Y, Zx))


def test_too_small_a_memory_budget_costs_predictions_not_the_fit(two_views, monkeypatch, tmp_path):
    X, Y = two_views
    monkeypatch.setattr(structure.JointMoments, "fixed_bytes", lambda *_: 2**60)
    model = LinearCCA(2).fit(X, Y)
    for one in (model, reloaded(model, tmp_path)):
        assert one.score(X, Y) > 1.5
        with pytest.raises(NotKeptError, match="fitted within a memory_budget too small"):
            one.predict(X)


@pytest.mark.parametrize("estimator", [LinearCCA, KNOI, DoublyStochasticCCA])
def test_partial_fit_uses_the_latest_rows(estimator, two_views):
    X, Y = two_views
    model = small(estimator)
    if estimator is LinearCCA:
        model.partial_fit(X[:80], Y[:80])
    model.partial_fit(X[80:], Y[80:])  # one minibatch
    Zx = model.transform(X[80:])
    np.testing.assert_allclose(model.predict(X[80:]), least_squares(Zx, Y[80:]), rtol=1e-6)
    np.testing.assert_allclose(model.x_loadings_, correlations(X[80:], Zx), atol=1e-8)


def test_wrong_shapes_are_explained(two_views):
    X, Y = two_views
    model = LinearCCA(2).fit(X, Y)
    for call, views, text in (
        (model.inverse_transform, (X[:, :3],), "Zx has 3 columns, but LinearCCA has 2 components"),
        (model.predict, (Y,), "X has 4 features, but LinearCCA is expecting 6"),
        (model.permutation_test, (X, Y[:199]), "X has 200 rows but Y has 199"),
        (model.redundancy, (X, Y[:199]), "X has 200 rows but Y has 199"),
    ):
        with pytest.raises(InputError, match=f"^{text}"):
            call(*views)


def test_pipelines_and_frames(two_views):
    X, Y = two_views
    framed = make_pipeline(StandardScaler(), LinearCCA(2)).set_output(transform="pandas").fit(X, Y)
    Z = framed.transform(X)
    np.testing.assert_allclose(framed.predict(X), least_squares(Z, Y))
    np.testing.assert_allclose(framed.inverse_transform(Z), least_squares(Z, X))


class TestInSampleWarning:
    @staticmethod
    def noise(n, dx, dy, seed=0):
        rng = np.random.default_rng(seed)
        return rng.standard_normal((n, dx)), rng.standard_normal((n, dy))

    def test_as_many_directions_as_rows_are_warned_of_in_any_units(self):
        X, Y = self.noise(25, 15, 12)
        with pytest.warns(InSampleWarning, match="X varies in 15 directions and Y in 12"):
            LinearCCA(2).fit(X * 10.0 ** np.arange(-7, 8), Y)
        with pytest.warns(InSampleWarning) as caught:
            model = LinearCCA(2).fit(X, Y)
        assert caught[0].filename == __file__
        assert "the 2 correlations found are at least 0.999" in str(caught[0].message)
        np.testing.assert_allclose(model.correlations_, 1.0)
        assert model.score(*self.noise(2000, 15, 12, seed=1)) < 0.2

    def test_the_border_is_where_all_correlations_become_one(self):
        # 15 + 12 directions: of n - 1 = 25 dimensions they share at least two, of 26 one.
        for n, forced in ((26, True), (27, False)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = LinearCCA(2).fit(*self.noise(n, 15, 12))
            assert bool(caught) is forced
            assert bool(model.correlations_.min() > 0.999) is forced

    @pytest.mark.parametrize("estimator", [KernelCCA, FourierCCA])
    def test_kernels_too_unless_regularisation_or_rows_help(self, estimator):
        X, Y = self.noise(60, 5, 5)
        with pytest.warns(InSampleWarning, match=f"^{estimator.__name__}: "):
            model = small(estimator, reg=1e-9, rank=60).fit(X, Y)
        assert abs(model.score(*self.noise(500, 5, 5, seed=1))) < 0.3
        small(KernelCCA, reg=0.1).fit(*self.noise(25, 15, 12))
        small(FourierCCA, reg=0.01, rank=20).fit(*self.noise(500, 15, 12))

    def test_a_real_relation_is_not_warned_of(self):
        # 80 columns and 30 rows, but only three directions: that X and Y agree is a finding.
        rng = np.random.default_rng(0)
        shared = rng.standard_normal((30, 3))
        X, Y = shared @ rng.standard_normal((3, 80)), shared @ rng.standard_normal((3, 70))
        np.testing.assert_allclose(LinearCCA(3).fit(X, Y).correlations_, 1.0)
        # A relation that outweighs the regularisation.
        X, Y = self.noise(30, 80, 70)
        Y[:, 0] = X[:, 0]
        for view in (X, Y):
            view[:, 0] *= 1000
        assert LinearCCA(1, reg=1e-4).fit(X, Y).correlations_[0] > 0.999
        with pytest.warns(InSampleWarning):
            LinearCCA(1, reg=1e-9).fit(X, Y)

    def test_made_an_error_it_leaves_the_model_fitted(self):
        X, Y = self.noise(20, 15, 12)
        model = LinearCCA(2)
        with pytest.raises(InSampleWarning):
            model.fit(X, Y)
        assert model.predict(X).shape == (20, 12)
