"""Triangular systems in blocks against SciPy's solution in one piece."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from knoi.arrays import triangular
from knoi.arrays.triangular import BLOCK, solve_lower


def system(M, columns, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    C = rng.standard_normal((M, M)) / np.sqrt(M)
    C[np.arange(M), np.arange(M)] = rng.uniform(1.0, 3.0, M)
    return C.astype(dtype), rng.standard_normal((M, columns)).astype(dtype)


@pytest.mark.parametrize("transposed", [False, True])
@settings(max_examples=40, deadline=None)
@given(
    M=st.integers(1, 3 * BLOCK + 5),
    columns=st.integers(0, 9),
    order=st.sampled_from("CF"),
    seed=st.integers(0, 9),
)
def test_it_is_the_solution(transposed, M, columns, order, seed):
    C, B = system(M, columns, seed=seed)
    whole = np.tril(C)
    X = solve_lower(np.asarray(C, order=order), B, transposed=transposed)
    np.testing.assert_allclose((whole.T if transposed else whole) @ X, B, atol=1e-9)
    expected = scipy.linalg.solve_triangular(whole, B, lower=True, trans=int(transposed))
    np.testing.assert_allclose(X, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max(initial=0))


@pytest.mark.parametrize("transposed", [False, True])
def test_single_precision_stays_single_and_arguments_stay_as_they_are(transposed):
    C, B = system(2 * BLOCK + 3, 4, np.float32)
    kept = C.copy(), B.copy()
    X = solve_lower(C, B, transposed=transposed)
    assert X.dtype == np.float32
    np.testing.assert_array_equal(C, kept[0])
    np.testing.assert_array_equal(B, kept[1])


@pytest.mark.parametrize("transposed", [False, True])
def test_what_is_above_the_diagonal_is_not_read(transposed):
    C, B = system(BLOCK + 40, 2)
    spoiled = C.copy()
    spoiled[np.triu_indices(len(C), 1)] = np.nan
    np.testing.assert_array_equal(
        solve_lower(spoiled, B, transposed=transposed), solve_lower(C, B, transposed=transposed)
    )


def test_scipy_solves_no_more_than_the_diagonal_blocks(monkeypatch):
    """Its solver holds the lock that all threads need."""
    sizes = []
    real = scipy.linalg.solve_triangular
    monkeypatch.setattr(
        triangular.scipy.linalg,
        "solve_triangular",
        lambda C, *rest, **options: sizes.append(len(C)) or real(C, *rest, **options),
    )
    C, B = system(3 * BLOCK + 7, 2)
    solve_lower(C, B)
    assert sizes == [BLOCK, BLOCK, BLOCK, 7]
