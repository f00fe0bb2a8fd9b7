"""Defaults on real pairs: do they depend on the seed, and would fixed values have done better?

    python -m benchmarks.paper.defaults [--only mnist ...] [--methods ...] [--seeds 5]

KNOI gets the number of components and nothing else, with several seeds; then, with seed 0, every
regulariser of a list. The closed forms choose theirs on held-out training rows (`reg="auto"`), and
get every fixed one for comparison; NystromCCA has 1000 landmarks, and once as many as KNOI. The
data sets, their split and both measures are those of `data_sets`; besides, halves of patches of two
photographs (2000 pairs, which scikit-learn brings) and verses of two Bibles, as sparse tf-idf, on
which KNOI is run with a time limit only. Test rows are used once per cell and choose nothing.
"""

import argparse
import time
from functools import partial

import numpy as np

from benchmarks.fits import evaluate
from benchmarks.harness import Results
from benchmarks.paper.two_views import DATA_SETS, TwoViewData, bibles
from knoi import KNOI, LinearCCA, NystromCCA
from knoi.exceptions import SourceNotFoundError

NAME = "defaults"
REGS = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
KNOI_REGS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
RANK = 1000
PATCH = 16


def photographs():
    """Left and right halves of random 16 x 16 patches of two photographs, three colours."""
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    parts = []
    for image in load_sample_images().images:
        rows, columns = (rng.integers(0, size - PATCH, 2500) for size in image.shape[:2])
        parts += [image[i : i + PATCH, j : j + PATCH] for i, j in zip(rows, columns, strict=True)]
    patches = np.asarray(parts, dtype=np.float32)[rng.permutation(len(parts))] / 255
    halves = [
        patches[:, :, half].reshape(len(patches), -1)
        for half in (slice(0, PATCH // 2), slice(PATCH // 2, PATCH))
    ]
    split = [tuple(half[part] for half in halves) for part in _parts(2000, 1000, 2000)]
    return TwoViewData(20, *split)


def _parts(*sizes):
    stops = np.cumsum(sizes)
    return [slice(stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]


SETS = {**DATA_SETS, "photographs": photographs, "bibles": bibles}


def knoi(data, seed, **own):
    return KNOI(data.n_components, random_state=seed, verbose=False, **own)


def nystrom(data, seed, rank=RANK, **own):
    rank = min(rank, data.train[0].shape[0])
    return NystromCCA(data.n_components, rank=rank, random_state=seed, **own)


LIMITED = "KNOI, max_time=40"
SAME_RANK = "NystromCCA, rank of KNOI"
METHODS = {
    "KNOI": knoi,
    LIMITED: partial(knoi, max_time=40),
    SAME_RANK: partial(nystrom, rank=KNOI().rank),
    "NystromCCA": nystrom,
    "LinearCCA": lambda data, seed, **own: LinearCCA(data.n_components, **own),
}


def measure(method, data, seed, **own):
    model = METHODS[method](data, seed, **own)
    start = time.perf_counter()
    model.fit(*data.train)
    seconds = time.perf_counter() - start
    return {
        **evaluate(model, data.test),
        "seconds": seconds,
        "reg": list(model.reg_),
        "width": list(model.width_),
        "metric": [metric is not None for metric in (model.x_metric_, model.y_metric_)],
        "stopped": getattr(model, "stopped_", None),
    }


def runs(method, seeds):
    """Names of the cells of a method, and the parameters of each."""
    for seed in range(1 if method in ("LinearCCA", SAME_RANK) else seeds):
        yield f"seed {seed}", {"seed": seed}
    if method == SAME_RANK:
        return
    for reg in KNOI_REGS if method.startswith("KNOI") else REGS:
        yield f"reg {reg:g}", {"seed": 0, "reg": reg}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", nargs="+", choices=SETS, default=list(SETS))
    arguments.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--again", action="store_true")
    options = arguments.parse_args()
    results = Results(NAME)
    for name in options.only:
        try:
            data = SETS[name]()
        except (FileNotFoundError, SourceNotFoundError) as error:
            print(f"{name}: skipped, {error}")
            continue
        for method in options.methods:
            if method in ("KNOI", LIMITED) and (method == LIMITED) != (name == "bibles"):
                continue
            for run, own in runs(method, options.seeds):
                key = f"{name}, {method}, {run}"
                cell = results.cell(
                    key,
                    lambda: measure(method, data, **own),  # noqa: B023
                    again=options.again,
                )
                print(
                    f"{key}: fitted {cell['fitted']:.2f}, refit {cell['refit']:.2f}, "
                    f"{cell['seconds']:.1f} s, reg {cell['reg']}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
