"""Sparse rows: models, layouts, streams and errors as for dense rows, up to a million columns."""

import pickle

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.base import clone

import knoi
from knoi import KNOI, FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.arrays import backend as backends
from knoi.arrays.backend import numpy_backend, torch_backend
from knoi.arrays.sparse import product, same_rows
from knoi.data.open import open_view
from knoi.data.pairs import PairSource
from knoi.data.stream import PairStream
from knoi.engine import Serial
from knoi.exceptions import InputError, MemoryBudgetError, NonFiniteError
from knoi.features import Identity, KernelColumns, Nystrom
from knoi.solvers.acceleration import LowRank
from tests.bilingual_text import TOPICS, two_languages
from tests.estimators.models import AS_PUBLISHED
from tests.memory import peak_memory_below

N, D = 1050, 60
csr = scipy.sparse.csr_array

SMALL_KNOI = KNOI(2, rank=50, epochs=2, random_state=0, n_jobs=1, **AS_PUBLISHED)
MODELS = {
    "linear": LinearCCA(2, reg=1e-3, n_jobs=1),
    "fourier": FourierCCA(2, rank=50, random_state=0, n_jobs=1, **AS_PUBLISHED),
    "nystrom": NystromCCA(2, rank=50, random_state=0, n_jobs=1, **AS_PUBLISHED),
    "nystrom chi2": NystromCCA(2, rank=20, kernel="chi2", random_state=0, n_jobs=1, **AS_PUBLISHED),
    "nystrom kmeans": NystromCCA(
        2, rank=20, landmarks="kmeans++", random_state=0, n_jobs=1, **AS_PUBLISHED
    ),
    "kernel": KernelCCA(2, kernel=("rbf", "polynomial"), random_state=0, n_jobs=1, **AS_PUBLISHED),
    "knoi": SMALL_KNOI,
    "knoi low rank": clone(SMALL_KNOI).set_params(precondition="low_rank"),
    "knoi fourier": clone(SMALL_KNOI).set_params(approximation="fourier"),
    "knoi linear": clone(SMALL_KNOI).set_params(kernel="linear"),
    "knoi mixed": clone(SMALL_KNOI).set_params(kernel=("linear", "matern")),
}
STREAMING = ["linear", "nystrom", "knoi", "knoi fourier", "knoi linear", "knoi mixed"]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def views():
    X, Y, _ = two_languages(N, D, dtype=np.float64)
    empty = scipy.sparse.csr_array((4, D))  # documents without words
    return scipy.sparse.vstack([X[:-4], empty], format="csr"), Y


@pytest.fixture(scope="module")
def tables(views):
    tables = tuple(view.toarray() for view in views)
    for table in tables:
        table.setflags(write=False)
    return tables


def rows_for(name):
    return 250 if name == "kernel" else N


def assert_same(found, expected, tables, tolerance=1e-6):
    np.testing.assert_allclose(found.correlations_, expected.correlations_, atol=tolerance)
    X, Y = (table[:50] for table in tables)
    for Z, W in zip(found.transform(X, Y), expected.transform(X, Y), strict=True):
        np.testing.assert_allclose(Z, W, atol=tolerance * np.abs(W).max())


