"""Kernel error of feature maps on real data, against the number of features M.

    python -m benchmarks.features.accuracy [--only mnist rbf] [--ranks 256 2048] [--seeds 5]

The error is sqrt(mean (phi(x).phi(z) - k(x, z))^2) / sqrt(mean k(x, z)^2) over all pairs of 300
test rows, including each row with itself. It is the mean over seeds for random maps: 5 from M =
8192 on, up to 20 below, where they differ more and cost less; 2 for landmarks, which differ little.
Widths are medians over the 4000 training rows that the maps are fitted to. Everything is float64.
The slope is that of log error against log M; independent random features have -0.5.

A series of ranks is measured as a whole, and not again if all its ranks are stored. Needs KNOI_DATA
with MNIST, MOCHA and Wikipedia.
"""

import argparse
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from benchmarks.features.data import load
from benchmarks.harness import Results
from knoi.arrays.random import View
from knoi.features import Nystrom, RandomFourier
from knoi.features.landmarks import select_landmarks
from knoi.features.registry import REGISTRY
from knoi.kernels import (
    RBF,
    AdditiveChi2,
    ArcCosine,
    Cauchy,
    Chi2,
    Intersection,
    Laplacian,
    Matern,
    Polynomial,
    SphericalPolynomial,
    with_default_width,
)

NAME = "feature_accuracy"
RANKS = tuple(2**k for k in range(8, 16))
ROWS = 300
SEEDS = 5

KERNELS = {
    "rbf": RBF(),
    "matern": Matern(nu=1.5),
    "laplacian": Laplacian(),
    "cauchy": Cauchy(),
    "polynomial": Polynomial(degree=3),
    "spherical_polynomial": SphericalPolynomial(degree=3),
    "arccosine": ArcCosine(order=1),
    "additive_chi2": AdditiveChi2(),
    "intersection": Intersection(),
    "chi2": Chi2(),
}


def nystrom(sample, kernel, rank, seed, view, *, landmarks):
    return Nystrom.fit(select_landmarks(sample, kernel, rank, seed, view, landmarks), kernel)


MAPS = {
    **{name: entry.fit for name, entry in REGISTRY.items()},
    # Cosine and sine of every frequency, as the rules below have it: what the rule itself is worth.
    "fourier-paired": partial(RandomFourier.fit, paired=True),
    "nystrom-uniform": partial(nystrom, landmarks="uniform"),
    "nystrom-kmeans": partial(nystrom, landmarks="kmeans"),
}
# Landmarks are rows of the sample, or means of several; products are 8 a feature, and take memory.
LARGEST = {"nystrom-uniform": 2048, "nystrom-kmeans": 1024, "compact_maclaurin": 8192}


@dataclass(frozen=True)
class Series:
    """One map for one kernel on one data set."""

    data: str
    kernel: str
    map: str

    def key(self, seeds: int = SEEDS) -> str:
        """The name of its cell."""
        return f"{self.data} {self.kernel} {self.map} rows={ROWS} seeds={seeds}"

    @property
    def drawn(self) -> bool:
        """Whether there is anything random in the map."""
        return self.map != "taylor" and (self.map != "additive" or self.kernel == "chi2")

    @property
    def biased(self) -> bool:
        """Whether an error is left that no number of features takes away."""
        return self.kernel in ("chi2", "spherical_polynomial")


DENSE = ("mnist", "mocha-windows", "mocha")
HISTOGRAMS = ("additive_chi2", "intersection", "chi2")
FOURIER = ("fourier", "fourier-paired", "orthogonal", "qmc", "hadamard", "fastfood")
GROUPS = (
    (DENSE, "rbf", (*FOURIER, "nystrom-uniform", "nystrom-kmeans")),
    (("mocha",), "rbf", ("taylor",)),
    (DENSE, "matern", FOURIER),
    *((DENSE, kernel, ("fourier", "fourier-paired", "qmc")) for kernel in ("laplacian", "cauchy")),
    (DENSE, "polynomial", ("tensor_sketch", "maclaurin", "compact_maclaurin")),
    (DENSE, "spherical_polynomial", ("spherical",)),
    (DENSE, "arccosine", ("arccosine",)),
    *((("wikipedia",), kernel, ("additive",)) for kernel in HISTOGRAMS),
)
SERIES = tuple(Series(d, kernel, m) for data, kernel, maps in GROUPS for d in data for m in maps)


