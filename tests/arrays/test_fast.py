"""The compiled loops and the namespace's functions give the same numbers."""

import numpy as np
import pytest

from knoi.arrays import fast, hadamard


@pytest.fixture(params=["compiled", "namespace"])
def path(request, monkeypatch):
    if request.param == "namespace":
        monkeypatch.setattr(fast, "compiled", lambda: None)
    elif fast.compiled() is None:
        pytest.skip("numba is not installed")
    return request.param


def test_the_tests_compare_two_paths():
    assert fast.compiled() is not None  # the test extras install numba


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cosine_of_turns(path, dtype):
    turns = np.linspace(-1000.0, 1000.0, 40_003).reshape(-1, 1)
    turns = np.hstack([turns, turns / 997, np.round(turns), np.round(turns) + 0.5]).astype(dtype)
    expected = 0.3 * np.cos(2 * np.pi * np.remainder(turns.astype(np.float64), 1.0))
    F = turns.copy()
    assert fast.cosine(F, 0.3) is F
    np.testing.assert_allclose(F, expected, atol=0.3 * 8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponential(path, dtype):
    F = np.linspace(-85.0, 5.0, 30_001).reshape(-1, 1).astype(dtype)
    expected = np.exp(F.astype(np.float64))
    assert fast.exponential(F) is F
    np.testing.assert_allclose(F, expected, rtol=1e-6 if dtype == np.float32 else 1e-14)


def test_exponential_far_out_is_zero(path):
    F = np.array([[-88.0, -1e3, -3e38, -np.inf, 0.0, -0.0]], dtype=np.float32)
    fast.exponential(F)
    assert (F[0, :4] < 1e-37).all()
    np.testing.assert_array_equal(F[0, 1:], [0, 0, 0, 1, 1])


def test_part_of_a_larger_array_is_changed_and_nothing_else(path):
    room = np.full((6, 9), 0.25, dtype=np.float32)
    fast.cosine(room[1:5, 2:7], 1.0)
    inside = np.zeros((6, 9), dtype=bool)
    inside[1:5, 2:7] = True
    np.testing.assert_allclose(room[inside], 0.0, atol=1e-6)
    assert (room[~inside] == 0.25).all()


def test_columns_apart_in_memory_work_too(path):
    F = np.asfortranarray(np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3))
    expected = np.cos(2 * np.pi * F)
    np.testing.assert_allclose(fast.cosine(F, 1.0), expected, atol=1e-6)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (1, 1)])
def test_any_shape(path, shape):
    F = np.zeros(shape, dtype=np.float32)
    assert fast.exponential(fast.cosine(F, 2.0)).shape == shape
    np.testing.assert_allclose(F, np.full(shape, np.exp(2.0)), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [8, 256, 512, 2048])
def test_hadamard_rows_are_those_of_the_plain_transform(path, dtype, size):
    X = np.random.default_rng(0).standard_normal((5, size)).astype(dtype)
    expected = hadamard.transform(X.astype(np.float64))
    found = fast.hadamard_rows(X.copy())
    np.testing.assert_allclose(found, expected, atol=size * np.finfo(dtype).eps)
