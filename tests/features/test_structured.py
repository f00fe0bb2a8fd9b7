"""Structured frequencies: the same kernel as dense ones, from signs and Hadamard transforms."""

import numpy as np
import pytest

from knoi.arrays import fast
from knoi.arrays.backend import numpy_backend
from knoi.arrays.fast import PAIRED_RUN
from knoi.exceptions import InputError
from knoi.features import RandomFourier, StructuredFourier
from knoi.kernels import RBF, Laplacian, Matern
from tests.features.fitting import errors, fit, rms

CONSTRUCTIONS = ["hadamard", "fastfood"]


def rows_of(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def structured(X, kernel=RBF(2.0), rank=700, **options):  # noqa: B008
    return fit(StructuredFourier, X, kernel, rank, **options)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_compiled_and_plain_give_the_same_numbers(construction, monkeypatch):
    X = rows_of(30, 7).astype(np.float32)
    paired = construction == "hadamard"
    features = structured(X, construction=construction, paired=paired)
    features = features.to(numpy_backend("float32"))
    assert fast.compiled() is not None
    several = [slice(0, 256), slice(0, 700), slice(256, 512), slice(5, 690)]
    found = [features.block(features.prepare(X), columns) for columns in several]
    monkeypatch.setattr(fast, "compiled", lambda: None)
    for columns, one in zip(several, found, strict=True):
        plain = features.block(features.prepare(X), columns)
        np.testing.assert_allclose(one, plain, atol=1e-5 * np.abs(plain).max())


@pytest.mark.parametrize("size_of", [(7, 256), (1100, 2048)])
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_every_size_is_the_formula(size_of, construction):
    d, size = size_of
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


@pytest.mark.parametrize(("d", "kernel"), [(1, RBF(1.0)), (3, Matern(2.0)), (256, RBF(16.0))])
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_is_unbiased(d, construction, kernel):
    found = errors(StructuredFourier, rows_of(12, d), kernel, 384, 60, construction=construction)
    assert (np.abs(found.mean(axis=0)) < 4.5 * found.std(axis=0) / np.sqrt(60)).all()


def test_hadamard_is_no_worse_than_independent_frequencies():
    ours, iid = (
        np.mean(errors(kind, rows_of(40, 30), RBF(30**0.5), 1024, 12) ** 2, axis=(1, 2))
        for kind in (StructuredFourier, RandomFourier)
    )
    assert ours.mean() < iid.mean() + 2 * np.hypot(ours.std(), iid.std()) / np.sqrt(12)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_error_falls_like_one_over_root_rank(construction):
    few, more, many = (
        rms(
            errors(
                StructuredFourier, rows_of(40, 20), RBF(20**0.5), M, 8, construction=construction
            )
        )
        for M in (256, 1024, 4096)
    )
    assert many < 0.65 * more < 0.65 * 0.65 * few


def test_rows_of_a_block_are_orthogonal_whatever_their_lengths():
    X = rows_of(5, 256)
    W = structured(X, rank=600, paired=False).W
    for block in (W[:, :256], W[:, 256:512]):
        directions = block / np.linalg.norm(block, axis=0)
        np.testing.assert_allclose(directions.T @ directions, np.eye(256), atol=1e-12)


def test_lengths_are_those_of_the_spectral_measure():
    X = rows_of(5, 256)
    lengths = np.linalg.norm(structured(X, RBF(3.0), rank=4096, paired=False).W, axis=0)
    # chi with 256 degrees of freedom, over the width
    assert abs(np.mean(lengths**2) * 9 / 256 - 1) < 4.5 * np.sqrt(2 / 256 / 4096)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_raises_for_kernels_that_are_not_isotropic(construction):
    expected = (
        rf"^'{construction}' features need an isotropic kernel: the spectral measure of the "
        r"laplacian kernel is not invariant under rotation\. Use 'fourier' or 'qmc' with it, "
        r"or the kernel 'rbf' or 'matern'\.$"
    )
    with pytest.raises(InputError, match=expected):
        structured(rows_of(5, 3), Laplacian(1.0), construction=construction)


def test_slices_are_whole_blocks_where_they_can_be():
    features = structured(rows_of(5, 3), rank=1000)
    for largest in (100, 512, 600):
        slices = features.slices(largest)
        assert [*range(1000)] == [i for s in slices for i in range(s.start, s.stop)]
        assert all(s.stop - s.start <= largest for s in slices)
        if largest >= features.grain:
            assert all(s.start % features.grain == 0 for s in slices)
