"""Pairs of rows: checked, read, split and sampled together; parts; prefetching."""

import threading
import time
from unittest.mock import patch

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from knoi.data.pairs import PairSource, Prefetcher
from knoi.data.source import RowSource, check_finite
from knoi.data.stream import PairStream
from knoi.exceptions import InputError, NonFiniteError, SourceNotFoundError
from tests.contracts.view_source import SourceCase, ViewSourceContract, dense
from tests.data.recording import RecordingSource, numbered, pair_of

in_memory_or_file = pytest.mark.parametrize("random_access", [True, False])


def as_kind(table, kind, path):
    """The same table as another type of view."""
    frame = pd.DataFrame(table, columns=list("abcd"))
    if kind == "npy":
        np.save(path := f"{path}.npy", table)
    elif kind == "hdf5":
        with h5py.File(path := f"{path}.h5", "w") as file:
            file["table"] = table
    elif kind == "parquet":
        frame.to_parquet(path := f"{path}.parquet", row_group_size=64)
    else:
        in_memory = {"sparse": scipy.sparse.csr_array(table), "frame": frame}
        return in_memory.get(kind, np.asfortranarray(table))
    return path


def rows_of(pair):
    """The row numbers a pair of numbered arrays is made of; fails if the views do not match."""
    X, Y = pair
    np.testing.assert_array_equal(X[:, 0], -Y[:, 0])
    np.testing.assert_array_equal(X[:, 1], X[:, 0] + 1 / 8)
    return X[:, 0].astype(int).tolist()


def everything(pairs):
    return rows_of(pairs.read(0, pairs.n_rows))


class TestOpening:
    def test_views_of_different_length(self):
        for nx, ny, fragment in [
            (12, 11, "X has 12 rows but Y has 11"),
            (1, 4, "1 row but Y has 4"),
        ]:
            with pytest.raises(InputError, match=fragment):
                PairSource(RecordingSource(numbered(nx)), RecordingSource(numbered(ny)))

    @pytest.mark.parametrize(
        ("x", "y", "compute"),
        [
            ("f2", "i2", "float32"),
            ("f4", "f8", "float64"),
            ("i4", "f4", "float64"),
        ],
    )
    def test_compute_precision(self, x, y, compute):
        tables = (np.ones((3, 2), dtype=dtype) for dtype in (x, y))
        pairs = PairSource(*map(RecordingSource, tables))
        assert pairs.dtype == compute
        assert pairs.stored_dtypes == (np.dtype(x), np.dtype(y))

    def test_closes_only_what_it_opened(self, monkeypatch):
        x, y = RecordingSource(numbered(10)), RecordingSource(numbered(10))
        monkeypatch.setattr(
            "knoi.data.open.open_view", lambda data, name: x if name == "X" else data
        )
        with PairSource.open("a path", y) as pairs:
            for part in pairs.split(3, seed=0):
                part.close()
            assert not x.closed
        assert x.closed
        assert not y.closed

    @pytest.mark.parametrize("fault", ["unpaired", "unreadable"])
    def test_a_failure_leaves_nothing_open(self, monkeypatch, fault):
        x = RecordingSource(numbered(10))

        def open_view(data, name):
            if name == "Y" and fault == "unreadable":
                raise SourceNotFoundError(data)
            return x if name == "X" else RecordingSource(numbered(9))

        monkeypatch.setattr("knoi.data.open.open_view", open_view)
        with pytest.raises((InputError, SourceNotFoundError)):
            PairSource.open("a path", "another")
        assert x.closed

    @pytest.mark.parametrize("kind", ["npy", "hdf5", "parquet", "sparse", "frame", "columns first"])
    def test_any_kind_of_view_streams_like_the_array(self, kind, tmp_path):
        X, Y = numbered(500, 4), numbered(500, 3, sign=-1)
        with PairSource.open(as_kind(X, kind, tmp_path / "x"), Y) as pairs:
            assert pairs.random_access == (kind in ("frame", "sparse", "columns first"))
            for got, wanted in zip(pairs.read(100, 200), (X, Y), strict=True):
                np.testing.assert_array_equal(dense(got), wanted[100:200])
            assert len(rows_of([*map(dense, pairs.sample(50, seed=0))])) == 50
            for window_bytes in (1 << 20, 1 << 13):
                stream = PairStream(pairs, 10, 0, window_bytes=window_bytes, epochs=1)
                rows = []
                for batch in stream:
                    np.testing.assert_array_equal(dense(batch.x), X[batch.rows])
                    np.testing.assert_array_equal(batch.y, Y[batch.rows])
                    rows += batch.rows.tolist()
                assert sorted(rows) == list(range(500))

    @pytest.mark.parametrize(
        ("call", "fragment"),
        [
            (lambda ten: ten.read(5, 11), "Cannot read rows 5 to 11 of 10 rows"),
            (lambda ten: ten.part(6, 5), "Cannot read rows 6 to 5 of 10 rows"),
            (lambda ten: ten.part(0, 1).split(0.5, seed=0), "held_out is 0.5, of 1 row. Pass a"),
            (lambda ten: ten.split(0, seed=0), "held_out is 0, of 10 rows"),
            (lambda ten: ten.split(10, seed=0), "held_out is 10, of 10 rows"),
            (lambda ten: ten.split(0.0, seed=0), "held_out is 0.0, of 10 rows"),
            (lambda ten: ten.split(1.0, seed=0), "held_out is 1.0, of 10 rows"),
            (lambda ten: ten.split(float("nan"), seed=0), "held_out is nan, of 10 rows"),
        ],
    )
    def test_invalid_arguments(self, call, fragment):
        with pytest.raises(InputError, match=fragment):
            call(pair_of(10)[0])


