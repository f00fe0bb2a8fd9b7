"""Arc-cosine features against their formula."""

import math

import numpy as np
import pytest

from knoi.features import ArcCosineFeatures
from knoi.kernels import ArcCosine
from tests.features.fitting import fit


@pytest.mark.parametrize("order", [0, 1, 2])
def test_is_the_formula(rows, order):
    features = fit(ArcCosineFeatures, rows, ArcCosine(order), 30)
    A = rows @ features.W
    expected = math.sqrt(2 / 30) * np.heaviside(A, 0.5) * A**order
    np.testing.assert_allclose(features.transform(rows), expected, atol=1e-12)


def test_a_zero_row_is_at_right_angles_to_all(rows):
    X = rows[:3].copy()
    X[0] = 0.0
    Phi = fit(ArcCosineFeatures, X, ArcCosine(0), 20_000).transform(X)
    np.testing.assert_allclose((Phi @ Phi.T)[0], 0.5, atol=0.02)
    assert np.sum(Phi[0] ** 2) == pytest.approx(0.5)
