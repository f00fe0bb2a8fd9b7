"""Time of whole KNOI fits as rows and rank grow by a factor of 16.

    python -m benchmarks.speed.linear_cost [--only published fourier nystrom]

One epoch with nothing held out, minibatches of 2500 rows, from memory-mapped float32 files of 392
columns per view, 50 components; set-up and final CCA are part of a fit. Rows: 25,000 to 400,000 at
rank 4096. Rank: 1280 to 20,480 at 50,000 rows. A growth of 1 is linear: seconds over those of the
smallest fit, over the factor. Kernel columns (`nystrom`) invert an M x M matrix, so they are not
linear in the rank.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import AS_PUBLISHED, Results
from benchmarks.speed.linear_memmap import make_file
from knoi import KNOI

NAME = "speed_linear_cost"
SOLVERS = {
    "published": {"approximation": "fourier", "precondition": None},
    "fourier": {"approximation": "fourier"},
    "nystrom": {"approximation": "nystrom"},
}
FACTORS = (1, 2, 4, 8, 16)
ROWS, RANK_AT_ROWS = 25_000, 4096
RANK, ROWS_AT_RANK = 1280, 50_000
COLUMNS, BATCH, L = 392, 2500, 50


def sizes(axis, scale=1.0):
    """(rows, rank) of the fits along one axis, the smallest first."""
    rows, rank = {"rows": (ROWS, RANK_AT_ROWS), "rank": (ROWS_AT_RANK, RANK)}[axis]
    rows, rank = max(2 * BATCH, int(scale * rows)), max(2 * L, int(scale * rank))
    grown = [(f * rows, rank) if axis == "rows" else (rows, f * rank) for f in FACTORS]
    return grown


def key_of(solver, rows, rank):
    return f"{solver} rows={rows} rank={rank}"


def seconds_of(solver, rank, files, repeats, budget):
    """The best time of a fit."""
    best = float("inf")
    for _ in range(repeats):
        model = KNOI(
            L,
            rank=rank,
            batch_size=BATCH,
            epochs=1,
            tol=None,
            **AS_PUBLISHED,
            held_out=0,
            random_state=0,
            memory_budget=budget,
            **SOLVERS[solver],
        )
        start = time.perf_counter()
        model.fit(*files)
        best = min(best, time.perf_counter() - start)
    # A step that is rolled back takes no gradient, so it would make the time too short.
    return {"seconds": best, "rolled_back": sum(model.history_["rolled_back"])}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", nargs="+", choices=SOLVERS, default=list(SOLVERS))
    arguments.add_argument("--scale", type=float, default=1.0, help="of rows and rank, for a trial")
    arguments.add_argument("--repeats", type=int, default=2)
    arguments.add_argument("--budget", default="8GiB", help="memory_budget")
    arguments.add_argument("--folder", default=tempfile.gettempdir())
    arguments.add_argument("--again", action="store_true", help="measure what is stored already")
    options = arguments.parse_args()
    results = Results(NAME)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        whole = [Path(folder) / f"{view}.npy" for view in "XY"]
        most = max(rows for axis in ("rows", "rank") for rows, _ in sizes(axis, options.scale))
        for seed, file in enumerate(whole):
            make_file(file, most, COLUMNS, seed)
        for solver in options.only:
            for axis in ("rows", "rank"):
                first = None
                for factor, (rows, rank) in zip(FACTORS, sizes(axis, options.scale), strict=True):
                    part = [np.load(file, mmap_mode="r")[:rows] for file in whole]
                    cell = results.cell(
                        key_of(solver, rows, rank),
                        lambda: seconds_of(solver, rank, part, options.repeats, options.budget),  # noqa: B023
                        again=options.again,
                    )
                    first = first or cell["seconds"]
                    print(
                        f"{solver:9} {axis} x {factor:2}: {rows:>7,} rows, rank {rank:>6,}: "
                        f"{cell['seconds']:7.1f} s, growth {cell['seconds'] / first / factor:.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
