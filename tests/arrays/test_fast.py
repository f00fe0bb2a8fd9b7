"""The compiled loops and the functions of the namespace give the same numbers."""

import numpy as np
import pytest
import scipy.linalg
import torch

from knoi.arrays import fast


@pytest.fixture(params=["compiled", "namespace"])
def path(request, monkeypatch):
    assert fast.compiled() is not None  # the test extras install numba
    if request.param == "namespace":
        monkeypatch.setattr(fast, "compiled", lambda: None)
    return request.param


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
    tails = fast.exponential(np.array([[-88.0, -1e3, -3e38, -np.inf, 0.0, -0.0]], dtype=np.float32))
    assert (tails[0, :4] < 1e-37).all()
    np.testing.assert_array_equal(tails[0, 1:], [0, 0, 0, 1, 1])


def test_only_the_given_part_of_a_larger_array_changes(path):
    whole = np.full((6, 9), 0.25, dtype=np.float32)
    fast.cosine(whole[1:5, 2:7], 1.0)
    inside = np.zeros((6, 9), dtype=bool)
    inside[1:5, 2:7] = True
    np.testing.assert_allclose(whole[inside], 0.0, atol=1e-6)
    assert (whole[~inside] == 0.25).all()


@pytest.mark.parametrize(
    "function", [lambda F: fast.cosine(F, 0.3), fast.exponential, fast.hadamard]
)
def test_tensors_in_main_memory_use_the_compiled_loops(function):
    rows = np.random.default_rng(0).standard_normal((5, 256)).astype(np.float32)
    F = torch.tensor(rows)
    assert function(F) is F
    np.testing.assert_array_equal(F.numpy(), function(rows))


def test_column_major_empty_and_single_entries(path):
    F = np.asfortranarray(np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3))
    np.testing.assert_allclose(fast.cosine(F.copy("F"), 1.0), np.cos(2 * np.pi * F), atol=1e-6)
    for shape in ((0, 4), (4, 0), (1, 1)):
        F = np.zeros(shape, dtype=np.float32)
        assert fast.exponential(fast.cosine(F, 2.0)).shape == shape
        np.testing.assert_allclose(F, np.full(shape, np.exp(2.0)), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [8, 256, 2048, 8192])
def test_is_the_hadamard_matrix_in_the_documented_order(path, dtype, size):
    X = np.random.default_rng(size).standard_normal((5, size)).astype(dtype)
    usual = X.astype(np.float64) @ scipy.linalg.hadamard(size)
    expected = usual.reshape(5, size // 8, 8).transpose(0, 2, 1).reshape(5, size)
    np.testing.assert_allclose(fast.hadamard(X.copy()), expected, atol=size * np.finfo(dtype).eps)
