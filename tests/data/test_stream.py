"""Minibatches: each row once per epoch, in a reproducible order, read in long runs."""

import _thread
import threading
import time
import weakref
from functools import partial
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knoi.data.pairs import PairSource
from knoi.data.stream import PairStream, Position, ShufflePlan, plan_shuffle
from knoi.exceptions import InputError, MemoryBudgetError, NonFiniteError
from tests.data.recording import RecordingSource, numbered, pair_of

PLENTY = 1 << 30
MIB = 1 << 20
VALID = {"batch_size": 3, "window_bytes": PLENTY}


file_pair = pair_of
memory_pair = partial(pair_of, random_access=True)


def windowed(pairs, batch_size, seed=0, *, chunk_rows, window_chunks, **options):
    """A stream with the plan a small `window_bytes` would give it."""
    stream = PairStream(pairs, batch_size, seed, window_bytes=PLENTY, **options)
    stream.plan = ShufflePlan(pairs.n_rows, chunk_rows, window_chunks)
    return stream


def epoch_order(stream, epoch):
    """The rows of one epoch in the order they are visited."""
    drawn = stream.plan.windows(stream.seed, epoch)
    return np.concatenate([window.rows(window.shuffle()) for window in drawn])


def assert_aligned(batch):
    np.testing.assert_array_equal(batch.x[:, 0], batch.rows)
    np.testing.assert_array_equal(batch.y[:, 0], -batch.rows)
    np.testing.assert_array_equal(batch.y[:, 2], -batch.rows - 2 / 8)


def assert_same(batches, others):
    batches, others = list(batches), list(others)
    assert len(batches) == len(others)
    for one, other in zip(batches, others, strict=True):
        assert (one.position, one.next_position) == (other.position, other.next_position)
        np.testing.assert_array_equal(one.rows, other.rows)
        np.testing.assert_array_equal(one.x, other.x)
        np.testing.assert_array_equal(one.y, other.y)


def knoi_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("knoi")]


@pytest.fixture(autouse=True)
def no_thread_left_behind():
    yield
    for thread in knoi_threads():
        thread.join(10)
    assert knoi_threads() == []


shapes = st.integers(1, 70).flatmap(
    lambda n: st.fixed_dictionaries(
        {
            "n": st.just(n),
            "b": st.integers(1, n),
            "chunk": st.integers(1, n),
            "window": st.integers(1, 8),
            "seed": st.integers(0, 3),
        }
    )
)


