"""Count sketches against their definition, and on average against inner products."""

import tracemalloc

import numpy as np
import pytest

from knoi.arrays.random import View
from knoi.features import CountSketch
from knoi.features.sketch import HASHED_COLUMNS
from knoi.kernels import Linear
from tests.contracts.feature_map import FeatureMapContract, MapCase, sparse_rows


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).standard_normal((20, 30))
    X.setflags(write=False)
    return X


def sketch(columns, rank, seed=0, view=View.X):
    return CountSketch.fit(np.empty((0, columns)), Linear(), rank, seed, view)


@pytest.fixture(params=[7, 100], scope="module")
def case(request, rows):
    # No `larger`: buckets of one rank are not buckets of another.
    return MapCase(sketch(30, request.param), rows, request.param)


class TestCountSketch(FeatureMapContract):
    pass


def test_is_the_definition(rows):
    features = sketch(30, 7)
    wanted = np.zeros((20, 7))
    for j, code in enumerate(features.hashes):
        bucket, sign = (code, 1.0) if code >= 0 else (-code - 1, -1.0)
        wanted[:, bucket] += sign * rows[:, j]
    np.testing.assert_allclose(features.transform(rows), wanted, atol=1e-13)


def test_inner_products_are_right_on_average_with_the_variance_said(rows):
    x, z = rows[0], rows[1] + 0.5 * rows[0]
    rank, seeds = 11, 2000
    found = np.empty(seeds)
    for seed in range(seeds):
        a, b = sketch(30, rank, seed).transform(np.stack([x, z]))
        found[seed] = a @ b
    variance = (x @ x) * (z @ z) + (x @ z) ** 2 - 2 * np.sum(x**2 * z**2)
    variance /= rank
    assert abs(found.mean() - x @ z) < 4.5 * np.sqrt(variance / seeds)
    assert found.var() == pytest.approx(variance, rel=0.15)


def test_buckets_and_signs_are_even():
    hashes = sketch(100_000, 10).hashes
    counts = np.bincount(hashes + 10, minlength=20)
    assert counts.size == 20
    assert (np.abs(counts - 5000) < 4.5 * np.sqrt(5000)).all()


def test_seeds_views_and_blocks_differ_and_more_columns_begin_with_the_same():
    one = sketch(HASHED_COLUMNS + 100, 64).hashes
    np.testing.assert_array_equal(sketch(1000, 64).hashes, one[:1000])
    others = (
        sketch(1000, 64, seed=1).hashes,
        sketch(1000, 64, view=View.Y).hashes,
        one[HASHED_COLUMNS:],
    )
    for other in others:
        assert np.mean(other == one[: other.size]) < 0.1


def test_a_million_columns_take_four_bytes_each_and_are_never_a_table():
    X = sparse_rows(64, 1_000_000, 50)
    tracemalloc.start()
    features = CountSketch.fit(X, Linear(), 512, 0, View.X)
    prepared = features.prepare(X)
    block = features.block(prepared, slice(100, 200))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert features.hashes.nbytes == 4_000_000
    assert peak < 4_000_000 + 4 * 2**20
    assert prepared.nnz <= X.nnz
    occur = np.unique(X.indices)
    narrow = CountSketch(features.hashes[occur], 512).transform(X[:, occur].toarray())
    np.testing.assert_allclose(block, narrow[:, 100:200], atol=1e-13)