def error_for(rows, first_row=0, column_names=None):
    with pytest.raises(NonFiniteError) as caught:
        check_finite(rows, "X", first_row, column_names)
    return str(caught.value)


class TestFiniteness:
    @in_memory_or_file
    def test_the_error_names_the_row_of_the_view_in_a_part_of_a_part(self, random_access):
        Y = numbered(1000, 3)
        Y[777, 2] = np.nan
        pairs = PairSource(
            RecordingSource(numbered(1000), random_access=random_access),
            RecordingSource(Y, random_access=random_access),
        )
        parts = pairs.part(500, 1000).split(0.5, seed=3)
        (broken,) = [part for part in parts if 777 in part.row_numbers()]
        with pytest.raises(NonFiniteError, match=r"^Y has NaN at row 777, column 2\b"):
            broken.read(0, broken.n_rows)

    def test_nan_and_infinity_are_located(self):
        rows = np.ones((20, 5))
        rows[17, 3] = np.nan
        message = error_for(rows, 10_000_000, ("a", "b", "c", "f0", "d"))
        assert "X has NaN at row 10000017, column 3 ('f0'): CCA needs complete rows" in message
        rows[2, 0] = -np.inf
        message = error_for(rows.astype(np.float32))
        assert "X has -inf at row 2, column 0: CCA needs finite values" in message
        rows[1, 1] = np.inf  # infinities that cancel
        assert "row 1, column 1" in error_for(rows)
        strided = np.asfortranarray(rows)[1::2]
        strided.flags.writeable = False
        assert "row 0, column 1" in error_for(strided)

    @pytest.mark.parametrize("dtype", ["f2", "f8", "u1"])
    def test_a_sum_that_overflows_is_not_an_error(self, dtype):
        largest = np.finfo(dtype).max if dtype[0] == "f" else 255
        check_finite(np.full((500, 3), largest, dtype=dtype), "X", 0, None)
        check_finite(np.empty((0, 3), dtype=dtype), "X", 0, None)

    @given(
        hnp.arrays(
            st.sampled_from([np.float16, np.float32, np.float64]),
            hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
        )
    )
    def test_agrees_with_a_search_of_every_value(self, rows):
        bad = np.argwhere(~np.isfinite(rows))
        for search_bytes in (16, 2**24):
            with patch("knoi.data.source._SEARCH_BYTES", search_bytes):
                if len(bad) == 0:
                    check_finite(rows, "X", 0, None)
                else:
                    assert f" at row {bad[0, 0]}, column {bad[0, 1]}: " in error_for(rows)

    def test_rows_taken_out_of_order(self):
        X = numbered(50)
        X[13, 1] = np.inf
        pairs = PairSource.open(X, X)
        assert pairs.random_access
        assert np.shares_memory(pairs.read(0, 13)[0], X)  # arrays are indexed in place
        with pytest.raises(NonFiniteError, match=r"^X has inf at row 13, column 1\b"):
            pairs.take(np.array([40, 13, 2]))
        assert pairs.take(np.array([40, 2, 2]))[0][:, 0].tolist() == [40, 2, 2]
        pairs, x, _ = pair_of(50)
        assert rows_of(pairs.take(np.array([7, 5, 6, 9, 5]))) == [7, 5, 6, 9, 5]
        assert x.reads == [(5, 10)]  # neighbours at once


