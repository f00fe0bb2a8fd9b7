"""Helpers for tests that open views: contract cases, error messages, damaged files."""

import os
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knoi.data.open import open_view
from knoi.exceptions import InputError, MemoryBudgetError, SourceFormatError
from tests.contracts.view_source import SourceCase, ViewSourceContract

TABLE = np.random.default_rng(0).normal(size=(11, 4)).astype(np.float32)
IMAGES = np.random.default_rng(1).integers(0, 256, size=(11, 6)).astype(np.uint8)


def read_all(data):
    source = open_view(data, "X")
    rows = source.read(0, source.n_rows)
    source.close()
    return rows


def error_message(data, error=InputError, name="X"):
    """The message of the error that opening the data raises."""
    with pytest.raises(error) as caught:
        open_view(data, name)
    return str(caught.value)


def on_disk(write, selector="", expected=TABLE, names=None, random_access=False, sparse=False):
    """A contract case for the file that `write(folder)` writes; returns a function of a folder."""

    def make(folder):
        path = f"{write(folder)}{selector}"
        return SourceCase(
            lambda: open_view(path, "X"), expected, random_access, names, sparse=sparse
        )

    return make


def in_memory(data, expected=TABLE, names=None, sparse=False, random_access=True):
    """A contract case for data in memory."""
    case = SourceCase(lambda: open_view(data, "X"), expected, random_access, names, sparse=sparse)
    return lambda folder: case


converted = partial(in_memory, random_access=False)  # when it is read


def contract(cases):
    """The contract of views as a class of tests, for contract cases by their names."""

    class TestContract(ViewSourceContract):
        @pytest.fixture(params=cases.values(), ids=cases.keys())
        def case(self, request, tmp_path):
            return request.param(tmp_path)

    return TestContract


class DamagedFileContract:
    """A damaged file is a clear error; the fixture `write` writes a good one."""

    @pytest.mark.parametrize("kept", [0, 1, 20, 70, 130, 0.5, 0.9])
    def test_truncated(self, write, kept, tmp_path):
        path = write(tmp_path)
        size = os.path.getsize(path)
        os.truncate(path, min(int(kept * size) if isinstance(kept, float) else kept, size - 1))
        assert error_message(path, SourceFormatError).startswith(f"X ('{path}') ")

    def test_garbage(self, write, tmp_path):
        path = write(tmp_path)
        for seed in range(5):
            path.write_bytes(np.random.default_rng(seed).bytes(3000))
            message = error_message(path, SourceFormatError)
            assert message.startswith(f"X ('{path}') cannot be read as ")


class FlippedByteContract(DamagedFileContract):
    """A flipped byte gives other numbers or a clear error, never a crash."""

    def test_a_flipped_byte(self, write, tmp_path_factory):
        path = write(tmp_path_factory.mktemp("flipped"))
        content = path.read_bytes()

        @settings(max_examples=50)
        @given(st.integers(0, len(content) - 1), st.integers(1, 255))
        def check(index, change):
            damaged = bytearray(content)
            damaged[index] ^= change
            path.write_bytes(damaged)
            # Any other error, or a crash, fails the test.
            with suppress(InputError, SourceFormatError, MemoryBudgetError):
                source = open_view(path, "X")
                assert source.read(0, source.n_rows).shape == (source.n_rows, source.n_cols)
                source.close()

        check()


def damaged(writers, flipped=False):
    """The contract of damaged files as a class of tests, for functions `write` by their names."""

    class TestDamaged(FlippedByteContract if flipped else DamagedFileContract):
        @pytest.fixture(params=writers.values(), ids=writers.keys())
        def write(self, request):
            return request.param

    return TestDamaged
