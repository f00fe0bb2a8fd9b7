"""Feature maps against those of scikit-learn: time of `transform` and kernel error at equal rank.

    python -m benchmarks.features.peers [--only RBFSampler ...] [--ranks 1024 4096 16384]

Left halves of MNIST digits, float32 and float64. Ours run as in `transform` of an estimator: pieces
of 256 rows, distributed over one thread per core. Both return a new array; times are the best of
interleaved rounds. The kernel error is that of `accuracy`, the mean over seeds. Ratios above 1 mean
that ours is faster, or more accurate. Nystroem goes to a rank of 2048, PolynomialCountSketch to
4096 (its tables take 3 GB at 16,384); AdditiveChi2Sampler has 3 and 5 features per column at any
rank. Needs KNOI_DATA with MNIST, and an idle machine.
"""

import argparse
from functools import partial

import numpy as np
from sklearn.kernel_approximation import (
    AdditiveChi2Sampler,
    Nystroem,
    PolynomialCountSketch,
    RBFSampler,
)

from benchmarks.features.accuracy import KERNELS, MAPS, ROWS
from benchmarks.features.data import load
from benchmarks.harness import Results, best_times
from knoi.arrays.backend import numpy_backend
from knoi.arrays.random import View
from knoi.engine import Threads, even_slices, worker_count
from knoi.features.base import PROJECTED_COLUMNS
from knoi.kernels import with_default_width
from knoi.projection import PIECE_ROWS

NAME = "feature_peers"
DATA, COLUMNS = "mnist", 392
DTYPES = ("float32", "float64")
RANKS = (1024, 4096, 16_384)
BATCH = 2500
SEEDS = 3


def rbf_sampler(kernel, rank, seed):
    return RBFSampler(gamma=0.5 / kernel.width**2, n_components=rank, random_state=seed)


def nystroem(kernel, rank, seed):
    return Nystroem(gamma=0.5 / kernel.width**2, n_components=rank, random_state=seed)


def count_sketch(kernel, rank, seed):
    return PolynomialCountSketch(
        gamma=1 / kernel.width**2,
        degree=kernel.degree,
        coef0=kernel.coef0,
        n_components=rank,
        random_state=seed,
    )


def chi2_sampler(kernel, rank, seed):
    return AdditiveChi2Sampler(sample_steps=(rank // COLUMNS + 1) // 2)


# Theirs, the kernel both stand for, and the maps of ours beside it.
PEERS = {
    "RBFSampler": (rbf_sampler, "rbf", ("fourier", "hadamard")),
    "Nystroem": (nystroem, "rbf", ("nystrom-uniform",)),
    "PolynomialCountSketch": (count_sketch, "polynomial", ("tensor_sketch",)),
    "AdditiveChi2Sampler": (chi2_sampler, "additive_chi2", ("additive",)),
}


def ranks_of(peer, ranks):
    if peer == "Nystroem":
        return sorted({min(rank, 2048) for rank in ranks})
    if peer == "PolynomialCountSketch":
        return [rank for rank in ranks if rank <= 4096]
    return [3 * COLUMNS, 5 * COLUMNS] if peer == "AdditiveChi2Sampler" else ranks


def key_of(peer, rank, dtype, batch=BATCH):
    return f"{peer} rank={rank} batch={batch} dtype={dtype}"


def transform(features, X, engine):
    """All features of the rows of X in a new array, as an estimator goes through them."""
    out = np.empty((len(X), features.rank), X.dtype)

    def piece(rows):
        prepared = features.prepare(X[rows])
        for columns in features.slices(PROJECTED_COLUMNS):
            features.block(prepared, columns, out=out[rows, columns])

    engine.map(piece, even_slices(len(X), PIECE_ROWS))
    return out


def error_of(Phi, K):
    Phi = Phi[: len(K)].astype(np.float64)
    return float(np.linalg.norm(Phi @ Phi.T - K) / np.linalg.norm(K))


def measure(peer, rank, dtype, engine, options):
    make, kernel_name, maps = PEERS[peer]
    rows, backend = load(DATA), numpy_backend(dtype)
    kernel = with_default_width(KERNELS[kernel_name], rows.sample)
    K = kernel(rows.test[:ROWS], rows.test[:ROWS])
    sample = rows.sample.astype(dtype)
    X = np.ascontiguousarray(rows.test[: options.batch], dtype=dtype)
    few = X[: len(K)]
    tasks, errors = {}, {}
    for seed in range(options.seeds):
        theirs = make(kernel, rank, seed).fit(sample)
        errors.setdefault("theirs", []).append(error_of(theirs.transform(few), K))
        tasks.setdefault("theirs", partial(theirs.transform, X))
        for name in maps:
            ours = MAPS[name](sample, kernel, rank, seed, View.X).to(backend)
            errors.setdefault(name, []).append(error_of(transform(ours, few, engine), K))
            tasks.setdefault(name, partial(transform, ours, X, engine))
    for task in tasks.values():
        task()
    seconds = best_times(tasks, options.repeats)
    error = {name: float(np.mean(values)) for name, values in errors.items()}
    return {
        "seconds": seconds,
        "error": error,
        "faster": {name: seconds["theirs"] / seconds[name] for name in maps},
        "nearer": {name: error["theirs"] / error[name] for name in maps},
        "columns": COLUMNS,
        "workers": engine.n_workers,
        "seeds": options.seeds,
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    arguments.add_argument("--ranks", type=int, nargs="+", default=list(RANKS))
    arguments.add_argument("--batch", type=int, default=BATCH)
    arguments.add_argument("--seeds", type=int, default=SEEDS, help="how many, for the error")
    arguments.add_argument("--repeats", type=int, default=7)
    options = arguments.parse_args()
    results = Results(NAME)
    for peer in options.only:
        for rank in ranks_of(peer, options.ranks):
            for dtype in DTYPES:
                key = key_of(peer, rank, dtype, options.batch)
                with Threads(worker_count(None)) as engine:
                    run = partial(measure, peer, rank, dtype, engine, options)
                    cell = results.cell(key, run, again=True)
                for name, faster in cell["faster"].items():
                    print(
                        f"{key:60} {name:15} {1e3 * cell['seconds'][name]:7.1f} ms, "
                        f"{faster:5.2f} times as fast, error {cell['error'][name]:.4f}, "
                        f"theirs {cell['nearer'][name]:.2f} times that",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
