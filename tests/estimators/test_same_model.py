"""Equal numbers give the same model, in whatever they are kept: arrays, frames, sparse, files."""

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.io
import scipy.sparse
import torch
import zarr
from sklearn.base import clone

from knoi import KNOI, DeepCCA, DoublyStochasticCCA, FourierCCA, KernelCCA, LinearCCA, NystromCCA
from knoi.arrays.sparse import dense
from tests.estimators.models import AS_PUBLISHED, assert_same_up_to_sign

N = 600
SMALL = {"random_state": 0, "n_jobs": 1}
PUBLISHED = {**SMALL, **AS_PUBLISHED}
STOCHASTIC = {**PUBLISHED, "rank": 40, "batch_size": 50, "epochs": 2}
MODELS = {
    "linear": LinearCCA(2, n_jobs=1),
    "kernel": KernelCCA(2, reg=1e-3, n_jobs=1, **AS_PUBLISHED),
    "fourier": FourierCCA(2, rank=40, **PUBLISHED),
    "nystrom": NystromCCA(2, rank=40, **PUBLISHED),
    "nystrom, learned metric": NystromCCA(2, rank=40, **SMALL),
    "nystrom, kmeans": NystromCCA(2, rank=40, landmarks="kmeans", **PUBLISHED),
    "knoi, exact": KNOI(2, rank=40, solver="exact", **PUBLISHED),
    "knoi": KNOI(2, solver="stochastic", **STOCHASTIC),
    "knoi, fourier": KNOI(2, solver="stochastic", approximation="fourier", **STOCHASTIC),
    "dsgd": DoublyStochasticCCA(2, **STOCHASTIC),
    "deep": DeepCCA(2, hidden=(8,), epochs=2, batch_size=50, **SMALL),
}
# Models of distances or inner products of rows, which the order of columns does not change.
WITHOUT_ORDER = (
    "linear",
    "kernel",
    "nystrom",
    "nystrom, learned metric",
    "nystrom, kmeans",
    "knoi, exact",
    "knoi",
)


def tables():
    """Two views that share two hidden variables, (N, 7) and (N, 5); half of the numbers are 0."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((N, 2))
    views = []
    for d in (7, 5):
        view = shared @ rng.standard_normal((2, d)) + 0.5 * rng.standard_normal((N, d))
        views.append(np.where(rng.random((N, d)) < 0.5, 0.0, np.tanh(view)))
    return views


def sliced(table):
    every_other = np.zeros((2 * len(table), 2 * table.shape[1]))[::2, ::2]
    every_other[:] = table
    return every_other


def frame_of_blocks(table):
    """A frame that pandas keeps column by column."""
    frame = pd.DataFrame(index=range(len(table)))
    for j, column in enumerate(table.T):
        frame[f"c{j}"] = column.copy()
    return frame


def save_hdf5(path, table):
    with h5py.File(path, "w") as file:
        file.create_dataset("table", data=table, chunks=(50, 3))


def written(write, suffix):
    """A kind of view: a file that `write(path, table)` writes."""

    def make(table, path):
        write(f"{path}{suffix}", table)
        return f"{path}{suffix}"

    return make


def frame(table):
    return pd.DataFrame(table, columns=[f"c{j}" for j in range(table.shape[1])])


KINDS = {
    "fortran": lambda table, _: np.asfortranarray(table),
    "sliced": lambda table, _: sliced(table),
    "big-endian": lambda table, _: table.astype(">f8"),
    "lists": lambda table, _: table.tolist(),
    "pandas": lambda table, _: frame(table),
    "pandas, blocks": lambda table, _: frame_of_blocks(table),
    "polars": lambda table, _: pl.DataFrame({f"c{j}": table[:, j] for j in range(table.shape[1])}),
    "torch": lambda table, _: torch.from_numpy(table.copy()),
    "csr": lambda table, _: scipy.sparse.csr_array(table),
    "npy": written(np.save, ".npy"),
    "npy, fortran": written(lambda path, table: np.save(path, np.asfortranarray(table)), ".npy"),
    "npz": written(lambda path, table: np.savez(path, table=table), ".npz"),
    "npz, compressed": written(lambda path, table: np.savez_compressed(path, t=table), ".npz"),
    "npz, sparse": written(
        lambda path, table: scipy.sparse.save_npz(path, scipy.sparse.csr_array(table)), ".npz"
    ),
    "hdf5": written(save_hdf5, ".h5"),
    "zarr": written(
        lambda path, table: zarr.create_array(path, data=table, chunks=(50, 3)), ".zarr"
    ),
    "parquet": written(
        lambda path, table: frame(table).to_parquet(path, row_group_size=64), ".parquet"
    ),
    "csv": written(lambda path, table: frame(table).to_csv(path, index=False), ".csv"),
    "mat": written(lambda path, table: scipy.io.savemat(path, {"table": table}), ".mat"),
}


@pytest.fixture(scope="module")
def views():
    return tables()


@pytest.fixture(scope="module", params=MODELS)
def expected(request, views):
    """A fitted model of C-ordered arrays, and its projections."""
    model = clone(MODELS[request.param]).fit(*views)
    return model, model.transform(*views)


def landmarks(model):
    """The landmarks of both views, of models that have some."""
    found = []
    for side in (model.projection_.x, model.projection_.y):
        features = getattr(side.features, "second", side.features)  # after a learned metric
        columns = features.kernel_columns or getattr(features, "columns", None)
        found.append(getattr(columns, "landmarks", None))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_view_gives_the_same_model(kind, expected, views, tmp_path):
    model, projections = expected
    kept = [KINDS[kind](view, tmp_path / name) for view, name in zip(views, "xy", strict=True)]
    found = clone(model).fit(*kept)
    for ours, theirs in zip(landmarks(found), landmarks(model), strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(dense(ours), theirs, atol=1e-7)
    np.testing.assert_allclose(found.correlations_, model.correlations_, atol=1e-7)
    for ours, theirs in zip(found.transform(*kept), projections, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6 * np.abs(theirs).max())


@pytest.mark.parametrize("expected", WITHOUT_ORDER, indirect=True)
def test_the_order_of_columns_does_not_matter(expected, views):
    model, projections = expected
    permuted = [view[:, np.random.default_rng(1).permutation(view.shape[1])] for view in views]
    found = clone(model).fit(*permuted)
    np.testing.assert_allclose(found.correlations_, model.correlations_, atol=1e-7)
    for ours, theirs in zip(found.transform(*permuted), projections, strict=True):
        assert_same_up_to_sign(ours, theirs, atol=1e-6 * np.abs(theirs).max())
