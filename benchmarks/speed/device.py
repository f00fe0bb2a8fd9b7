"""A device: launches and transfers of a training step, and its time beside that of NumPy.

    python -m benchmarks.speed.device [--device cuda]

Counts need no device: a fake one (`tests/fake_cuda.py`) counts operations, about the launches of
kernels, uploads, downloads, and waits of the host, in one step and in one block of kernel columns.
Of a backward pass it sees one operation. Times are those of steps on a minibatch in memory, with
torch on the CPU and with NumPy in turns, the best of several; both have as many workers as there
are cores. With `--device` the steps are also run on that device, and CUDA's profiler counts.
"""

import argparse
from collections import Counter
from contextlib import ExitStack

import numpy as np
import torch

from benchmarks.harness import Results, best_times
from benchmarks.speed.step_efficiency import set_up
from knoi import DeepCCA
from knoi.arrays.backend import pick_backend
from knoi.arrays.random import View
from knoi.engine import Serial, Threads, worker_count
from knoi.features import KernelColumns
from knoi.features.registry import approximate
from knoi.kernels import KERNELS, RBF, ArcCosine, Cauchy, Laplacian, Matern
from knoi.solvers.acceleration import Columns, LowRank, plain
from knoi.solvers.loop import OptimizerState, ViewState
from knoi.solvers.noi import KNOIUpdate, MinibatchFeatures, StepSize
from tests.fake_cuda import FakeCuda

NAME = "speed_device"
CEILINGS = {"operations": 100, "uploads": 4, "downloads": 2, "waits": 0}  # of a step
KERNEL_CEILINGS = {"operations": 60, "uploads": 0, "downloads": 0, "waits": 0}  # of a block
STEPS = ("fourier", "low_rank", "columns", "hadamard")
COLUMNS, COMPONENTS = 392, 50
# What CUDA calls them, as parts of the names of the profiler.
PROFILED = {
    "operations": "cudaLaunchKernel",
    "uploads": "Memcpy HtoD",
    "downloads": "Memcpy DtoH",
    "waits": "Synchronize",
}


def rows(n, seed):
    return np.random.default_rng(seed).random((n, COLUMNS), dtype=np.float32)


def knoi_step(name, device, rank, batch, engine):
    """One step of KNOI on rows in main memory, as a function.

    Time and launches depend on sizes only, so maps and preconditioners are not fitted.
    """
    backend = pick_backend(device, "float32")
    draw = np.random.default_rng(0)
    views, batches = [rows(rank, seed) for seed in (0, 1)], [rows(batch, seed) for seed in (2, 3)]
    kernel = RBF(float(COLUMNS) ** 0.5)
    if name == "columns":
        maps = [KernelColumns(kernel, view) for view in views]
    else:
        kind = "hadamard" if name == "hadamard" else "fourier"
        maps = [approximate(kind, view, kernel, rank, 0, View.X) for view in views]
    precondition = plain
    if name == "columns":
        factor = draw.random((rank, rank), dtype=np.float32) / rank
        factor[np.diag_indices(rank)] = 1.0
        precondition = Columns(backend.asarray(factor), 1e-3, 1e-6, backend)
    elif name == "low_rank":
        Q = draw.standard_normal((rank, min(400, rank)), dtype=np.float32) / rank**0.5
        damping = backend.asarray(np.full((Q.shape[1], 1), 0.5))
        precondition = LowRank(backend.asarray(Q), damping, 1e-6)
    features = [MinibatchFeatures(one.to(backend), batch, backend, keep=True) for one in maps]
    update = KNOIUpdate(
        tuple(features),
        (precondition, precondition),
        (StepSize(1e-3, None), StepSize(1e-3, None)),
        COMPONENTS,
        rho=0.0,
        momentum=0.5,
        weight_decay=0.0,
        average_from=None if precondition is plain else 0,
        backend=backend,
        engine=engine,
    )
    U = backend.asarray(draw.standard_normal((rank, COMPONENTS)))
    state = OptimizerState(ViewState(U, U * 0), ViewState(U, U * 0), average=(U, U), n_averaged=1)
    return in_one_thread(update, state, *batches)


def deep_step(device, batch, opened):
    """One step of DeepCCA with its default networks, as a function."""
    X, Y = rows(2 * batch, 0), rows(2 * batch, 1)
    model = DeepCCA(COMPONENTS, batch_size=batch, held_out=0, n_jobs=1, device=device)
    fit = opened.enter_context(set_up(model, X, Y))
    return in_one_thread(fit.training.update, fit.run.optimizer, X[:batch], Y[:batch])


def in_one_thread(update, state, x, y):
    """A step as `train` takes it."""

    def step():
        with update.engine.one_blas_thread():
            update.step(state, x, y)

    return step


