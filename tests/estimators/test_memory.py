"""Memory budgets: the plan of KNOI at every size, and peaks of closed forms and KNOI."""

import json
import os
import subprocess
import sys
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from knoi import KNOI, FourierCCA, KernelCCA
from knoi.arrays.backend import Backend, numpy_backend
from knoi.engine import Serial, parse_bytes
from knoi.estimators.setup import Request, Sizes, make_plan
from knoi.exceptions import MemoryBudgetError
from knoi.features import KernelColumns, RandomFourier
from knoi.kernels import RBF, Laplacian, Polynomial
from knoi.solvers import acceleration
from tests.estimators.models import AS_PUBLISHED, related_views

GIB = 2**30


@contextmanager
def traced():
    """Yield a list that holds the peak of allocated bytes after the `with` block."""
    peak = []
    tracemalloc.start()
    try:
        yield peak
        peak.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


PEAK = """
import json
import numpy as np
from knoi import KNOI, FourierCCA
from knoi.datasets.synthetic import generated_views

class Rows:
    n_rows, n_cols, dtype = 3000, (392, 392), np.dtype(np.float32)

    def pair(self, start, stop):
        made = [self.one(np.random.default_rng(row)) for row in range(start, stop)]
        return tuple(np.array(view, dtype=self.dtype) for view in zip(*made))

    def one(self, rng):
        shared, noise = rng.standard_normal(392), rng.standard_normal((2, 392))
        return shared + noise[0], shared[::-1] + noise[1]

model = KNOI(
    50, rank=100_000, approximation="fourier", precondition=None, batch_size=2500, epochs=1,
    held_out=0, memory_budget="3GiB", random_state=0, n_jobs=1,
).fit(*generated_views(Rows(), random_access=False))
# Not ru_maxrss: that begins with what the process that started this one had taken.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "peak": 1024 * int(status["VmHWM"].split()[0]),
    "rank": model.x_weights_.shape,
    "finite": bool(np.isfinite(model.x_weights_).all() and np.isfinite(model.y_weights_).all()),
    "steps": model.history_["step"][-1],
}))
"""


def test_100_000_features_per_view_in_less_than_4_gib():
    """In a separate process, so that the peak is that of the fit: two steps and the final CCA.

    Preconditioning would take minutes to prepare at this rank.
    """
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PEAK],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rank"] == [100_000, 50]
    assert found["finite"]
    assert found["steps"] == 2
    assert found["peak"] < 4 * GIB


def sizes(n_rows, budget, n_cols=392, n_workers=1, device=None, host=0):
    backend, views = Backend(None, device, "float32"), ((n_cols, n_cols), 8 * n_cols)
    return Sizes(n_rows, *views, (4 * n_cols,) * 2, backend, budget, host, n_workers)


def request(rank, L=50, **changes):
    given = {
        "n_components": L,
        "rank": (rank, rank),
        "approximation": ("auto", "auto"),
        "kernels": (RBF(), RBF()),
        "precondition": "auto",
        "batch_size": None,
        "extra_directions": None,
        "held_out": 0.1,
        "epochs": None,
    }
    return Request(**given | changes)


