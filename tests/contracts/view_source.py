"""What every source of a view must do, whatever it reads from.

A test module inherits `ViewSourceContract` and provides the fixture `case`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
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

    def test_reads_the_whole(self, source, case):
        rows = source.read(0, source.n_rows)
        assert type(rows) is np.ndarray
        assert rows.dtype == source.dtype
        assert rows.flags.c_contiguous
        np.testing.assert_array_equal(rows, case.expected)

    @pytest.mark.parametrize("step", [1, 3, 7])
    def test_pieces_make_the_whole(self, source, case, step):
        pieces = [
            source.read(start, min(start + step, source.n_rows))
            for start in range(0, source.n_rows, step)
        ]
        assert all(piece.flags.c_contiguous for piece in pieces)
        assert all(piece.dtype == source.dtype for piece in pieces)
        np.testing.assert_array_equal(np.concatenate(pieces), case.expected)

    def test_reads_in_any_order(self, source, case):
        for start, stop in [(5, 9), (0, 2), (8, 11), (1, 10), (4, 5)]:
            np.testing.assert_array_equal(source.read(start, stop), case.expected[start:stop])

    @pytest.mark.parametrize("at", ["first", "last"])
    def test_reads_one_row(self, source, case, at):
        row = 0 if at == "first" else source.n_rows - 1
        np.testing.assert_array_equal(source.read(row, row + 1), case.expected[row : row + 1])

    def test_an_empty_range_is_an_empty_table(self, source):
        for place in (0, 3, source.n_rows):
            rows = source.read(place, place)
            assert rows.shape == (0, source.n_cols)
            assert rows.dtype == source.dtype

    def test_the_caller_cannot_damage_the_source(self, source, case):
        for start, stop in [(0, source.n_rows), (2, 5), (0, source.n_rows)]:
            rows = source.read(start, stop)
            np.testing.assert_array_equal(rows, case.expected[start:stop])
            if rows.flags.writeable:
                rows[:] = 0

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
        np.testing.assert_array_equal(rows, case.expected)
