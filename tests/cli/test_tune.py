"""`knoi tune`: the grid, its best, and the command that fits it."""

import os
import shlex
import sys

import numpy as np
import pytest

import knoi
from knoi.cli import tune
from knoi.cli.options import METHODS

FOURIER = ("tune", "X.npy", "Y.npy", "-k", "2", "--method", "fourier")


def test_every_combination_is_measured_on_pairs_left_out(run_json):
    grid = ("--ranks", "20,40", "--widths", "2,1x", "--regs", "1e-4,1e-2")
    found = run_json(*FOURIER, *grid)
    tried = [(trial["rank"], trial["width_factor"], trial["reg"]) for trial in found["trials"]]
    assert tried == [(r, w, g) for r in (20, 40) for w in (None, 1.0) for g in (1e-4, 1e-2)]
    assert found["trials"][0]["width"] == 2.0
    assert (found["rows"], found["rows_left_out"]) == (320, 80)
    scores = [trial["total_correlation"] for trial in found["trials"]]
    assert found["best"]["total_correlation"] == max(scores)
    assert len(set(scores)) == len(scores)


def test_shared_moments_give_the_model_of_a_fit_of_its_own(run_json):
    both = run_json(*FOURIER, "--ranks", "20", "--widths", "1x", "--regs", "1e-5,1e-3")
    alone = run_json(*FOURIER, "--ranks", "20", "--widths", "1x", "--regs", "1e-3")
    assert both["trials"][1]["total_correlation"] == pytest.approx(
        alone["trials"][0]["total_correlation"], rel=1e-9
    )


@pytest.mark.parametrize("method", list(METHODS))
def test_the_command_it_ends_with_fits_the_best(run, method):
    more = ["--ranks", "20"] if method not in ("linear", "kernel") else []
    more += ["--epochs", "1", "--time", "5m"] if method in ("knoi", "dsgd") else []
    more += [] if method == "linear" else ["--kernel", "laplacian"]
    done = run("tune", "X.npy", "Y.npy", "-k", "2", "--method", method, *more)
    assert done.code == 0, done.err
    command = shlex.split(done.out.splitlines()[-1])
    assert command[:2] == ["knoi", "fit"]
    assert run(*command[1:], "--quiet").code == 0
    model = knoi.load("model.knoi")
    parameters = model.get_params(deep=False)
    assert model.n_components == 2
    if method != "linear":
        assert parameters["kernel"] == "laplacian"
        assert all(isinstance(width, float) for width in parameters["width"])
    if method in ("knoi", "dsgd"):
        assert (parameters["epochs"], parameters["max_time"]) == (1, 300.0)


def test_the_table_marks_the_best(run):
    done = run(*FOURIER, "--ranks", "20", "--widths", "0.01x,1x", "--regs", "1e-3")
    (best,) = [line for line in done.out.splitlines() if line.strip().startswith("best")]
    assert "(1x)" in best


def test_a_subset_is_taken_and_split_as_asked(run_json):
    found = run_json(
        *("tune", "X.npy", "Y.npy", "-k", "1", "--method", "linear", "--regs", "0"),
        *("--subset", "100", "--held-out", "30"),
    )
    assert (found["rows"], found["rows_left_out"]) == (70, 30)


def test_a_kernel_without_a_width_has_no_grid_of_widths(run_json, refused):
    tune = ("tune", "X.npy", "Y.npy", "-k", "1", "--method", "nystrom", "--kernel", "linear")
    found = run_json(*tune, "--ranks", "10", "--regs", "1e-3")
    assert len(found["trials"]) == 1
    assert "width" not in found["trials"][0]
    line = refused(1, *tune, "--widths", "1x,2x")
    assert line == "--widths: the linear kernel has no width. Leave it out."


def test_what_does_not_fit_is_shown_as_such(run, run_json):
    tune = (*FOURIER, "--ranks", "20,20000", "--widths", "1x", "--regs", "1e-3,1e-2")
    found = run_json(*tune, "--memory", "50MiB")
    assert [trial["error"] is None for trial in found["trials"]] == [True, True, False, False]
    assert found["best"]["rank"] == 20
    assert "out of memory" in run(*tune, "--memory", "50MiB").out


@pytest.mark.parametrize("name", ["tune.svg", "tune.png"])
def test_the_plot(run, name):
    done = run(
        *FOURIER, "--ranks", "20", "--widths", "1x,2x", "--regs", "1e-4,1e-3", "--plot", name
    )
    assert done.code == 0, done.err
    assert f"Plot: {name}" in done.out
    begin = {".svg": b"<?xml", ".png": b"\x89PNG"}[os.path.splitext(name)[1]]
    with open(name, "rb") as file:
        assert file.read(5).startswith(begin)


def test_a_plot_that_cannot_be_is_refused_first(refused, monkeypatch):
    assert refused(1, *FOURIER, "--plot", "tune.doc").startswith("--plot tune.doc: wanted a name")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert refused(1, *FOURIER, "--plot", "tune.png") == (
        "a plot needs matplotlib, which is not installed. Run: pip install 'knoi[plot]'"
    )


def test_interrupted_it_shows_what_there_is(run, monkeypatch):
    calls = []

    def measured(*arguments):
        if calls:
            raise KeyboardInterrupt
        calls.append(arguments)
        return found

    found = tune.evaluate(knoi.load("linear.knoi"), np.load("X.npy"), np.load("Y.npy"))
    monkeypatch.setattr(tune, "evaluate", measured)
    done = run("tune", "X.npy", "Y.npy", "-k", "2", "--method", "linear", "--regs", "0,1,2")
    assert done.code == 130
    assert done.err.splitlines()[-1] == "knoi: interrupted after 1 of 3 fits."
    assert "knoi fit X.npy Y.npy" in done.out


def test_the_score_is_near_what_the_views_share(run_json):
    found = run_json("tune", "X.npy", "Y.npy", "-k", "2", "--method", "linear", "--regs", "0")
    assert found["best"]["total_correlation"] == pytest.approx(0.95 + 0.8, abs=0.25)