class TestEstimators:
    @pytest.mark.parametrize("name", MODELS)
    def test_fit_as_on_dense_rows(self, name, views, tables):
        n = rows_for(name)
        (X, Y), (A, B) = ([v[:n] for v in both] for both in (views, tables))
        dense = clone(MODELS[name]).fit(A, B)
        sparse = clone(MODELS[name]).fit(X, Y)
        assert_same(sparse, dense, (A, B))
        assert_same(clone(MODELS[name]).fit(X, B), dense, (A, B))
        np.testing.assert_allclose(sparse.score(X, Y), dense.score(A, B), rtol=1e-6)
        for rows, of in ((X, sparse.transform), (Y, sparse.transform_y)):
            whole = of(rows.toarray())
            np.testing.assert_allclose(of(rows), whole, atol=1e-9 * np.abs(whole).max())

    @pytest.mark.parametrize("name", STREAMING)
    def test_partial_fit_as_on_dense_rows(self, name, views, tables):
        pieces = slice(0, 700), slice(700, 760), slice(760, N)
        dense, sparse, mixed = (clone(MODELS[name]) for _ in range(3))
        for k, piece in enumerate(pieces):
            last = k == len(pieces) - 1
            dense.partial_fit(*(table[piece] for table in tables), solve=last)
            sparse.partial_fit(*(view[piece] for view in views), solve=last)
            kind = tables if k == 1 else views
            mixed.partial_fit(*(view[piece] for view in kind), solve=last)
            if k == 0:
                sparse = pickle.loads(pickle.dumps(sparse))
        assert_same(sparse, dense, tables)
        assert_same(mixed, dense, tables)

    @pytest.mark.parametrize("name", ["nystrom", "kernel", "knoi linear"])
    def test_a_model_file_restores_the_model(self, name, views, tmp_path):
        n = rows_for(name)
        X, Y = (view[:n] for view in views)
        model = clone(MODELS[name]).fit(X, Y)
        model.save(tmp_path / "model.knoi")
        again = knoi.load(tmp_path / "model.knoi")
        for one, other in zip(model.transform(X, Y), again.transform(X, Y), strict=True):
            # The memory layout of the weights may differ, and with it the order of summation.
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
        features = again.projection_.x.features
        columns = features.columns if isinstance(features, Nystrom) else features
        if isinstance(columns, KernelColumns):
            assert isinstance(columns.landmarks, csr)

    @pytest.mark.parametrize("name", ["knoi", "knoi linear"])
    def test_a_run_resumes(self, name, views, tmp_path):
        # reg='auto' depends on the number of epochs, so fix it.
        model = clone(MODELS[name]).set_params(epochs=4, batch_size=300, reg=1e-3)
        straight = clone(model).fit(*views)
        model.set_params(checkpoint=tmp_path, epochs=2).fit(*views)
        model.set_params(epochs=4).fit(*views, resume=True)
        np.testing.assert_array_equal(model.x_weights_, straight.x_weights_)
        assert model.n_samples_seen_ == straight.n_samples_seen_

    def test_a_constant_view_raises_with_its_name(self, views):
        same = csr(np.ones((N, 1))) @ views[1][:1]
        with pytest.raises(InputError, match=r"^view Y does not vary: all its rows are the same\."):
            clone(SMALL_KNOI).set_params(held_out=0, width=1.0).fit(views[0], same)


class TestOnADevice:
    @pytest.mark.parametrize("name", ["nystrom", "knoi", "knoi linear"])
    def test_rows_become_dense(self, name, views, tables):
        n = rows_for(name)
        X, Y = (view[:n] for view in views)
        model = clone(MODELS[name]).set_params(device="cpu").fit(X, Y)
        assert_same(model, clone(MODELS[name]).fit(X, Y), tables, 1e-5)

    def test_too_many_columns_raise(self, monkeypatch):
        monkeypatch.setattr(backends, "MAX_DENSE_BYTES", 8 * 10 * 100)
        device = torch_backend("cpu", "float64")
        assert tuple(device.asarray(csr((10, 100))).shape) == (10, 100)
        with pytest.raises(MemoryBudgetError, match="11 sparse rows of 100 columns would take"):
            device.asarray(csr((11, 100)))


def shuffled(view):
    """The same rows with unsorted columns, entries in two halves, and stored zeros."""
    rng = np.random.default_rng(0)
    coo = view.tocoo()
    order = rng.permutation(3 * coo.nnz)
    half = coo.data * 0.5
    data = np.concatenate([half, half, 0 * half])[order]
    row, column = (np.tile(part, 3)[order] for part in coo.coords)
    by_row = np.argsort(row, kind="stable")
    ends = np.cumsum(np.bincount(row, minlength=view.shape[0]))
    parts = (data[by_row], column[by_row], np.concatenate([[0], ends]))
    return csr(parts, shape=view.shape)


LAYOUTS = {
    "coo_array": scipy.sparse.coo_array,
    "csc_matrix": scipy.sparse.csc_matrix,
    "dok_array": scipy.sparse.dok_array,
    "unsorted duplicates": shuffled,
    "uint8": lambda view: view.astype(np.uint8),
    "64-bit indices": lambda view: csr(
        (view.data, view.indices.astype(np.int64), view.indptr.astype(np.int64)), shape=view.shape
    ),
    "big-endian": lambda view: csr(
        (view.data.astype(">f8"), view.indices, view.indptr), shape=view.shape
    ),
}


def arrays_of(view):
    """Copies of all arrays of a sparse matrix."""
    held = [value if isinstance(value, tuple) else (value,) for value in vars(view).values()]
    return [part.copy() for parts in held for part in parts if isinstance(part, np.ndarray)]


