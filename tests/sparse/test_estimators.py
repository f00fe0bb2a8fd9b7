"""Estimators give the same results for sparse rows as for dense ones."""

import pickle
import re

import numpy as np
import pytest
from sklearn.base import clone

import knoi
from knoi import KNOI, NystromCCA
from knoi.arrays import backend as backends
from knoi.arrays.backend import torch_backend
from knoi.exceptions import InputError, MemoryBudgetError
from knoi.features import KernelColumns, Nystrom
from tests.sparse.cases import MODELS, SMALL_KNOI, N, assert_same, csr, rows_for

STREAMING = ["linear", "nystrom", "knoi", "knoi fourier", "knoi linear", "knoi mixed"]


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

    def test_cluster_centres_are_dense_and_take_sparse_rows(self, views, tables):
        for estimator in (NystromCCA, KNOI):
            model = estimator(2, rank=20, landmarks="kmeans", random_state=0, n_jobs=1)
            model.fit(*views)
            whole = model.transform(tables[0])
            found = model.transform(views[0])
            np.testing.assert_allclose(found, whole, atol=1e-9 * np.abs(whole).max())


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
        rows = csr((10, 100))
        assert tuple(device.asarray(rows).shape) == (10, 100)
        expected = re.escape(
            "11 sparse rows of 100 columns would take 0.0 GiB on device='cpu', where rows are "
            "dense. Use device=None, which keeps them sparse, or smaller minibatches."
        )
        with pytest.raises(MemoryBudgetError, match=f"^{expected}$"):
            device.asarray(csr((11, 100)))
