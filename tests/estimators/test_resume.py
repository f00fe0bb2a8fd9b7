"""A run that is killed, told to end or interrupted, and resumed, is the run left in peace."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from knoi import KNOI
from knoi.callbacks.checkpoint import FILE_NAME
from knoi.exceptions import CheckpointError
from knoi.features import RandomFourier
from knoi.kernels import RBF
from knoi.persistence import read_model

ACCELERATED = {"approximation": "nystrom"}
PUBLISHED = {"approximation": "fourier", "precondition": None, "time_constant": 0.5}
STEPS = 2 * 98  # two epochs of 19,500 rows
# A process that is to be killed runs at most so many steps beyond the one it says it has reached.
WINDOW = 30


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    """Two views on disk, several times what a run holds of them at a time."""
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

    def fit(self, views, out, params, *, resume=False, end=None):
        """The exit code of a fit; `end` is a signal, the step to send it after and a delay."""
        number, step, delay = (None, 0, 0.0) if end is None else end
        steps = (step, step + WINDOW) if end else (0, 0)
        job = {"views": views, "out": str(out), "params": params, "resume": resume, "steps": steps}
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
    sizes = {"n_components": 2, "rank": 40, "batch_size": 200, "extra_directions": 2}
    # 500 rows are held out: a record every 25 steps. The budget is for a few thousand rows.
    limits = {"epochs": 2, "held_out": 0.025, "tol": None, "memory_budget": 8_000_000 * n_jobs}
    return sizes | limits | {"random_state": 0, "n_jobs": n_jobs, "width": 8.0} | solver | more


def checkpointed(params, directory, seconds=1e-9):
    return params | {"checkpoint": str(directory), "checkpoint_seconds": seconds}


def steps_saved(directory):
    return read_model(directory / FILE_NAME).header["state"]["optimizer"]["steps"]


def assert_same_file(one, other):
    """Two model files hold the same tensors, to the last bit, and the same history."""
    one, other = read_model(one), read_model(other)
    assert {name: (t.dtype, t.shape, t.tobytes()) for name, t in one.tensors.items()} == {
        name: (t.dtype, t.shape, t.tobytes()) for name, t in other.tensors.items()
    }
    facts = [model.header["facts"] for model in (one, other)]
    assert facts[0]["history_"]["step"][-1] == STEPS
    for each in facts:
        del each["history_"]["seconds"]
    np.testing.assert_equal(*facts)


@pytest.fixture(scope="module")
def undisturbed(server, views, tmp_path_factory):
    """The model file of a run left in peace, by solver and number of workers."""
    folder, made = tmp_path_factory.mktemp("undisturbed"), {}

    def path(solver, n_jobs):
        key = solver["approximation"], n_jobs
        if key not in made:
            made[key] = folder / f"{len(made)}.knoi"
            assert server.fit(views, made[key], parameters(solver, n_jobs)) == 0
        return made[key]

    return path


both_solvers = pytest.mark.parametrize(
    "solver", [ACCELERATED, PUBLISHED], ids=["accelerated", "published"]
)


@both_solvers
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_killed_at_any_time_and_resumed(server, views, undisturbed, tmp_path, solver, n_jobs):
    rng = np.random.default_rng([n_jobs, len(solver)])
    params = checkpointed(parameters(solver, n_jobs), tmp_path / "run")
    reached = 0
    for _ in range(3):
        # The delay is about a few steps and what saving them takes.
        end = signal.SIGKILL, int(rng.integers(1, 15)), rng.uniform(0, 0.02)
        code = server.fit(views, tmp_path / "m.knoi", params, resume=True, end=end)
        assert code == -signal.SIGKILL
        assert not (tmp_path / "m.knoi").exists()
        if (tmp_path / "run" / FILE_NAME).exists():
            before, reached = reached, steps_saved(tmp_path / "run")
            assert before <= reached < STEPS
    assert reached > 0
    assert server.fit(views, tmp_path / "m.knoi", params, resume=True) == 0
    assert_same_file(tmp_path / "m.knoi", undisturbed(solver, n_jobs))
    assert [path.name for path in (tmp_path / "run").iterdir()] == [FILE_NAME]


@both_solvers
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)],
    ids=["SIGTERM", "SIGINT"],
)
def test_told_to_end_and_resumed(server, views, undisturbed, tmp_path, solver, number, code):
    # No checkpoint is due: what is on disk was saved because of the signal.
    params = checkpointed(parameters(solver), tmp_path / "run", seconds=1e6)
    reached = 0
    for step in (1, 40):
        end = number, step, 0.0
        found = server.fit(views, tmp_path / "m.knoi", params, resume=True, end=end)
        assert found == code
        assert not (tmp_path / "m.knoi").exists()
        before, reached = reached, steps_saved(tmp_path / "run")
        assert before + step <= reached <= before + step + WINDOW
    assert server.fit(views, tmp_path / "m.knoi", params, resume=True) == 0
    assert_same_file(tmp_path / "m.knoi", undisturbed(solver, 1))


@pytest.fixture(scope="module")
def half_done(server, views, tmp_path_factory):
    """The directory of a run that was told to end in the middle."""
    folder = tmp_path_factory.mktemp("half")
    params = checkpointed(parameters(ACCELERATED), folder / "run", seconds=1e6)
    end = signal.SIGTERM, 20, 0.0
    assert server.fit(views, folder / "m.knoi", params, end=end) == 143
    return folder / "run"


class TestAnotherRun:
    @pytest.fixture
    def directory(self, half_done, tmp_path):
        shutil.copytree(half_done, tmp_path / "run")
        return tmp_path / "run"

    def refused(self, directory, views, params, difference):
        text = (
            f"{directory / FILE_NAME} is of another run: {difference}. Resume with the parameters "
            "and the data it was made with, or train anew in another directory."
        )
        before = (directory / FILE_NAME).read_bytes()
        model = KNOI(**checkpointed(params, directory))
        unfitted = dict(vars(model))
        with pytest.raises(CheckpointError, match=f"^{re.escape(text)}$"):
            model.fit(*views, resume=True)
        assert vars(model) == unfitted
        assert (directory / FILE_NAME).read_bytes() == before

    @pytest.mark.parametrize(
        ("changed", "difference"),
        [
            ({"n_components": 3}, "its n_components is 2, here it is 3"),
            ({"batch_size": 300}, "its batch_size is 200, here it is 300"),
            ({"kernel": "laplacian"}, "its kernel is 'rbf', here it is 'laplacian'"),
            ({"width": (8.0, 2.0)}, "its width is 8.0, here it is [8.0, 2.0]"),
            ({"precondition": None}, "its precondition is 'auto', here it is None"),
            ({"random_state": 1}, "its random_state is 0, here it is 1"),
            (
                {"approximation": RandomFourier.fit(np.eye(20), RBF(1.0), 40, 0, 0)},
                "its approximation is 'nystrom', here it is {'feature_map': 'random_fourier'}",
            ),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
    )
    def test_other_parameters(self, directory, views, changed, difference):
        self.refused(directory, views, parameters(ACCELERATED) | changed, difference)

    def test_other_rows(self, directory, views):
        X, Y = (np.load(view) for view in views)
        params = parameters(ACCELERATED)
        shorter = X[:60], Y[:60]
        self.refused(directory, shorter, params, "its n_rows is 20000, here it is 60")
        narrower = X[:, :9], Y
        self.refused(directory, narrower, params, "its n_cols is [20, 15], here it is [9, 15]")

    @pytest.mark.parametrize("solver", [{}, {"approximation": "fourier"}], ids=["columns", "rff"])
    def test_other_values(self, views, tmp_path, solver):
        X, Y = (np.load(view)[:600] for view in views)
        params = parameters(solver, epochs=1) | {"memory_budget": None}
        directory = tmp_path / "run"
        KNOI(**checkpointed(params, directory)).fit(X, Y)
        other = "it was made from other data than X and Y, though of the same shape"
        self.refused(directory, (X, Y + 1), params, other)
        self.refused(directory, (X[::-1], Y[::-1]), params, other)

    def test_how_long_it_trains_may_change(self, directory, views):
        params = parameters(ACCELERATED, epochs=1, tol=0.5, verbose=False, max_time=3600.0)
        model = KNOI(**checkpointed(params, directory)).fit(*views, resume=True)
        assert model.history_["step"][-1] == STEPS // 2

    def test_a_fit_that_does_not_resume_starts_anew(self, server, views, undisturbed, directory):
        out = directory.parent / "m.knoi"
        params = checkpointed(parameters(ACCELERATED), directory, seconds=1e6)
        before = (directory / FILE_NAME).read_bytes()
        # Killed before its first checkpoint, it has left the old one alone.
        assert server.fit(views, out, params, end=(signal.SIGKILL, 5, 0.0)) == -signal.SIGKILL
        assert (directory / FILE_NAME).read_bytes() == before
        assert server.fit(views, out, params) == 0
        assert_same_file(out, undisturbed(ACCELERATED, 1))
        assert steps_saved(directory) == STEPS
