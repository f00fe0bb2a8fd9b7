"""`knoi fit`: every format, every option, what is said and what is written."""

import os
import re
import shlex
import signal

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
import zarr

import knoi
from knoi.callbacks.progress import Progress
from knoi.cli.options import make_model

LINEAR = ("--method", "linear", "-k", "2", "--quiet")
# Small enough for a second: a run of a few steps.
QUICK = ("--method", "knoi", "--rank", "20", "-k", "2", "--set", "batch_size=100")


def written_as(kind, table, name):
    """The table in a file of this kind, and its locator."""
    columns = [f"c{j}" for j in range(table.shape[1])]
    if kind == "npz":
        np.savez(f"{name}.npz", table=table, other=table[:3])
        return f"{name}.npz:table"
    if kind == "h5":
        with h5py.File("both.h5", "a") as file:
            file[f"views/{name}"] = table
        return f"both.h5:/views/{name}"
    if kind == "zarr":
        zarr.save(f"{name}.zarr", table)
        return f"{name}.zarr"
    if kind == "mat":
        scipy.io.savemat(f"{name}.mat", {"table": table, "other": table[:3]})
        return f"{name}.mat:table"
    if kind == "sparse":
        scipy.sparse.save_npz(f"{name}_sparse.npz", scipy.sparse.csr_array(table))
        return f"{name}_sparse.npz"
    frame = pd.DataFrame(table, columns=columns)
    if kind == "parquet":
        frame.to_parquet(f"{name}.parquet")
        return f"{name}.parquet"
    frame.to_csv(f"{name}.{kind}", index=False, sep="\t" if kind.startswith("tsv") else ",")
    return f"{name}.{kind}"


@pytest.mark.parametrize(
    "kind", ["npz", "h5", "zarr", "parquet", "csv", "csv.gz", "tsv", "mat", "sparse"]
)
def test_every_format_gives_the_model_of_the_npy(run, kind):
    locators = [written_as(kind, np.load(f"{name}.npy"), name) for name in "XY"]
    done = run("fit", *locators, "-o", "model.knoi", *LINEAR)
    assert (done.code, done.out, done.err) == (0, "", "")
    model, expected = knoi.load("model.knoi"), knoi.load("linear.knoi")
    np.testing.assert_allclose(model.correlations_, expected.correlations_, rtol=1e-9)
    np.testing.assert_allclose(np.abs(model.x_weights_), np.abs(expected.x_weights_), rtol=1e-6)


OPTIONS = {
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
    "--device": ("cpu", "device", "cpu"),
    "--landmarks": ("kmeans", "landmarks", "kmeans"),
    "--components": ("3", "n_components", 3),
    "--checkpoint": ("run", "checkpoint", "run"),
    "--set": ("momentum=0.5", "momentum", 0.5),
}


def typed(options):
    return [part for option in options for part in (option, OPTIONS[option][0])]


def test_every_option_reaches_the_estimator(run):
    assert make_model("knoi", {"device": "cpu"}, {}).device == "cpu"
    options = OPTIONS.keys() - {"--device"}  # it would take seconds to import torch
    done = run("fit", "X.npy", "Y.npy", "-o", "model.knoi", *typed(options), "--quiet")
    assert (done.code, done.err) == (0, "")
    parameters = knoi.load("model.knoi").get_params(deep=False)
    for option in options:
        _, name, value = OPTIONS[option]
        assert parameters[name] == value, name
    assert parameters["verbose"] is None


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("linear", "LinearCCA"),
        ("kernel", "KernelCCA"),
        ("fourier", "FourierCCA"),
        ("nystrom", "NystromCCA"),
        ("knoi", "KNOI"),
        ("dsgd", "DoublyStochasticCCA"),
        ("auto", "KNOI"),
    ],
)
def test_every_method_fits(run, method, name):
    more = ["--rank", "20"] if method not in ("linear", "kernel") else []
    more += ["--epochs", "1"] if method in ("knoi", "dsgd", "auto") else []
    command = ["fit", "X.npy", "Y.npy", "-o", "m.knoi", "--method", method, "-k", "2", *more]
    done = run(*command)
    assert done.code == 0
    assert type(knoi.load("m.knoi")).__name__ == name
    assert f"Fitting {name}: 2 components of 400 pairs, 6 + 4 columns" in done.err


