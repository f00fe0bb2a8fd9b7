"""Count sketches and tensor sketches against their definitions, and their errors."""

import math
from itertools import product

import numpy as np
import pytest

from knoi.arrays.random import View
from knoi.features import CountSketch, TensorSketch
from knoi.features.sketch import HASHED_COLUMNS
from knoi.kernels import Linear, Polynomial
from tests.features.fitting import fit, raises, rms, sparse_rows
from tests.memory import peak_memory_below

CUBIC = Polynomial(2.0)


def count_sketch(columns, rank, seed=0, view=View.X):
    return CountSketch.fit(np.empty((0, columns)), Linear(), rank, seed, view)


class TestCountSketch:
    def test_is_the_definition(self, rows):
        features = count_sketch(5, 3)
        wanted = np.zeros((60, 3))
        for j, code in enumerate(features.hashes):
            bucket, sign = (code, 1.0) if code >= 0 else (-code - 1, -1.0)
            wanted[:, bucket] += sign * rows[:, j]
        np.testing.assert_allclose(features.transform(rows), wanted, atol=1e-13)

    def test_inner_products_are_right_on_average_with_the_variance_said(self):
        x, y = np.random.default_rng(0).standard_normal((2, 30))
        z = y + 0.5 * x
        rank, seeds = 11, 2000
        pairs = (count_sketch(30, rank, s).transform(np.stack([x, z])) for s in range(seeds))
        found = np.array([a @ b for a, b in pairs])
        variance = ((x @ x) * (z @ z) + (x @ z) ** 2 - 2 * np.sum(x**2 * z**2)) / rank
        assert abs(found.mean() - x @ z) < 4.5 * np.sqrt(variance / seeds)
        assert found.var() == pytest.approx(variance, rel=0.15)

    def test_seeds_views_and_blocks_differ_and_more_columns_begin_with_the_same(self):
        one = count_sketch(HASHED_COLUMNS + 100, 64).hashes
        np.testing.assert_array_equal(count_sketch(1000, 64).hashes, one[:1000])
        seed, view = count_sketch(1000, 64, 1).hashes, count_sketch(1000, 64, 0, View.Y).hashes
        for other in (seed, view, one[HASHED_COLUMNS:]):
            assert np.mean(other == one[: other.size]) < 0.1

    def test_a_million_columns_take_four_bytes_each_and_are_never_a_table(self):
        X = sparse_rows(64, 1_000_000, 50)
        with peak_memory_below(4_000_000 + 4 * 2**20):
            features = fit(CountSketch, X, Linear(), 512)
            prepared = features.prepare(X)
            block = features.block(prepared, slice(100, 200))
        assert features.hashes.nbytes == 4_000_000
        assert prepared.nnz <= X.nnz
        occur = np.unique(X.indices)
        narrow = CountSketch(features.hashes[occur], 512).transform(X[:, occur].toarray())
        np.testing.assert_allclose(block, narrow[:, 100:200], atol=1e-13)


class TestTensorSketch:
    @pytest.mark.parametrize(("degree", "size"), [(1, 4), (2, 5), (3, 7), (3, 1)])
    def test_is_the_count_sketch_of_the_tensor_power(self, rows, degree, size):
        features = fit(TensorSketch, rows, Polynomial(2.0, degree, 0.5), size, sketch_size=size)
        x = np.append(rows[0] / 2.0, math.sqrt(0.5))
        expected = np.zeros(size)
        for places in product(range(len(x)), repeat=degree):
            codes = [int(features.hashes[0, j, i]) for j, i in enumerate(places)]
            sign = math.prod(-1 if code < 0 else 1 for code in codes)
            bucket = sum(~code if code < 0 else code for code in codes) % size
            expected[bucket] += sign * math.prod(x[i] for i in places)
        np.testing.assert_allclose(features.transform(rows[:1])[0], expected, atol=1e-12)

    def test_a_smaller_last_sketch_counts_for_less(self, rows):
        features, whole = (fit(TensorSketch, rows, CUBIC, M, sketch_size=8) for M in (11, 8))
        expected = math.sqrt(8 / 11) * whole.transform(rows)
        np.testing.assert_allclose(features.transform(rows)[:, :8], expected, atol=1e-12)

    def test_a_million_sparse_columns_stay_sparse(self):
        X = sparse_rows(8, 1_000_000, 20)
        X.data -= 0.5
        kernel = Polynomial(2.0)
        features = fit(TensorSketch, X, kernel, 700)
        with peak_memory_below(2**20):  # a single dense row would take eight times that
            Phi = features.transform(X)
        assert features.hashes.nbytes < 13e6  # two sketches, three hashes of two bytes per column
        gathered = X[:, np.unique(X.indices)].toarray()
        exact = kernel(gathered, gathered)
        assert rms(Phi @ Phi.T - exact) < 0.3 * rms(exact)

    def test_errors(self, rows):
        for size in (0, 40_000):
            with raises(f"sketch_size={size} cannot be used: it must"):
                fit(TensorSketch, rows, CUBIC, 11, sketch_size=size)
        with raises("the polynomial kernel has no width yet"):
            fit(TensorSketch, rows, Polynomial(), 11)
