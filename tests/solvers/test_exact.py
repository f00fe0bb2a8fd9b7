"""Closed forms: the choice of a regulariser on held-out rows."""

import numpy as np
import pytest

from knoi.arrays.backend import numpy_backend, torch_backend
from knoi.datasets import make_two_views
from knoi.exceptions import InputError
from knoi.solvers.exact import Moments, choose_reg, columnwise_correlation, solve_primal

REGS = tuple(10.0**k for k in range(-6, 1))
L = 4


@pytest.fixture(scope="module")
def rows():
    views = make_two_views(900, (60, 50), (0.9, 0.8, 0.7, 0.6), random_state=0)
    return views.X, views.Y


@pytest.mark.parametrize("backend", [numpy_backend(), torch_backend("cpu")], ids=["numpy", "torch"])
@pytest.mark.parametrize("n", [70, 100, 300])
def test_is_the_best_of_all_solutions(rows, backend, n):
    (X, Y), (X_out, Y_out) = ([view[:n] for view in rows], [view[400:] for view in rows])

    def covariances():
        moments = Moments((60, 50), backend)
        moments.update(backend.asarray(X), backend.asarray(Y))
        return moments.covariances()

    def score(reg):
        solution = solve_primal(covariances(), L, (reg, reg), backend)
        return columnwise_correlation(X_out @ solution.U, Y_out @ solution.V)

    by_hand = {reg: score(reg) for reg in REGS}
    best = max(by_hand, key=by_hand.get)
    for first in REGS[::3]:
        reg, reached = choose_reg(covariances(), (X_out, Y_out), L, REGS, first, backend)
        assert reg == best
        assert reached == pytest.approx(by_hand[best], abs=1e-8)


def test_too_few_directions(rows):
    X = np.repeat(rows[0][:, :1], 60, axis=1)
    moments = Moments((60, 50), numpy_backend())
    moments.update(X, rows[1])
    with pytest.raises(InputError, match="n_components=4 but view X varies in only"):
        choose_reg(moments.covariances(), (X, rows[1]), L, REGS, 1e-3, moments.backend)