class TestOrder:
    @settings(max_examples=80, deadline=None)
    @given(shapes, st.booleans())
    def test_each_row_once_per_epoch_and_the_last_minibatch_wraps(self, shape, in_memory):
        n, b = shape["n"], shape["b"]
        pairs, _, _ = (memory_pair if in_memory else file_pair)(n)
        stream = PairStream(pairs, b, shape["seed"], window_bytes=PLENTY, epochs=2)
        if not in_memory:
            stream.plan = ShufflePlan(n, shape["chunk"], shape["window"])
        batches = list(stream)
        per_epoch = -(-n // b)
        assert [(batch.position.epoch, batch.position.batch) for batch in batches] == [
            (epoch, t) for epoch in range(2) for t in range(per_epoch)
        ]
        for epoch in range(2):
            order = epoch_order(stream, epoch)
            assert sorted(order.tolist()) == list(range(n))
            visited = np.concatenate([c.rows for c in batches if c.position.epoch == epoch])
            np.testing.assert_array_equal(visited, np.append(order, order)[: per_epoch * b])
        for batch in batches:
            assert len(batch.x) == len(batch.y) == b
            assert_aligned(batch)

    @settings(max_examples=60, deadline=None)
    @given(shapes, st.data())
    def test_resumed_is_straight(self, shape, data):
        pairs, _, _ = file_pair(shape["n"])
        plan = {"chunk_rows": shape["chunk"], "window_chunks": shape["window"], "epochs": 3}
        straight = list(windowed(pairs, shape["b"], shape["seed"], **plan))
        stop = data.draw(st.integers(0, len(straight) - 1))
        start = straight[stop].next_position
        resumed = windowed(pairs, shape["b"], shape["seed"], start=start, **plan)
        assert_same(resumed, straight[stop + 1 :])

    @pytest.mark.parametrize("make_pair", [memory_pair, file_pair])
    def test_epochs_and_seeds_differ_and_repeat(self, make_pair):
        pairs, _, _ = make_pair(200)
        streams = [PairStream(pairs, 10, seed, window_bytes=PLENTY) for seed in (0, 0, 1)]
        assert len({tuple(epoch_order(one, epoch)) for one in streams for epoch in range(3)}) == 6

    def test_a_larger_file_mixes_chunks_and_the_windows_differ_between_epochs(self):
        pairs, _, _ = file_pair(1000)
        stream = windowed(pairs, 10, chunk_rows=10, window_chunks=10)
        first, second = epoch_order(stream, 0), epoch_order(stream, 1)
        assert not np.array_equal(first, second)
        # The first window is 10 chunks from all over the file, the rows not in runs.
        chunks = set((first[:100] // 10).tolist())
        assert len(chunks) == 10
        assert max(chunks) - min(chunks) > 30
        assert chunks != set((second[:100] // 10).tolist())
        assert (np.diff(first[:100]) == 1).sum() < 10

    def test_memory_and_a_file_that_fits_are_shuffled_the_same_and_uniformly(self):
        streams = [
            PairStream(make_pair(12)[0], 5, 0, window_bytes=PLENTY)
            for make_pair in (memory_pair, file_pair)
        ]
        assert all(stream.plan.one_window for stream in streams)
        assert_same(*(list(islice(stream, 7)) for stream in streams))
        where = np.stack([epoch_order(streams[0], epoch) for epoch in range(2000)])
        for index in (0, 5, 11):
            counts = np.bincount(where[:, index], minlength=12)
            # 167 of each expected, five standard deviations; fixed seed.
            assert np.abs(counts - 2000 / 12).max() < 5 * np.sqrt(2000 / 12)

    def test_the_stream_ends_after_its_epochs(self):
        pairs, _, _ = memory_pair(4)
        endless = PairStream(pairs, 3, 0, window_bytes=PLENTY)
        *_, last = islice(endless, 101)
        assert last.position == Position(50, 0)
        ended = PairStream(pairs, 3, 0, window_bytes=PLENTY, epochs=5, start=Position(5, 0))
        assert list(ended) == []


class TestBatches:
    @pytest.mark.parametrize("make_pair", [memory_pair, file_pair])
    def test_are_fresh_arrays(self, make_pair):
        pairs, _, _ = make_pair(20)
        stream = PairStream(pairs, 7, 0, window_bytes=PLENTY, epochs=2)
        expected = [(batch.x.copy(), batch.y.copy()) for batch in stream]
        for batch, (x, y) in zip(stream, expected, strict=True):
            np.testing.assert_array_equal(batch.x, x)
            np.testing.assert_array_equal(batch.y, y)
            for rows in (batch.x, batch.y):
                assert rows.flags.c_contiguous
                assert rows.flags.writeable
                rows[:] = np.nan

    @pytest.mark.parametrize(
        ("stored", "compute"), [("u1", "f4"), ("f4", "f4"), ("i8", "f8"), ("g", "f8")]
    )
    @pytest.mark.parametrize("random_access", [True, False])
    def test_come_in_the_compute_precision(self, stored, compute, random_access):
        table = np.arange(60).reshape(20, 3).astype(stored)
        pairs = PairSource(*(RecordingSource(table, random_access=random_access) for _ in "xy"))
        for batch in PairStream(pairs, 8, 0, window_bytes=PLENTY, epochs=1):
            assert batch.x.dtype == batch.y.dtype == np.dtype(compute)
            np.testing.assert_array_equal(batch.x, table[batch.rows].astype(compute))

    def test_of_a_part_number_the_rows_of_the_part(self):
        pairs, _, _ = file_pair(100)
        _, held = pairs.split(0.3, seed=0)
        rows = held.read(0, 30)[0]
        for batch in windowed(held, 7, chunk_rows=4, window_chunks=3, epochs=2):
            np.testing.assert_array_equal(batch.x, rows[batch.rows])


class TestReading:
    def test_each_chunk_is_read_once_per_epoch_and_windows_in_file_order(self):
        pairs, x, y = file_pair(103)
        stream = windowed(pairs, 10, chunk_rows=10, window_chunks=4, epochs=2)
        list(stream)
        chunks = list(pairs.chunks(10))
        assert x.reads == y.reads
        assert len(x.reads) == 22
        for epoch in (x.reads[:11], x.reads[11:]):
            assert sorted(epoch) == chunks
            for window in (epoch[:4], epoch[4:8], epoch[8:]):
                assert window == sorted(window)

    def test_a_file_that_fits_is_read_once_and_arrays_are_not_copied(self):
        for (pairs, x, _), reads in ((file_pair(100), [(0, 100)]), (memory_pair(100), [])):
            x.reads.clear()
            list(PairStream(pairs, 10, 0, window_bytes=PLENTY, epochs=5))
            assert x.reads == reads

    def test_resuming_reads_from_its_window_on_and_the_rows_to_wrap_to(self):
        plan = {"chunk_rows": 10, "window_chunks": 2, "epochs": 1, "start": Position(0, 8)}
        # With 97 rows one window more: the last minibatch takes 3 rows from the first.
        for n, reads in ((100, 2), (97, 4)):
            pairs, x, _ = file_pair(n)
            list(windowed(pairs, 10, **plan))
            assert len(x.reads) == reads

    def test_memory_in_use_fits_window_bytes(self):
        n, b, allowed = 20_000, 50, 64 * 1024
        pairs, x, y = file_pair(n)
        stream = PairStream(pairs, b, 0, window_bytes=allowed, epochs=1)
        plan = stream.plan
        assert not plan.one_window
        windows = 2 * plan.window_chunks * plan.chunk_rows * (pairs.row_bytes + 8)
        assert windows + 2 * plan.chunk_rows * pairs.row_bytes + 5 * b * pairs.row_bytes <= allowed
        assert windows > allowed // 2
        in_memory = count_windows(stream)
        for t, batch in enumerate(stream):
            assert_aligned(batch)
            if t % 100 == 0:
                time.sleep(0.01)  # time enough to read too far ahead
        # Chunks are copied into the window as they come: one at a time, of each view.
        assert max(x.most_alive_rows, y.most_alive_rows) <= plan.chunk_rows
        assert 0 < max(in_memory) <= 2

    def test_closing_a_stream_stops_the_reading(self):
        pairs, x, _ = file_pair(10_000)
        batches = iter(windowed(pairs, 10, chunk_rows=10, window_chunks=5))
        next(batches)
        batches.close()
        assert knoi_threads() == []
        done = len(x.reads)
        assert done < 100
        assert list(batches) == []
        assert len(x.reads) == done


def count_windows(stream):
    """The numbers of windows in memory, whenever one is loaded."""
    load, alive, counts = stream._load, weakref.WeakSet(), []

    def counted(drawn, stopped):
        counts.append(len(alive) + 1)
        gather = load(drawn, stopped)
        alive.add(gather)
        return gather

    stream._load = counted
    return counts


class TestPlan:
    def test_sizes(self):
        # 1000 MiB for 3 kB rows: 400 MiB a window, 16 chunks of 25 MiB.
        plan = plan_shuffle(10**7, 3064, 0, 1000 * MIB, random_access=False)
        assert (plan.chunk_rows, plan.window_chunks) == (25 * MIB // 3072, 16)
        # 10 MiB: chunks of 1 MiB, four to a window.
        plan = plan_shuffle(10**7, 3064, 0, 10 * MIB, random_access=False)
        assert (plan.chunk_rows, plan.window_chunks) == (MIB // 3072, 4)
        # Plenty of memory does not delay the first minibatch.
        few, many = (
            plan_shuffle(10**9, 3064, 0, budget * MIB, random_access=False)
            for budget in (4_000, 400_000)
        )
        assert few == many
        assert many.window_chunks * many.chunk_rows * 3064 <= 512 * MIB
        assert many.window_chunks >= 16
        assert plan_shuffle(10**6, 3064, 0, 400_000 * MIB, random_access=False).one_window

    @given(*(st.integers(*limits) for limits in [(1, 10**9), (1, 10**5), (0, 10**8), (0, 10**11)]))
    def test_fits_or_is_an_error(self, n_rows, row_bytes, batch_bytes, window_bytes):
        arguments = (n_rows, row_bytes, batch_bytes, window_bytes)
        try:
            plan = plan_shuffle(*arguments, random_access=False)
        except MemoryBudgetError:
            # One row to a chunk, four chunks to a window, two windows and a fifth beside them.
            assert window_bytes < batch_bytes + 10 * (row_bytes + 8) + 20
            return
        assert plan.chunk_rows >= 1
        assert plan.window_chunks >= 1
        reading = 2 * plan.chunk_rows * row_bytes
        windows = plan.window_chunks * plan.chunk_rows * (row_bytes + 8) * 2
        if plan.one_window:
            windows = n_rows * (row_bytes + 16)
        assert batch_bytes + windows + reading <= window_bytes


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "error", "fragment"),
        [
            ({"batch_size": 11}, InputError, "batch_size is 11 but the data has 10 rows"),
            ({"batch_size": 0}, InputError, "batch_size is 0 but the data has 10 rows"),
            ({"start": Position(0, 4)}, InputError, "start is minibatch 4 of epoch 0"),
            ({"start": Position(-1, 0)}, InputError, "start is minibatch 0 of epoch -1"),
            ({"window_bytes": 500}, MemoryBudgetError, "window_bytes is 500 bytes, but"),
        ],
    )
    def test_invalid_arguments(self, arguments, error, fragment):
        with pytest.raises(error, match=fragment):
            PairStream(file_pair(10)[0], seed=0, **{**VALID, **arguments})

    @pytest.mark.parametrize("random_access", [True, False])
    def test_a_bad_value_is_an_error_in_the_consumer(self, random_access):
        Y = numbered(5000, 3)
        Y[4321, 1] = np.nan
        views = (RecordingSource(t, random_access=random_access) for t in (numbered(5000), Y))
        stream = PairStream(PairSource(*views), 10, 0, window_bytes=PLENTY, epochs=1)
        if not random_access:
            stream.plan = ShufflePlan(5000, 10, 5)
        with pytest.raises(NonFiniteError, match=r"^Y has NaN at row 4321, column 1\b"):
            list(stream)

    def test_ctrl_c_while_waiting_for_a_read_that_hangs(self):
        pairs, x, _ = file_pair(100)
        hung, released = threading.Event(), threading.Event()
        read = x.read

        def hanging(start, stop):
            hung.set()
            released.wait(30)
            return read(start, stop)

        x.read = hanging
        batches = iter(windowed(pairs, 10, chunk_rows=10, window_chunks=2))

        def interrupt():
            hung.wait(30)
            _thread.interrupt_main()

        def consume():
            threading.Thread(target=interrupt).start()
            next(batches)

        with pytest.raises(KeyboardInterrupt):
            consume()
        released.set()
        batches.close()
        # The read under way was the last.
        assert len(x.reads) == 1
