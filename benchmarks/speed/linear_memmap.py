"""LinearCCA on two memory-mapped files of a million rows, against a plain pass over them.

    python -m benchmarks.speed.linear_memmap [--rows 1000000] [--columns 784] [--budget 512MiB]

Plain: read a chunk of both files, multiply it into Sxx, Sxy, Syy in float32, nothing else. Ours:
the whole fit. Ratio = ours / plain, the best of interleaved runs. Memory is measured as in
benchmarks.speed.memory.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness import Results, best_times
from benchmarks.speed.memory import peak_over_data
from knoi import LinearCCA
from knoi.engine import MAX_CHUNK_ROWS, parse_bytes


def make_file(path, rows, columns, seed):
    """Correlated columns, so that the problem is not trivial; written in pieces."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((64, columns), dtype=np.float32)
    data = np.lib.format.open_memmap(path, "w+", np.float32, (rows, columns))
    latent = np.random.default_rng(99)  # the same for both views
    for start in range(0, rows, 50_000):
        size = min(50_000, rows - start)
        block = latent.standard_normal((size, 64), dtype=np.float32) @ mixing
        block += rng.standard_normal((size, columns), dtype=np.float32)
        data[start : start + size] = block
    data.flush()


def plain_pass(x, y, chunk):
    X, Y = np.load(x, mmap_mode="r"), np.load(y, mmap_mode="r")
    d = X.shape[1]
    Sxx, Sxy, Syy = (np.zeros((d, d), np.float32) for _ in range(3))
    for start in range(0, len(X), chunk):
        A, B = (np.array(view[start : start + chunk]) for view in (X, Y))
        Sxx += A.T @ A
        Sxy += A.T @ B
        Syy += B.T @ B
    return Sxx, Sxy, Syy


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--columns", type=int, default=784)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--budget", default="512MiB")
    arguments.add_argument("--folder", default=tempfile.gettempdir())
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        x, y = Path(folder) / "X.npy", Path(folder) / "Y.npy"
        make_file(x, options.rows, options.columns, 0)
        make_file(y, options.rows, options.columns, 1)
        best = best_times(
            {
                "plain": lambda: plain_pass(x, y, MAX_CHUNK_ROWS),
                "ours": lambda: LinearCCA(50, memory_budget=options.budget).fit(x, y),
            },
            options.repeats,
        )
        peak = peak_over_data("LinearCCA", {}, x, y, options.budget)
    cell = Results("speed_linear_memmap").cell(
        f"rows={options.rows} columns={options.columns} budget={options.budget}",
        lambda: {
            "plain_seconds": best["plain"],
            "ours_seconds": best["ours"],
            "ratio": best["ours"] / best["plain"],
            "floor": 1.5,
            "peak_bytes": peak,
            "budget_bytes": parse_bytes(options.budget),
        },
        again=True,
    )
    print(
        f"LinearCCA on 2 x {options.rows} x {options.columns}: plain pass "
        f"{cell['plain_seconds']:.1f} s, ours {cell['ours_seconds']:.1f} s, ratio "
        f"{cell['ratio']:.3f} (at most {cell['floor']}); peak memory over the data "
        f"{peak / 2**20:.0f} MiB of {options.budget}"
    )


if __name__ == "__main__":
    main()
