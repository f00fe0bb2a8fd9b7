"""`knoi transform`: the same numbers as in Python, in every format, whole or not at all."""

import os

import h5py
import numpy as np
import pytest

import knoi


@pytest.fixture
def expected(run):
    model = knoi.load("linear.knoi")
    return model.transform(np.load("X_test.npy"), np.load("Y_test.npy"))


BOTH = ("transform", "linear.knoi", "X_test.npy", "Y_test.npy")


@pytest.fixture(params=[7, 10**6], ids=["in pieces", "at once"])
def pieces(request, monkeypatch):
    monkeypatch.setattr("knoi.cli.transform.PIECE_ROWS", request.param)


@pytest.mark.usefixtures("pieces")
class TestFormats:
    def test_npz_has_an_array_a_view(self, run, expected):
        done = run(*BOTH, "-o", "Z.npz")
        assert (done.code, done.out) == (0, "Written: Z.npz (Zx, Zy)\n")
        with np.load("Z.npz") as archive:
            assert sorted(archive.files) == ["Zx", "Zy"]
            for name, Z in zip(("Zx", "Zy"), expected, strict=True):
                np.testing.assert_allclose(archive[name], Z, rtol=1e-12)
                assert archive[name].dtype == Z.dtype

    def test_npy_has_a_file_a_view(self, run, expected):
        assert run(*BOTH, "-o", "a.npy", "-o", "b.npy", "--quiet").code == 0
        for name, Z in zip(("a.npy", "b.npy"), expected, strict=True):
            np.testing.assert_allclose(np.load(name), Z, rtol=1e-12)

    def test_hdf5_has_a_group_of_both_or_a_dataset_of_one(self, run, expected):
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

    def test_what_is_written_can_be_read_as_a_view(self, run, run_json):
        assert run(*BOTH, "-o", "Z.npz").code == 0
        fit = ("fit", "Z.npz:Zx", "Z.npz:Zy", "-o", "m.knoi", "--method", "linear")
        assert run_json(*fit)["columns"] == [2, 2]


def test_one_view_alone(run, expected):
    assert run("transform", "linear.knoi", "Y_test.npy", "--view", "y", "-o", "Z.npy").code == 0
    np.testing.assert_allclose(np.load("Z.npy"), expected[1], rtol=1e-12)


class TestRefusals:
    def test_a_view_in_the_place_of_the_other(self, refused):
        assert refused(1, "transform", "linear.knoi", "Y_test.npy", "-o", "Z.npy") == (
            "Y_test.npy has 4 columns, but X was fitted with 6. It looks like Y: add --view y."
        )
        line = refused(1, "transform", "linear.knoi", "X.npy", "--view", "y", "-o", "Z.npy")
        assert line.endswith("It looks like X: leave out --view y.")
        line = refused(1, "transform", "linear.knoi", "Y.npy", "X.npy", "-o", "Z.npz")
        assert line.endswith("they are swapped. Give X first, then Y.")

    @pytest.mark.parametrize(
        ("output", "message"),
        [
            (["-o", "Z.npy"], "2 views and 1 .npy file to write: a .npy holds one. Give --output"),
            (["-o", "Z.npy", "-o", "Z.npy"], "--output was given the same name twice."),
            (["-o", "Z.txt"], "--output Z.txt: wanted a name that ends in .npy"),
            (["-o", "X_test.npy", "-o", "Z.npy"], "--output X_test.npy is also an input"),
            (["-o", "no/Z.npz"], "--output no/Z.npz: there is no folder no. Create it first."),
        ],
    )
    def test_outputs_that_cannot_be(self, refused, output, message):
        assert refused(1, *BOTH, *output).startswith(message)

    def test_a_dataset_that_is_there_stays(self, run, refused):
        assert run(*BOTH, "-o", "Z.h5:/pairs").code == 0
        assert refused(1, *BOTH, "-o", "Z.h5:/pairs").startswith(
            "--output Z.h5:/pairs/Zx exists already"
        )

    @pytest.mark.parametrize("output", ["Z.npz", "Z.npy", "Z.h5", "old.h5:/z"])
    def test_a_failure_on_the_way_leaves_nothing_behind(self, run, monkeypatch, output):
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
