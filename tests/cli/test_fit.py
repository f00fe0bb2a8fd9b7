"""`knoi fit`: options, what is printed, and what is written."""

import os
import re
import shlex
import signal
from contextlib import contextmanager

import numpy as np
import pytest

import knoi
from knoi.callbacks.history import ProgressBar
from knoi.cli.options import METHODS, make_model

FIT = ("fit", "X.npy", "Y.npy", "-o", "m.knoi")
LINEAR = ("--method", "linear", "-k", "2", "--quiet")
# Small enough for a second: a run of a few steps.
QUICK = ("--method", "knoi", "--rank", "20", "-k", "2", "--set", "batch_size=100")


def test_every_option_reaches_the_estimator(run):
    options = {
        "--rank": ("30", "rank", 30),
        "--kernel": ("laplacian:rbf", "kernel", ("laplacian", "rbf")),
        "--width": ("2.5:median", "width", (2.5, "median")),
        "--reg": ("1e-4", "reg", 1e-4),
        "--approximation": ("fourier", "approximation", "fourier"),
        "--epochs": ("2", "epochs", 2),
        "--time": ("1m30s", "max_time", 90.0),
        "--memory": ("1GiB", "memory_budget", "1GiB"),
        "--seed": ("7", "random_state", 7),
        "--jobs": ("1", "n_jobs", 1),
        "--landmarks": ("kmeans", "landmarks", "kmeans"),
        "--components": ("3", "n_components", 3),
        "--checkpoint": ("run", "checkpoint", "run"),
        "--set": ("momentum=0.5", "momentum", 0.5),
    }
    typed = [part for option, (text, _, _) in options.items() for part in (option, text)]
    done = run(*FIT, *typed, "--quiet")
    assert (done.code, done.err) == (0, "")
    parameters = knoi.load("m.knoi").get_params(deep=False)
    for _, name, value in options.values():
        assert parameters[name] == value, name
    assert parameters["verbose"] is None
    # Not in the fit above, since importing torch takes seconds.
    assert make_model("knoi", {"device": "cpu"}, {}).device == "cpu"


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_every_method_fits(run, method):
    name = METHODS["knoi" if method == "auto" else method].estimator
    more = ["--rank", "20"] if method not in ("linear", "kernel") else []
    more += ["--epochs", "1"] if method in ("knoi", "dsgd", "auto") else []
    done = run(*FIT, "--method", method, "-k", "2", *more)
    assert done.code == 0
    assert type(knoi.load("m.knoi")).__name__ == name
    assert f"Fitting {name}: 2 components of 400 pairs, 6 + 4 columns" in done.err


def test_components_are_the_number_of_columns_up_to_ten_by_default(run):
    assert run(*FIT, "--method", "linear", "-q").code == 0
    assert knoi.load("m.knoi").n_components == 4


class TestOutput:
    def test_training_and_held_out_correlations_are_printed_side_by_side(self, run):
        test = ("--test", "X_test.npy", "Y_test.npy")
        done = run(*FIT, "--method", "linear", "-k", "2", *test)
        model = knoi.load("m.knoi")
        fitted = model.score(np.load("X_test.npy"), np.load("Y_test.npy"))
        total = re.search(r"total, at most 2 +([\d.]+) +([\d.]+)", done.out)
        assert float(total[1]) == pytest.approx(model.correlations_.sum(), abs=0.005)
        assert float(total[2]) == pytest.approx(fitted, abs=0.005)
        assert "200 held-out pairs" in done.out
        assert "Model:  m.knoi" in done.out
        assert "\x1b" not in done.out + done.err

    def test_in_sample_correlations_come_with_a_warning(self, run):
        done = run(*FIT, "--method", "linear", "-k", "2")
        assert "In-sample correlations are optimistic" in done.out
        assert "held-out pairs" not in done.out

    def test_json_is_all_that_is_on_stdout(self, run_json):
        test = ("--test", "X_test.npy", "Y_test.npy")
        document = run_json(*FIT, *QUICK, "--epochs", "2", *test)
        model = knoi.load("m.knoi")
        assert document["method"] == "KNOI"
        assert document["parameters"]["rank"] == 20
        assert (document["rows"], document["columns"]) == (400, [6, 4])
        assert document["training"]["correlations"] == model.correlations_.tolist()
        score = model.score(np.load("X_test.npy"), np.load("Y_test.npy"))
        assert document["held_out"]["total_correlation"] == pytest.approx(score)
        assert document["held_out"]["rows"] == 200
        assert document["n_samples_seen"] == model.n_samples_seen_
        assert document["history"]["samples"] == model.history_["samples"]
        assert set(document["history"]["held_out"]) == {None}  # NaN: nothing is held out of 400
        assert document["command"].startswith("knoi fit X.npy Y.npy -o m.knoi")

    def test_progress_goes_to_stderr(self, run):
        done = run(*FIT, *QUICK, "--epochs", "2")
        assert re.search(r"KNOI +epoch 1 .*correlation [\d.]+ of 2", done.err)
        assert "KNOI  800 samples" in done.err
        assert "samples" not in done.out

    def test_a_meaningless_fit_is_warned_about_in_one_line(self, run):
        rng = np.random.default_rng(0)
        for name in "AB":
            np.save(f"{name}.npy", rng.standard_normal((20, 30)))
        done = run("fit", "A.npy", "B.npy", "-o", "m.knoi", *LINEAR)
        assert done.code == 0
        assert done.err.startswith("knoi: warning: LinearCCA: ")
        assert done.err.count("\n") == 1


