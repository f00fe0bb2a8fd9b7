"""The permutation test: the numbers of shuffled pairs, whatever the units and blocks."""

import numpy as np
import pytest

from knoi.arrays.random import Purpose, generator
from knoi.metrics import canonical_correlations, component_correlations, permutation_test


def related(n, strengths, seed=0):
    """Views whose columns correlate pair by pair with the given strengths."""
    rng = np.random.default_rng(seed)
    rho = np.asarray(strengths)
    Zx = rng.standard_normal((n, len(rho)))
    return Zx, rho * Zx + np.sqrt(1 - rho**2) * rng.standard_normal(Zx.shape)


def test_the_numbers_are_those_of_shuffled_pairs():
    Zx, Zy = related(40, (0.3, 0.2, 0.1))
    Zy = Zy @ np.random.default_rng(1).standard_normal((3, 3)) + 50
    test = permutation_test(Zx, Zy, n_permutations=150, random_state=3)
    observed, total = component_correlations(Zx, Zy), canonical_correlations(Zx, Zy).sum()
    shuffled = [Zy[generator(3, Purpose.PERMUTATION, k).permutation(40)] for k in range(150)]
    null = np.array([np.abs(component_correlations(Zx, other)) for other in shuffled])
    totals = np.array([canonical_correlations(Zx, other).sum() for other in shuffled])
    np.testing.assert_allclose(test.correlations, observed, atol=1e-12)
    np.testing.assert_allclose(test.total, total)
    reached, largest = null >= np.abs(observed), null.max(axis=1)
    np.testing.assert_array_equal(test.p_values, (1 + reached.sum(axis=0)) / 151)
    reached = largest[:, None] >= np.abs(observed)
    np.testing.assert_array_equal(test.corrected_p_values, (1 + reached.sum(axis=0)) / 151)
    assert test.total_p_value == (1 + (totals >= total).sum()) / 151
    for found, values in (
        (test.null_quantiles, null),
        (test.null_largest_quantiles, largest),
        (test.total_null_quantiles, totals),
    ):
        np.testing.assert_allclose(found, np.quantile(values, (0.05, 0.5, 0.95), axis=0))


def test_neither_blocks_nor_units_change_the_result(monkeypatch):
    Zx, Zy = related(30, (0.4, 0.0))
    whole = permutation_test(Zx, Zy, n_permutations=50, random_state=0)
    monkeypatch.setattr("knoi.metrics.permutation._NUMBERS_AT_A_TIME", 200)
    parts = permutation_test(1e200 * Zx + 1e201, 1e-200 * Zy, n_permutations=50, random_state=0)
    np.testing.assert_array_equal(parts.p_values, whole.p_values)
    np.testing.assert_allclose(parts.null_quantiles, whole.null_quantiles, rtol=1e-6)


def test_components_up_to_the_last_significant_one_are_kept():
    Zx, Zy = related(
        300, (0.9, 0.0, 0.4, 0.0, -0.9)
    )  # what is opposite on other rows is no finding
    test = permutation_test(Zx, Zy, n_permutations=199, random_state=0)
    assert test.significant().tolist() == [True, False, True, False, False]
    assert test.n_components() == 3
    nothing = permutation_test(*related(300, (0.0, 0.0)), n_permutations=199, random_state=0)
    assert nothing.n_components() == 0
    assert (
        nothing.n_components(level=2.0) == int(np.flatnonzero(nothing.correlations > 0).max()) + 1
    )


def test_ties_count_against_the_finding():
    # Two values in each view: most shuffles give one of few correlations, many exactly the same.
    Zx = np.repeat([[0.0], [1.0]], 3, axis=0)
    test = permutation_test(Zx, 0.1 * Zx + 7, n_permutations=400, random_state=0)
    # 3 of 6 rows fall right, or all wrong, in 2 of the 20 ways to choose them.
    assert test.p_values[0] == pytest.approx(0.1, abs=0.06)
    assert test.total_p_value == test.p_values[0]


def test_a_constant_component_is_no_finding():
    Zx, Zy = related(30, (0.9, 0.9))
    Zx[:, 1] = 0.3
    test = permutation_test(Zx, Zy, n_permutations=99, random_state=0)
    assert test.correlations[1] == 0.0
    assert test.p_values[1] == 1.0
    assert test.total == pytest.approx(canonical_correlations(Zx, Zy).sum())