def test_auto_is_linear_for_the_linear_kernel_unless_told_what_only_knoi_takes(run):
    fit = ("fit", "X.npy", "Y.npy", "-o", "m.knoi", "--kernel", "linear", "-k", "2", "--quiet")
    assert run(*fit).code == 0
    assert type(knoi.load("m.knoi")).__name__ == "LinearCCA"
    assert run(*fit, "--epochs", "1").code == 0
    assert type(knoi.load("m.knoi")).__name__ == "KNOI"


def test_components_are_as_many_as_columns_up_to_ten_unless_said(run):
    assert run("fit", "X.npy", "Y.npy", "-o", "m.knoi", "--method", "linear", "-q").code == 0
    assert knoi.load("m.knoi").n_components == 4


class TestWhatItSays:
    def test_training_and_test_pairs_stand_beside_each_other(self, run):
        test = ("--test", "X_test.npy", "Y_test.npy")
        done = run("fit", "X.npy", "Y.npy", "-o", "m.knoi", "--method", "linear", "-k", "2", *test)
        model = knoi.load("m.knoi")
        fitted = model.score(np.load("X_test.npy"), np.load("Y_test.npy"))
        total = re.search(r"total, at most 2 +([\d.]+) +([\d.]+)", done.out)
        assert float(total[1]) == pytest.approx(model.correlations_.sum(), abs=0.005)
        assert float(total[2]) == pytest.approx(fitted, abs=0.005)
        assert "200 held-out pairs" in done.out
        assert "Model:  m.knoi" in done.out
        assert "\x1b" not in done.out + done.err

    def test_without_other_pairs_it_says_that_training_flatters(self, run):
        done = run("fit", "X.npy", "Y.npy", "-o", "m.knoi", "--method", "linear", "-k", "2")
        assert "In-sample correlations are optimistic" in done.out
        assert "held-out pairs" not in done.out

    def test_json_is_all_there_is_on_stdout(self, run_json):
        test = ("--test", "X_test.npy", "Y_test.npy")
        document = run_json("fit", "X.npy", "Y.npy", "-o", "m.knoi", *QUICK, "--epochs", "2", *test)
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
        done = run("fit", "X.npy", "Y.npy", "-o", "m.knoi", *QUICK, "--epochs", "2")
        assert re.search(r"KNOI +epoch 1 .*correlation [\d.]+ of 2", done.err)
        assert "KNOI  800 samples" in done.err
        assert "samples" not in done.out

    def test_a_fit_that_means_nothing_is_warned_of_in_one_line(self, run):
        rng = np.random.default_rng(0)
        for name in "AB":
            np.save(f"{name}.npy", rng.standard_normal((20, 30)))
        done = run("fit", "A.npy", "B.npy", "-o", "m.knoi", *LINEAR)
        assert done.code == 0
        assert done.err.startswith("knoi: warning: LinearCCA: ")
        assert done.err.count("\n") == 1


