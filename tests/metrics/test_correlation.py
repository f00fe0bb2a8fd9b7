"""Correlations against textbook covariance algebra; input that no metric accepts."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knoi import metrics
from knoi.exceptions import InputError, InputTypeError, MemoryBudgetError, NonFiniteError
from knoi.metrics import canonical_correlations, component_correlations, total_correlation


def naive_canonical_correlations(Zx, Zy):
    """Eigenvalues of Sxx^-1 Sxy Syy^-1 Syx, for views of full rank only."""
    Lx = Zx.shape[1]
    S = np.cov(Zx.T, Zy.T)
    Sxx, Sxy, Syy = S[:Lx, :Lx], S[:Lx, Lx:], S[Lx:, Lx:]
    squares = np.linalg.eigvals(np.linalg.solve(Sxx, Sxy) @ np.linalg.solve(Syy, Sxy.T)).real
    return np.sqrt(np.clip(np.sort(squares)[::-1], 0, 1))[: min(Lx, Zy.shape[1])]


def views(n=500, Lx=5, Ly=5, seed=0):
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((n, max(Lx, Ly)))
    Zx = common[:, :Lx] + rng.standard_normal((n, Lx)) * np.linspace(0.2, 3, Lx)
    Zy = common[:, :Ly] + rng.standard_normal((n, Ly)) * np.linspace(0.5, 2, Ly)
    return Zx @ rng.standard_normal((Lx, Lx)), Zy @ rng.standard_normal((Ly, Ly))


@pytest.mark.parametrize(("n", "Lx", "Ly"), [(30, 1, 1), (5000, 3, 8)])
def test_canonical_correlations_equal_the_covariance_formula(n, Lx, Ly):
    Zx, Zy = views(n, Lx, Ly)
    found = canonical_correlations(Zx, Zy)
    assert found.shape == (min(Lx, Ly),)
    assert np.all(np.diff(found) <= 0)
    np.testing.assert_allclose(found, naive_canonical_correlations(Zx, Zy), atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    x_powers=st.lists(st.floats(-12, 12), min_size=4, max_size=4),
    y_powers=st.lists(st.floats(-12, 12), min_size=3, max_size=3),
    offset=st.floats(-100, 100),
)
def test_linear_maps_scales_and_offsets_do_not_change_them(seed, x_powers, y_powers, offset):
    Zx, Zy = views(200, 4, 3, seed)
    A = np.random.default_rng(seed).standard_normal((4, 4)) + 3 * np.eye(4)
    x_scale, y_scale = 10.0 ** np.array(x_powers), 10.0 ** np.array(y_powers)
    np.testing.assert_allclose(
        canonical_correlations((Zx @ A + offset) * x_scale, Zy * y_scale),
        canonical_correlations(Zx, Zy),
        atol=1e-10,
    )


@pytest.mark.parametrize(
    ("n", "offset", "dtype"), [(60, 0.0, np.float64), (20_000, 50.0, np.float32)]
)
def test_missing_directions_count_as_zero(n, offset, dtype):
    Zx, Zy = views(n)
    plain = canonical_correlations(Zx[:, :3].astype(dtype), Zy.astype(dtype))
    # A constant column, and one that is a mix of two others.
    padded = np.column_stack([Zx[:, :3], np.full(n, 7.1), 2 * Zx[:, 0] - 0.3 * Zx[:, 2] + offset])
    found = canonical_correlations(padded.astype(dtype), Zy.astype(dtype))
    assert found.shape == (5,)
    assert found[3] == found[4] == 0.0
    np.testing.assert_allclose(found[:3], plain, atol=1e-4 if dtype == np.float32 else 1e-9)


def test_errors_of_the_mean_do_not_correlate_the_views():
    # Columns that are dependent only up to rounding, in both views: whatever is left over of the
    # means in both would look like a perfect correlation.
    rng = np.random.default_rng(0)
    n = 400_000
    x, y = rng.standard_normal(n), rng.standard_normal(n)
    Zx = np.column_stack([x, 3.3 * x + 20])
    Zy = np.column_stack([y, 0.7 * y - 11])
    found = canonical_correlations(Zx, Zy)
    assert found[1] == 0.0
    assert found[0] == pytest.approx(abs(np.corrcoef(x, y)[0, 1]), abs=1e-12)


def test_more_columns_than_rows():
    rng = np.random.default_rng(0)
    found = canonical_correlations(rng.standard_normal((4, 6)), rng.standard_normal((4, 7)))
    # Centred views of 4 rows have rank 3 and span the same space.
    np.testing.assert_allclose(found, [1, 1, 1, 0, 0, 0], atol=1e-12)


def test_extreme_and_integer_values_are_handled():
    Zx, Zy = views(100, 2, 2)
    expected = canonical_correlations(Zx, Zy)
    np.testing.assert_allclose(canonical_correlations(Zx * 1e300, Zy * 1e-300), expected)
    np.testing.assert_allclose(canonical_correlations(Zx.astype(np.longdouble), Zy), expected)
    np.testing.assert_allclose(component_correlations(Zx * 1e300, Zx * 1e-300), [1, 1])
    small = np.array([[-128, 1], [127, 3], [5, -7], [9, 100]], dtype=np.int8)
    np.testing.assert_allclose(component_correlations(small, small.astype(float)), [1, 1])


def test_component_correlations_are_pearson():
    Zx, Zy = views(3000)
    Zy[:, 1] *= -1e-9
    Zx[:, 2] += 1e4
    expected = [np.corrcoef(Zx[:, j], Zy[:, j])[0, 1] for j in range(5)]
    np.testing.assert_allclose(component_correlations(Zx, Zy), expected, atol=1e-10)


def test_constant_component_has_correlation_zero():
    Zx, Zy = views(100, 3, 3)
    Zx[:, 0] = 0.1
    Zy[:, 2] = 0.0
    found = component_correlations(Zx, Zy)
    assert found[0] == found[2] == 0.0
    assert found[1] != 0.0
    # Constant up to rounding, and the same rounding in both.
    almost = np.where(np.arange(100) % 2, 0.1, np.nextafter(0.1, 1))[:, None]
    assert component_correlations(almost, almost).tolist() == [0.0]
    assert canonical_correlations(almost, almost).tolist() == [0.0]


def test_fitted_counts_a_repeated_component_each_time_and_refit_once():
    Zx, _ = views(400)
    twice = Zx[:, [0, 0]], Zx[:, [0, 0]]
    assert total_correlation(*twice, "fitted") == pytest.approx(2.0)
    assert total_correlation(*twice, "refit") == pytest.approx(1.0)


def naive_fitted(Zx_train, Zy_train, Zx, Zy):
    """Cholesky-whitened CCA on the training part, Pearson per component on the other."""
    Lx = Zx.shape[1]
    S = np.cov(Zx_train.T, Zy_train.T)
    Kx, Ky = (np.linalg.inv(np.linalg.cholesky(B)) for B in (S[:Lx, :Lx], S[Lx:, Lx:]))
    U, _, Vt = np.linalg.svd(Kx @ S[:Lx, Lx:] @ Ky.T, full_matrices=False)
    A, B = Zx @ Kx.T @ U, Zy @ Ky.T @ Vt.T
    return sum(np.corrcoef(A[:, j], B[:, j])[0, 1] for j in range(A.shape[1]))


def test_fit_on_aligns_by_the_training_projections():
    Zx, Zy = views(900, 3, 6)
    train, test = (Zx[:600], Zy[:600]), (Zx[600:], Zy[600:])
    score = total_correlation(*test, "fitted", fit_on=train)
    assert score == pytest.approx(naive_fitted(*train, *test), abs=1e-9)
    assert score < total_correlation(*test)


Z = np.arange(6.0).reshape(3, 2)
ONE = Z[:, :1]
VALUES = [
    ("canonical_correlations", (Z[0], Z), "Zx has shape (2,) and dtype float64: wanted a 2-D"),
    ("canonical_correlations", (Z[:1], Z[:1]), "Zx has shape (1, 2) and dtype float64: wanted"),
    ("canonical_correlations", (Z, Z[:, :0]), "Zy has shape (3, 0) and dtype float64: wanted"),
    ("canonical_correlations", (Z, Z * 1j), "Zy has shape (3, 2) and dtype complex128: wanted"),
    ("canonical_correlations", (Z, Z[:2]), "Zx has 3 rows but Zy has 2: the views are paired"),
    ("redundancy", (Z, Z[:2]), "X has 3 rows but Z has 2: the views are paired row by row"),
    ("top_matches", (Z, ONE, 1), "queries has 2 columns but gallery has 1: component j of one"),
    ("top_matches", (Z, Z, 4), "k=4: wanted a whole number from 1 to 3, the rows of the gallery"),
]
FITTED = {"measure": "fitted", "fit_on": (ONE, Z)}
OPTIONS = [
    ("total_correlation", {"measure": "best"}, "measure='best': wanted one of 'refit', 'fitted'"),
    ("total_correlation", {"fit_on": (Z, Z)}, 'fit_on was given with measure="refit"'),
    ("total_correlation", FITTED, "Zx has 2 columns but fit_on[0] has 1: component j of one"),
    ("permutation_test", {"n_permutations": 0}, "n_permutations=0: wanted a whole number >= 1"),
    ("retrieval_ranks", {"similarity": "near"}, "similarity='near': wanted one of 'cosine'"),
    ("retrieval_ranks", {"direction": "up"}, "direction='up': wanted one of 'x_to_y', 'y_to_x'"),
    ("cross_view_retrieval", {"ks": (0,)}, "ks=(0,): wanted whole numbers of at least 1"),
]


@pytest.mark.parametrize(
    ("metric", "args", "options", "message"),
    [(name, args, {}, message) for name, args, message in VALUES]
    + [(name, (Z, Z), options, message) for name, options, message in OPTIONS],
    ids=range(len(VALUES) + len(OPTIONS)),
)
def test_bad_input_is_explained(metric, args, options, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        getattr(metrics, metric)(*args, **options)


def test_errors_of_other_classes():
    with pytest.raises(InputTypeError, match=r"^Zx cannot be read as an array"):
        metrics.canonical_correlations([[1.0, 2.0], [3.0]], Z)
    with pytest.raises(InputTypeError, match=r"^n_permutations=9\.0: wanted a whole number"):
        metrics.permutation_test(Z, Z, 9.0)
    with pytest.raises(NonFiniteError, match=r"^Zy has NaN at row 1, column 1: "):
        metrics.canonical_correlations(Z, np.where(Z == 3, np.nan, Z))
    with pytest.raises(MemoryBudgetError, match=r"takes 120 bytes\. Raise block_bytes\.$"):
        metrics.retrieval_ranks(Z, Z, block_bytes=10)
