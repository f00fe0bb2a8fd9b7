"""LinearCCA on two memory-mapped files of a million rows, against a plain pass over them.

    python -m benchmarks.speed.linear_memmap [--rows 1000000] [--columns 784] [--budget 512MiB]

Plain: read a chunk of both files, multiply it into Sxx, Sxy, Syy in float32, nothing else. Ours:
the whole fit. Ratio = ours / plain, the best of interleaved runs. Memory is measured in a child
process of its own: the peak of anonymous resident memory during the fit over that before it.
Mapped pages of the files are the data itself; the kernel takes them back at will.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import Results, best_times
from knoi import LinearCCA
from knoi.arrays.blocks import parse_bytes


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


def anonymous_bytes():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this benchmark reads /proc/self/status, which Linux has")


def peak_memory(x, y, budget):
    """Fit in this process and report the peak of anonymous memory over its level before."""
    LinearCCA(2, memory_budget="64MiB").fit(np.ones((9, 3)) * np.arange(27).reshape(9, 3) ** 2 % 7,
                                            np.eye(9)[:, :3])  # fmt: skip
    before, peak, done = anonymous_bytes(), 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.is_set():
            peak = max(peak, anonymous_bytes())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    LinearCCA(50, memory_budget=budget).fit(x, y)
    done.set()
    watcher.join()
    print(json.dumps(peak - before))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--columns", type=int, default=784)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--budget", default="512MiB")
    arguments.add_argument("--folder", default=tempfile.gettempdir())
    arguments.add_argument("--peak", nargs=2, metavar=("X", "Y"), help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.peak:
        peak_memory(*options.peak, options.budget)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        x, y = Path(folder) / "X.npy", Path(folder) / "Y.npy"
        make_file(x, options.rows, options.columns, 0)
        make_file(y, options.rows, options.columns, 1)
        best = best_times(
            {
                "plain": lambda: plain_pass(x, y, 16_384),
                "ours": lambda: LinearCCA(50, memory_budget=options.budget).fit(x, y),
            },
            options.repeats,
        )
        child = [sys.executable, "-m", "benchmarks.speed.linear_memmap", "--budget", options.budget]
        peak = json.loads(subprocess.check_output([*child, "--peak", x, y], text=True))
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
