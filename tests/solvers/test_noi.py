"""The published algorithm: every way to cut its work up is Algorithm 1 as it is written."""

import numpy as np
import pytest

from knoi import KNOI
from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import Purpose, View, generator
from knoi.data.pairs import PairSource
from knoi.data.stream import PairStream
from knoi.engine import Serial
from knoi.features import Identity, KernelColumns, RandomFourier
from knoi.kernels import RBF
from knoi.solvers import noi
from knoi.solvers.acceleration import plain
from knoi.solvers.loop import OptimizerState, RunningStats, ViewState
from knoi.solvers.noi import KNOIUpdate, MinibatchFeatures, StepSize, couple, inverse_root
from tests.oracles.cca import linear_cca
from tests.oracles.knoi import knoi

L, BATCH = 3, 40


@pytest.fixture
def maps(two_views):
    """A different kind of features, and a different number of them, in each view."""
    X, Y = two_views
    return RandomFourier.fit(X, RBF(3.0), 97, 0, View.X), KernelColumns(RBF(3.0), np.array(Y[:61]))


@pytest.fixture
def minibatches(two_views):
    """Eight of 40 rows."""
    orders = (np.random.default_rng(t).permutation(200)[:BATCH] for t in range(8))
    return [tuple(view[rows] for view in two_views) for rows in orders]


def start(maps, columns=L):
    return [
        np.random.default_rng(view).standard_normal((features.rank, columns))
        for view, features in enumerate(maps)
    ]


def published(maps, backend, engine=None, *, keep=True, rho=0.0, batch_size=BATCH, **changes):
    """The rule of the published algorithm, with steps that learn something on these views."""
    placed = [features.to(backend) for features in maps]
    x, y = (MinibatchFeatures(one, batch_size, backend, keep=keep) for one in placed)
    given = {
        "step_sizes": (StepSize(0.2, None),) * 2,
        "momentum": 0.5,
        "weight_decay": 1e-2,
        "n_components": L,
        "average_from": None,
    } | changes
    return KNOIUpdate(
        (x, y), (plain, plain), rho=rho, backend=backend, engine=engine or Serial(), **given
    )


def weights_of(U, V, backend):
    x, y = (ViewState(backend.asarray(W), backend.zeros(W.shape)) for W in (U, V))
    return OptimizerState(x, y)


def run(rule, weights, minibatches):
    outcomes = []
    for x, y in minibatches:
        weights, outcome = rule.step(weights, x, y)
        outcomes.append(outcome)
    return weights, outcomes


def assert_close(found, want, rtol):
    np.testing.assert_allclose(found, want, rtol=0, atol=rtol * np.abs(want).max())


@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "made again"])
@pytest.mark.parametrize("blocks", ["one block", "many blocks"])
def test_steps_are_algorithm_1(blocks, keep, rho, engine, backend, maps, minibatches, monkeypatch):
    if blocks == "many blocks":
        monkeypatch.setattr(noi, "TILE_COLUMNS", 5)
        monkeypatch.setattr(noi, "TILE_ROWS", 16)
    U, V = start(maps)
    rule = published(maps, backend, engine, keep=keep, rho=rho)
    assert (len(rule.features[0]._blocks) > 1) == (blocks == "many blocks")
    found, outcomes = run(rule, weights_of(U, V, backend), minibatches)
    assert not any(outcome.rolled_back for outcome in outcomes)
    features = [(maps[0].transform(x), maps[1].transform(y)) for x, y in minibatches]
    wanted = knoi(features, U, V, eta=0.2, mu=0.5, rho=rho, decay=1e-2)
    for state, want in zip((found.x, found.y), wanted, strict=True):
        assert_close(backend.to_numpy(state.U), want, 1e-10)
    # The steps went somewhere: equality is not that of two runs standing still.
    assert np.abs(wanted[0] - U).max() > 0.1


