"""Preconditioners against their dense formulas, and the curvature they leave."""

import numpy as np
import pytest

from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import View
from knoi.engine import Serial
from knoi.features import Identity, KernelColumns, RandomFourier
from knoi.kernels import RBF, Linear
from knoi.solvers import acceleration
from knoi.solvers.acceleration import Columns, LowRank, plain
from knoi.solvers.noi import MinibatchFeatures, largest_curvature
from tests.oracles.kernels import gram, rbf

WIDTH, BATCH = 4.0, 50


@pytest.fixture
def rows():
    """Rows with variances of all sizes."""
    draw = np.random.default_rng(0).standard_normal((400, 6)) * 2.0 ** -np.arange(6)
    draw.setflags(write=False)
    return draw


def fourier(rows, rank):
    return RandomFourier.fit(rows, RBF(WIDTH), rank, 0, View.X)


def covariance(features, rows):
    Phi = features.transform(rows)
    return np.cov(Phi.T, bias=True).reshape(features.rank, features.rank)


def as_matrix(apply, rank, backend):
    """P itself: its products with the unit vectors."""
    unit = backend.asarray(np.eye(rank))
    return backend.to_numpy(apply(unit, backend.zeros((rank, rank))))


def low_rank(features, rows, backend, engine=None, batch_size=BATCH, ridge=0.0):
    placed = features.to(backend)
    return LowRank.fit(
        placed, backend.asarray(rows), batch_size, ridge, backend, engine or Serial()
    )


def curvature(features, rows, apply, backend):
    placed = features.to(backend)
    work = MinibatchFeatures(placed, len(rows), backend, keep=True)
    work.load(backend.asarray(rows))
    return largest_curvature(work, features.rank, apply, backend, Serial())


def top(A):
    return np.linalg.eigvals(A).real.max()


@pytest.mark.parametrize(("shift", "reg"), [(1e-1, 0.0), (1e-4, 0.0), (1e-3, 1e-2)])
def test_columns_is_its_formula(shift, reg, backend, engine, rows):
    Z = rows[:300]  # more than the 256 rows that are filled in at a time
    K = gram(rbf(WIDTH), Z, Z)
    A = K + shift * np.trace(K) * np.eye(300)
    ridge = reg * (np.trace(K) / 300 - K.mean())  # of kernel CCA
    U, G = np.random.default_rng(1).standard_normal((2, 300, 3))
    want = 300 * np.linalg.solve(A, np.linalg.solve(A, G + ridge * K @ U))
    apply = Columns.fit(KernelColumns(RBF(WIDTH), Z).to(backend), shift, reg, backend, engine)
    given = backend.asarray(G.copy())
    found = backend.to_numpy(apply(given, backend.asarray(U)))
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-9 * np.abs(want).max())
    np.testing.assert_array_equal(backend.to_numpy(given), G)


def test_low_rank_adds_the_ridge(rows):
    backend, features = numpy_backend(), fourier(rows, 150)
    U, G = np.random.default_rng(3).standard_normal((2, 150, 4))
    apply = low_rank(features, rows, backend, ridge=1e-2)
    P = as_matrix(apply, 150, backend)
    ridge = 1e-2 * np.trace(covariance(features, rows))
    np.testing.assert_allclose(apply(G, U), P @ (G + ridge * U), rtol=1e-8, atol=1e-10)


def naive_low_rank(S, q, pace):
    values, vectors = np.linalg.eigh(S)
    Q, values = vectors[:, ::-1][:, :q], values[::-1][:q]
    return np.eye(len(S)) - Q @ np.diag(1 - pace / values) @ Q.T


@pytest.mark.parametrize("n", [400, 50], ids=["covariance", "Gram matrix"])
def test_low_rank_is_its_formula(n, backend, engine, rows, monkeypatch):
    monkeypatch.setattr(acceleration, "SUBSAMPLE_COLUMNS", 32)
    features = fourier(rows, 150)  # too many for all eigenvectors of these rows
    S = covariance(features, rows[:n])
    values = np.sort(np.linalg.eigvalsh(S))[::-1]
    if n == 400:  # the noise of a minibatch decides
        batch_size, q = BATCH, int(np.sum(values > np.trace(S) / (2 * BATCH)))
        assert 2 <= q < 40
    else:  # a tenth of the rows
        batch_size, q = 100_000, 5
    found = low_rank(features, rows[:n], backend, engine, batch_size)
    assert found.Q.shape == (150, q)
    P = as_matrix(found, 150, backend)
    np.testing.assert_allclose(P, naive_low_rank(S, q, values[q - 1]), atol=1e-9)


def test_low_rank_whitens_a_small_map_fully(backend, rows):
    features = fourier(rows, 20)
    S = covariance(features, rows)
    P = as_matrix(low_rank(features, rows, backend), 20, backend)
    least = np.linalg.eigvalsh(S)[0]
    values = np.linalg.eigvals(P @ S).real
    np.testing.assert_allclose(values, least, rtol=1e-5)


@pytest.mark.parametrize("kind", ["plain", "low_rank", "columns"])
def test_largest_curvature_is_the_largest_eigenvalue(kind, backend, rows):
    minibatch = rows[200:320]
    if kind == "columns":
        features = KernelColumns(RBF(WIDTH), rows[:60])
        apply = Columns.fit(features.to(backend), 1e-3, 0.0, backend, Serial())
    else:
        features = fourier(rows, 60)
        apply = plain if kind == "plain" else low_rank(features, rows[:200], backend)
    P = as_matrix(apply, 60, backend)
    want = top(P @ covariance(features, minibatch))
    assert curvature(features, minibatch, apply, backend) == pytest.approx(want, rel=0.1)


DEGENERATE = {
    "rank 1": (Identity(1), np.linspace(-1, 1, 40)[:, None]),
    "one landmark": (KernelColumns(RBF(1.0), np.zeros((1, 2))), np.eye(40, 2)),
    "constant": (Identity(3), np.full((40, 3), 0.1)),
    "constant, few rows": (Identity(9), np.full((40, 9), 0.1)),
    "zero": (KernelColumns(Linear(), np.zeros((3, 2))), np.zeros((40, 2))),
    "one row": (Identity(3), np.ones((1, 3))),
    "one constant column": (Identity(2), np.stack([np.arange(40.0), np.ones(40)], axis=1)),
    "duplicated landmarks": (
        KernelColumns(RBF(1.0), np.tile(np.eye(3), (4, 1))),
        np.random.default_rng(0).standard_normal((40, 3)),
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", list(DEGENERATE))
def test_degenerate_features_give_finite_directions(case, dtype):
    backend = numpy_backend(dtype)
    features, rows = DEGENERATE[case]
    applied = [low_rank(features, rows, backend)]
    if isinstance(features, KernelColumns):
        shift = {"float32": 5e-7, "float64": 1e-9}[dtype]  # the smallest that training uses
        applied.append(Columns.fit(features.to(backend), shift, 0.0, backend, Serial()))
    for apply in applied:
        assert np.isfinite(as_matrix(apply, features.rank, backend)).all()
        found = curvature(features, rows, apply, backend)
        assert np.isfinite(found)
        assert found >= 0