# Counts.


def count_steps():
    """What the fake device counts in one step of each kind; the first step uploads constants."""
    counts = {}
    with FakeCuda() as gpu, ExitStack() as opened:
        steps = {name: knoi_step(name, "cuda", 1024, 500, Serial()) for name in STEPS}
        for name, step in {**steps, "deep": deep_step("cuda", 500, opened)}.items():
            step()
            gpu.counts.clear()
            step()
            counts[name] = dict(gpu.counts)
    return {"counts": counts, "ceilings": CEILINGS}


def kernels():
    """Every kernel, by the name in the table."""
    width = {"laplacian": float(COLUMNS) / 2, "chi2": float(COLUMNS) / 4}
    found = {}
    for name, kind in KERNELS.items():
        sized = "width" in kind.__dataclass_fields__
        found[name] = kind(width=width.get(name, COLUMNS**0.5)) if sized else kind()
    found["matern, nu = 0.8"] = Matern(COLUMNS**0.5, nu=0.8)
    found["arccosine, order 2"] = ArcCosine(2)
    found["rbf + laplacian"] = found["rbf"] + Laplacian(float(COLUMNS))
    found["rbf * cauchy"] = found["rbf"] * Cauchy(float(COLUMNS))
    return found


def count_kernels():
    """What the fake device counts in one block, 256 rows and 512 landmarks, of each kernel."""
    counts = {}
    with FakeCuda() as gpu:
        backend = pick_backend("cuda", "float32")
        X = backend.asarray(rows(256, 0))
        for name, kernel in kernels().items():
            columns = KernelColumns(kernel, rows(512, 1)).to(backend)
            columns.transform(X)  # what depends on the landmarks alone is computed once
            gpu.counts.clear()
            columns.block(columns.prepare(X), slice(0, 512))
            counts[name] = dict(gpu.counts)
    return {"counts": counts, "ceilings": KERNEL_CEILINGS}


# Times.


def waited(step, device):
    """The step until the device has finished it."""
    module = getattr(torch, str(device).partition(":")[0], None)

    def whole():
        step()
        if device not in (None, "cpu"):
            module.synchronize()

    return whole


def profiled(step):
    """What CUDA's profiler counts in one step."""
    with torch.profiler.profile() as profile:
        step()
    seen = Counter({event.key: event.count for event in profile.key_averages()})
    return {
        what: sum(count for key, count in seen.items() if part in key)
        for what, part in PROFILED.items()
    }


def time_steps(device, options):
    """Seconds of a step with NumPy and on the device; of DeepCCA with torch on the CPU instead."""
    seconds, profiles = {}, {}
    for name in (*STEPS, *(("deep",) if device != "cpu" else ())):
        with ExitStack() as opened:
            engine = opened.enter_context(Threads(worker_count(None)))
            steps = {}
            for place in (None, device):
                if name == "deep":
                    step = deep_step(place or "cpu", options.batch, opened)
                else:
                    step = knoi_step(name, place, options.rank, options.batch, engine)
                steps["numpy" if place is None else "device"] = waited(step, place)
            for step in steps.values():
                step()
            seconds[name] = best_times(steps, options.repeats)
            if device.startswith("cuda"):
                profiles[name] = profiled(steps["device"])
    found = {"seconds": seconds, "workers": worker_count(None)}
    if device.startswith("cuda"):
        found |= {"counts": profiles, "device": torch.cuda.get_device_name(device)}
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--device", help="a torch device to run on as well: cuda, cuda:1, mps")
    arguments.add_argument("--rank", type=int, default=8192)
    arguments.add_argument("--batch", type=int, default=2500)
    arguments.add_argument("--repeats", type=int, default=6)
    options = arguments.parse_args()
    results = Results(NAME)
    for what, count in (("step", count_steps), ("kernel block", count_kernels)):
        cell = results.cell(f"counts per {what}", count, again=True)
        for name, found in cell["counts"].items():
            shown = (
                f"{found.get(one, 0)} {one} (ceiling {n})" for one, n in cell["ceilings"].items()
            )
            print(f"{what}, {name}: {', '.join(shown)}")
    for device in dict.fromkeys(("cpu", options.device or "cpu")):
        key = f"steps device={device} rank={options.rank} batch={options.batch}"
        cell = results.cell(key, lambda device=device: time_steps(device, options), again=True)
        for name, found in cell["seconds"].items():
            baseline = "torch on the CPU" if name == "deep" else "NumPy"
            print(
                f"step, {name}: {1e3 * found['numpy']:.0f} ms with {baseline}, "
                f"{1e3 * found['device']:.0f} ms with torch on {device}, "
                f"ratio {found['device'] / found['numpy']:.2f}"
            )


if __name__ == "__main__":
    main()
