"""Peak memory of a fit beyond its data, against its `memory_budget`.

    python -m benchmarks.speed.memory

Each fit streams two files in a child process. The number is the peak of anonymous resident memory
during the fit minus that before it: mapped pages of the files are the data itself, and the kernel
can reclaim them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import knoi
from benchmarks.harness import PeakMemory, Results
from knoi.datasets import make_two_views
from knoi.engine import parse_bytes

CASES = (
    ("LinearCCA", {}, (100_000, 784), "48MiB"),
    ("LinearCCA", {}, (100_000, 784), "1GiB"),
    ("FourierCCA", {"rank": 2048}, (50_000, 392), "384MiB"),
    ("FourierCCA", {"rank": 4096}, (20_000, 392), "1.5GiB"),
    ("NystromCCA", {"rank": 2048}, (20_000, 392), "512MiB"),
    ("KernelCCA", {}, (4000, 100), "1000MiB"),
)


def peak_over_data(estimator, parameters, x, y, budget):
    """Bytes a fit of the files x and y takes at its peak, measured in a child process."""
    job = json.dumps([estimator, {**parameters, "memory_budget": budget}, str(x), str(y)])
    child = [sys.executable, "-m", "benchmarks.speed.memory", "--child", job]
    return int(subprocess.check_output(child, text=True))


def _child(estimator, parameters, x, y):
    make = getattr(knoi, estimator)
    warm = make_two_views(200, (9, 9))
    small = {"rank": 9} if "rank" in parameters else {}
    make(2, **{**parameters, **small, "memory_budget": "1GiB"}).fit(warm.X, warm.Y)
    with PeakMemory(interval=0.002) as peak:
        make(50, **parameters).fit(x, y)
    if not peak.rss:
        raise RuntimeError("this benchmark reads /proc/self/status, which only Linux has")
    print(peak.anonymous)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--child", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.child:
        _child(*json.loads(options.child))
        return
    results = Results("memory")
    for estimator, parameters, (rows, columns), budget in CASES:
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / f"{view}.npy" for view in "XY"]
            views = make_two_views(rows, (columns, columns), dtype=np.float32)
            for file, view in zip(files, (views.X, views.Y), strict=True):
                np.save(file, view)
            peak = peak_over_data(estimator, parameters, *files, budget)
        rank = f" rank={parameters['rank']}" if parameters else ""
        cell = results.cell(
            f"{estimator}{rank} rows={rows} columns={columns} budget={budget}",
            lambda: {"peak_bytes": peak, "budget_bytes": parse_bytes(budget)},  # noqa: B023
            again=True,
        )
        print(
            f"{estimator}{rank} on {rows} x {columns}: peak over the data "
            f"{cell['peak_bytes'] / 2**20:.0f} MiB, budget {budget}, "
            f"ratio {cell['peak_bytes'] / cell['budget_bytes']:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
