"""Closed forms: the choice of a regulariser on held-out rows."""

import numpy as np
import pytest

from knoi.arrays.backend import numpy_backend, torch_backend
from knoi.datasets import make_two_views
from knoi.exceptions import InputError
from knoi.kernels import RBF
from knoi.solvers.exact import (
    HeldOutScore,
    Moments,
    RidgePath,
    choose_reg,
    columnwise_correlation,
    solve_dual,
    solve_primal,
)

REGS = tuple(10.0**k for k in range(-6, 1))
L = 4


@pytest.fixture(scope="module")
def rows():
    views = make_two_views(900, (60, 50), (0.9, 0.8, 0.7, 0.6), random_state=0)
    return views.X, views.Y


@pytest.mark.parametrize("backend", [numpy_backend(), torch_backend("cpu")], ids=["numpy", "torch"])
@pytest.mark.parametrize("n", [70, 100, 300])
def test_is_the_largest_that_is_close_to_the_best(rows, backend, n):
    (X, Y), (X_out, Y_out) = ([view[:n] for view in rows], [view[400:] for view in rows])

    def covariances():
        moments = Moments((60, 50), backend)
        moments.update(backend.asarray(X), backend.asarray(Y))
        return moments.covariances()

    def score(reg):
        solution = solve_primal(covariances(), L, (reg, reg), backend)
        return HeldOutScore.of(X_out @ solution.U, Y_out @ solution.V)

    by_hand = {reg: score(reg) for reg in REGS}
    best = max(by_hand.values(), key=lambda one: one.total)
    wanted = max(reg for reg, one in by_hand.items() if one.close_to(best))
    for first in REGS[::3]:
        path = RidgePath.of(covariances(), (X_out, Y_out), backend)
        reg, found = choose_reg([path], L, REGS, first)
        assert reg == (wanted, wanted)
        assert found.total == pytest.approx(by_hand[wanted].total, abs=1e-8)
        ours = path.solution(reg, L)
        solution = solve_primal(covariances(), L, (wanted, wanted), backend)
        for name in ("U", "V", "correlations"):
            np.testing.assert_allclose(
                np.abs(getattr(ours, name)), np.abs(getattr(solution, name)), atol=1e-6
            )


@pytest.mark.parametrize("backend", [numpy_backend(), torch_backend("cpu")], ids=["numpy", "torch"])
def test_moments_without_some_rows_are_those_of_the_others(rows, backend):
    # Far from the origin, and a column that varies only in the rows left out.
    X, Y = (np.array(view) + 1e4 for view in rows)
    X[100:, 0] = 3.0
    X, Y = backend.asarray(X), backend.asarray(Y)
    whole, rest = Moments((60, 50), backend), Moments((60, 50), backend)
    whole.update(X, Y)
    rest.update(X[100:], Y[100:])
    found, wanted = whole.without(X[:100], Y[:100]), rest.covariances()
    assert found.n == wanted.n == 800
    for name in ("mean_x", "mean_y", "Sxx", "Sxy", "Syy"):
        one, other = (backend.to_numpy(getattr(part, name)) for part in (found, wanted))
        np.testing.assert_allclose(one, other, atol=1e-10)
    with pytest.raises(InputError, match="1 rows are left"):
        whole.without(X[:899], Y[:899])


def test_path_of_kernels_is_that_of_their_features(rows):
    """Linear kernels: the same scores as linear CCA of the columns."""
    (X, Y), backend = rows, numpy_backend()
    held_out = np.arange(900) % 5 == 2
    moments = Moments((60, 50), backend)
    moments.update(X[~held_out], Y[~held_out])
    wanted = RidgePath.of(moments.covariances(), (X[held_out], Y[held_out]), backend)
    found = RidgePath.of_kernels(X @ X.T, Y @ Y.T, held_out, backend)
    for reg in ((1e-6, 1e-6), (1e-2, 1e-1)):
        one, other = found.score(reg, L), wanted.score(reg, L)
        assert one.total == pytest.approx(other.total, abs=1e-8)
        np.testing.assert_allclose(one.influence, other.influence, atol=1e-6)


