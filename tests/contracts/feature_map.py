"""What every feature map must do, whatever it computes.

A test module inherits `FeatureMapContract` and provides the fixture `case`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

from knoi.arrays.backend import numpy_backend, torch_backend
from knoi.exceptions import ModelFileError, NonFiniteError
from knoi.features import FeatureMap, map_from_state
from knoi.persistence import flatten_state, unflatten_state


@dataclass(frozen=True)
class MapCase:
    """A fitted map and rows to try it on."""

    features: FeatureMap
    X: NDArray[Any]  # (n, d) float64
    rank: int
    # For maps that are drawn: the same draw at a higher rank, and how many leading features of both
    # must then be the same but for one factor.
    larger: FeatureMap | None = None
    shared: int = 0


def sparse_rows(n, columns, per_row, seed=0):
    """CSR rows with a few numbers in [0, 1) each."""
    rng = np.random.default_rng(seed)
    at = np.repeat(np.arange(n), per_row), rng.integers(columns, size=n * per_row)
    return scipy.sparse.csr_array((rng.random(n * per_row), at), shape=(n, columns))


class FeatureMapContract:
    def test_sizes_are_integers_and_match_the_features(self, case):
        assert case.features.n_cols == case.X.shape[1]
        assert case.features.rank == case.rank
        assert type(case.features.rank) is type(case.features.n_cols) is int
        assert case.features.scratch_per_row() >= 0
        assert case.features.transform(case.X).shape == (len(case.X), case.rank)

    def test_blocks_make_the_whole(self, case):
        prepared = case.features.prepare(case.X)
        whole = case.features.transform(case.X)
        for largest in (1, 3, 7, 1000):
            slices = case.features.slices(largest)
            assert all(0 < s.stop - s.start <= largest for s in slices)
            blocks = [case.features.block(prepared, columns) for columns in slices]
            np.testing.assert_allclose(np.hstack(blocks), whole, atol=1e-12)

    def test_pieces_of_rows_make_the_whole(self, case):
        whole = case.features.transform(case.X)
        pieces = [case.features.transform(rows) for rows in np.array_split(case.X, 4)]
        np.testing.assert_allclose(np.vstack(pieces), whole, atol=1e-12)
        np.testing.assert_allclose(case.features.transform(case.X[2:3]), whole[2:3], atol=1e-12)
        prepared, columns = case.features.prepare(case.X), slice(0, case.rank)
        parts = [case.features.block(rows, columns) for rows in np.array_split(prepared, 4)]
        np.testing.assert_allclose(np.vstack(parts), whole, atol=1e-12)

    def test_out_is_filled_and_the_rows_are_left_alone(self, backend, case):
        features = case.features.to(backend)
        X = backend.asarray(case.X.copy())
        prepared = features.prepare(X)
        columns = slice(1, case.rank)
        room = backend.empty((len(case.X) + 2, case.rank - 1))
        out = room[: len(case.X), :]
        assert features.block(prepared, columns, out=out) is out
        fresh = backend.to_numpy(features.block(prepared, columns))
        np.testing.assert_array_equal(backend.to_numpy(room)[: len(case.X)], fresh)
        np.testing.assert_array_equal(backend.to_numpy(X), case.X)
        none = features.transform(backend.asarray(case.X[:0]))
        assert backend.to_numpy(none).shape == (0, case.rank)

    def test_projections_agree(self, case):
        rng = np.random.default_rng(0)
        phi = case.features.transform(case.X)
        mean, weights = phi.mean(axis=0), rng.standard_normal((case.rank, 3))
        expected = (phi - mean) @ weights
        atol = 1e-9 * np.abs(expected).max()
        features, centre, W = case.features.folded(mean, weights)
        np.testing.assert_allclose((features.transform(case.X) - centre) @ W, expected, atol=atol)
        for rows in (case.X, scipy.sparse.csr_array(case.X)):
            np.testing.assert_allclose(
                case.features.project(rows, mean, weights), expected, atol=atol
            )

    def test_state_goes_round_through_a_file(self, case):
        plain, tensors = flatten_state(case.features.state_dict())
        again = map_from_state(unflatten_state(plain, tensors))
        assert type(again) is type(case.features)
        assert again.kernel == case.features.kernel
        np.testing.assert_array_equal(again.transform(case.X), case.features.transform(case.X))

    def test_a_damaged_state_raises(self, case):
        plain, tensors = flatten_state(case.features.state_dict())
        for name, array in tensors.items():
            floats = array.dtype.kind == "f"
            bad = np.full_like(array, np.nan if floats else np.iinfo(array.dtype).max)
            for wrong in (array[None], array[..., :0], array.astype(np.complex128), bad):
                if array.size:
                    with pytest.raises(ModelFileError, match="is damaged: "):
                        map_from_state(unflatten_state(plain, {**tensors, name: wrong}))

    def test_backends_agree(self, case):
        expected = case.features.transform(case.X)
        for dtype, tolerance in (("float64", 1e-11), ("float32", 2e-4)):
            for backend in (numpy_backend(dtype), torch_backend("cpu", dtype)):
                found = case.features.to(backend).transform(backend.asarray(case.X))
                found = backend.to_numpy(found)
                assert found.dtype == np.dtype(dtype)
                np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())

    def test_sparse_rows_give_what_dense_rows_give(self, case):
        some_zeros = np.where(np.arange(case.X.size).reshape(case.X.shape) % 3 == 0, case.X, 0.0)
        some_zeros[1] = 0.0
        sparse = scipy.sparse.csr_array(some_zeros)
        found = case.features.transform(sparse)
        assert isinstance(found, np.ndarray)
        expected = case.features.transform(some_zeros)
        np.testing.assert_allclose(found, expected, atol=1e-11 * np.abs(expected).max())
        prepared = case.features.prepare(sparse)
        for columns in case.features.slices(4):
            for rows in (slice(0, 7), slice(7, len(case.X))):
                room = np.full((rows.stop - rows.start, columns.stop - columns.start), np.nan)
                assert case.features.block(prepared[rows, :], columns, out=room) is room
                np.testing.assert_allclose(room, found[rows, columns], atol=1e-12)

    def test_a_larger_map_begins_with_the_smaller_one(self, case):
        if case.larger is None:
            pytest.skip("this map is not drawn at random, feature by feature")
        assert case.larger.rank > case.rank
        small, large = (
            features.transform(case.X)[:, : case.shared]
            for features in (case.features, case.larger)
        )
        assert case.shared > 0
        assert np.abs(small).max() > 0
        factor = np.linalg.norm(large) / np.linalg.norm(small)
        np.testing.assert_allclose(large, factor * small, atol=1e-12 * np.abs(large).max())

    def test_rows_with_nan_or_infinity_raise(self, case):
        for bad in (np.nan, np.inf, -np.inf):
            X = case.X.copy()
            X[3, 0] = bad
            for rows in (X, scipy.sparse.csr_array(X)):
                with pytest.raises(NonFiniteError, match="hold NaN or infinite values"):
                    case.features.transform(rows)
