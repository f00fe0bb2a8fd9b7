"""Sparse rows from a stream stay sparse."""

import numpy as np
import pytest
import scipy.sparse

from knoi import LinearCCA
from knoi.arrays.backend import numpy_backend, torch_backend
from knoi.data.open import open_view
from knoi.data.pairs import PairSource
from knoi.data.stream import PairStream
from tests.bilingual_text import two_languages
from tests.sparse.cases import D, N, assert_same, csr


class SparseFile:
    """A source of CSR rows that copies them on every read, like a file."""

    random_access, sparse, column_names = False, True, None

    def __init__(self, rows):
        self.rows = rows
        (self.n_rows, self.n_cols), self.dtype = rows.shape, rows.dtype
        self.row_bytes = open_view(rows, "X").row_bytes

    def read(self, start, stop):
        return self.rows[start:stop].copy()

    def close(self):
        pass


class TestStreams:
    @pytest.mark.parametrize("kind", ["memory", "file", "one of each"])
    @pytest.mark.parametrize("window_bytes", [10**7, 3 * 10**5])
    def test_minibatches_are_sparse_rows(self, kind, window_bytes, views):
        X, Y = (view.astype(np.float32) for view in views)
        sources = {
            "memory": (X, Y),
            "file": (SparseFile(X), SparseFile(Y)),
            "one of each": (SparseFile(X), Y.toarray()),
        }[kind]
        pairs = PairSource.open(*sources)
        assert pairs.random_access == (kind == "memory")
        stream = PairStream(pairs, 50, 0, window_bytes=window_bytes, epochs=1)
        assert stream.plan.one_window == (window_bytes == 10**7 or kind == "memory")
        seen = []
        for batch in stream:
            for rows, view in zip((batch.x, batch.y), (X, Y), strict=True):
                assert rows.dtype == np.float32
                table = rows.toarray() if scipy.sparse.issparse(rows) else rows
                np.testing.assert_array_equal(table, view[batch.rows].toarray())
            assert isinstance(batch.x, csr)
            assert isinstance(batch.y, np.ndarray if kind == "one of each" else csr)
            seen += batch.rows.tolist()
        assert set(seen) == set(range(N))

    def test_parts_and_samples(self, views, tables):
        for sources in (views, [SparseFile(view) for view in views]):
            pairs = PairSource.open(*sources)
            rest, held = pairs.split(0.2, seed=0)
            for part in (rest, held, pairs.part(0, 7)):
                assert part.read(0, part.n_rows)[1].shape == (part.n_rows, D)
            assert rest.n_rows + held.n_rows == N
            total = sum(part.read(0, part.n_rows)[0].sum() for part in (rest, held))
            np.testing.assert_allclose(total, tables[0].sum())
            assert rest.sample(30, seed=1)[0].shape == (30, D)
            assert pairs.read(5, 5)[0].shape == (0, D)

    def test_a_file_gives_the_same_model_as_the_matrix(self, views, tables):
        model = LinearCCA(2, reg=1e-3, n_jobs=1).fit(*map(SparseFile, views))
        assert_same(model, LinearCCA(2, reg=1e-3, n_jobs=1).fit(*tables), tables)

    def test_row_bytes_count_the_storage(self):
        X, _, _ = two_languages(100, 10**6)
        pairs = PairSource.open(X, X)
        stored = 2 * (X.nnz * (4 + 4) + 101 * 4)  # a value and its column; where rows begin
        assert stored <= 100 * pairs.row_bytes < stored + 200
        assert sum(pairs.bytes_on(numpy_backend("float64"))) <= 2 * pairs.row_bytes
        assert pairs.bytes_on(torch_backend("cpu", "float32")) == (4 * 10**6, 4 * 10**6)
