"""`knoi fit`: options, what is printed, and what is written."""

import os
import re
import shlex
import signal
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import knoi
from knoi.callbacks.history import ProgressBar
from knoi.cli.options import METHODS, make_model
from knoi.metrics import component_correlations
from tests.report.reading import page_data

FIT = "fit X.npy Y.npy -o m.knoi"
LINEAR = "--method linear -k 2 --quiet"
# Small enough for a second: a run of a few steps.
QUICK = "--method knoi --rank 20 -k 2 --set batch_size=100"
TEST = "--test X_test.npy Y_test.npy"


def test_every_option_reaches_the_estimator(run):
    options = {
        "--rank 30": ("rank", 30),
        "--kernel laplacian:rbf": ("kernel", ("laplacian", "rbf")),
        "--width 2.5:median": ("width", (2.5, "median")),
        "--reg 1e-4": ("reg", 1e-4),
        "--approximation fourier": ("approximation", "fourier"),
        "--epochs 2": ("epochs", 2),
        "--time 1m30s": ("max_time", 90.0),
        "--memory 1GiB": ("memory_budget", "1GiB"),
        "--seed 7": ("random_state", 7),
        "--jobs 1": ("n_jobs", 1),
        "--landmarks kmeans": ("landmarks", "kmeans"),
        "--components 3": ("n_components", 3),
        "--checkpoint run": ("checkpoint", "run"),
        "--set momentum=0.5": ("momentum", 0.5),
    }
    done = run(f"{FIT} {' '.join(options)} --quiet")
    assert (done.code, done.err) == (0, "")
    parameters = knoi.load("m.knoi").get_params(deep=False)
    for name, value in options.values():
        assert parameters[name] == value, name
    assert parameters["verbose"] is None
    # Not in the fit above, since importing torch takes seconds.
    assert make_model("knoi", {"device": "cpu"}, {}).device == "cpu"


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_every_method_fits(run, method):
    name = METHODS["knoi" if method == "auto" else method].estimator
    more = "--rank 20" if method not in ("linear", "kernel", "deep") else ""
    more += " --epochs 1" if method in ("knoi", "dsgd", "deep", "auto") else ""
    done = run(f"{FIT} --method {method} -k 2 {more}")
    assert done.code == 0
    assert type(knoi.load("m.knoi")).__name__ == name
    assert f"Fitting {name}: 2 components of 400 pairs, 6 + 4 columns" in done.err


@pytest.mark.parametrize(("method", "warned"), [("knoi", True), ("linear", False)])
def test_more_components_than_columns(run, method, warned):
    done = run(f"{FIT} --method {method} -k {5 if warned else 4} --held-out 0")
    assert done.code == 0
    assert ("These are more components than columns: linear CCA has 4" in done.err) == warned


def test_columns_in_another_order_are_refused(run):
    for view in "XY":
        pd.DataFrame(np.load(f"{view}.npy")).add_prefix("c").to_csv(f"{view}.csv", index=False)
    assert run(f"fit X.csv Y.csv -o m.knoi {LINEAR}").code == 0
    pd.read_csv("Y.csv").iloc[:, ::-1].to_csv("swapped.csv", index=False)
    for command in (
        "score m.knoi X.csv swapped.csv",
        "transform m.knoi X.csv swapped.csv -o Z.npz",
        "transform m.knoi swapped.csv --view y -o Z.npy",
        "retrieve m.knoi X.csv swapped.csv --rows 0",
    ):
        done = run(command)
        assert done.code == 1
        assert "Y: The feature names should match those that were passed during fit." in done.err
        assert "Feature names must be in the same order" in done.err
        assert not os.path.exists("Z.npz")
    for command in (
        "transform m.knoi X.csv Y.csv -o Z.npz",
        "retrieve m.knoi X.csv Y.csv --rows 0",
    ):
        done = run(command)
        assert (done.code, "warning" in done.err) == (0, False)


