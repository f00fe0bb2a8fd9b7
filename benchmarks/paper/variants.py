"""Ablation of the accelerated solver: one part changed at a time.

    python -m benchmarks.paper.variants [--only "no warm start" ...] [--to 200000] [--rank 4096]

The MNIST8M stand-in, 50 components, kernel columns of rank 4096 unless the variant says otherwise;
evaluated at 100,000 and 200,000 samples as in `learning_curves`. The first line is the default,
which the others are compared with. Needs KNOI_DATA with MNIST.
"""

import argparse
from unittest.mock import patch

import numpy as np

from benchmarks.harness import Results
from benchmarks.paper.learning_curves import Case, run_case
from benchmarks.paper.standin import SAMPLES, load_cached

NAME = "variants"
RANK = 4096
TO = 200_000
MARKS = ("100000", "200000")

VARIANTS = {
    "default": {},
    "no warm start": {},
    "no extra directions": {"extra_directions": 0},
    "60 extra directions": {"extra_directions": 60},
    "no averaging": {"average": False},
    "constant learning rate": {"lr_decay": np.inf},
    "lr_decay 2": {"lr_decay": 2.0},
    "learning rate 0.5": {"learning_rate": 0.5},
    "learning rate 2": {"learning_rate": 2.0},
    "momentum 0.9, learning rate 0.1": {"momentum": 0.9, "learning_rate": 0.1},
    "minibatch 2500": {"batch_size": 2500},
    "minibatch 10000": {"batch_size": 10_000},
    "low-rank preconditioner": {"precondition": "low_rank"},
    "random Fourier features, low rank": {"approximation": "fourier"},
    "published algorithm": {"approximation": "fourier", "precondition": None},
}


def key_of(name, rank, to):
    return f"{name} rank={rank} to={to}"


def measure(name, rank, to, views, budget):
    parameters = {"approximation": "nystrom"} | VARIANTS[name]
    case = Case(rank, to, parameters)
    if name == "no warm start":
        with patch("knoi.estimators.knoi.warm_start", lambda *_, **__: None):
            return run_case(case, rank, to, views, budget, seed=0)
    return run_case(case, rank, to, views, budget, seed=0)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    arguments.add_argument("--samples", type=int, default=SAMPLES, help="training pairs")
    arguments.add_argument("--to", type=int, default=TO)
    arguments.add_argument("--rank", type=int, default=RANK)
    arguments.add_argument("--budget", default="8GiB", help="memory_budget")
    options = arguments.parse_args()
    results, views = Results(NAME), None
    for name in options.only:
        key = key_of(name, options.rank, options.to)
        print(key, flush=True)
        if key not in results.cells:
            views = views or load_cached(options.samples)
        results.cell(
            key,
            lambda: measure(name, options.rank, options.to, views, options.budget),  # noqa: B023
        )


if __name__ == "__main__":
    main()