class TestIterating:
    def test_covers_all_rows_in_order_and_reads_each_once(self):
        pairs, x, _ = pair_of(10)
        chunks = [(0, 4), (4, 8), (8, 10)]
        assert [rows_of(chunk) for chunk in pairs.iterate(4)] == [[*range(*c)] for c in chunks]
        assert x.reads == list(pairs.chunks(4)) == chunks

    def test_holds_the_chunk_in_use_and_one_more(self):
        pairs, x, _ = pair_of(100)
        with pairs.iterate(10) as chunks:
            while (chunk := next(chunks, None)) is not None:
                assert len(chunk[0]) == 10
                time.sleep(0.01)  # enough to read too far ahead
                del chunk  # before the next is requested: otherwise three are in memory
        assert len(x.reads) == 10
        assert x.most_alive_rows <= 20

    def test_an_error_comes_after_the_chunks_before_it(self):
        X = numbered(100)
        X[55, 0] = np.nan
        pairs = PairSource(RecordingSource(X), RecordingSource(numbered(100)))
        chunks = pairs.iterate(10)
        for _ in range(5):
            next(chunks)
        with pytest.raises(NonFiniteError, match="row 55"):
            next(chunks)
        with pytest.raises(StopIteration):
            next(chunks)


class TestSplitting:
    @in_memory_or_file
    @settings(max_examples=60, deadline=None)
    @given(st.data(), st.integers(2, 300), st.integers(0, 5))
    def test_every_row_is_in_exactly_one_part(self, random_access, data, n, seed):
        held_out = data.draw(st.integers(1, n - 1))
        pairs, _, _ = pair_of(n, random_access=random_access)
        rest, held = pairs.split(held_out, seed)
        assert held.n_rows == held_out
        assert sorted(everything(rest) + everything(held)) == list(range(n))
        again = pairs.split(held_out, seed)
        assert [everything(part) for part in again] == [everything(rest), everything(held)]

    def test_a_small_fraction_still_holds_out_a_row(self):
        pairs, _, _ = pair_of(10)
        assert pairs.split(0.001, seed=0)[1].n_rows == pairs.split(0.999, seed=0)[0].n_rows == 1

    @in_memory_or_file
    def test_rows_are_held_out_in_runs(self, random_access):
        """Of a recording, single rows would be known from their neighbours in the rest."""
        pairs, _, _ = pair_of(64_000, random_access=random_access)
        held = np.array(everything(pairs.split(5000, seed=0)[1]))
        assert 60 < (np.diff(held) > 1).sum() <= 66

    def test_which_rows_are_held_out_depends_on_their_number_only(self):
        parts = [pair_of(3000, random_access=kind)[0].split(0.1, seed=1)[1] for kind in (0, 1)]
        assert everything(parts[0]) == everything(parts[1])

    def test_a_file_is_split_into_long_runs(self):
        pairs, x, _ = pair_of(64_000)
        rest, held = pairs.split(0.1, seed=0)
        assert (rest.n_rows, held.n_rows) == (57_600, 6_400)
        everything(held)
        # 64 runs of 100 rows, and one more where the ring is cut.
        assert len(x.reads) <= 65
        x.reads.clear()
        everything(rest)
        assert len(x.reads) <= 66

    @in_memory_or_file
    def test_parts_of_parts(self, random_access):
        pairs, _, _ = pair_of(500, random_access=random_access)
        rest, tested = pairs.split(0.2, seed=1)
        trained, tuned = rest.split(100, seed=1)
        together = everything(trained) + everything(tuned) + everything(tested)
        assert (trained.n_rows, tuned.n_rows) == (300, 100)
        assert sorted(together) == list(range(500))
        assert everything(rest.part(5, 9)) == everything(rest)[5:9]
        assert rows_of(rest.read(7, 7)) == []
        assert set(rows_of(tested.sample(50, seed=0))) < set(everything(tested))