class TestOutput:
    def test_training_and_held_out_correlations_are_printed_side_by_side(self, run):
        done = run(f"{FIT} --method linear {TEST}")
        model = knoi.load("m.knoi")
        assert model.n_components == 4  # by default the number of columns, up to ten
        fitted = model.score(np.load("X_test.npy"), np.load("Y_test.npy"))
        total = re.search(r"total, at most 4 +([\d.]+) +([\d.]+)", done.out)
        assert float(total[1]) == pytest.approx(model.correlations_.sum(), abs=0.005)
        assert float(total[2]) == pytest.approx(fitted, abs=0.005)
        assert "200 held-out pairs" in done.out
        assert "Model:  m.knoi" in done.out
        assert "\x1b" not in done.out + done.err

    def test_without_held_out_pairs_the_output_says_that_it_is_optimistic(self, run):
        done = run(f"{FIT} {QUICK} --epochs 2")
        assert "In-sample correlations are optimistic" in done.out
        assert "held-out pairs" not in done.out
        assert re.search(r"KNOI +epoch 1 .*correlation [\d.]+ of 2", done.err)
        assert "KNOI  800 samples" in done.err
        assert "samples" not in done.out

    def test_every_place_shows_the_same_in_sample_correlations(self, run, run_json):
        fit = f"{FIT} --method linear -k 3 --reg 1 {TEST} --report page.html"
        document, model = run_json(fit), knoi.load("m.knoi")
        X, Y = np.load("X.npy"), np.load("Y.npy")
        rho = component_correlations(*model.transform(X, Y))
        np.testing.assert_allclose(model.correlations_, rho, atol=1e-9)
        assert document["in_sample"]["correlations"] == model.correlations_.tolist()
        assert document["in_sample"] == run_json("info m.knoi")["in_sample"]
        html = Path("page.html").read_text(encoding="utf-8")
        shown = page_data(html)["correlations"]["series"][0]
        assert shown["name"] == "in-sample"
        np.testing.assert_allclose(shown["values"], rho, rtol=1e-3)
        assert f"in-sample {rho.sum():.4f}, held out" in html
        assert re.search(rf"total, at most 3 +{rho.sum():.2f} ", run(fit).out)
        assert f"{rho.sum():.2f} of 3 (in-sample)" in run("info m.knoi").out
        # Singular values of the regularised problem would make this model look overly modest.
        regularised = model.projection_.singular_values.sum()
        assert document["held_out"]["total_correlation"] > 1.3 * regularised

    def test_what_was_chosen_is_printed(self, run):
        done = run(f"{FIT} {QUICK} --epochs 1 --kernel laplacian:rbf --width 2:3 --reg 1e-3 -q")
        assert (done.code, done.out) == (0, "")
        given = "--rank 20 -k 2 --width 2:3 --reg 1e-3 --metric none --scale none"
        done = run(f"{FIT} --method nystrom {given}")
        assert "View X: RBF(width=2.0), reg 0.001" in done.out
        assert "View Y: RBF(width=3.0), reg 0.001" in done.out

    def test_more_components_than_columns_are_pointed_out(self, run):
        fit = f"{FIT} --method nystrom --metric none --rank 20"
        assert "linear CCA has 4 at most" in run(f"{fit} -k 9").err
        assert "linear CCA has" not in run(f"{fit} -k 3").err
        done = run(f"{FIT} --method linear -k 9")
        assert "--components 9 but Y has n_features=4" in done.err

    def test_json_is_all_that_is_on_stdout(self, run_json):
        document = run_json(f"{FIT} {QUICK} --epochs 2 {TEST}")
        model = knoi.load("m.knoi")
        assert document["method"] == "KNOI"
        assert document["parameters"]["rank"] == 20
        assert (document["rows"], document["columns"]) == (400, [6, 4])
        assert document["in_sample"]["correlations"] == model.correlations_.tolist()
        views = document["views"]["x"], document["views"]["y"]
        assert tuple(view["reg"] for view in views) == model.reg_
        assert tuple(view["width"] for view in views) == model.width_
        score = model.score(np.load("X_test.npy"), np.load("Y_test.npy"))
        assert document["held_out"]["total_correlation"] == pytest.approx(score)
        assert document["held_out"]["rows"] == 200
        assert document["n_samples_seen"] == model.n_samples_seen_
        assert document["history"]["samples"] == model.history_["samples"]
        assert set(document["history"]["held_out"]) == {None}  # NaN: nothing is held out of 400
        assert document["command"].startswith("knoi fit X.npy Y.npy -o m.knoi")

    def test_a_meaningless_fit_is_warned_about_in_one_line(self, run):
        np.save("A.npy", np.random.default_rng(0).standard_normal((20, 30)))
        np.save("B.npy", np.random.default_rng(1).standard_normal((20, 30)))
        done = run(f"fit A.npy B.npy -o m.knoi {LINEAR}")
        assert done.code == 0
        assert done.err.startswith("knoi: warning: LinearCCA: ")
        assert done.err.count("\n") == 1

    def test_rows_read_are_counted(self, run, monkeypatch):
        counts = []

        @contextmanager
        def show_rows(console, what, n_rows, then):
            assert n_rows == 400
            yield counts.append

        monkeypatch.setattr("knoi.cli.fit.show_rows", show_rows)
        assert run(f"{FIT} {LINEAR}").code == 0
        assert counts[-1] == 400
        assert counts == sorted(counts)