class TestHeldOutPairs:
    def test_many_rows_are_split_by_default_and_few_are_not(self, run_json):
        few = run_json(*FIT, *LINEAR)
        assert (few["rows"], few["held_out"]) == (400, None)
        part = run_json(*FIT, *LINEAR, "--held-out", "0.25")
        assert (part["rows"], part["held_out"]["rows"]) == (300, 100)
        assert part["training"]["correlations"] != few["training"]["correlations"]
        for name in "XY":
            np.save(f"{name}3.npy", np.tile(np.load(f"{name}.npy"), (3, 1)))
        many = run_json("fit", "X3.npy", "Y3.npy", "-o", "m.knoi", *LINEAR)
        assert (many["rows"], many["held_out"]["rows"]) == (1080, 120)
        whole = run_json("fit", "X3.npy", "Y3.npy", "-o", "m.knoi", *LINEAR, "--held-out", "0")
        assert (whole["rows"], whole["held_out"]) == (1200, None)

    def test_a_bad_value_is_named_by_its_row_in_the_file(self, error_line):
        X = np.load("X.npy").copy()
        X[371, 2] = np.nan
        np.save("bad.npy", X)
        fit = ("fit", "bad.npy", "Y.npy", "-o", "m.knoi", *LINEAR, "--held-out", "100")
        assert error_line(1, *fit).startswith("X has NaN at row 371, column 2")


class TestCheckpoints:
    FIT = (*FIT, *QUICK, "--epochs", "5", "--jobs", "1")

    @staticmethod
    def interrupt(run, number, *arguments):
        """Run a command that gets a signal at its sixth step."""

        def stop(self, state, result):
            if state.optimizer.steps == 6:
                signal.raise_signal(number)
            return state

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ProgressBar, "__call__", stop)
            return run(*arguments)

    @staticmethod
    def steps_of(run, *arguments):
        """Run a command and return the numbers of its steps."""
        steps = []

        def note(self, state, result):
            steps.append(state.optimizer.steps)
            return state

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ProgressBar, "__call__", note)
            assert run(*arguments).code == 0
        return steps

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_an_interrupted_fit_can_be_resumed(self, run, number, code):
        assert run(*self.FIT, "--quiet").code == 0
        straight = knoi.load("m.knoi")
        os.remove("m.knoi")
        stopped = self.interrupt(run, number, *self.FIT, "--checkpoint", "my run")
        assert stopped.code == code
        assert not os.path.exists("m.knoi")
        last = stopped.err.splitlines()[-1]
        assert last.startswith("knoi: interrupted; to continue: knoi fit X.npy Y.npy -o m.knoi ")
        command = shlex.split(last.partition("to continue: ")[2])
        assert command[-3:] == ["--checkpoint", "my run", "--resume"]
        steps = self.steps_of(run, *command[1:])
        assert steps[0] == 7
        model = knoi.load("m.knoi")
        assert model.n_samples_seen_ == straight.n_samples_seen_
        np.testing.assert_array_equal(model.x_weights_, straight.x_weights_)

    def test_without_a_checkpoint_nothing_is_saved(self, run):
        stopped = self.interrupt(run, signal.SIGINT, *self.FIT)
        assert stopped.code == 130
        assert stopped.err.splitlines()[-1] == (
            "knoi: interrupted; nothing was saved. Use --checkpoint DIR to be able to resume."
        )

    def test_a_missing_or_replaced_checkpoint_is_announced(self, run):
        first = run(*self.FIT, "--checkpoint", "run", "--resume")
        assert "There is no checkpoint in run yet: starting from the beginning" in first.err
        again = run(*self.FIT, "--checkpoint", "run")
        assert "Replacing the run in run; --resume would continue it" in again.err

    def test_a_run_out_of_time_prints_how_to_train_on(self, run):
        done = run(*self.FIT, "--checkpoint", "run", "--time", "0.0001s")
        assert done.code == 0
        assert "Time is up; to train on: knoi fit X.npy" in done.out
        assert done.out.rstrip().endswith("--resume")

    def test_the_checkpoint_of_another_run_is_an_error(self, run, error_line):
        assert run(*self.FIT, "--checkpoint", "run", "--quiet").code == 0
        other = [*self.FIT, "--seed", "1", "--checkpoint", "run", "--resume", "--quiet"]
        assert "is of another run: its --seed is 0, here it is 1" in error_line(1, *other)


def test_rows_read_are_counted(run, monkeypatch):
    counts = []

    @contextmanager
    def show_rows(console, what, n_rows, then):
        assert n_rows == 400
        yield counts.append

    monkeypatch.setattr("knoi.cli.fit.show_rows", show_rows)
    assert run(*FIT, *LINEAR).code == 0
    assert counts[-1] == 400
    assert counts == sorted(counts)
