"""Linear CCA of wide views: iterations and inner products of rows equal the closed form."""

import logging

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

from knoi import KernelCCA, LinearCCA, load
from knoi.data.pairs import PairSource
from knoi.engine import Serial, Threads
from knoi.estimators import linear
from knoi.exceptions import InputError, KnoiError, MemoryBudgetError
from knoi.solvers import iterative
from knoi.solvers.iterative import CentredRows, first_weights, solve_iteratively

TOLERANCE = 1e-6


def wide_views(n=400, d=(150, 120), shared=8, sparse=False, seed=0):
    """Views that share some directions of falling strength, so that correlations are distinct."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, shared)) * np.linspace(2.0, 0.5, shared)
    views = []
    for columns in d:
        noise = rng.standard_normal((n, columns))
        view = 0.3 + noise
        view[:, : min(shared, columns)] += Z[:, : min(shared, columns)]
        if sparse:
            view = scipy.sparse.csr_array(view * (rng.random(view.shape) < 0.2))
        views.append(view)
    return views


def projections(model, X, Y):
    return np.hstack([model.transform(X), model.transform_y(Y)])


def assert_same(model, other, X, Y, tolerance=TOLERANCE):
    """Equal correlations and projections; the sign of a component is fixed by both."""
    np.testing.assert_allclose(model.correlations_, other.correlations_, atol=tolerance)
    Z, wanted = (projections(one, X, Y) for one in (model, other))
    signs = np.sign((Z * wanted).sum(axis=0))
    np.testing.assert_allclose(Z * signs, wanted, atol=tolerance * np.abs(wanted).max())


def iterated(X, Y, L=3, reg=0.1, tol=0.0):
    return LinearCCA(L, reg=reg, solver="iterative", tol=tol).fit(X, Y)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("reg", [1e-1, 1e-2, (1e-3, 1e-1)])
def test_iterations_equal_the_closed_form(sparse, reg):
    X, Y = wide_views(sparse=sparse)
    X_new, Y_new = wide_views(50, sparse=sparse, seed=1)
    exact = LinearCCA(3, reg=reg, solver="exact").fit(X, Y)
    assert_same(iterated(X, Y, reg=reg), exact, X_new, Y_new)


def test_by_default_correlations_are_good_to_a_millionth():
    for sparse in (False, True):
        X, Y = wide_views(sparse=sparse)
        exact = LinearCCA(3, reg=1e-3, solver="exact").fit(X, Y)
        found = LinearCCA(3, reg=1e-3, solver="iterative").fit(X, Y)
        np.testing.assert_allclose(found.correlations_, exact.correlations_, atol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_inner_products_of_rows_equal_the_closed_form(sparse, monkeypatch):
    X, Y = wide_views(100, sparse=sparse)
    X_new, Y_new = wide_views(50, sparse=sparse, seed=1)
    exact = LinearCCA(3, reg=1e-2, solver="exact").fit(X, Y)
    monkeypatch.setattr(linear, "FEW_OPERATIONS", 0)
    monkeypatch.setattr(linear, "DECOMPOSITIONS", 10**6)
    found = LinearCCA(3, reg=1e-2, solver="exact")
    monkeypatch.setattr(found, "_from_moments", None)  # it must go the other way
    assert_same(found.fit(X, Y), exact, X_new, Y_new, 1e-9)
    assert found.reg_ == (1e-2, 1e-2)


def test_float32_equals_float64_to_its_precision():
    X, Y = wide_views()
    single = iterated(X.astype(np.float32), Y.astype(np.float32), reg=1e-2)
    assert single.transform(X.astype(np.float32)).dtype == np.float32
    assert_same(single, iterated(X, Y, reg=1e-2), X, Y, 2e-3)


def test_far_from_the_origin_and_on_any_scale():
    X, Y = wide_views()
    here = iterated(X, Y)
    there = iterated(1e-9 * X, 1e9 * (Y + 1e3))
    np.testing.assert_allclose(here.correlations_, there.correlations_, atol=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
def test_chunks_from_a_file_equal_rows_in_memory(tmp_path, sparse):
    X, Y = wide_views(sparse=sparse)
    paths = []
    for name, view in (("X", X), ("Y", Y)):
        paths.append(tmp_path / f"{name}.{'npz' if sparse else 'npy'}")
        if sparse:
            scipy.sparse.save_npz(paths[-1], view)
        else:
            np.save(paths[-1], view)
    fits = []
    for chunk in (64, 400):
        with PairSource.open(*paths) as pairs, Threads(2) as engine:
            rows = CentredRows(pairs, chunk, engine, keep=chunk == 400)
            found = solve_iteratively(rows, 3, (0.1, 0.1), first_weights(rows, 3), 0.0)
            assert rows.passes < 40
            fits.append(found.solution(rows, 3))
    np.testing.assert_allclose(fits[0].correlations, fits[1].correlations, atol=1e-12)
    np.testing.assert_allclose(fits[0].U, fits[1].U, atol=1e-7 * np.abs(fits[1].U).max())
    np.testing.assert_allclose(
        fits[0].correlations, LinearCCA(3, reg=0.1).fit(X, Y).correlations_, atol=TOLERANCE
    )


@pytest.mark.parametrize("sparse", [False, True])
def test_weights_equal_repeated_rows(sparse):
    X, Y = wide_views(200, sparse=sparse)
    weights = np.random.default_rng(0).integers(0, 4, 200)
    repeated = np.repeat(np.arange(200), weights)
    weighted = LinearCCA(3, reg=0.1, solver="iterative", tol=0).fit(
        X, Y, sample_weight=7.0 * weights
    )
    assert_same(weighted, iterated(X[repeated], Y[repeated]), X, Y)


@pytest.mark.parametrize("L", [1, 5])
def test_as_many_components_as_columns(L):
    X, Y = wide_views(d=(60, L))
    exact = LinearCCA(L, reg=0.1, solver="exact").fit(X, Y)
    assert_same(iterated(X, Y, L), exact, X, Y)


def test_constant_and_duplicated_columns_are_harmless():
    X, Y = wide_views(d=(60, 50))
    X = np.hstack([X, X[:, :20], np.full((400, 3), 5.0)])
    exact = LinearCCA(3, reg=0.1, solver="exact").fit(X, Y)
    assert_same(iterated(X, Y), exact, X, Y)
    assert_same(iterated(scipy.sparse.csr_array(X), Y), exact, X, Y)


def test_a_view_of_low_rank():
    X, Y = wide_views(d=(60, 50))
    X = X[:, :2] @ np.random.default_rng(0).standard_normal((2, 60))
    exact = LinearCCA(2, reg=0.1, solver="exact").fit(X, Y)
    assert_same(iterated(X, Y, 2), exact, X, Y)


def test_a_view_that_does_not_vary_is_an_error():
    X, Y = wide_views()
    for same in (np.ones_like(Y), scipy.sparse.csr_array(Y.shape)):
        with pytest.raises(InputError, match="view Y does not vary"):
            iterated(X, same)


def test_numbers_out_of_range_are_errors():
    X, Y = wide_views()
    with pytest.raises(InputError, match="view X holds numbers so large"):
        iterated((1e30 * X).astype(np.float32), Y.astype(np.float32))


def test_reg_is_chosen_on_held_out_rows(caplog):
    X, Y = wide_views(1200, (100, 80))
    X_new, Y_new = wide_views(2000, (100, 80), seed=1)
    with caplog.at_level(logging.INFO, logger="knoi"):
        model = iterated(X, Y, reg="auto")
    assert "solver: iterations." in caplog.messages
    assert any(message.startswith("passes over the rows:") for message in caplog.messages)
    assert model.reg_[0] == model.reg_[1]
    assert model.reg_[0] in linear.WIDE_REGS
    scores = [iterated(X, Y, reg=reg).score(X_new, Y_new) for reg in (1e-5, 1e-3, 1e-1, 1.0)]
    assert model.score(X_new, Y_new) > max(scores) - 0.05
    assert min(scores) < max(scores) - 0.06  # so the test can fail
    assert_same(model, iterated(X, Y, reg=model.reg_), X_new, Y_new)
    assert iterated(X, Y, reg=(0.1, "auto")).reg_[0] == 0.1
    assert iterated(X[:40], Y[:40], reg="auto").reg_ == (1e-4, 1e-4)


def test_a_model_can_be_saved_and_knows_its_structure(tmp_path):
    X, Y = wide_views(sparse=True)
    model = iterated(X, Y)
    model.save(tmp_path / "m.knoi")
    again = load(tmp_path / "m.knoi")
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    assert again.solver == "iterative"
    assert model.predict(X).shape == Y.shape
    assert model.x_loadings_.shape == (150, 3)


def test_the_solver_follows_memory_and_cost(caplog, monkeypatch):
    X, Y = wide_views(300, (800, 900), sparse=True)
    ways = []

    def fit(**parameters):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="knoi"):
            LinearCCA(2, reg=0.1, **parameters).fit(X, Y)
        ways.append(next((m for m in caplog.messages if m.startswith("solver")), "moments"))

    fit()
    fit(memory_budget="12MB")
    assert ways == ["moments", "solver: inner products of the rows."]
    fit(memory_budget="5MB")
    assert ways[-1] == "solver: iterations."
    monkeypatch.setattr(linear, "FEW_OPERATIONS", 0)
    monkeypatch.setattr(linear, "OFTEN", 0)
    fit()
    assert ways[-1] == "solver: iterations."
    with pytest.raises(MemoryBudgetError, match="solver='auto'"):
        fit(memory_budget="5MB", solver="exact")
    with pytest.raises(MemoryBudgetError, match="Lower n_components or raise memory_budget"):
        fit(memory_budget="100KB")


def test_without_a_regulariser_only_closed_forms_are_possible():
    X, Y = wide_views(300, (800, 900), sparse=True)
    with pytest.raises(InputError, match="Set reg to a number above 0"):
        iterated(X, Y, reg=(0.1, 0))
    with pytest.raises(MemoryBudgetError, match="memory_budget"):
        LinearCCA(2, reg=0, memory_budget="5MB").fit(X, Y)


def test_partial_fit_needs_the_closed_form():
    X, Y = wide_views()
    with pytest.raises(InputError, match="Call fit"):
        LinearCCA(2, solver="iterative").partial_fit(X, Y)
    with pytest.raises(MemoryBudgetError, match="Call fit with solver='auto'"):
        LinearCCA(2, reg=0.1, memory_budget="200KB").partial_fit(X, Y)


def test_wrong_solvers_are_errors_before_any_work():
    with pytest.raises(KnoiError, match="solver='iterativ'"):
        LinearCCA(2, solver="iterativ").fit(*wide_views())


def test_an_iteration_that_does_not_converge_warns(monkeypatch):
    defaults = iterative.solve_iteratively.__kwdefaults__
    monkeypatch.setitem(defaults, "most_passes", 5)
    with pytest.warns(ConvergenceWarning, match="Raise reg or lower n_components") as caught:
        iterated(*wide_views(), reg=1e-4)
    assert caught[0].filename == __file__


def test_an_interrupt_leaves_the_estimator_unchanged(monkeypatch):
    X, Y = wide_views()
    model = iterated(X, Y)
    before, seen = model.transform(X), []
    whole = CentredRows.covariances

    def interrupted(self, *args, **more):
        seen.append(1)
        if len(seen) > 5:
            raise KeyboardInterrupt
        return whole(self, *args, **more)

    monkeypatch.setattr(CentredRows, "covariances", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(n_components=2).fit(X, Y)
    np.testing.assert_array_equal(model.transform(X), before)


def test_equals_kernel_cca_with_the_linear_kernel():
    X, Y = wide_views(120)
    kernel = KernelCCA(3, kernel="linear", metric=None, reg=0.1).fit(X, Y)
    assert_same(iterated(X, Y), kernel, X, Y)


def test_products_with_covariances():
    X, Y = wide_views(100, (20, 15), sparse=True)
    weights = np.random.default_rng(0).random(100) + 0.1
    W, V = np.eye(20)[:, :4], np.eye(15)[:, 3:6]
    with PairSource.open(X, Y) as opened:
        rows = CentredRows(opened.weighted(weights), 33, Serial())
        found = rows.covariances(W, V)
        alone = rows.covariances(W, V, cross=False)
    S = np.cov(np.hstack([X.toarray(), Y.toarray()]).T, aweights=weights, ddof=0)
    a, b = rows.scales
    Sxx, Sxy, Syy = S[:20, :20] / a**2, S[:20, 20:] / (a * b), S[20:, 20:] / b**2
    for one, wanted in zip(found, (Sxx @ W, Sxy.T @ W, Syy @ V, Sxy @ V), strict=True):
        np.testing.assert_allclose(one, wanted, atol=1e-12)
    np.testing.assert_allclose(alone[0], found[0], atol=1e-14)
    np.testing.assert_allclose(alone[1], found[2], atol=1e-14)
    np.testing.assert_allclose(rows.traces, (np.trace(Sxx), np.trace(Syy)), rtol=1e-12)
