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


def parts(rows):
    """The arrays that rows consist of."""
    return (rows.data, rows.indices, rows.indptr) if scipy.sparse.issparse(rows) else (rows,)


def assert_rows(rows, source, expected):
    """`read` returned the expected rows, of the type the source declares."""
    np.testing.assert_array_equal(dense(rows), expected)
    assert rows.shape == expected.shape
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

    def test_attributes(self, source, case):
        assert isinstance(source, ViewSource)
        assert (source.n_rows, source.n_cols) == case.expected.shape
        assert type(source.n_rows) is type(source.row_bytes) is int
        assert source.dtype == case.expected.dtype
        assert source.dtype.isnative
        assert source.random_access is case.random_access
        assert source.column_names == case.column_names
        assert source.sparse is case.sparse
        n_bytes = sum(part.nbytes for part in parts(source.read(0, source.n_rows)))
        assert source.row_bytes == -(-n_bytes // source.n_rows)

    def test_reads_any_range(self, source, case):
        n = source.n_rows
        in_steps = [(i, min(i + step, n)) for step in (1, 3, n) for i in range(0, n, step)]
        out_of_order = [(5, 9), (0, 2), (8, 11), (1, 10), (4, 5), (n - 1, n), (0, 1)]
        for start, stop in [*in_steps, *out_of_order, (0, 0), (3, 3), (n, n)]:
            assert_rows(source.read(start, stop), source, case.expected[start:stop])

    def test_the_caller_cannot_change_the_source(self, source, case):
        for start, stop in [(0, source.n_rows), (2, 5), (0, source.n_rows)]:
            rows = source.read(start, stop)
            np.testing.assert_array_equal(dense(rows), case.expected[start:stop])
            for part in parts(rows):
                if part.flags.writeable:
                    part[:] = 0

    def test_rejects_invalid_ranges(self, source):
        for start, stop in [(-1, 2), (3, 2), (0, 10**6), (10**6, 10**6)]:
            with pytest.raises(InputError, match=rf"^X.* rows: cannot read rows {start} to {stop}"):
                source.read(start, stop)

    def test_close(self, source, case):
        rows = source.read(0, source.n_rows)
        source.close()
        np.testing.assert_array_equal(dense(rows), case.expected)  # rows outlive the source
        with pytest.raises(InputError, match=r"^X.* is closed\. Open it again"):
            source.read(0, 1)
        source.close()  # closing twice is harmless
