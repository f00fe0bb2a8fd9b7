"""Kernel CCA with and without a learned metric on real and synthetic pairs.

    python -m benchmarks.paper.metric [--only mnist mocha ...] [--methods ...] [--seeds 3]
    python -m benchmarks.paper.metric --sizes

The data sets, their split and both measures are those of `data_sets`. NystromCCA has 1000 landmarks
and the best of several regularisers, chosen by the fitted measure on separate rows; KNOI has its
defaults. "without" is metric=None and the median width, "with" the defaults. `--sizes` fits
NystromCCA to 500, 1000 and 2000 random training rows. Held-out rows of the sample that a metric is
learned from decide whether it is used; test rows are used once per cell.
"""

import argparse
import time
from dataclasses import replace

import numpy as np

from benchmarks.fits import evaluate, exact_fits
from benchmarks.harness import AS_PUBLISHED, Results
from benchmarks.paper.data_sets import NYSTROM_REGS, tuned
from benchmarks.paper.two_views import DATA_SETS
from knoi import KNOI, NystromCCA
from knoi.exceptions import SourceNotFoundError

NAME = "metric"
RANK = 1000
SIZES = (500, 1000, 2000)
KINDS = {"without": AS_PUBLISHED, "with": {}}
# Seeds of a method; KNOI takes minutes on the large sets.
METHODS = {"NystromCCA": 3, "KNOI": 1}


def nystrom(data, seed, kind):
    rank = min(RANK, len(data.train[0]))
    model = NystromCCA(data.n_components, rank=rank, random_state=seed, **KINDS[kind])
    fits = exact_fits(model, *data.train, NYSTROM_REGS)
    return tuned(((fit.reg, fit.model, fit.seconds) for fit in fits), data) | described(model)


def knoi(data, seed, kind):
    model = KNOI(data.n_components, random_state=seed, verbose=False, **KINDS[kind])
    start = time.perf_counter()
    model.fit(*data.train)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, **evaluate(model, data.test)} | described(model)


def described(model):
    """What the kernels of both views work on."""
    sides = model.projection_.x, model.projection_.y
    kernels = [side.features.kernel for side in sides]
    columns = [getattr(side.features, "first", side.features) for side in sides]
    metrics = model.x_metric_, model.y_metric_
    return {
        "columns": [
            one.rank if metric is not None else one.n_cols
            for one, metric in zip(columns, metrics, strict=True)
        ],
        "learned": [metric is not None for metric in metrics],
        "width": [float(kernel.width) for kernel in kernels],
    }


def first_rows(data, rows):
    chosen = np.random.default_rng(0).permutation(len(data.train[0]))[:rows]
    return replace(data, train=tuple(view[np.sort(chosen)] for view in data.train))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", nargs="+", choices=DATA_SETS, default=list(DATA_SETS))
    arguments.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments.add_argument("--seeds", type=int)
    arguments.add_argument("--sizes", action="store_true", help="few rows of every data set")
    options = arguments.parse_args()
    results = Results(NAME)
    for name in options.only:
        try:
            data = DATA_SETS[name]()
        except (FileNotFoundError, SourceNotFoundError) as error:
            print(f"{name}: skipped, {error}")
            continue
        cases = [(f"{name}, {method}", data, method) for method in options.methods]
        if options.sizes:
            sizes = [rows for rows in SIZES if rows <= len(data.train[0])]
            cases = [
                (f"{name} rows={rows}", first_rows(data, rows), "NystromCCA") for rows in sizes
            ]
        for case, part, method in cases:
            fit = {"NystromCCA": nystrom, "KNOI": knoi}[method]
            for seed in range(options.seeds or METHODS[method]):
                for kind in KINDS:
                    key = f"{case}, {kind}, seed {seed}"
                    cell = results.cell(key, lambda: fit(part, seed, kind))  # noqa: B023
                    print(
                        f"{key}: fitted {cell['fitted']:.2f}, refit {cell['refit']:.2f}, "
                        f"{cell['seconds']:.1f} s, {cell['columns']}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
