"""The hot path: feature maps against the matrix product they start from, and whole KNOI steps.

    python -m benchmarks.speed.feature_maps [--rank 20480] [--batch 2500] [--columns 392]

Bare: sgemm of X W with as many BLAS threads as workers, into an existing array. Ours: all features
of a minibatch of one view, in blocks of columns distributed over the workers, into existing arrays,
as in a step of KNOI. Then whole steps of the published algorithm, from minibatches in memory, with
dense and with structured frequencies. Everything is float32; times are the best of interleaved
rounds.
"""

import argparse
from contextlib import ExitStack

import numpy as np

from benchmarks.harness import AS_PUBLISHED, Results, best_times
from benchmarks.speed.step_efficiency import set_up
from knoi import KNOI
from knoi.arrays import fast
from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import View
from knoi.engine import Threads, worker_count
from knoi.features import KernelColumns, RandomFourier, StructuredFourier
from knoi.kernels import RBF
from knoi.solvers.noi import MinibatchFeatures

NAME = "speed_feature_maps"
STEPS = ("fourier", "hadamard", "fastfood")


def features_only(features, X, engine):
    """Fill all features of X, as `MinibatchFeatures.project` does but for the projection."""
    work = MinibatchFeatures(features, len(X), numpy_backend("float32"), keep=True)
    work.load(X)
    prepare, blocks, outputs = features.prepare, work._blocks, work._kept

    def fill():
        prepared = prepare(X)
        engine.map(
            lambda k: features.block(prepared, blocks[k], out=outputs[k]), range(len(blocks))
        )

    return fill


def measure_maps(options, engine):
    d, M, b = options.columns, options.rank, options.batch
    rng = np.random.default_rng(0)
    X = rng.standard_normal((b, d), dtype=np.float32)
    W, XW = rng.standard_normal((d, M), dtype=np.float32), np.empty((b, M), np.float32)
    kernel, single = RBF(d**0.5), numpy_backend("float32")
    maps = {
        "fourier": RandomFourier.fit(X, kernel, M, 0, View.X),
        "hadamard": StructuredFourier.fit(X, kernel, M, 0, View.X),
        "fastfood": StructuredFourier.fit(X, kernel, M, 0, View.X, construction="fastfood"),
        "nystrom columns": KernelColumns(kernel, rng.standard_normal((M, d), dtype=np.float32)),
    }
    tasks = {"bare": lambda: np.matmul(X, W, out=XW)}
    for name, features in maps.items():
        tasks[name] = features_only(features.to(single), X, engine)
    for task in tasks.values():
        task()
    best = best_times(tasks, options.repeats)
    return {
        "seconds": best,
        "over_bare": {name: best[name] / best["bare"] for name in maps},
        "faster_than_dense": {name: best["fourier"] / best[name] for name in maps},
        "compiled": fast.compiled() is not None,
        "workers": engine.n_workers,
    }


def measure_steps(options):
    d, M, b, L = options.columns, options.rank, options.batch, options.components
    rng = np.random.default_rng(0)
    X, Y = (rng.standard_normal((b, d), dtype=np.float32) for _ in range(2))
    tasks = {}
    with ExitStack() as opened:
        for name in STEPS:
            model = KNOI(
                L,
                rank=M,
                approximation=name,
                **AS_PUBLISHED,
                precondition=None,
                batch_size=b,
                held_out=0,
                random_state=0,
                memory_budget=options.budget,
            )
            fit = opened.enter_context(set_up(model, X, Y))
            rule, weights = fit.training.update, fit.run.optimizer
            with rule.engine.one_blas_thread():
                weights, _ = rule.step(weights, X, Y)
            tasks[name] = step_of(rule, weights, X, Y)
        best = best_times(tasks, options.repeats)
    return {
        "seconds": best,
        "faster_than_dense": {name: best["fourier"] / best[name] for name in STEPS},
    }


def step_of(rule, weights, X, Y):
    def step():
        with rule.engine.one_blas_thread():
            rule.step(weights, X, Y)

    return step


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rank", type=int, default=20_480)
    arguments.add_argument("--batch", type=int, default=2500)
    arguments.add_argument("--columns", type=int, default=392)
    arguments.add_argument("--components", type=int, default=50)
    arguments.add_argument("--repeats", type=int, default=10)
    arguments.add_argument("--budget", default="8GiB", help="memory_budget")
    options = arguments.parse_args()
    key = (
        f"rank={options.rank} batch={options.batch} columns={options.columns} "
        f"components={options.components}"
    )
    with Threads(worker_count(None)) as engine:
        maps = measure_maps(options, engine)
    steps = measure_steps(options)
    cell = Results(NAME).cell(key, lambda: {"map": maps, "step": steps}, again=True)
    for name, ratio in cell["map"]["over_bare"].items():
        faster = cell["map"]["faster_than_dense"][name]
        print(f"{name:16} {ratio:5.2f} x bare sgemm, {faster:5.2f} times as fast as dense Fourier")
    for name, faster in cell["step"]["faster_than_dense"].items():
        print(f"step, {name:10} {1e3 * cell['step']['seconds'][name]:6.0f} ms, {faster:5.2f} times")


if __name__ == "__main__":
    main()
