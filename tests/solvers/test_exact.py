"""Closed forms: the choice of a regulariser on held-out rows."""

import numpy as np
import pytest

from knoi.arrays.backend import numpy_backend, torch_backend
from knoi.datasets import make_two_views
from knoi.exceptions import InputError
from knoi.solvers.exact import (
    HeldOutScore,
    Moments,
    choose_reg,
    columnwise_correlation,
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
        found = choose_reg(covariances(), (X_out, Y_out), L, REGS, first, backend)
        assert found.reg == wanted
        assert found.score.total == pytest.approx(by_hand[wanted].total, abs=1e-8)
        solution = solve_primal(covariances(), L, (wanted, wanted), backend)
        for name in ("U", "V", "correlations"):
            np.testing.assert_allclose(
                np.abs(getattr(found.solution, name)), np.abs(getattr(solution, name)), atol=1e-6
            )


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
    with pytest.raises(InputError, match="n_components=4 but view X varies in only"):
        choose_reg(moments.covariances(), (X, rows[1]), L, REGS, 1e-3, moments.backend)
