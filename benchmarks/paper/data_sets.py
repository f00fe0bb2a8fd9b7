"""KNOI with its defaults against tuned exact methods on real and synthetic pairs.

    python -m benchmarks.paper.data_sets [--only mnist mocha wikipedia mfeat-fou-kar ...]

Every method trains on the same rows and is evaluated on the test rows by both measures, in one run.
KNOI gets the number of components; no method learns a metric. Exact methods get the best of several
regularisers, chosen by the fitted measure on separate rows. Ranks are KNOI's default. KernelCCA
runs for at most 3000 rows. Needs KNOI_DATA with MNIST, MOCHA, Wikipedia and mfeat; missing data
sets are skipped.
"""

import argparse
import time

import numpy as np

from benchmarks.fits import evaluate, exact_fits
from benchmarks.harness import AS_PUBLISHED, Results
from benchmarks.paper.two_views import DATA_SETS
from knoi import KNOI, KernelCCA, LinearCCA, NystromCCA
from knoi.exceptions import SourceNotFoundError

NAME = "data_sets"
RANK = 4000
MOST_ROWS_OF_KERNEL_CCA = 3000
LINEAR_REGS = (0.0, 1e-8, 1e-6, 1e-4, 1e-2)
NYSTROM_REGS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
KERNEL_REGS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


def tuned(fits, data):
    """The fit whose regulariser does best on the rows to tune on; `fits` give (reg, fit, s)."""
    best = None
    for reg, model, seconds in fits:
        score = model.score(*data.tune)
        if best is None or score > best["tuning"]:
            best = {
                **evaluate(model, data.test),
                "seconds": seconds,
                "tuning": score,
                "reg": reg,
            }
    return best


def one_by_one(make, regs, data):
    for reg in regs:
        model = make(reg)
        start = time.perf_counter()
        model.fit(*data.train)
        yield reg, model, time.perf_counter() - start


def nystrom(data, rank):
    model = NystromCCA(data.n_components, rank=rank, random_state=0, **AS_PUBLISHED)
    fits = exact_fits(model, *data.train, NYSTROM_REGS)
    return tuned(((fit.reg, fit.model, fit.seconds) for fit in fits), data)


def knoi(data, rank):
    own = {} if rank == RANK else {"rank": rank}
    model = KNOI(data.n_components, random_state=0, verbose=False, **AS_PUBLISHED, **own)
    start = time.perf_counter()
    model.fit(*data.train)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        **evaluate(model, data.test),
        "samples": model.n_samples_seen_,
        "stopped": model.stopped_,
        "rolled_back": int(np.sum(model.history_["rolled_back"])),
    }


def measure(data, rank):
    L = data.n_components
    methods = {
        "KNOI": lambda: knoi(data, rank),
        "LinearCCA": lambda: tuned(
            one_by_one(lambda reg: LinearCCA(L, reg=reg), LINEAR_REGS, data), data
        ),
        "NystromCCA": lambda: nystrom(data, rank),
    }
    if len(data.train[0]) <= MOST_ROWS_OF_KERNEL_CCA:
        methods["KernelCCA"] = lambda: tuned(
            one_by_one(
                lambda reg: KernelCCA(L, reg=reg, random_state=0, **AS_PUBLISHED), KERNEL_REGS, data
            ),
            data,
        )
    found = {}
    for name, method in methods.items():
        found[name] = cell = method()
        print(f"  {name:10} {_line(cell)}", flush=True)
    return {
        "methods": found,
        "n_components": L,
        "rows": len(data.train[0]),
        "columns": [int(view.shape[1]) for view in data.train],
        "population": data.population,
    }


def _line(cell):
    reg = f", reg {cell['reg']:g}" if "reg" in cell else ""
    return f"fitted {cell['fitted']:6.2f}, refit {cell['refit']:6.2f}, {cell['seconds']:.1f} s{reg}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", nargs="+", choices=DATA_SETS, default=list(DATA_SETS))
    arguments.add_argument("--rank", type=int, default=RANK)
    options = arguments.parse_args()
    results = Results(NAME)
    for name in options.only:
        key = f"{name} rank={options.rank}"
        if key in results.cells:
            print(f"{name}: stored already")
            for method, cell in results.cells[key]["methods"].items():
                print(f"  {method:10} {_line(cell)}")
            continue
        try:
            data = DATA_SETS[name]()
        except (FileNotFoundError, SourceNotFoundError) as error:
            print(f"{name}: skipped, {error}")
            continue
        print(f"{name}: {len(data.train[0]):,} pairs, {data.n_components} components", flush=True)
        results.cell(key, lambda: measure(data, options.rank))  # noqa: B023


if __name__ == "__main__":
    main()