def test_views_of_the_whole_and_of_a_part():
    pairs, x, y = pair_of(40)
    assert pairs.views() == (x, y)
    assert rows_of([view.read(0, 6) for view in pairs.part(3, 9).views()]) == [*range(3, 9)]
    np.testing.assert_array_equal(pairs.row_numbers(), np.arange(40))


class TestPartAsView(ViewSourceContract):
    @pytest.fixture(params=["array", "hdf5", "sparse"])
    def case(self, request, tmp_path):
        table = numbered(40, 4)
        view = table if request.param == "array" else as_kind(table, request.param, tmp_path / "x")
        with PairSource.open(view, view) as pairs:
            rest, _ = pairs.split(15, seed=1)
            expected = table[rest.row_numbers()]
            sparse = request.param == "sparse"
            yield SourceCase(lambda: rest.views()[0], expected, random_access=False, sparse=sparse)


class TestSampling:
    @in_memory_or_file
    @settings(max_examples=60, deadline=None)
    @given(st.integers(1, 300), st.integers(1, 320), st.integers(0, 5))
    def test_distinct_rows_in_order_as_many_as_wanted(self, random_access, n_rows, n, seed):
        pairs, _, _ = pair_of(n_rows, random_access=random_access)
        rows = rows_of(pairs.sample(n, seed))
        assert len(rows) == min(n, n_rows)
        assert rows == sorted(set(rows))
        assert rows == rows_of(pairs.sample(n, seed))

    @in_memory_or_file
    def test_every_row_is_equally_likely(self, random_access):
        pairs, _, _ = pair_of(60, random_access=random_access)
        seen = np.zeros(60)
        draws, n = 3000, 21
        for seed in range(draws):
            seen[rows_of(pairs.sample(n, seed))] += 1
        expected = draws * n / 60
        deviation = np.sqrt(expected * (1 - n / 60))
        assert seen.sum() == draws * n
        # Five standard deviations; the seeds are fixed.
        assert np.abs(seen - expected).max() < 5 * deviation

    def test_which_rows_depends_on_their_numbers_only(self, tmp_path):
        X, Y = numbered(3000, 4), numbered(3000, 3, sign=-1)
        expected = rows_of(PairSource.open(X, Y).sample(100, seed=5))
        assert np.diff(expected).min() < np.diff(expected).max()  # single rows
        for kind in ("npy", "hdf5", "parquet", "sparse", "frame", "columns first"):
            with PairSource.open(as_kind(X, kind, tmp_path / "x"), Y) as pairs:
                assert rows_of([*map(dense, pairs.sample(100, seed=5))]) == expected

    def test_rows_of_a_file_that_are_close_are_read_at_once(self, monkeypatch):
        pairs, x, y = pair_of(10_000)
        monkeypatch.setattr("knoi.data.source._GAP_BYTES", 16 * 20)  # 20 rows of X, 13 of Y
        monkeypatch.setattr("knoi.data.source._SPAN_BYTES", 16 * 100)
        rows = np.array(rows_of(pairs.sample(500, seed=0)))
        assert rows_of(pairs.take(rows)) == rows.tolist()
        for source, gap, most in ((x, 20, 100), (y, 13, 66)):
            reads = source.reads[: len(source.reads) // 2]
            assert reads == sorted(reads)
            apart = np.flatnonzero(np.diff(rows) - 1 > gap)
            assert set(rows[apart] + 1) <= {stop for _, stop in reads}
            assert len(apart) < len(reads) < 300
            assert max(stop - start for start, stop in reads) <= most

    def test_rows_that_are_made_when_they_are_read_are_read_alone(self):
        made = []

        def fetch(start, stop):
            made.append(stop - start)
            return numbered(1000)[start:stop].copy()

        x = RowSource("X", (1000, 2), np.dtype(float), fetch, random_access=True)
        pairs = PairSource(x, RecordingSource(numbered(1000, 3, sign=-1)))
        made.clear()  # of the rows that were looked at
        rows = rows_of(pairs.sample(100, seed=0))
        assert sum(made) == len(rows) == 100
        runs = rows_of(pairs.sample(100, seed=0, run_rows=10))
        assert (
            len(made) == len(set(np.array(rows) - np.arange(100))) + (np.diff(runs) > 1).sum() + 1
        )

    def test_rows_between_those_of_a_sample_may_be_bad(self):
        X = numbered(100)
        X[::2, 1] = np.nan
        with PairSource(RecordingSource(X), RecordingSource(numbered(100))) as opened:
            pairs = opened.weighted(np.arange(100) % 2)
            assert pairs.sample(20, seed=0)[0].shape == (20, 2)
            assert len(pairs.read(0, 50)[0]) == 50


class TestPrefetcher:
    def test_makes_no_more_than_its_depth_ahead(self):
        made = []
        third = threading.Event()

        def produce(stopped):
            for k in range(10):
                made.append(k)
                if k == 2:
                    third.set()
                yield k

        with Prefetcher(produce, depth=2) as items:
            assert not third.wait(0.05)
            assert next(items) == 0
            assert third.wait(10)
            assert made == [0, 1, 2]
            assert list(items) == list(range(1, 10))

    def test_without_depth_items_are_made_when_asked_for(self):
        made = []
        with Prefetcher(lambda _: (made.append(threading.current_thread()) for _ in "abc"), 0) as i:
            next(i)
            assert made == [threading.current_thread()]
            assert len(list(i)) == 2

    def test_a_dropped_iterator_ends_its_thread(self):
        ended = threading.Event()

        def produce(stopped):
            try:
                while True:
                    yield 1
            finally:
                ended.set()

        items = Prefetcher(produce, depth=1)
        next(items)
        del items
        assert ended.wait(10)

    def test_closing_ends_work_that_asks(self):
        working = threading.Event()

        def produce(stopped):
            working.set()
            while not stopped():
                pass
            return
            yield

        items = Prefetcher(produce, depth=1)
        working.wait(10)
        items.close()
        assert list(items) == []


def test_weights_go_with_their_rows(tmp_path):
    X, Y = np.arange(40.0).reshape(20, 2), np.arange(20.0).reshape(20, 1)
    np.save(tmp_path / "X.npy", X)
    w = np.arange(20) % 4 * 0.5
    with PairSource.open(tmp_path / "X.npy", Y) as pairs:
        assert pairs.weighted(None) is pairs
        assert pairs.weights is None
        weighted = pairs.weighted(w)
        assert (weighted.n_rows, weighted.n_rows_opened) == (15, 20)
        rest, held_out = weighted.split(5, seed=0)
        for part in (weighted, rest, held_out, weighted.part(3, 9)):
            x, y = part.read(0, part.n_rows)
            np.testing.assert_array_equal(x[:, 0], 2 * y[:, 0])
            np.testing.assert_array_equal(part.weights, w[y[:, 0].astype(int)])
        # Of a part, a weight for each of its rows.
        again = rest.weighted(np.arange(10))
        np.testing.assert_array_equal(again.weights, np.arange(1, 10))
        np.testing.assert_array_equal(again.row_numbers(), rest.row_numbers()[1:])
