"""`knoi tune`: the grid, its best, and the command that fits it."""

import sys
from pathlib import Path

import numpy as np
import pytest

import knoi
from knoi.cli import tune

LINEAR = "tune X.npy Y.npy -k 2 --method linear"
FOURIER = "tune X.npy Y.npy -k 2 --method fourier"


def test_every_combination_is_scored_on_held_out_pairs(run_json):
    found = run_json(f"{FOURIER} --ranks 20,40 --widths 2,1x --regs 1e-4,1e-2")
    tried = [(trial["rank"], trial["width_factor"], trial["reg"]) for trial in found["trials"]]
    assert tried == [(r, w, g) for r in (20, 40) for w in (None, 1.0) for g in (1e-4, 1e-2)]
    assert found["trials"][0]["width"] == 2.0
    assert (found["rows"], found["rows_left_out"]) == (320, 80)
    scores = [trial["total_correlation"] for trial in found["trials"]]
    assert found["best"]["total_correlation"] == max(scores)
    assert len(set(scores)) == len(scores)
    # Moments that several fits share give the model of a separate fit.
    alone = run_json(f"{FOURIER} --ranks 20 --widths 1x --regs 1e-2")
    assert alone["best"]["total_correlation"] == pytest.approx(scores[3], rel=1e-9)


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("linear", ""),
        ("nystrom", "--kernel laplacian --ranks 20"),
        ("knoi", "--kernel laplacian --ranks 20 --epochs 1 --time 5m --set average=false"),
    ],
)
def test_the_command_it_ends_with_fits_the_best(run, method, more):
    done = run(f"tune X.npy Y.npy -k 2 --method {method} {more}")
    assert done.code == 0, done.err
    command = done.out.splitlines()[-1].strip()
    assert command.startswith("knoi fit ")
    assert run(f"{command.removeprefix('knoi ')} --quiet").code == 0
    parameters = knoi.load("model.knoi").get_params(deep=False)
    assert parameters["n_components"] == 2
    if method != "linear":
        assert (parameters["kernel"], parameters["rank"]) == ("laplacian", 20)
        assert all(isinstance(width, float) for width in parameters["width"])
    if method == "knoi":
        assert (parameters["epochs"], parameters["max_time"]) == (1, 300.0)
        assert parameters["average"] is False


def test_subset_and_default_components(run_json):
    found = run_json("tune X.npy Y.npy --method linear --regs 0 --subset 100 --held-out 30")
    assert (found["rows"], found["rows_left_out"], found["components"]) == (70, 30, 4)


def test_a_kernel_without_a_width_has_no_grid_of_widths(run_json, error_line):
    tune = "tune X.npy Y.npy -k 1 --method nystrom --kernel linear"
    (trial,) = run_json(f"{tune} --ranks 10 --regs 1e-3")["trials"]
    assert "width" not in trial
    assert "--widths: the linear kernel has no width" in error_line(1, f"{tune} --widths 1x,2x")


def test_combinations_that_do_not_fit_into_memory(run, run_json):
    tune = f"{FOURIER} --widths 1x --regs 1e-3,1e-2 --memory 50MiB"
    found = run_json(f"{tune} --ranks 20,20000")
    assert [trial["error"] is None for trial in found["trials"]] == [True, True, False, False]
    assert found["best"]["rank"] == 20
    assert "out of memory" in run(f"{tune} --ranks 20,20000").out
    alone = run(f"{tune} --ranks 20000")
    assert (alone.code, alone.out) == (1, "")
    assert "--memory is 50.0 MiB. Lower rank or raise --memory." in alone.err


def test_the_table_marks_the_best_and_the_plot_is_written(run, error_line, monkeypatch):
    done = run(f"{FOURIER} --ranks 20 --widths 0.01x,1x --regs 1e-4,1e-3 --plot tune.svg")
    assert done.code == 0, done.err
    (best,) = [line for line in done.out.splitlines() if line.strip().startswith("best")]
    assert "(1x)" in best
    assert "Plot: tune.svg" in done.out
    assert Path("tune.svg").read_bytes().startswith(b"<?xml")
    assert "--plot tune.doc: wanted a name" in error_line(1, f"{FOURIER} --plot tune.doc")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "a plot needs matplotlib" in error_line(1, f"{FOURIER} --plot tune.png")


def test_components_are_chosen_on_held_out_pairs(run, run_json, error_line):
    tune = "tune X.npy Y.npy --components auto --method linear"
    found = run_json(tune)
    assert (found["tried"], found["components"], found["rows_left_out"]) == (4, 2, 80)
    assert found["significant"] == [True, True, False, False]
    assert len(found["in_sample"]) == len(found["corrected_p_values"]) == 4
    done = run(f"{tune} --plot scree.svg --quiet")
    assert (done.code, done.out) == (0, "")
    assert Path("scree.svg").read_bytes().startswith(b"<?xml")
    done = run(tune)
    assert "2 of 4 components correlate more than chance" in done.out
    command = done.out.splitlines()[-1].strip()
    assert command == found["command"]
    assert run(f"{command.removeprefix('knoi ')} --quiet").code == 0
    assert knoi.load("model.knoi").n_components == 2
    # A grid needs a number of components.
    assert "auto takes one value of --regs" in error_line(2, f"{tune} --regs 0,1")


def test_a_kernel_is_tried_with_more_components_than_columns(run_json, run):
    tune = "tune X.npy Y.npy -k auto --method nystrom --ranks 20 --widths 1x --regs 1e-2"
    found = run_json(tune)
    assert found["tried"] == 20
    assert "--rank 20 --width" in found["command"]
    assert f"--components {found['components']}" in found["command"]
    np.save("noise.npy", np.random.default_rng(0).standard_normal((400, 3)))
    unrelated = run("tune X.npy noise.npy -k auto --method linear")
    assert "No component correlates more than chance" in unrelated.out
    assert "knoi fit" not in unrelated.out


def test_interrupted_it_prints_the_results_so_far(run, monkeypatch):
    views = np.load("X.npy"), np.load("Y.npy")
    evaluations = iter([tune.evaluate(knoi.load("linear.knoi"), *views)])

    def evaluate(*_):
        for one in evaluations:
            return one
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "evaluate", evaluate)
    done = run(f"{LINEAR} --regs 0,1,2")
    assert done.code == 130
    assert done.err.splitlines()[-1] == "knoi: interrupted after 1 of 3 fits."
    assert "knoi fit X.npy Y.npy" in done.out
