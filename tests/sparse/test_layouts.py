"""All layouts of sparse matrices work; errors name the row and the column."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from knoi import LinearCCA, NystromCCA
from knoi.data.pairs import PairSource
from knoi.exceptions import InputError, NonFiniteError
from tests.sparse.cases import MODELS, SMALL_KNOI, D, assert_same, csr


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
    "csr_matrix": scipy.sparse.csr_matrix,
    "bsr_array": scipy.sparse.bsr_array,
    "lil_matrix": scipy.sparse.lil_matrix,
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
        model = NystromCCA(2, rank=20, random_state=0, n_jobs=1).fit(X, Y)
        dense = NystromCCA(2, rank=20, random_state=0, n_jobs=1)
        dense.fit(*(table[:300] for table in tables))
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

    @pytest.mark.parametrize(("bad", "named"), [(np.nan, "NaN"), (-np.inf, "-inf")])
    @pytest.mark.parametrize("model", [LinearCCA(), SMALL_KNOI], ids=["linear", "knoi"])
    def test_non_finite_values_are_located(self, bad, named, model, views):
        Y = views[1].copy()
        at = Y.indptr[917] + 2
        Y.data[at] = bad
        expected = rf"^Y has {named} at row 917, column {Y.indices[at]}: CCA needs"
        with pytest.raises(NonFiniteError, match=expected):
            clone(model).fit(views[0], Y)

    def test_selected_rows_are_located_by_their_number(self, views):
        X = views[0].copy()
        at = X.indptr[41]
        X.data[at] = np.nan
        pairs = PairSource.open(X, views[1])
        expected = rf"^X has NaN at row 41, column {X.indices[at]}:"
        with pytest.raises(NonFiniteError, match=expected):
            pairs.take(np.array([900, 3, 41, 7]))

    def test_large_numbers_are_finite(self):
        X = csr(np.array([[1e200, 0.0], [0.0, -1e200]]))
        np.testing.assert_array_equal(PairSource.open(X, X).read(0, 2)[0].data, X.data)

    def test_a_negative_count_is_located(self, views):
        X = views[0].copy()
        at = X.indptr[33] + 1
        X.data[at] = -2.0
        expected = rf"^view X: row 33, column {X.indices[at]} has -2, but the chi2 kernel"
        with pytest.raises(InputError, match=expected):
            clone(MODELS["nystrom chi2"]).fit(X, views[1])
