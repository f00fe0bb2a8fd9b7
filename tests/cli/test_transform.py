"""`knoi transform`: the same numbers as in Python, in every format, complete or not at all."""

import os

import h5py
import numpy as np
import pytest

import knoi

BOTH = ("transform", "linear.knoi", "X_test.npy", "Y_test.npy")


@pytest.fixture
def expected(run):
    model = knoi.load("linear.knoi")
    return model.transform(np.load("X_test.npy"), np.load("Y_test.npy"))


class TestFormats:
    @pytest.fixture(autouse=True)
    def small_pieces(self, monkeypatch):
        monkeypatch.setattr("knoi.cli.transform.PIECE_ROWS", 7)

    def test_npz_holds_both_views_and_can_be_read_as_views(self, run, run_json, expected):
        done = run(*BOTH, "-o", "Z.npz")
        assert (done.code, done.out) == (0, "Written: Z.npz (Zx, Zy)\n")
        with np.load("Z.npz") as archive:
            assert sorted(archive.files) == ["Zx", "Zy"]
            for name, Z in zip(("Zx", "Zy"), expected, strict=True):
                np.testing.assert_allclose(archive[name], Z, rtol=1e-12)
                assert archive[name].dtype == Z.dtype
        fit = ("fit", "Z.npz:Zx", "Z.npz:Zy", "-o", "m.knoi", "--method", "linear")
        assert run_json(*fit)["columns"] == [2, 2]

    def test_npy_holds_one_view_per_file(self, run, expected):
        assert run(*BOTH, "-o", "a.npy", "-o", "b.npy", "--quiet").code == 0
        for name, Z in zip(("a.npy", "b.npy"), expected, strict=True):
            np.testing.assert_allclose(np.load(name), Z, rtol=1e-12)

    def test_hdf5_holds_a_group_of_both_or_a_dataset_of_one(self, run, expected):
        with h5py.File("Z.h5", "w") as file:
            file["mine"] = [1, 2, 3]
        assert run(*BOTH, "-o", "Z.h5:/test/pairs").code == 0
        assert run("transform", "linear.knoi", "X_test.npy", "-o", "Z.h5:/test/x").code == 0
        assert run("transform", "linear.knoi", "X_test.npy", "-o", "new.h5").code == 0
        with h5py.File("Z.h5") as file:
            for name, Z in zip(("Zx", "Zy"), expected, strict=True):
                np.testing.assert_allclose(file[f"test/pairs/{name}"][()], Z, rtol=1e-12)
            np.testing.assert_allclose(file["test/x"][()], expected[0], rtol=1e-12)
            assert file["mine"][()].tolist() == [1, 2, 3]
        with h5py.File("new.h5") as file:
            assert list(file) == ["Zx"]


def test_one_view_alone(run, expected):
    assert run("transform", "linear.knoi", "Y_test.npy", "--view", "y", "-o", "Z.npy").code == 0
    np.testing.assert_allclose(np.load("Z.npy"), expected[1], rtol=1e-12)


def test_a_view_in_the_place_of_the_other(error_line):
    assert error_line(1, "transform", "linear.knoi", "Y_test.npy", "-o", "Z.npy") == (
        "Y_test.npy has 4 columns, but X was fitted with 6. It looks like Y: add --view y."
    )
    line = error_line(1, "transform", "linear.knoi", "X.npy", "--view", "y", "-o", "Z.npy")
    assert line.endswith("It looks like X: leave out --view y.")
    line = error_line(1, "transform", "linear.knoi", "Y.npy", "X.npy", "-o", "Z.npz")
    assert line.endswith("they are swapped. Give X first, then Y.")


def test_outputs_that_cannot_be_written(run, error_line):
    assert run(*BOTH, "-o", "Z.h5:/pairs").code == 0
    for output, message in (
        (["Z.npy"], "2 views and 1 .npy file to write: a .npy holds one. Give --output"),
        (["Z.npy", "Z.npy"], "--output was given the same name twice. Give one name per view."),
        (["Z.txt"], "--output Z.txt: wanted a name that ends in .npy"),
        (["X_test.npy", "Z.npy"], "--output X_test.npy is also an input"),
        (["no/Z.npz"], "--output no/Z.npz: there is no folder no. Create it first."),
        (["Z.h5:/pairs"], "--output Z.h5:/pairs/Zx exists already, and a dataset is not"),
    ):
        arguments = [part for name in output for part in ("-o", name)]
        assert error_line(1, *BOTH, *arguments).startswith(message)


@pytest.mark.parametrize("output", ["Z.npz", "Z.npy", "Z.h5", "old.h5:/z"])
def test_a_failure_leaves_nothing_behind(run, monkeypatch, output):
    monkeypatch.setattr("knoi.cli.transform.PIECE_ROWS", 50)
    X = np.load("X_test.npy").copy()
    X[123, 4] = np.inf
    np.save("bad.npy", X)
    with h5py.File("old.h5", "w") as file:
        file["mine"] = [1]
    before = sorted(os.listdir())
    done = run("transform", "linear.knoi", "bad.npy", "-o", output, "--quiet")
    assert done.code == 1
    assert "row 123, column 4" in done.err
    assert sorted(os.listdir()) == before
    with h5py.File("old.h5") as file:
        assert list(file) == ["mine"]
