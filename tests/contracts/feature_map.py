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
from knoi.exceptions import NonFiniteError
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


class FeatureMapContract:
    def test_says_what_it_is(self, case):
        assert case.features.n_cols == case.X.shape[1]
        assert case.features.rank == case.rank
        assert type(case.features.rank) is type(case.features.n_cols) is int
        assert case.features.scratch_per_row() >= 0
        assert case.features.transform(case.X).shape == (len(case.X), case.rank)

    @pytest.mark.parametrize("largest", [1, 3, 7, 1000])
    def test_blocks_make_the_whole(self, case, largest):
        slices = case.features.slices(largest)
        assert all(0 < s.stop - s.start <= largest for s in slices)
        prepared = case.features.prepare(case.X)
        blocks = [case.features.block(prepared, columns) for columns in slices]
        whole = case.features.transform(case.X)
        np.testing.assert_allclose(np.hstack(blocks), whole, atol=1e-12)

    def test_pieces_of_rows_make_the_whole(self, case):
        pieces = [case.features.transform(rows) for rows in np.array_split(case.X, 4)]
        np.testing.assert_allclose(np.vstack(pieces), case.features.transform(case.X), atol=1e-12)

    def test_prepared_rows_can_be_cut(self, case):
        prepared = case.features.prepare(case.X)
        columns = slice(0, case.rank)
        parts = [case.features.block(rows, columns) for rows in np.array_split(prepared, 4)]
        np.testing.assert_allclose(np.vstack(parts), case.features.transform(case.X), atol=1e-12)

    def test_out_is_filled_and_returned(self, backend, case):
        features = case.features.to(backend)
        X = features.prepare(backend.asarray(case.X))
        columns = slice(1, case.rank)
        room = backend.empty((len(case.X) + 2, case.rank - 1))
        out = room[: len(case.X), :]
        returned = features.block(X, columns, out=out)
        assert returned is out
        fresh = backend.to_numpy(features.block(X, columns))
        np.testing.assert_array_equal(backend.to_numpy(room)[: len(case.X)], fresh)

    def test_leaves_the_rows_alone(self, backend, case):
        X = backend.asarray(case.X.copy())
        features = case.features.to(backend)
        features.transform(X)
        room = backend.empty((len(case.X), case.rank))
        features.block(features.prepare(X), slice(0, case.rank), out=room)
        np.testing.assert_array_equal(backend.to_numpy(X), case.X)

    def test_folded_it_projects_the_same(self, case):
        rng = np.random.default_rng(0)
        phi = case.features.transform(case.X)
        mean, weights = phi.mean(axis=0), rng.standard_normal((case.rank, 3))
        features, centre, W = case.features.folded(mean, weights)
        expected = (phi - mean) @ weights
        found = (features.transform(case.X) - centre) @ W
        np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())

    def test_state_goes_round_through_a_file(self, case):
        plain, tensors = flatten_state(case.features.state_dict())
        again = map_from_state(unflatten_state(plain, tensors))
        assert type(again) is type(case.features)
        assert again.kernel == case.features.kernel
        np.testing.assert_array_equal(again.transform(case.X), case.features.transform(case.X))

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_backends_agree(self, case, dtype):
        tolerance = 1e-11 if dtype == "float64" else 2e-4
        expected = case.features.transform(case.X)
        for backend in (numpy_backend(dtype), torch_backend("cpu", dtype)):
            found = case.features.to(backend).transform(backend.asarray(case.X))
            assert backend.to_numpy(found).dtype == np.dtype(dtype)
            self.assert_close(backend.to_numpy(found), expected, tolerance)

    def assert_close(self, found, expected, tolerance):
        np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())

    def test_one_row(self, case):
        expected = case.features.transform(case.X)[2:3]
        np.testing.assert_allclose(case.features.transform(case.X[2:3]), expected, atol=1e-12)

    def test_no_rows(self, backend, case):
        found = case.features.to(backend).transform(backend.asarray(case.X[:0]))
        assert backend.to_numpy(found).shape == (0, case.rank)

    def test_sparse_rows_give_what_dense_rows_give(self, case):
        some_zeros = np.where(np.arange(case.X.size).reshape(case.X.shape) % 3 == 0, case.X, 0.0)
        some_zeros[1] = 0.0
        found = case.features.transform(scipy.sparse.csr_array(some_zeros))
        assert isinstance(found, np.ndarray)
        expected = case.features.transform(some_zeros)
        np.testing.assert_allclose(found, expected, atol=1e-11 * np.abs(expected).max())

    def test_sparse_rows_go_block_by_block_into_room(self, case):
        sparse = scipy.sparse.csr_array(np.where(np.median(case.X) < case.X, case.X, 0.0))
        prepared = case.features.prepare(sparse)
        whole = case.features.transform(sparse)
        for columns in case.features.slices(4):
            for rows in (slice(0, 7), slice(7, len(case.X))):
                room = np.full((rows.stop - rows.start, columns.stop - columns.start), np.nan)
                returned = case.features.block(prepared[rows, :], columns, out=room)
                assert returned is room
                np.testing.assert_allclose(room, whole[rows, columns], atol=1e-12)

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

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_refuses_rows_that_are_no_numbers(self, case, bad):
        X = case.X.copy()
        X[3, 0] = bad
        for rows in (X, scipy.sparse.csr_array(X)):
            with pytest.raises(NonFiniteError, match="hold NaN or infinite values"):
                case.features.transform(rows)