@cache
def exact(data, kernel):
    """The kernel with its width, and its values between the test rows."""
    rows = load(data)
    decided = with_default_width(KERNELS[kernel], rows.sample)
    X = rows.test[:ROWS]
    return decided, decided(X, X)


def kernel_error(features, X, K):
    """Relative root mean square error of inner products of features, X (n, d) against K (n, n)."""
    prepared = features.prepare(X)
    E = -K
    for columns in features.slices(max(2048, features.grain)):
        Phi = features.block(prepared, columns)
        E += Phi @ Phi.T
    return float(np.linalg.norm(E) / np.linalg.norm(K))


def measure(series, ranks, seeds):
    kernel, K = exact(series.data, series.kernel)
    rows = load(series.data)
    d = rows.sample.shape[1]
    by_rank = {}
    for rank in ranks:
        if series.map in ("additive", "taylor") and rank < d:
            continue  # they take at least a feature a column
        errors = []
        for seed in range(n_seeds(series, rank, seeds)):
            features = MAPS[series.map](rows.sample, kernel, rank, seed, View.X)
            errors.append(kernel_error(features, rows.test[:ROWS], K))
        by_rank[str(rank)] = {
            "error": float(np.mean(errors)),
            "spread": float(np.std(errors)),  # between seeds
            "features": features.rank,
            "seeds": len(errors),
        }
    return {
        "ranks": list(ranks),
        "by_rank": by_rank,
        "slope": slope(by_rank.values()),
        "columns": d,
        "width": getattr(kernel, "width", None),
    }


def n_seeds(series, rank, seeds):
    """How many seeds to take the mean of, if those of the largest ranks are `seeds`."""
    if not series.drawn:
        return 1
    if series.map.startswith("nystrom"):
        return min(seeds, 2)
    return seeds * min(4, max(1, 8192 // rank))


def slope(measured):
    """Of log error against log of the features there are, by least squares."""
    by_features = {one["features"]: one["error"] for one in measured}
    if len(by_features) < 2:
        return None
    M, errors = (np.log(list(values)) for values in (by_features, by_features.values()))
    return float(np.polyfit(M, errors, 1)[0])


def points(cell):
    """What was measured, from the smallest rank to the largest."""
    return [cell["by_rank"][rank] for rank in sorted(cell["by_rank"], key=int)]


def ranks_of(series, ranks):
    """Those that the map can have."""
    return [rank for rank in ranks if rank <= LARGEST.get(series.map, rank)]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="WORD",
        help="series that have all these words: data sets, kernels, maps",
    )
    arguments.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    arguments.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    arguments.add_argument("--again", action="store_true", help="also what is there already")
    options = arguments.parse_args()
    results = Results(NAME)
    for series in SERIES:
        if not {series.data, series.kernel, series.map}.issuperset(options.only):
            continue
        key, ranks = series.key(options.seeds), ranks_of(series, options.ranks)
        there = results.cells.get(key, {"ranks": []})["ranks"]
        again = options.again or not set(there).issuperset(ranks)
        cell = results.cell(key, partial(measure, series, ranks, options.seeds), again=again)
        errors = " ".join(f"{one['error']:.2e}" for one in points(cell))
        steep = series.biased or cell["slope"] is None or cell["slope"] <= -0.45
        note = "" if steep else "  falls too slowly"
        print(f"{key:55} {errors}  slope {cell['slope'] or np.nan:.2f}{note}", flush=True)


if __name__ == "__main__":
    main()