class TestPlan:
    def test_landmarks_where_their_matrices_fit_else_random_features(self, caplog):
        caplog.set_level("INFO", "knoi")
        few = make_plan(request(4000), sizes(10**6, 3 * GIB), 0)
        assert few.approximation == ("nystrom", "nystrom")
        assert few.precondition == ("columns", "columns")
        assert few.batch_size == 4000
        many = make_plan(request(100_000), sizes(10**6, 3 * GIB), 0)
        assert many.approximation == ("hadamard", "hadamard")
        assert caplog.messages[0].startswith("view X: approximation='nystrom', because kernel ")
        assert "the 100000 x 100000 matrix of kernel columns would not fit" in caplog.messages[2]
        assert many.precondition == ("low_rank", "low_rank")
        assert many.batch_size == 2500
        roomy = make_plan(request(100_000), sizes(10**6, 1000 * GIB), 0)
        assert roomy.approximation == ("nystrom", "nystrom")

    def test_every_kernel_has_its_own_features(self):
        mixed = request(100_000, kernels=(Laplacian(), Polynomial()))
        plan = make_plan(mixed, sizes(10**6, 3 * GIB), 0)
        assert plan.approximation == ("qmc", "tensor_sketch")
        assert plan.precondition == ("low_rank", "low_rank")

    def test_features_are_kept_where_memory_allows(self):
        tight = make_plan(request(100_000), sizes(10**6, 3 * GIB), 0)
        roomy = make_plan(request(100_000), sizes(10**6, 8 * GIB), 0)
        assert (tight.keep_features, roomy.keep_features) == (False, True)

    def test_no_more_landmarks_or_minibatch_rows_than_rows(self):
        plan = make_plan(request(4000), sizes(1500, 3 * GIB), 0)
        assert (plan.n_held_out, plan.rank, plan.batch_size) == (150, (1350, 1350), 1350)

    def test_the_window_of_the_stream_grows_with_the_budget(self):
        windows = [
            make_plan(request(4000), sizes(10**6, budget * GIB), 0).window_bytes
            for budget in (2, 4, 8)
        ]
        assert windows == sorted(set(windows))
        assert all(w < b * GIB for w, b in zip(windows, (2, 4, 8), strict=True))

    def test_a_device_has_a_budget_of_its_own(self):
        def plan(device, host):
            return make_plan(
                request(100_000),
                sizes(10**6, int(device * GIB), device="cuda", host=int(host * GIB)),
                0,
            )

        # Features are kept on the device; the stream has the rest of main memory.
        assert [plan(one, 2).keep_features for one in (4, 12)] == [False, True]
        assert plan(4, 2).window_bytes == plan(12, 2).window_bytes
        assert plan(4, 1).window_bytes < plan(4, 2).window_bytes < 2 * GIB
        with pytest.raises(MemoryBudgetError, match=r"on device='cuda' but memory_budget is"):
            plan(1, 100)
        with pytest.raises(MemoryBudgetError, match="of main memory but memory_budget is"):
            plan(100, 0.1)

    @pytest.mark.parametrize(
        "changes",
        [
            # Features of all 10,000 rows at a time.
            {"rank": 8192, "approximation": ("fourier",) * 2, "precondition": None},
            # The Cholesky factor beside its matrix.
            {
                "rank": 9200,
                "approximation": ("nystrom",) * 2,
                "precondition": "columns",
                "batch_size": 500,
            },
        ],
        ids=["tiles", "cholesky"],
    )
    def test_what_a_device_needs_more(self, changes):
        wanted = request(**{"batch_size": 10_000} | changes)
        make_plan(wanted, sizes(10**6, GIB), 0)
        with pytest.raises(MemoryBudgetError, match="on device='cuda'"):
            make_plan(wanted, sizes(10**6, GIB, device="cuda", host=8 * GIB), 0)

    def test_a_plan_is_restored_from_plain_values(self):
        plan = make_plan(request(100_000), sizes(10**6, 3 * GIB), 7)
        state = json.loads(json.dumps(plan.state_dict()))
        assert type(plan).from_state_dict(state) == plan