def test_a_smaller_minibatch_reuses_the_room_of_a_larger_one(backend, maps, minibatches):
    U, V = start(maps)
    cut = [(x[: BATCH - 7 * t], y[: BATCH - 7 * t]) for t, (x, y) in enumerate(minibatches[:4])]
    found, _ = run(published(maps, backend), weights_of(U, V, backend), cut)
    features = [(maps[0].transform(x), maps[1].transform(y)) for x, y in cut]
    wanted = knoi(features, U, V, eta=0.2, mu=0.5, rho=0.0, decay=1e-2)
    assert_close(backend.to_numpy(found.x.U), wanted[0], 1e-10)


@pytest.mark.parametrize(("keep", "times"), [(True, 1), (False, 3)])
def test_kept_features_are_made_once_a_minibatch(keep, times, monkeypatch, maps, minibatches):
    made = []
    block = RandomFourier.block

    def counted(self, prepared, columns, out=None):
        made.append(columns)
        return block(self, prepared, columns, out)

    monkeypatch.setattr(RandomFourier, "block", counted)
    work = MinibatchFeatures(maps[0], BATCH, numpy_backend(), keep=keep)
    U = np.ones((97, L))
    for x, _ in minibatches[:2]:
        made.clear()
        work.load(x)
        scores = work.project(U, Serial())
        np.testing.assert_array_equal(work.project(U, Serial()), scores)
        work.gradient(scores, Serial())
        assert len(made) == times


def test_a_step_leaves_the_weights_before_it_as_they_were(backend, maps, minibatches):
    U, V = start(maps)
    rule, before = published(maps, backend), weights_of(U.copy(), V.copy(), backend)
    rule.step(before, *minibatches[0])
    np.testing.assert_array_equal(backend.to_numpy(before.x.U), U)
    np.testing.assert_array_equal(backend.to_numpy(before.y.U), V)
    assert before.stats.covariances is None


@pytest.mark.parametrize("rho", [0.0, 0.25, 0.9])
def test_rho_weights_the_old_estimate(rho, backend, maps, minibatches):
    """One well-known library has it backwards."""
    # Second minibatch: weights five times as large, so that old and new cannot be confused.
    rule = published(maps, backend, rho=rho, momentum=0.0, weight_decay=-20.0)
    weights, outcomes = run(rule, weights_of(*start(maps), backend), minibatches[:2])
    for v in (0, 1):
        first, second = (outcome.scores[v] for outcome in outcomes)
        old_mean, new_mean = first.mean(0), second.mean(0)
        mean = rho * old_mean + (1 - rho) * new_mean
        np.testing.assert_allclose(weights.stats.means[v], mean, rtol=1e-12)
        old = np.cov(first.T, bias=True)
        new = (second - mean).T @ (second - mean) / BATCH
        assert np.trace(new) > 10 * np.trace(old)
        found = weights.stats.covariances[v]
        np.testing.assert_allclose(found, rho * old + (1 - rho) * new, rtol=1e-10)


def test_rho_0_forgets_all_before_this_minibatch(maps, minibatches):
    backend = numpy_backend()
    U, V = start(maps)
    _, (*_, last) = run(published(maps, backend), weights_of(U, V, backend), minibatches)
    rng = np.random.default_rng(9)
    elsewhere = RunningStats((rng.random(L), rng.random(L)), (np.eye(L), 100 * np.eye(L)))
    with_past, alone = (couple(head, last.scores, 0.0) for head in (elsewhere, RunningStats()))
    for v in (0, 1):
        np.testing.assert_array_equal(with_past.stats.means[v], alone.stats.means[v])
        np.testing.assert_array_equal(with_past.stats.covariances[v], alone.stats.covariances[v])
        np.testing.assert_array_equal(with_past.residuals[v], alone.residuals[v])


def test_reported_loss_and_correlations_are_those_of_the_scores(maps, minibatches):
    backend = numpy_backend()
    U, V = start(maps)
    rule = published(maps, backend, n_components=2)
    _, outcome = rule.step(weights_of(U, V, backend), *minibatches[0])
    P, Q = (phi.transform(x) @ W for phi, x, W in zip(maps, minibatches[0], (U, V), strict=True))
    correlations = linear_cca(P, Q, L)[2]
    assert outcome.correlation == pytest.approx(correlations[:2].sum(), rel=1e-10)
    residuals = couple(RunningStats(), (P, Q), 0.0).residuals
    squares = [np.square(R).sum(axis=1).mean() for R in residuals]
    assert outcome.loss == pytest.approx(np.mean(squares), rel=1e-12)


