"""Closed forms of several sizes from one pass against fits of their own."""

from copy import copy

import numpy as np
import pytest

from knoi import FourierCCA, LinearCCA, NystromCCA
from knoi.bench.exact import exact_fits
from knoi.kernels import RBF

REGS = (1e-3, 1e-1)


@pytest.mark.parametrize(
    "make",
    [
        lambda **given: LinearCCA(2, **given),
        lambda **given: FourierCCA(
            2, rank=40, paired=True, kernel=RBF(3.0), random_state=0, **given
        ),
    ],
    ids=["linear", "fourier"],
)
def test_every_size_and_regulariser_is_a_fit_of_its_own(two_views, make):
    X, Y = two_views
    found = {(f.rows, f.reg): copy(f.model) for f in exact_fits(make(), X, Y, REGS, (90, 200))}
    assert list(found) == [(n, reg) for n in (90, 200) for reg in REGS]
    for (n, reg), model in found.items():
        expected = make(reg=reg).fit(X[:n], Y[:n])
        np.testing.assert_allclose(model.correlations_, expected.correlations_, atol=1e-10)
        np.testing.assert_allclose(
            model.score(X, Y), expected.score(X, Y), atol=1e-8, err_msg=f"{n} rows, reg {reg}"
        )


def test_landmarks_come_from_the_rows_of_the_first_size(two_views):
    X, Y = two_views
    model = NystromCCA(2, rank=50, random_state=0)
    for fit in exact_fits(model, X, Y, (1e-3,), (50, 200)):
        landmarks = fit.model.projection_.x.features.columns.landmarks
        np.testing.assert_array_equal(landmarks, X[:50])


def test_all_rows_unless_told(two_views):
    (only,) = exact_fits(LinearCCA(2), *two_views, (1e-3,))
    assert only.rows == len(two_views[0])
    assert only.seconds > 0
