"""`knoi transform`: the same numbers as in Python, in every format, complete or not at all."""

import os

import h5py
import numpy as np
import pandas as pd
import pytest

import knoi

BOTH = "transform linear.knoi X_test.npy Y_test.npy"
ONE = "transform linear.knoi X_test.npy"


@pytest.fixture
def expected(run):
    model = knoi.load("linear.knoi")
    return model.transform(np.load("X_test.npy"), np.load("Y_test.npy"))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr("knoi.cli.transform.PIECE_ROWS", 7)


def test_npz_holds_both_views_and_can_be_read_as_views(run, run_json, expected):
    done = run(f"{BOTH} -o Z.npz")
    assert (done.code, done.out) == (0, "Written: Z.npz (Zx, Zy)\n")
    with np.load("Z.npz") as archive:
        assert sorted(archive.files) == ["Zx", "Zy"]
        for name, Z in zip(("Zx", "Zy"), expected, strict=True):
            np.testing.assert_allclose(archive[name], Z, rtol=1e-12)
            assert archive[name].dtype == Z.dtype
    assert run_json("fit Z.npz:Zx Z.npz:Zy -o m.knoi --method linear")["columns"] == [2, 2]


def test_npy_holds_one_view_per_file(run, expected):
    assert run(f"{BOTH} -o a.npy -o b.npy --quiet").code == 0
    assert run("transform linear.knoi Y_test.npy --view y -o c.npy").code == 0
    for name, Z in (("a.npy", expected[0]), ("b.npy", expected[1]), ("c.npy", expected[1])):
        np.testing.assert_allclose(np.load(name), Z, rtol=1e-12)


def test_hdf5_holds_a_group_of_both_or_a_dataset_of_one(run, expected):
    with h5py.File("Z.h5", "w") as file:
        file["mine"] = [1, 2, 3]
    for command in (f"{BOTH} -o Z.h5:/test/pairs", f"{ONE} -o Z.h5:/test/x", f"{ONE} -o new.h5"):
        assert run(command).code == 0
    with h5py.File("Z.h5") as file:
        for name, Z in zip(("pairs/Zx", "pairs/Zy", "x"), (*expected, expected[0]), strict=True):
            np.testing.assert_allclose(file[f"test/{name}"][()], Z, rtol=1e-12)
        assert file["mine"][()].tolist() == [1, 2, 3]
    with h5py.File("new.h5") as file:
        assert list(file) == ["Zx"]


@pytest.mark.parametrize(("suffix", "read"), [("csv", pd.read_csv), ("parquet", pd.read_parquet)])
def test_tables_hold_the_views_side_by_side(run, run_json, expected, suffix, read):
    assert run(f"{BOTH} -o Z.{suffix} --quiet").code == 0
    found = read(f"Z.{suffix}")
    assert list(found.columns) == ["x1", "x2", "y1", "y2"]
    np.testing.assert_array_equal(found.to_numpy(), np.hstack(expected))
    assert (
        run_json(f"fit Z.{suffix}:x1,x2 Z.{suffix}:y1 -o m.knoi -k 1 --method linear")["rows"]
        == 200
    )
    assert run(f"transform linear.knoi Y_test.npy --view y -o one.{suffix}").code == 0
    assert list(read(f"one.{suffix}").columns) == ["y1", "y2"]


def test_views_in_the_wrong_place_and_outputs_that_cannot_be_written(run, error_line):
    assert run(f"{BOTH} -o Z.h5:/pairs").code == 0
    for command, message in {
        "transform linear.knoi Y_test.npy -o Z.npy": "It looks like Y: add --view y.",
        f"{ONE} --view y -o Z.npy": "It looks like X: leave out --view y.",
        "transform linear.knoi Y.npy X.npy -o Z.npz": "they are swapped",
        f"{BOTH} -o Z.npy": "2 views and 1 .npy file to write",
        f"{BOTH} -o Z.npy -o Z.npy": "--output was given the same name twice",
        f"{BOTH} -o Z.txt": "--output Z.txt: wanted a name that ends in .npy",
        f"{BOTH} -o X_test.npy -o Z.npy": "--output X_test.npy is also an input",
        f"{BOTH} -o Z.h5:/pairs": "--output Z.h5:/pairs/Zx exists already, and a dataset is not",
    }.items():
        assert message in error_line(1, command)


@pytest.mark.parametrize("output", ["Z.npz", "Z.npy", "Z.csv", "Z.parquet", "Z.h5", "old.h5:/z"])
def test_a_failure_leaves_nothing_behind(error_line, output):
    X = np.load("X_test.npy").copy()
    X[123, 4] = np.inf
    np.save("bad.npy", X)
    with h5py.File("old.h5", "w") as file:
        file["mine"] = [1]
    before = sorted(os.listdir())
    command = f"transform linear.knoi bad.npy -o {output} --quiet"
    assert "row 123, column 4" in error_line(1, command)
    assert sorted(os.listdir()) == before
    with h5py.File("old.h5") as file:
        assert list(file) == ["mine"]