def assert_finite(weights, outcomes, backend):
    for state in (weights.x, weights.y):
        assert np.isfinite(backend.to_numpy(state.U)).all()
        assert np.isfinite(backend.to_numpy(state.velocity)).all()
    assert np.isfinite([(outcome.loss, outcome.correlation) for outcome in outcomes]).all()


@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize("how", ["duplicate", "zero", "constant scores"])
def test_a_collapsed_direction_is_left_out(how, rho, backend, maps, minibatches):
    U, V = start(maps)
    if how == "duplicate":
        U[:, 1] = U[:, 0]
    elif how == "zero":
        U[:, 1] = 0
    else:
        U[:] = 0
    rule = published(maps, backend, rho=rho)
    weights, outcomes = run(rule, weights_of(U, V, backend), minibatches[:3])
    assert_finite(weights, outcomes, backend)
    assert outcomes[0].correlation <= (0 if how == "constant scores" else 2) + 1e-12


@pytest.mark.parametrize("rows", [L - 1, L, L + 1])
@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_minibatches_of_hardly_more_rows_than_directions(rho, rows, backend, maps, minibatches):
    cut = [(x[:rows], y[:rows]) for x, y in minibatches]
    rule = published(maps, backend, rho=rho, batch_size=rows)
    weights, outcomes = run(rule, weights_of(*start(maps), backend), cut)
    assert_finite(weights, outcomes, backend)


def test_inverse_root_is_that_of_the_directions_that_vary():
    rng = np.random.default_rng(3)
    A = rng.standard_normal((5, 3))
    S = A @ A.T  # rank 3 of 5
    root = inverse_root(S)
    np.testing.assert_allclose(root @ root, np.linalg.pinv(S, hermitian=True), rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(inverse_root(np.zeros((2, 2))), np.zeros((2, 2)))


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["kernel", "linear"])
def test_the_estimator_runs_algorithm_1(kind, rho, n_jobs, two_views):
    """Features, minibatches, start and steps of the public class, replayed by hand."""
    seed, X, Y = 7, *two_views
    if kind == "kernel":
        maps = RandomFourier.fit(X, RBF(3.0), 30, seed, View.X), KernelColumns(RBF(3.0), Y[:25])
    else:
        maps = Identity(6), Identity(4)
    model = KNOI(
        2,
        approximation=maps,
        precondition=None,
        learning_rate=0.05,
        momentum=0.5,
        weight_decay=1e-3,
        time_constant=rho,
        batch_size=60,
        epochs=3,
        held_out=0,
        random_state=seed,
        n_jobs=n_jobs,
    ).fit(X, Y)
    assert not any(model.history_["rolled_back"])
    assert model.n_samples_seen_ == 3 * 4 * 60

    U, V = (
        generator(seed, Purpose.START, view).standard_normal((features.rank, 2))
        for view, features in zip(View, maps, strict=True)
    )
    pairs = PairSource.open(X, Y)
    with iter(PairStream(pairs, 60, seed, window_bytes=1 << 20, epochs=3)) as stream:
        batches = [(maps[0].transform(batch.x), maps[1].transform(batch.y)) for batch in stream]
    U, V = knoi(batches, U, V, eta=0.05, mu=0.5, rho=rho, decay=1e-3)
    P, Q = maps[0].transform(X) @ U, maps[1].transform(Y) @ V
    A, B, correlations = linear_cca(P, Q, 2)

    np.testing.assert_allclose(model.correlations_, correlations, rtol=1e-9)
    for found, scores, weights in (
        (model.transform(X), P, A),
        (model.transform_y(Y), Q, B),
    ):
        want = (scores - scores.mean(0)) @ weights
        want *= np.sign(np.sum(want * found, axis=0))
        assert_close(found, want, 1e-7)
