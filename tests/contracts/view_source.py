"""What every source of a view must do, whatever it reads from.

A test module inherits `ViewSourceContract` and provides the fixture `case`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

from knoi.data.source import ViewSource
from knoi.exceptions import InputError


@dataclass(frozen=True)
class SourceCase:
    """A source and what it should hold."""

    open: Callable[[], ViewSource]
    expected: NDArray[Any]
    random_access: bool
    column_names: tuple[str, ...] | None = None
    sparse: bool = False  # rows come as CSR


def dense(rows):
    return rows.toarray() if scipy.sparse.issparse(rows) else rows


def assert_rows(rows, source):
    """What `read` returns is of the kind the source says."""
    assert type(rows) is (scipy.sparse.csr_array if source.sparse else np.ndarray)
    assert rows.dtype == source.dtype
    if source.sparse:
        assert rows.has_canonical_format
        rows.check_format(full_check=True)
    else:
        assert rows.flags.c_contiguous


class ViewSourceContract:
    @pytest.fixture
    def source(self, case: SourceCase):
        source = case.open()
        yield source
        source.close()

    def test_is_a_view_source(self, source):
        assert isinstance(source, ViewSource)

    def test_says_what_it_is(self, source, case):
        assert (source.n_rows, source.n_cols) == case.expected.shape
        assert type(source.n_rows) is int
        assert source.dtype == case.expected.dtype
        assert source.dtype.isnative
        assert source.random_access is case.random_access
        assert source.column_names == case.column_names
        assert source.sparse is case.sparse

    def test_says_how_large_a_row_is(self, source):
        rows = source.read(0, source.n_rows)
        parts = (rows.data, rows.indices, rows.indptr) if source.sparse else (rows,)
        assert type(source.row_bytes) is int
        assert source.row_bytes == -(-sum(part.nbytes for part in parts) // source.n_rows)

    def test_reads_the_whole(self, source, case):
        rows = source.read(0, source.n_rows)
        assert_rows(rows, source)
        np.testing.assert_array_equal(dense(rows), case.expected)

    @pytest.mark.parametrize("step", [1, 3, 7])
    def test_pieces_make_the_whole(self, source, case, step):
        pieces = [
            source.read(start, min(start + step, source.n_rows))
            for start in range(0, source.n_rows, step)
        ]
        for piece in pieces:
            assert_rows(piece, source)
        np.testing.assert_array_equal(np.concatenate([*map(dense, pieces)]), case.expected)

    def test_reads_in_any_order(self, source, case):
        for start, stop in [(5, 9), (0, 2), (8, 11), (1, 10), (4, 5)]:
            rows = dense(source.read(start, stop))
            np.testing.assert_array_equal(rows, case.expected[start:stop])

    @pytest.mark.parametrize("at", ["first", "last"])
    def test_reads_one_row(self, source, case, at):
        row = 0 if at == "first" else source.n_rows - 1
        rows = dense(source.read(row, row + 1))
        np.testing.assert_array_equal(rows, case.expected[row : row + 1])

    def test_an_empty_range_is_an_empty_table(self, source):
        for place in (0, 3, source.n_rows):
            rows = source.read(place, place)
            assert rows.shape == (0, source.n_cols)
            assert_rows(rows, source)

    def test_the_caller_cannot_damage_the_source(self, source, case):
        for start, stop in [(0, source.n_rows), (2, 5), (0, source.n_rows)]:
            rows = source.read(start, stop)
            np.testing.assert_array_equal(dense(rows), case.expected[start:stop])
            parts = (rows.data, rows.indices, rows.indptr) if source.sparse else (rows,)
            for part in parts:
                if part.flags.writeable:
                    part[:] = 0

    @pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 10**6), (10**6, 10**6)])
    def test_refuses_rows_that_are_not_there(self, source, start, stop):
        with pytest.raises(InputError, match=rf"^X.* rows {start} to {stop} were asked for"):
            source.read(start, stop)

    def test_refuses_to_read_when_closed(self, source):
        source.read(0, 1)
        source.close()
        with pytest.raises(InputError, match=r"^X.* is closed: no rows can be read"):
            source.read(0, 1)
        source.close()  # closing twice is harmless

    def test_rows_outlive_the_source(self, source, case):
        rows = source.read(0, source.n_rows)
        source.close()
        np.testing.assert_array_equal(dense(rows), case.expected)
