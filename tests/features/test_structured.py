"""Structured frequencies: the same kernel as dense ones, from signs and Hadamard transforms."""

import numpy as np
import pytest

from knoi.arrays import fast
from knoi.arrays.backend import numpy_backend
from knoi.arrays.fast import PAIRED_RUN
from knoi.arrays.random import View
from knoi.exceptions import InputError
from knoi.features import RandomFourier
from knoi.features.structured import StructuredFourier
from knoi.kernels import RBF, Laplacian, Matern
from tests.contracts.feature_map import FeatureMapContract, MapCase

CONSTRUCTIONS = ["hadamard", "fastfood"]


def rows_of(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def structured(X, kernel=RBF(2.0), rank=700, seed=0, construction="hadamard", paired=True):  # noqa: B008
    return StructuredFourier.fit(
        X, kernel, rank, seed, View.X, construction=construction, paired=paired
    )


class TestContract(FeatureMapContract):
    @pytest.fixture(
        params=[
            ("hadamard", True, 5),
            ("hadamard", False, 300),
            ("fastfood", True, 1),
        ],
        ids=str,
    )
    def case(self, request):
        construction, paired, d = request.param
        X = rows_of(20, d)
        kernel = Matern(2.0 * d**0.5)
        small, large = (
            structured(X, kernel, rank, 3, construction, paired) for rank in (300, 1100)
        )
        return MapCase(small, X, 300, large, 300)  # an unfinished block begins as the whole one


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


@pytest.mark.parametrize(("d", "kernel"), [(1, RBF), (3, Matern), (256, RBF)])
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_is_unbiased(d, construction, kernel):
    X = rows_of(12, d)
    kernel = kernel(d**0.5)
    exact, seeds = kernel(X, X), 60
    found = []
    for seed in range(seeds):
        Phi = structured(X, kernel, 256 + 128, seed, construction).transform(X)
        found.append(Phi @ Phi.T)
    error = np.std(found, axis=0) / np.sqrt(seeds)
    assert (np.abs(np.mean(found, axis=0) - exact) < 4.5 * error).all()


def test_hadamard_is_no_worse_than_independent_frequencies():
    X = rows_of(40, 30)
    kernel = RBF(30**0.5)
    exact = kernel(X, X)

    def errors(fit):
        maps = (fit(X, kernel, 1024, seed, View.X).transform(X) for seed in range(12))
        return [np.mean((Phi @ Phi.T - exact) ** 2) for Phi in maps]

    ours, iid = errors(StructuredFourier.fit), errors(RandomFourier.fit)
    spread = np.hypot(np.std(ours), np.std(iid)) / np.sqrt(12)
    assert np.mean(ours) < np.mean(iid) + 2 * spread


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_error_falls_like_one_over_root_rank(construction):
    X = rows_of(40, 20)
    kernel = RBF(20**0.5)
    exact = kernel(X, X)

    def error(rank):
        maps = (structured(X, kernel, rank, seed, construction) for seed in range(8))
        return np.sqrt(np.mean([(f.transform(X) @ f.transform(X).T - exact) ** 2 for f in maps]))

    assert error(4096) < 0.65 * error(1024) < 0.65 * 0.65 * error(256)


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