class TestLayouts:
    @pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
    def test_every_layout_gives_the_same_model(self, layout, views, tables):
        X, Y = (layout(view[:300]) for view in views)
        before = [arrays_of(view) for view in (X, Y)]
        small = NystromCCA(2, rank=20, random_state=0, n_jobs=1, **AS_PUBLISHED)
        model = clone(small).fit(X, Y)
        dense = small.fit(*(table[:300] for table in tables))
        # One-byte counts compute in float32.
        assert_same(model, dense, tables, 1e-3 if X.dtype == np.uint8 else 1e-6)
        for view, old in zip((X, Y), before, strict=True):
            for mine, then in zip(arrays_of(view), old, strict=True):
                assert mine.dtype == then.dtype
                np.testing.assert_array_equal(mine, then)

    def test_indices_out_of_range_raise(self, views):
        X = views[0].copy()
        X.indices[7] = D
        with pytest.raises(InputError, match=r"^X is an invalid sparse matrix"):
            LinearCCA().fit(X, views[1])

    @pytest.mark.parametrize(
        ("bad", "model", "error", "text"),
        [
            (np.nan, LinearCCA(), NonFiniteError, "^Y has NaN at {}: CCA needs"),
            (-np.inf, SMALL_KNOI, NonFiniteError, "^Y has -inf at {}: CCA needs"),
            (-2.0, MODELS["nystrom chi2"], InputError, "^view Y: {} has -2, but the chi2 kernel"),
        ],
        ids=["nan", "inf", "negative"],
    )
    def test_bad_values_are_located(self, bad, model, error, text, views):
        Y = views[1].copy()
        at = Y.indptr[917] + 2
        Y.data[at] = bad
        where = f"row 917, column {Y.indices[at]}"
        with pytest.raises(error, match=text.format(where)):
            clone(model).fit(views[0], Y)
        if np.isnan(bad):
            with pytest.raises(NonFiniteError, match=f"^Y has NaN at {where}:"):
                PairSource.open(views[0], Y).take(np.array([900, 3, 917, 7]))

    def test_large_numbers_are_finite(self):
        X = csr(np.array([[1e200, 0.0], [0.0, -1e200]]))
        np.testing.assert_array_equal(PairSource.open(X, X).read(0, 2)[0].data, X.data)


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


class TestManyColumns:
    @pytest.mark.parametrize(
        ("model", "advice"),
        [
            (FourierCCA(rank=4096, memory_budget="8GiB"), "Use NystromCCA or KNOI"),
            (KNOI(rank=4096, approximation="fourier", memory_budget="8GiB"), "hash the columns"),
        ],
        ids=["FourierCCA", "KNOI"],
    )
    def test_too_large_models_raise_before_memory_is_allocated(self, model, advice):
        wide = two_languages(1100, 10**6)[:2]
        with peak_memory_below(2**29), pytest.raises(MemoryBudgetError, match=advice):
            model.fit(*wide)

    @pytest.mark.parametrize(
        ("model", "n_cols", "limit"),
        [
            (KNOI(TOPICS, kernel="linear", epochs=10), 50_000, 1500 * 50_000 * 4),
            # 2000 rows of a million columns are 8 GB as a dense table.
            (NystromCCA(TOPICS, rank=200, reg=1e-3), 10**6, 2**28),
            (KNOI(TOPICS, rank=300, epochs=4), 10**6, 2**28),
        ],
        ids=["KNOI linear", "NystromCCA", "KNOI"],
    )
    def test_rows_stay_sparse_in_fit_and_score(self, model, n_cols, limit):
        X, Y, correlation = two_languages(2500, n_cols)
        model = clone(model).set_params(random_state=0, n_jobs=1)
        with peak_memory_below(limit):
            model.fit(X[:2000], Y[:2000])
            score = model.score(X[2000:], Y[2000:])
        assert score > 0.9 * TOPICS * correlation

    @pytest.mark.parametrize("n_cols", [40, 900], ids=["more rows", "more columns"])
    def test_the_preconditioner_is_the_same_for_sparse_and_dense_rows(self, n_cols):
        X, _, _ = two_languages(300, n_cols, dtype=np.float64)
        fit = (Identity(n_cols), X, 100, 1e-6, numpy_backend("float64"), Serial())
        sparse, dense = (LowRank.fit(fit[0], rows, *fit[2:]) for rows in (X, X.toarray()))
        G = np.random.default_rng(0).standard_normal((n_cols, 2))
        expected = dense(G, G)
        assert np.abs(expected - G).max() > 0.1  # it is not the identity
        np.testing.assert_allclose(sparse(G, G), expected, atol=1e-9)


def test_a_product_with_a_block_of_columns_leaves_the_rows_alone():
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((6, 200), density=0.01, rng=rng, format="csr")
    W, before = rng.standard_normal((200, 12))[:, 3:9], X.copy()
    np.testing.assert_allclose(product(X, W), X.toarray() @ W, atol=1e-14)
    np.testing.assert_array_equal(X.indices, before.indices)


def test_same_rows_finds_a_constant_view():
    assert same_rows(csr(np.tile([0.0, 2.0, 0.0, 1.0], (5, 1))))
    assert same_rows(csr((5, 3)))
    assert same_rows(csr(([0.0, 1.0, 1.0], [0, 1, 1], [0, 2, 3]), shape=(2, 3)))  # a stored zero
    for other in ([1.0, 0.0], [0.0, 2.0], [0.0, 0.0]):
        assert not same_rows(csr(np.array([[0.0, 1.0], other])))
