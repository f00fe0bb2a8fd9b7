"""Learning rates of DSGD and of the published KNOI on a subset, as the paper tunes them.

    python -m benchmarks.paper.dsgd_tuning [--samples 100000] [--rank 20480]
    python -m benchmarks.paper.dsgd_tuning --at-size [--samples 1000000]

One pass over 100,000 training rows of the MNIST8M stand-in, evaluated (refit) on the 20,000 rows
reserved for tuning, never on the test rows. DSGD: every learning rate at the default decay, then
every decay at the best rate. KNOI as published: every learning rate, to compare with the authors'
(1 in our convention). `--at-size` runs a few of these rates on a million samples, to check the
choice made on the subset. Needs KNOI_DATA with MNIST.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.fits import train_evaluated
from benchmarks.harness import AS_PUBLISHED, DATA, Results
from benchmarks.paper import standin
from benchmarks.paper.mnist8m import DSGD, PUBLISHED, TEST_ROWS, TUNING_ROWS, L
from knoi import KNOI, DoublyStochasticCCA

NAME = "dsgd_tuning"
SAMPLES, AT_SIZE = 100_000, 1_000_000
RATES = {
    "DSGD": (0.25, 0.5, 1.0, 2.0, 4.0),
    "KNOI": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0),
}
# DSGD at the rate it is given has a cell of the experiment, on the test rows.
RUNS_AT_SIZE = (("DSGD", 1.0), ("KNOI", 1.0), ("KNOI", 4.0), ("KNOI", 32.0))
# The steps of the paper's DSGD fall; inf shows what that costs on so few steps.
DECAYS = (100.0, 1000.0, 10_000.0, np.inf)
DEFAULT_DECAY = 1000.0


def make(method, rank, rate, decay):
    if method == "DSGD":
        given = DSGD | {"learning_rate": rate, "decay": decay}
        return DoublyStochasticCCA(L, rank=2 * rank, random_state=0, **AS_PUBLISHED, **given)
    return KNOI(L, rank=rank, learning_rate=rate, random_state=0, **PUBLISHED)


def measure(method, rank, samples, rate, decay, views):
    with tempfile.TemporaryDirectory() as folder:
        cell = train_evaluated(
            make(method, rank, rate, decay),
            views.X,
            views.Y,
            views.tuning,
            [samples],
            directory=Path(folder) / "run",
        )
    return {name: cell[name] for name in ("refit", "fitted", "seconds", "busy_cores")}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--samples", type=int)
    arguments.add_argument("--at-size", action="store_true", help="few rates, a million samples")
    arguments.add_argument("--rank", type=int, default=20_480, help="frequencies")
    options = arguments.parse_args()
    n = options.samples or (AT_SIZE if options.at_size else SAMPLES)
    results, rank = Results(NAME), options.rank
    views = standin.load(n, TEST_ROWS, TUNING_ROWS, mnist=DATA / "mnist")

    def run(method, rate, decay=None):
        key = f"{method} rank={rank} samples={n} rate={rate:g}"
        if decay is not None:
            key += f" decay={decay:g}"
        print(key, flush=True)
        return results.cell(key, lambda: measure(method, rank, n, rate, decay, views))["refit"]

    if options.at_size:
        check_at_size(run)
    else:
        tune(run)


def tune(run):
    by_rate = {rate: run("DSGD", rate, DEFAULT_DECAY) for rate in RATES["DSGD"]}
    best = max(by_rate, key=by_rate.get)
    by_decay = {decay: run("DSGD", best, decay) for decay in DECAYS}
    falling = [decay for decay in DECAYS if np.isfinite(decay)]
    print(f"DSGD: rate {best:g}, decay {max(falling, key=by_decay.get):g}")
    of_knoi = {rate: run("KNOI", rate) for rate in RATES["KNOI"]}
    print(f"KNOI as published: rate {max(of_knoi, key=of_knoi.get):g}")


def check_at_size(run):
    for method, rate in RUNS_AT_SIZE:
        print(f"{run(method, rate, DSGD['decay'] if method == 'DSGD' else None):.2f}")


if __name__ == "__main__":
    main()
