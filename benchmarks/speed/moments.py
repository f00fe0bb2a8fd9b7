"""The moments of FourierCCA against the bare BLAS calls they need.

    python -m benchmarks.speed.moments [--rank 4096] [--columns 392] [--rows 32768]

Bare: sgemm for X W of both views, ssyrk for Sxx and Syy, sgemm for Sxy, in the chunks the fit uses,
into existing arrays. Ours: the pass of a fit over the same rows, including reading, features, means
and float64 sums. Both use all cores. Ratio = ours / bare.
"""

import argparse

import numpy as np
from scipy.linalg.blas import sgemm, ssyrk

from benchmarks.harness import AS_PUBLISHED, Results, best_times
from knoi import FourierCCA
from knoi.arrays.backend import numpy_backend
from knoi.data.pairs import PairSource
from knoi.engine import Threads, worker_count


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rank", type=int, default=4096)
    arguments.add_argument("--columns", type=int, default=392)
    arguments.add_argument("--rows", type=int, default=32_768)
    arguments.add_argument("--repeats", type=int, default=4)
    options = arguments.parse_args()
    M, d, n = options.rank, options.columns, options.rows

    rng = np.random.default_rng(0)
    X, Y = (rng.standard_normal((n, d), dtype=np.float32) for _ in range(2))
    pairs = PairSource.open(X, Y)
    model = FourierCCA(50, rank=M, random_state=0, memory_budget="2GiB", **AS_PUBLISHED)
    maps = model._fit_maps(pairs)
    backend = numpy_backend("float32")
    engine = Threads(worker_count(None))
    chunk = model._rows_per_chunk(pairs, maps, backend, engine, held=0, keep=False)

    def ours():
        model._accumulate(pairs, maps, backend, engine)

    # scipy's BLAS is column-major: A' B for row-major A, B is sgemm on their transposes.
    W = [np.asarray(features.W, dtype=np.float32) for features in maps]
    Phi = [np.ones((chunk, M), dtype=np.float32) for _ in range(2)]
    S = [np.zeros((M, M), dtype=np.float32, order="F") for _ in range(3)]

    def bare():
        for start in range(0, n, chunk):
            rows = min(chunk, n - start)
            F = [phi[:rows] for phi in Phi]
            for view, source in enumerate((X, Y)):
                sgemm(1.0, W[view].T, source[start : start + rows].T, c=F[view].T, overwrite_c=1)
            ssyrk(1.0, F[0].T, beta=1.0, c=S[0], overwrite_c=1)
            ssyrk(1.0, F[1].T, beta=1.0, c=S[1], overwrite_c=1)
            sgemm(1.0, F[0].T, F[1].T, trans_b=True, beta=1.0, c=S[2], overwrite_c=1)

    bare()
    best = best_times({"bare": bare, "ours": ours}, options.repeats)
    results = Results("speed_moments")
    cell = results.cell(
        f"rank={M} columns={d} rows={n}",
        lambda: {
            "bare_seconds": best["bare"],
            "ours_seconds": best["ours"],
            "ratio": best["ours"] / best["bare"],
            "chunk_rows": chunk,
            "floor": 1.3,
        },
        again=True,
    )
    print(
        f"moments at M = {M}, d = {d}, {n} rows in chunks of {chunk}: bare BLAS "
        f"{cell['bare_seconds']:.2f} s, ours {cell['ours_seconds']:.2f} s, "
        f"ratio {cell['ratio']:.3f} (at most {cell['floor']})"
    )


if __name__ == "__main__":
    main()
