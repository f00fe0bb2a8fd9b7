import numpy as np
import pytest
import scipy.linalg

from knoi.arrays import hadamard


@pytest.mark.parametrize("size", [8, 16, 256, 512])
def test_is_the_hadamard_matrix_in_the_order_it_says(backend, size):
    X = np.random.default_rng(size).standard_normal((5, size))
    usual = X @ scipy.linalg.hadamard(size)
    expected = usual.reshape(5, size // 8, 8).transpose(0, 2, 1).reshape(5, size)
    found = backend.to_numpy(hadamard.transform(backend.asarray(X.copy())))
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_renaming_bits_commutes():
    """What the docstring leans on: two transforms in this order are two in the usual, reordered."""
    size = 64
    X = np.eye(size)
    H = scipy.linalg.hadamard(size)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size)
    turned = np.arange(size).reshape(size // 8, 8).T.reshape(-1)
    found = hadamard.transform(hadamard.transform(X.copy()) * signs)
    back = np.empty_like(signs)
    back[turned] = signs
    usual = (X @ H * back) @ H
    assert {tuple(row) for row in np.abs(found.T)} == {tuple(row) for row in np.abs(usual.T)}


@pytest.mark.parametrize(
    ("d", "size"),
    [(1, 256), (2, 256), (255, 256), (256, 256), (257, 512), (392, 512), (1024, 1024)],
)
def test_pads_to_the_next_power_of_two(d, size):
    assert hadamard.padded(d) == size