def test_many_rows_are_split_by_default_and_few_are_not(run_json):
    for name in "XY":
        np.save(f"{name}3.npy", np.tile(np.load(f"{name}.npy"), (3, 1)))
    for arguments, rows, held_out in (
        ("X.npy Y.npy", 400, None),
        ("X.npy Y.npy --held-out 0.25", 300, 100),
        ("X3.npy Y3.npy", 1080, 120),
        ("X3.npy Y3.npy --held-out 0", 1200, None),
    ):
        found = run_json(f"fit -o m.knoi {LINEAR} {arguments}")
        assert (found["rows"], (found["held_out"] or {}).get("rows")) == (rows, held_out)


class TestCheckpoints:
    FIT = f"{FIT} {QUICK} --epochs 5 --jobs 1"

    @pytest.fixture
    def run_steps(self, run, monkeypatch):
        """Run a command, with a signal at its sixth step; returns its result and its steps."""

        def run_steps(command, number=None):
            steps = []

            def note(self, state, result):
                steps.append(state.optimizer.steps)
                if number is not None and steps[-1] == 6:
                    signal.raise_signal(number)
                return state

            with monkeypatch.context() as patch:
                patch.setattr(ProgressBar, "__call__", note)
                return run(command), steps

        return run_steps

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_an_interrupted_fit_can_be_resumed(self, run, run_steps, number, code):
        assert run(f"{self.FIT} --quiet").code == 0
        straight = knoi.load("m.knoi")
        os.remove("m.knoi")
        stopped, _ = run_steps(f"{self.FIT} --checkpoint 'my run'", number)
        assert stopped.code == code
        assert not os.path.exists("m.knoi")
        last = stopped.err.splitlines()[-1]
        assert last.startswith("knoi: interrupted; to continue: knoi fit X.npy Y.npy -o m.knoi ")
        command = shlex.split(last.partition("to continue: knoi ")[2])
        assert command[-3:] == ["--checkpoint", "my run", "--resume"]
        done, steps = run_steps(shlex.join(command))
        assert (done.code, steps[0]) == (0, 7)
        model = knoi.load("m.knoi")
        assert model.n_samples_seen_ == straight.n_samples_seen_
        np.testing.assert_array_equal(model.x_weights_, straight.x_weights_)

    def test_without_a_checkpoint_nothing_is_saved(self, run_steps):
        stopped, _ = run_steps(self.FIT, signal.SIGINT)
        assert stopped.code == 130
        assert "knoi: interrupted; nothing was saved" in stopped.err.splitlines()[-1]

    def test_a_missing_replaced_or_foreign_checkpoint_is_announced(self, run, error_line):
        fit = f"{self.FIT} --checkpoint run"
        first = run(f"{fit} --resume")
        assert "There is no checkpoint in run yet: starting from the beginning" in first.err
        assert "Replacing the run in run; --resume would continue it" in run(fit).err
        line = error_line(1, f"{fit} --seed 1 --resume --quiet")
        assert "is of another run: its --seed is 0, here it is 1" in line

    def test_a_run_out_of_time_prints_how_to_train_on(self, run):
        done = run(f"{self.FIT} --checkpoint run --time 0.0001s")
        assert done.code == 0
        assert "Time is up; to train on: knoi fit X.npy" in done.out
        assert done.out.rstrip().endswith("--resume")
