"""DeepCCA on real pairs: within a time, with its defaults, and with the paper's architecture.

    python -m benchmarks.paper.deep [--only mnist mocha ...] [--seeds 3] [--again]
    python -m benchmarks.paper.deep --sizes

The data sets, their split and both measures are those of `data_sets`. "defaults" gets the number of
components only. "60 s" and the like plan the training so that fit, head included, ends within the
time on two quiet cores; the seconds measured are stored. Whatever is chosen is chosen on held-out
training rows, by `fit` itself; test rows are used once per cell. `--sizes` trains on the first 500,
1000, ... rows of MNIST and MOCHA in random order, with 10 components, beside `LinearCCA` with its
defaults and `NystromCCA` with a regulariser tuned on separate rows: from how many rows on do
networks pay?
"""

import argparse
import time
from dataclasses import replace

import numpy as np
import torch

from benchmarks.fits import evaluate
from benchmarks.harness import Results
from benchmarks.paper import data_sets
from benchmarks.paper.two_views import DATA_SETS
from knoi import DeepCCA, LinearCCA
from knoi.exceptions import SourceNotFoundError

NAME = "deep"
# Parameters by data set and name of the setting.
SETTINGS = {
    "mnist": {
        "60 s": {"max_time": 55, "tol": None},
        "4 min": {"max_time": 228, "tol": None},
    },
    "mocha": {
        "90 s": {"max_time": 85, "tol": None},
        "90 s, 1500 x 3 against linear": {
            "hidden": ((1500, 1500, 1500), ()),
            "batch_size": 1000,
            "learning_rate": 1e-3,
            "max_time": 85,
            "tol": None,
        },
    },
}

# Training rows and components of the comparison by size.
SIZES = {"mnist": (500, 1000, 2000, 5000, 20_000), "mocha": (500, 1000, 2000, 5000, 20_000)}
SIZES_COMPONENTS = 10


def by_size(data, rows):
    """Fitted total correlation and seconds of each method on so many random rows."""
    chosen = np.random.default_rng(0).permutation(len(data.train[0]))[:rows]
    part = replace(
        data,
        n_components=SIZES_COMPONENTS,
        train=tuple(view[chosen] for view in data.train),
    )
    own = measure(part, {}, 0)
    found = {
        "DeepCCA": own,
        "NystromCCA": data_sets.nystrom(part, min(4000, rows)),
        "LinearCCA": timed(LinearCCA(SIZES_COMPONENTS), part),
    }
    return {
        **{name: cell["fitted"] for name, cell in found.items()},
        "seconds": {name: cell["seconds"] for name, cell in found.items()},
    }


def timed(model, data):
    """Both measures of the fitted model, and the seconds of the fit."""
    start = time.perf_counter()
    model.fit(*data.train)
    seconds = time.perf_counter() - start
    return {**evaluate(model, data.test), "seconds": seconds}


def measure(data, settings, seed):
    model = DeepCCA(data.n_components, random_state=seed, verbose=False, **settings)
    found = timed(model, data)
    held_out = [one for one in model.history_["held_out"] if np.isfinite(one)]
    return {
        **found,
        "training_seconds": model.history_["seconds"][-1],
        "held_out": max(held_out, default=None),
        "features": [side.features.kind for side in (model.projection_.x, model.projection_.y)],
        "kernel": repr(model.projection_.x.features.kernel),
        "samples": model.n_samples_seen_,
        "stopped": model.stopped_,
        "rolled_back": int(np.sum(model.history_["rolled_back"])),
        "torch": torch.__version__,
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", nargs="+", choices=DATA_SETS, default=list(DATA_SETS))
    arguments.add_argument("--settings", nargs="+", help="names of settings; default: all")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--again", action="store_true")
    arguments.add_argument("--sizes", action="store_true", help="by number of training rows")
    options = arguments.parse_args()
    results = Results(NAME)
    if options.sizes:
        for name, sizes in SIZES.items():
            data = DATA_SETS[name]()
            for rows in sizes:
                key = f"{name} rows={rows}"
                cell = results.cell(key, lambda: by_size(data, rows), again=options.again)  # noqa: B023
                print(key, {k: v for k, v in cell.items() if k != "origin"}, flush=True)
        return
    for name in options.only:
        try:
            data = DATA_SETS[name]()
        except (FileNotFoundError, SourceNotFoundError) as error:
            print(f"{name}: skipped, {error}")
            continue
        for setting, params in {"defaults": {}, **SETTINGS.get(name, {})}.items():
            if options.settings and setting not in options.settings:
                continue
            for seed in range(options.seeds):
                cell = results.cell(
                    f"{name}, {setting}, seed {seed}",
                    lambda: measure(data, params, seed),  # noqa: B023
                    again=options.again,
                )
                print(
                    f"{name}, {setting}, seed {seed}: fitted {cell['fitted']:.2f}, refit "
                    f"{cell['refit']:.2f}, {cell['seconds']:.1f} s, {cell['kernel']}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
