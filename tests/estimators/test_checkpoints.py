"""Checkpoints: a run that is killed, interrupted or fails resumes to a bit-identical result."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import knoi
from knoi.callbacks.checkpoint import FILE_NAME
from knoi.estimators import training
from knoi.exceptions import CheckpointError, NonFiniteError
from knoi.features import RandomFourier
from knoi.kernels import RBF
from knoi.persistence import read_model
from knoi.solvers.noi import KNOIUpdate
from tests.estimators.models import (
    assert_equal_models,
    every_solver,
    related_views,
    small_knoi,
    with_value,
)

NOI = {"time_constant": 0.5, "extra_directions": 2}
SOLVERS = {
    "accelerated": ("KNOI", {"approximation": "nystrom", "extra_directions": 2}),
    "published": ("KNOI", {"approximation": "fourier", "precondition": None} | NOI),
    "dsgd": ("DoublyStochasticCCA", {"feature_block": 10}),
    "deep": ("DeepCCA", {"hidden": (30,), "head": "linear"}),
}
FITTED = RandomFourier.fit(np.eye(4), RBF(1.0), 30, 0, 0)
STEPS = 2 * 98  # two epochs of 19,500 rows
# A process that is to be killed takes at most this many steps after the one it announces.
WINDOW = 30


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    """Two views on disk, several times larger than the window of a run."""
    folder = tmp_path_factory.mktemp("views")
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((20_000, 2))
    paths = []
    for name, n_cols in (("x", 20), ("y", 15)):
        view = rng.standard_normal((20_000, n_cols))
        view[:, :2] += 2 * shared
        np.save(folder / f"{name}.npy", view.astype(np.float32))
        paths.append(str(folder / f"{name}.npy"))
    return paths


class FitServer:
    """Fits in processes that can be killed."""

    def __init__(self):
        here = Path(__file__)
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(here.with_name("fit_server.py"))],
            cwd=here.parents[2],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def fit(self, solver, views, out, params, *, resume=False, end=None):
        """The exit code of a fit; `end` is a signal, the step to send it after and a delay."""
        number, step, delay = (None, 0, 0.0) if end is None else end
        steps = (step, step + WINDOW) if end else (0, 0)
        job = {"estimator": SOLVERS[solver][0], "views": views, "out": str(out), "params": params}
        job |= {"resume": resume, "steps": steps}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        said = {}
        while True:
            word, value = self._process.stdout.readline().split()
            said[word] = int(value)
            if word == "ended":
                return said["ended"]
            if {"started", "reached"} <= said.keys():  # in either order
                time.sleep(delay)
                os.kill(said["started"], number)


@pytest.fixture(scope="module")
def server():
    server = FitServer()
    yield server
    server.close()


def parameters(solver, n_jobs=1, **more):
    sizes = {"n_components": 2, "rank": 40, "batch_size": 200, "width": 8.0}
    # 500 rows are held out: a record every 25 steps. The budget is for a few thousand rows.
    limits = {"epochs": 2, "held_out": 0.025, "tol": None, "memory_budget": 8_000_000 * n_jobs}
    params = sizes | limits | {"random_state": 0, "n_jobs": n_jobs} | SOLVERS[solver][1] | more
    known = getattr(knoi, SOLVERS[solver][0])._get_param_names()
    return {name: value for name, value in params.items() if name in known}


def checkpointed(params, directory, seconds=1e-9):
    return params | {"checkpoint": str(directory), "checkpoint_seconds": seconds}


def steps_saved(directory):
    return read_model(directory / FILE_NAME).header["state"]["optimizer"]["steps"]


def assert_same_file(one, other):
    """Two model files hold the same tensors, to the last bit, and the same history."""
    assert knoi.load(one).history_["step"][-1] == STEPS
    assert_equal_models(knoi.load(one), knoi.load(other))
    first, second = (
        {name: (t.dtype, t.tobytes()) for name, t in read_model(path).tensors.items()}
        for path in (one, other)
    )
    assert first == second


@pytest.fixture(scope="module")
def uninterrupted(server, views, tmp_path_factory):
    """The model file of a run without interruption, by solver and number of workers."""
    folder, paths = tmp_path_factory.mktemp("uninterrupted"), {}

    def path(solver, n_jobs):
        key = solver, n_jobs
        if key not in paths:
            paths[key] = folder / f"{len(paths)}.knoi"
            assert server.fit(solver, views, paths[key], parameters(solver, n_jobs)) == 0
        return paths[key]

    return path


@pytest.mark.parametrize(
    ("solver", "n_jobs"), [("accelerated", 2), ("published", 1), ("dsgd", 1), ("deep", 2)]
)
def test_killed_at_any_time_and_resumed(server, views, uninterrupted, tmp_path, solver, n_jobs):
    rng = np.random.default_rng([n_jobs, len(solver)])
    params = checkpointed(parameters(solver, n_jobs), tmp_path / "run")
    reached = 0
    for _ in range(3):
        # The delay is about a few steps and the time to save them.
        end = signal.SIGKILL, int(rng.integers(1, 15)), rng.uniform(0, 0.02)
        code = server.fit(solver, views, tmp_path / "m.knoi", params, resume=True, end=end)
        assert code == -signal.SIGKILL
        assert not (tmp_path / "m.knoi").exists()
        if (tmp_path / "run" / FILE_NAME).exists():
            before, reached = reached, steps_saved(tmp_path / "run")
            assert before <= reached < STEPS
    assert reached > 0
    assert server.fit(solver, views, tmp_path / "m.knoi", params, resume=True) == 0
    assert_same_file(tmp_path / "m.knoi", uninterrupted(solver, n_jobs))
    assert [path.name for path in (tmp_path / "run").iterdir()] == [FILE_NAME]


@pytest.mark.parametrize(
    ("solver", "number", "code"),
    [("accelerated", signal.SIGTERM, 143), ("published", signal.SIGINT, -signal.SIGINT)],
)
def test_interrupted_and_resumed(server, views, uninterrupted, tmp_path, solver, number, code):
    # No checkpoint is due: the one on disk was saved because of the signal.
    params = checkpointed(parameters(solver), tmp_path / "run", seconds=1e6)
    reached = 0
    for step in (1, 40):
        end = number, step, 0.0
        found = server.fit(solver, views, tmp_path / "m.knoi", params, resume=True, end=end)
        assert found == code
        assert not (tmp_path / "m.knoi").exists()
        before, reached = reached, steps_saved(tmp_path / "run")
        assert before + step <= reached <= before + step + WINDOW
    assert server.fit(solver, views, tmp_path / "m.knoi", params, resume=True) == 0
    assert_same_file(tmp_path / "m.knoi", uninterrupted(solver, 1))


class TestOtherRuns:
    """A checkpoint of another run is an error: neither the model nor the checkpoint changes."""

    def check_error(self, directory, data, difference, **changed):
        before = (directory / FILE_NAME).read_bytes()
        model = small_knoi(**{"epochs": 1, "checkpoint": directory} | changed)
        unfitted = dict(vars(model))
        with pytest.raises(CheckpointError, match=re.escape(f" is of another run: {difference}")):
            model.fit(*data, resume=True)
        assert vars(model) == unfitted
        assert (directory / FILE_NAME).read_bytes() == before

    @pytest.mark.parametrize(
        ("changed", "difference"),
        [
            ({"kernel": "laplacian"}, "its kernel is 'rbf', here it is 'laplacian'"),
            ({"width": (8.0, 2.0)}, "its width is 'median', here it is [8.0, 2.0]"),
            ({"random_state": 1}, "its random_state is 0, here it is 1"),
            ({"approximation": FITTED}, "its approximation is 'auto', here it is {'feature_map'"),
        ],
        ids=["kernel", "width", "random_state", "approximation"],
    )
    def test_other_parameters(self, tmp_path, changed, difference):
        data = related_views(300)
        small_knoi(epochs=1, checkpoint=tmp_path).fit(*data)
        self.check_error(tmp_path, data, difference, **changed)

    @pytest.mark.parametrize("approximation", ["nystrom", "fourier"])
    def test_other_data(self, tmp_path, approximation):
        X, Y = related_views(600)
        same = {"approximation": approximation}
        small_knoi(epochs=1, checkpoint=tmp_path, **same).fit(X, Y)
        other = "it was made from other data than X and Y, though of the same shape"
        for data, difference in (
            ((X[:90], Y[:90]), "its n_rows is 600, here it is 90"),
            ((X[:, :3], Y), "its n_cols is [4, 3], here it is [3, 3]"),
            ((X, Y + 1), other),
            ((X[::-1], Y[::-1]), other),
        ):
            self.check_error(tmp_path, data, difference, **same)


class TestInOneProcess:
    @every_solver
    def test_a_finished_run_is_continued_only_by_more_epochs(self, tmp_path, solver):
        X, Y = related_views(600)
        # The default of reg depends on the epochs of the first call.
        straight = small_knoi(solver, reg=1e-4, epochs=5).fit(X, Y)
        params = {"reg": 1e-4, "checkpoint": tmp_path / "new"}
        # There is no checkpoint yet: resume=True starts a run.
        model = small_knoi(solver, epochs=2, **params).fit(X, Y, resume=True)
        assert_equal_models(model, small_knoi(solver, reg=1e-4, epochs=2).fit(X, Y))
        written = (tmp_path / "new" / FILE_NAME).read_bytes()
        again = small_knoi(solver, epochs=2, **params).fit(X, Y, resume=True)
        assert_equal_models(again, model)
        assert (tmp_path / "new" / FILE_NAME).read_bytes() == written
        again = small_knoi(solver, epochs=5, **params).fit(X, Y, resume=True)
        np.testing.assert_array_equal(again.x_weights_, straight.x_weights_)

    def test_a_run_that_was_out_of_time_continues(self, tmp_path):
        X, Y = related_views(1200)
        params = {"epochs": 3, "tol": None, "checkpoint": tmp_path}
        first = small_knoi(**params, max_time=1e-9).fit(X, Y)
        assert first.stopped_ == "out of time"
        again = small_knoi(**params).fit(X, Y, resume=True)
        assert again.stopped_ == "epochs"
        straight = small_knoi(epochs=3, tol=None).fit(X, Y)
        np.testing.assert_array_equal(again.x_weights_, straight.x_weights_)

    def test_a_converged_run_continues_with_another_tol(self, tmp_path):
        X, Y = related_views(1500)
        params = {"epochs": 40, "checkpoint": tmp_path}
        model = small_knoi(**params, tol=0.05).fit(X, Y)
        assert model.stopped_ == "converged"
        again = small_knoi(**params, tol=0.05).fit(X, Y, resume=True)
        assert again.stopped_ == "converged"
        assert_equal_models(again, model)
        further = small_knoi(**params, tol=None).fit(X, Y, resume=True)
        assert further.stopped_ == "epochs"
        assert_equal_models(further, small_knoi(epochs=40, tol=None).fit(X, Y))

    def test_a_fit_without_resume_replaces_the_checkpoint(self, tmp_path):
        X, Y = related_views(600)
        small_knoi(epochs=2, checkpoint=tmp_path).fit(X, Y)
        old = (tmp_path / FILE_NAME).read_bytes()
        with pytest.raises(NonFiniteError):  # before the first step
            small_knoi(epochs=2, checkpoint=tmp_path).fit(with_value(X, 0, 0, np.nan), Y)
        assert (tmp_path / FILE_NAME).read_bytes() == old
        other = small_knoi(epochs=2, random_state=1, checkpoint=tmp_path).fit(X, Y)
        assert (tmp_path / FILE_NAME).read_bytes() != old
        assert_equal_models(other, small_knoi(epochs=2, random_state=1).fit(X, Y))

    def test_an_error_loses_no_step(self, tmp_path, monkeypatch):
        X, Y = related_views(1500)
        params = {"epochs": 6, "tol": None}
        evaluate = training.Training.held_out_correlation

        def fail_at_100(self, optimizer):
            if optimizer.steps >= 100:
                raise OSError("the disk is gone")
            return evaluate(self, optimizer)

        monkeypatch.setattr(training.Training, "held_out_correlation", fail_at_100)
        model = small_knoi(**params, checkpoint=tmp_path, checkpoint_seconds=1e6)
        with pytest.raises(OSError, match=r"^the disk is gone\n") as raised:
            model.fit(X, Y)
        assert f"saved in {tmp_path}. " in raised.value.__notes__[0]
        monkeypatch.setattr(training.Training, "held_out_correlation", evaluate)
        steps = []
        count = KNOIUpdate.step
        monkeypatch.setattr(KNOIUpdate, "step", lambda *args: (steps.append(1), count(*args))[1])
        model.fit(X, Y, resume=True)
        assert len(steps) == 138 - 99
        assert_equal_models(model, small_knoi(**params).fit(X, Y))

    def test_a_bad_row_late_in_a_file(self, tmp_path):
        X, Y = related_views(60_000, dtype=np.float32)
        files = tmp_path / "x.npy", tmp_path / "y.npy"
        np.save(files[0], with_value(X, 41_003, 2, np.nan))
        np.save(files[1], Y)
        # Memory for a part of the rows at a time; no step is saved before the error.
        params = {"epochs": 1, "batch_size": 300, "memory_budget": "1MB", "tol": None}
        saved = {"checkpoint": tmp_path / "run", "checkpoint_seconds": 1e6}
        with pytest.raises(NonFiniteError, match=r"^X has NaN at row 41003, column 2: ") as raised:
            small_knoi(**params, **saved).fit(*files)
        assert f"saved in {tmp_path / 'run'}. " in raised.value.__notes__[0]
        np.save(files[0], X)
        model = small_knoi(**params, **saved).fit(*files, resume=True)
        assert_equal_models(model, small_knoi(**params).fit(*files))
