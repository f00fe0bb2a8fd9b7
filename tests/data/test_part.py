"""A part of a view as a view of its own."""

import h5py
import numpy as np
import pytest
import scipy.sparse

from knoi.data.pairs import PairSource
from knoi.exceptions import NonFiniteError
from tests.contracts.view_source import SourceCase, ViewSourceContract, dense

TABLE = np.arange(80.0).reshape(40, 2)


class TestPartOfAnArray(ViewSourceContract):
    @pytest.fixture
    def case(self):
        _, held_out = PairSource.open(TABLE, TABLE).split(15, seed=1)
        expected = TABLE[held_out.row_numbers()]
        return SourceCase(lambda: held_out.views()[0], expected, random_access=False)


class TestPartOfAFile(ViewSourceContract):
    @pytest.fixture
    def case(self, tmp_path):
        with h5py.File(tmp_path / "table.h5", "w") as file:
            file["table"] = TABLE
        path = str(tmp_path / "table.h5")
        pairs = PairSource.open(path, path)
        rest, _ = pairs.split(15, seed=1)
        expected = TABLE[rest.row_numbers()]
        yield SourceCase(lambda: rest.views()[0], expected, random_access=False)
        pairs.close()


def test_both_parts_are_the_whole_and_pairs_stay_pairs():
    pairs = PairSource.open(TABLE, -TABLE)
    parts = pairs.split(0.3, seed=0)
    rows = np.concatenate([part.row_numbers() for part in parts])
    assert sorted(rows.tolist()) == list(range(40))
    for part in parts:
        x, y = part.views()
        np.testing.assert_array_equal(x.read(0, x.n_rows), -y.read(0, y.n_rows))


def test_the_whole_is_the_view_itself():
    pairs = PairSource.open(TABLE, TABLE)
    assert pairs.views()[0].random_access
    np.testing.assert_array_equal(pairs.row_numbers(), np.arange(40))


def test_sparse_rows_stay_sparse():
    rest, _ = PairSource.open(scipy.sparse.csr_array(TABLE), TABLE).split(5, seed=0)
    x, y = rest.views()
    assert x.sparse
    rows = x.read(2, 9)
    np.testing.assert_array_equal(dense(rows), y.read(2, 9))


def test_a_bad_value_is_named_by_its_row_in_the_whole():
    bad = TABLE.copy()
    bad[13, 1] = np.nan
    for part in PairSource.open(bad, TABLE).split(15, seed=1):
        if 13 in part.row_numbers():
            x, _ = part.views()
            with pytest.raises(NonFiniteError, match="row 13, column 1"):
                x.read(0, x.n_rows)