@pytest.mark.parametrize(
    ("solver", "budget", "kept"),
    [
        ({"approximation": "nystrom"}, 32_000_000, False),
        ({"approximation": "fourier"}, 32_000_000, False),
        ({"approximation": "fourier"}, 60_000_000, True),
        ({"approximation": "fourier", "precondition": None}, 32_000_000, False),
    ],
    ids=["columns", "low_rank", "low_rank, kept", "published"],
)
def test_the_budget_holds(solver, budget, kept, monkeypatch):
    plans = []
    monkeypatch.setattr(
        "knoi.estimators.knoi.make_plan",
        lambda *args: (plans.append(make_plan(*args)), plans[-1])[1],
    )
    # The plan does not count these samples: make them small, as they are at full size.
    monkeypatch.setattr(acceleration, "SAMPLE_ROWS", 300)
    monkeypatch.setattr(acceleration, "WARM_FEATURES", 100)
    monkeypatch.setattr("knoi.estimators.setup.WIDTH_SAMPLE", 400)
    rng = np.random.default_rng(0)
    X, Y = (rng.standard_normal((12_000, 8), dtype=np.float32) for _ in range(2))
    model = KNOI(
        3, rank=1100, batch_size=2000, epochs=2, width=3.0, random_state=0, n_jobs=1,
        memory_budget=budget, **solver,
    )  # fmt: skip
    clone(model).set_params(rank=100, batch_size=50).fit(X[:100], Y[:100])  # compiles functions
    plans.clear()
    with traced() as peak:
        model.fit(X, Y)
    assert [plan.keep_features for plan in plans] == [kept]
    assert peak[0] <= budget


@pytest.mark.parametrize(("kind", "dtype"), [("columns", "float32"), ("fourier", "float64")])
def test_the_warm_start_takes_the_memory_that_is_planned(kind, dtype, monkeypatch):
    monkeypatch.setattr(acceleration, "WARM_FEATURES", 256)
    backend, rng = numpy_backend(dtype), np.random.default_rng(0)
    X, Y = (rng.standard_normal((2560, 5)).astype(dtype) for _ in range(2))
    Y[:, 0] = X[:, 0]
    maps = [
        KernelColumns(RBF(3.0), view[:600].copy())
        if kind == "columns"
        else RandomFourier.fit(view, RBF(3.0), 600, 0, 0)
        for view in (X, Y)
    ]
    needed = acceleration.warm_start_bytes((600, 600), 20_000, backend.itemsize)
    with traced() as peak:
        found = acceleration.warm_start((maps[0], maps[1]), (X, Y), 5, backend, Serial())
    assert found is not None
    assert needed / 3 < peak[0] <= needed


@pytest.mark.parametrize(
    ("pieces", "rows", "reg", "budget"),
    [
        (1, 6000, 1e-3, "60MiB"),
        (3, 6000, 1e-3, "60MiB"),
        (1, 6000, "auto", "100MiB"),
        (3, 6000, "auto", "130MiB"),
        (1, 1500, "auto", "140MiB"),  # several parts are held out
    ],
)
def test_closed_forms_keep_to_the_budget(pieces, rows, reg, budget):
    rng = np.random.default_rng(0)
    X, Y = (rng.standard_normal((rows, 50), dtype=np.float32) for _ in range(2))
    model = FourierCCA(2, rank=700, reg=reg, random_state=0, memory_budget=budget, n_jobs=1)
    FourierCCA(2, rank=10).fit(X[:200], Y[:200])  # imports what a fit needs
    with traced() as peak:
        if pieces == 1:
            model.fit(X, Y)
        else:
            for part in np.array_split(np.arange(rows), pieces):
                model.partial_fit(X[part], Y[part])
    assert peak[0] <= parse_bytes(budget)
    with pytest.raises(MemoryBudgetError):  # the plan is not far below it
        model.set_params(memory_budget=parse_bytes(budget) // 3).fit(X, Y)


@pytest.mark.parametrize(("reg", "matrices"), [(1e-2, 8), ("auto", 18)])
def test_exact_kernel_cca_keeps_to_its_plan(reg, matrices):
    X, Y = related_views(600)
    model = KernelCCA(2, reg=reg, random_state=0, n_jobs=1, **AS_PUBLISHED)
    model.fit(X[:60], Y[:60])  # imports what a fit needs
    with traced() as peak:
        model.fit(X, Y)
    assert matrices / 2 < peak[0] / (8 * 600**2) < matrices
    with pytest.raises(MemoryBudgetError, match="exact kernel CCA on 600 rows"):
        model.set_params(memory_budget=peak[0]).fit(X, Y)
