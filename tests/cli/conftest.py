"""Small files to work on, and the program as a function of a command line."""

import json
import os
import shlex
from types import SimpleNamespace

import numpy as np
import pytest

from knoi.cli import main
from knoi.datasets import make_two_views

N_TRAIN, N_TEST = 400, 200


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """X.npy, Y.npy (6 and 4 columns, two shared signals), X_test.npy, Y_test.npy, linear.knoi."""
    path = tmp_path_factory.mktemp("views")
    views = make_two_views(N_TRAIN + N_TEST, (6, 4), correlations=(0.95, 0.8), random_state=0)
    for name, table in (("X", views.X), ("Y", views.Y)):
        np.save(path / f"{name}.npy", table[:N_TRAIN])
        np.save(path / f"{name}_test.npy", table[N_TRAIN:])
    fit = ["fit", str(path / "X.npy"), str(path / "Y.npy"), "-o", str(path / "linear.knoi")]
    assert main([*fit, "--method", "linear", "-k", "2", "--quiet"]) == 0
    return path


@pytest.fixture
def run(capsys, monkeypatch, folder, tmp_path):
    """Run a command in a new directory with links to the files; returns code, out, err."""
    for file in folder.iterdir():
        os.symlink(file, tmp_path / file.name)
    monkeypatch.chdir(tmp_path)

    def run(command):
        code = main(shlex.split(command))
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run


@pytest.fixture
def run_json(run):
    """Run a command that succeeds and prints one JSON document and nothing else."""

    def parsed(command):
        done = run(f"{command} --json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    return parsed


@pytest.fixture
def error_line(run):
    """Run a command that fails with this exit code, and return the one line it prints."""

    def line(code, command):
        done = run(command)
        assert (done.code, done.out) == (code, "")
        assert done.err.startswith("knoi: ")
        assert done.err.count("\n") == 1
        return done.err.removeprefix("knoi: ").rstrip("\n")

    return line