class TestHeldOutPairs:
    def test_they_are_not_fitted_to(self, run_json):
        document = run_json("fit", "X.npy", "Y.npy", "-o", "m.knoi", *LINEAR, "--held-out", "0.25")
        assert (document["rows"], document["held_out"]["rows"]) == (300, 100)
        assert (
            document["training"]["correlations"] != knoi.load("linear.knoi").correlations_.tolist()
        )

    def test_many_rows_are_split_by_default_and_few_are_not(self, run_json):
        few = run_json("fit", "X.npy", "Y.npy", "-o", "m.knoi", *LINEAR)
        assert (few["rows"], few["held_out"]) == (400, None)
        for name in "XY":
            np.save(f"{name}3.npy", np.tile(np.load(f"{name}.npy"), (3, 1)))
        many = run_json("fit", "X3.npy", "Y3.npy", "-o", "m.knoi", *LINEAR)
        assert (many["rows"], many["held_out"]["rows"]) == (1080, 120)
        whole = run_json("fit", "X3.npy", "Y3.npy", "-o", "m.knoi", *LINEAR, "--held-out", "0")
        assert (whole["rows"], whole["held_out"]) == (1200, None)

    def test_a_bad_value_is_named_by_its_row_in_the_file(self, refused):
        X = np.load("X.npy").copy()
        X[371, 2] = np.nan
        np.save("bad.npy", X)
        line = refused(1, "fit", "bad.npy", "Y.npy", "-o", "m.knoi", *LINEAR, "--held-out", "100")
        assert re.match(r"X has NaN at row 371, column 2", line), line


class TestCheckpoints:
    FIT = ("fit", "X.npy", "Y.npy", "-o", "m.knoi", *QUICK, "--epochs", "5", "--jobs", "1")

    @staticmethod
    def interrupted(run, number, *arguments):
        """The command, told by a signal to end at its sixth step."""

        def told(self, state, outcome):
            if state.weights.steps == 6:
                signal.raise_signal(number)
            return state

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Progress, "__call__", told)
            return run(*arguments)

    @staticmethod
    def steps_of(run, *arguments):
        """The numbers of the steps that a command takes."""
        steps = []

        def noted(self, state, outcome):
            steps.append(state.weights.steps)
            return state

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Progress, "__call__", noted)
            assert run(*arguments).code == 0
        return steps

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_an_interrupted_fit_says_how_to_go_on_and_does(self, run, number, code):
        assert run(*self.FIT, "--quiet").code == 0
        straight = knoi.load("m.knoi")
        os.remove("m.knoi")
        stopped = self.interrupted(run, number, *self.FIT, "--checkpoint", "my run")
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

    def test_without_a_checkpoint_nothing_is_promised(self, run):
        stopped = self.interrupted(run, signal.SIGINT, *self.FIT)
        assert stopped.code == 130
        assert stopped.err.splitlines()[-1] == (
            "knoi: interrupted; nothing was saved. Use --checkpoint DIR to be able to resume."
        )

    def test_it_says_when_there_is_nothing_to_resume_or_something_given_up(self, run):
        first = run(*self.FIT, "--checkpoint", "run", "--resume")
        assert "There is no checkpoint in run yet: starting from the beginning" in first.err
        again = run(*self.FIT, "--checkpoint", "run")
        assert "Replacing the run in run; --resume would continue it" in again.err

    def test_a_run_that_ran_out_of_time_says_how_to_train_on(self, run):
        done = run(*self.FIT, "--checkpoint", "run", "--time", "0.0001s")
        assert done.code == 0
        assert "Time is up; to train on: knoi fit X.npy" in done.out
        assert done.out.rstrip().endswith("--resume")

    def test_the_checkpoint_of_another_run_is_refused(self, run, refused):
        assert run(*self.FIT, "--checkpoint", "run", "--quiet").code == 0
        other = [*self.FIT, "--seed", "1", "--checkpoint", "run", "--resume", "--quiet"]
        assert "is of another run: its --seed is 0, here it is 1" in refused(1, *other)


def test_long_passes_are_counted(run, monkeypatch):
    told = []

    class Bar:
        def __init__(self, *_, **__):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def add_task(self, _, total):
            told.append(("of", total))

        def update(self, _, completed):
            told.append(completed)

    monkeypatch.setattr("knoi.cli.output.Progress", Bar)
    assert run("fit", "X.npy", "Y.npy", "-o", "m.knoi", *LINEAR).code == 0
    assert told[0] == ("of", 400)
    assert told[-1] == 400