def test_path_of_kernels_is_that_of_the_solution_without_the_rows(rows):
    """Also where eigenvalues are at rounding level: their vectors are not exactly centred."""
    X, Y = (view[:300, :3] for view in rows)
    held_out = np.arange(300) % 5 == 2
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 300)
    Ks = [RBF(4.0)(view, view) for view in (X, Y)]
    path = RidgePath.of_kernels(*Ks, held_out, numpy_backend(), weights)
    for reg in ((1e-6, 1e-6), (1e-2, 1e-4)):
        rest = [K[np.ix_(~held_out, ~held_out)] for K in Ks]
        own = weights[~held_out]
        means = [own @ K / own.sum() for K in rest]
        solution = solve_dual(*rest, 2, reg, numpy_backend(), own)
        Zx, Zy = (
            (K[np.ix_(held_out, ~held_out)] - mean) @ W
            for K, mean, W in zip(Ks, means, (solution.U, solution.V), strict=True)
        )
        expected = HeldOutScore.of(Zx, Zy, weights[held_out]).total
        assert path.score(reg, 2).total == pytest.approx(expected, abs=1e-6)


def test_several_parts_held_out_count_together(rows):
    X, Y = (view[:100] for view in rows)
    backend, paths = numpy_backend(), []
    for part in range(5):
        held_out = np.arange(100) % 5 == part
        moments = Moments((60, 50), backend)
        moments.update(X[~held_out], Y[~held_out])
        paths.append(RidgePath.of(moments.covariances(), (X[held_out], Y[held_out]), backend))
    reg, score = choose_reg(paths, L, REGS, 1e-3)
    one_by_one = [path.score(reg, L) for path in paths]
    assert score.total == pytest.approx(np.mean([one.total for one in one_by_one]))
    assert len(score.influence) == 100
    totals = {r: np.mean([path.score((r, r), L).total for path in paths]) for r in REGS}
    assert totals[reg[0]] > max(totals.values()) - 0.3
    assert reg[0] == reg[1] > REGS[0]


def test_a_view_keeps_the_regulariser_that_is_given(rows):
    X, Y = (view[:100] for view in rows)
    moments = Moments((60, 50), numpy_backend())
    moments.update(X, Y)
    out = rows[0][400:], rows[1][400:]
    path = RidgePath.of(moments.covariances(), out, moments.backend)
    reg, score = choose_reg([path], L, REGS, 1e-3, (0.5, None))
    assert reg[0] == 0.5
    assert reg[1] in REGS
    assert score.total == path.score(reg, L).total


def test_influence_of_a_row_is_what_its_absence_changes():
    views = make_two_views(400, (3, 3), (0.8, 0.5), random_state=1)
    whole = HeldOutScore.of(views.X, views.Y)
    assert whole.total == pytest.approx(columnwise_correlation(views.X, views.Y), abs=1e-12)
    for row in range(20):
        without = HeldOutScore.of(*(np.delete(view, row, axis=0) for view in (views.X, views.Y)))
        change = 400 * (whole.total - without.total)
        assert change == pytest.approx(whole.influence[row], abs=0.15)


def test_standard_error_of_a_difference_is_that_of_fresh_samples():
    """Scores of two projections on many samples: their difference spreads as each sample says."""

    def scores(seed):
        rng = np.random.default_rng(seed)
        P = rng.standard_normal((200, 3))
        Q = P + 0.8 * rng.standard_normal(P.shape)
        return HeldOutScore.of(P, Q), HeldOutScore.of(P, Q + 0.4 * rng.standard_normal(Q.shape))

    pairs = [scores(seed) for seed in range(300)]
    spread = np.std([a.total - b.total for a, b in pairs])
    errors = [np.std(a.influence - b.influence) / np.sqrt(200) for a, b in pairs]
    assert np.mean(errors) == pytest.approx(spread, rel=0.15)
    assert not any(b.close_to(a) for a, b in pairs)
    assert all(a.close_to(a) for a, _ in pairs)


def test_too_few_directions(rows):
    X = np.repeat(rows[0][:, :1], 60, axis=1)
    moments = Moments((60, 50), numpy_backend())
    moments.update(X, rows[1])
    path = RidgePath.of(moments.covariances(), (X, rows[1]), moments.backend)
    with pytest.raises(InputError, match="n_components=4 but view X varies in only"):
        choose_reg([path], L, REGS, 1e-3)
