"""Structured frequencies: the same kernel as dense ones, from signs and Hadamard transforms."""

import numpy as np
import pytest

from knoi.arrays.backend import numpy_backend
from knoi.arrays.fast import PAIRED_RUN
from knoi.features import StructuredFourier
from knoi.kernels import RBF, Laplacian
from tests.features.fitting import fit, raises

CONSTRUCTIONS = ["hadamard", "fastfood"]


def rows_of(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def structured(X, kernel=RBF(2.0), rank=700, **options):  # noqa: B008
    return fit(StructuredFourier, X, kernel, rank, **options)


@pytest.mark.parametrize(("d", "size"), [(7, 256), (1100, 2048)])
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_every_size_is_the_formula(d, size, construction):
    X = rows_of(4, d)
    paired = construction == "fastfood"
    features = structured(X, RBF(d**0.5), size + 10, construction=construction, paired=paired)
    assert features.size == size
    single = features.to(numpy_backend("float32"))
    phases = features.phases
    if paired:  # a run of cosines and then their sines
        runs = phases.reshape(-1, PAIRED_RUN)
        phases = np.concatenate([[run, run - 0.25] for run in runs]).reshape(-1)
    phases = phases[: size + 10]
    cosines = np.cos((X - X.mean(0)) @ features.W + 2 * np.pi * phases)
    expected = np.sqrt(2 / (size + 10)) * cosines
    np.testing.assert_allclose(features.transform(X), expected, atol=1e-11)
    # Compiled, in single precision: the argument of the cosine has rounded about log(size) times.
    np.testing.assert_allclose(single.transform(X.astype(np.float32)), expected, atol=1e-5)


def test_rows_of_a_block_are_orthogonal_and_have_the_lengths_of_the_spectral_measure():
    W = structured(rows_of(5, 256), RBF(3.0), rank=4096, paired=False).W
    lengths = np.linalg.norm(W, axis=0)
    directions = W / lengths
    for block in (directions[:, :256], directions[:, 256:512]):
        np.testing.assert_allclose(block.T @ block, np.eye(256), atol=1e-12)
    # chi with 256 degrees of freedom, over the width
    assert abs(np.mean(lengths**2) * 9 / 256 - 1) < 4.5 * np.sqrt(2 / 256 / 4096)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_raises_for_kernels_that_are_not_isotropic(construction):
    with raises(f"'{construction}' features need an isotropic kernel: the spectral"):
        structured(rows_of(5, 3), Laplacian(1.0), construction=construction)


def test_raises_for_a_construction_that_does_not_exist():
    with raises("construction"):
        structured(rows_of(5, 3), RBF(1.0), construction="haddamard")
