"""Approximations by name: what `approximation=` means, and which map suits the data.

An `Approximation` is all that a feature map needs to be available by name in every estimator. To
add one, write the map and append an entry to `_ENTRIES`. "random" takes, kernel by kernel, the
first entry whose `suits` says so. Sums and products of kernels are approximated part by part.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from knoi.arrays.backend import Array
from knoi.arrays.random import View
from knoi.exceptions import InputError
from knoi.features.additive import Additive
from knoi.features.arccosine import ArcCosineFeatures
from knoi.features.base import TAKE_ANY_KERNEL, FeatureMap, Fit, Identity
from knoi.features.composite import fit_chi2, fit_product, fit_sketched, fit_sum
from knoi.features.fourier import RandomFourier
from knoi.features.maclaurin import CompactMaclaurin, RandomMaclaurin
from knoi.features.sketch import CountSketch, TensorSketch
from knoi.features.spherical import SphericalFourier
from knoi.features.structured import StructuredFourier
from knoi.features.taylor import Taylor
from knoi.kernels import (
    RBF,
    AdditiveChi2,
    ArcCosine,
    Chi2,
    DotProductKernel,
    Intersection,
    Kernel,
    Linear,
    Matern,
    Polynomial,
    ProductKernel,
    SphericalPolynomial,
    StationaryKernel,
    SumKernel,
)

# Where each rule for frequencies is the most accurate at equal rank, for isotropic kernels; above
# the second, transforms are also the fastest (benchmarks/results: accuracy and speed of maps).
FEW_COLUMNS = 16
MANY_COLUMNS = 128
# Beyond, coordinates of a Sobol sequence take more time than they are worth.
MOST_QMC_COLUMNS = 1024
# Columns that `hashed_fourier` hashes the rows to.
BUCKETS = 8192


@dataclass(frozen=True)
class Approximation:
    """A feature map that is fitted by name."""

    name: str
    fit: Fit
    kernels: tuple[type, ...]  # those it serves
    suits: Callable[[Any, int], bool] | None = None  # (kernel, columns): whether "random" takes it
    reason: str = "these are the random features of the {kernel} kernel"  # logged when it is chosen
    dense: bool = False  # whether it keeps a number per column and feature
    cost: Callable[[Kernel, int, int], int] | None = None  # numbers kept, if `dense` does not say


def _fit_identity(sample: Array, kernel: Kernel, rank: int, seed: int, view: View) -> FeatureMap:
    d = int(sample.shape[1])
    return Identity(d) if d <= rank else CountSketch.fit(sample, kernel, rank, seed, view)


def _fit_hashed(sample: Array, kernel: Kernel, rank: int, seed: int, view: View) -> FeatureMap:
    if sample.shape[1] <= BUCKETS:  # hashing would not reduce them
        return RandomFourier.fit(sample, kernel, rank, seed, view)
    return fit_sketched(sample, kernel, rank, seed, view, buckets=BUCKETS)


def _fit_additive(sample: Array, kernel: Kernel, rank: int, seed: int, view: View) -> FeatureMap:
    fit = fit_chi2 if isinstance(kernel, Chi2) else Additive.fit
    return fit(sample, kernel, rank, seed, view)


def _hashed_cost(kernel: Kernel, n_cols: int, rank: int) -> int:
    return min(BUCKETS, n_cols) * rank + n_cols


def _maclaurin_cost(kernel: Kernel, n_cols: int, rank: int) -> int:
    """A vector for each factor of a product."""
    degree = kernel.degree if isinstance(kernel, Polynomial) else 1
    return rank * (degree * (n_cols + 2) + 128)


def _compact_cost(kernel: Kernel, n_cols: int, rank: int) -> int:
    """Eight products per feature, and signs to mix them."""
    return _maclaurin_cost(kernel, n_cols, 8 * rank + 1024)


def _best_frequencies(kernel: StationaryKernel, n_cols: int) -> str:
    """The rule with the least error for the time it takes."""
    if not kernel.isotropic:
        return "qmc" if n_cols <= MOST_QMC_COLUMNS else "fourier"
    if n_cols <= FEW_COLUMNS:
        return "qmc"
    return "orthogonal" if n_cols < MANY_COLUMNS else "hadamard"


def _if_best(name: str) -> Callable[[StationaryKernel, int], bool]:
    return lambda kernel, n_cols: _best_frequencies(kernel, n_cols) == name


def _always(kernel: Kernel, n_cols: int) -> bool:
    return True


_ENTRIES = (
    Approximation(
        "fourier",
        RandomFourier.fit,
        (StationaryKernel,),
        _if_best("fourier"),
        "the kernel has no better frequencies than independent ones at {d} columns",
        dense=True,
    ),
    Approximation(
        "orthogonal",
        partial(RandomFourier.fit, frequencies="orthogonal", paired=True),
        (StationaryKernel,),
        _if_best("orthogonal"),
        "orthogonal frequencies have less error than independent ones at no more cost",
        dense=True,
    ),
    Approximation(
        "qmc",
        partial(RandomFourier.fit, frequencies="qmc", paired=True),
        (StationaryKernel,),
        _if_best("qmc"),
        "with {d} columns, a low-discrepancy sequence of frequencies is the most accurate",
        dense=True,
    ),
    Approximation(
        "hadamard",
        StructuredFourier.fit,
        (StationaryKernel,),
        _if_best("hadamard"),
        "with {d} columns, frequencies from Hadamard transforms cost a fraction of dense ones and "
        "have less error",
    ),
    Approximation(
        "fastfood", partial(StructuredFourier.fit, construction="fastfood"), (StationaryKernel,)
    ),
    Approximation("hashed_fourier", _fit_hashed, (RBF, Matern), cost=_hashed_cost),
    Approximation("tensor_sketch", TensorSketch.fit, (Polynomial,), _always),
    Approximation(
        "maclaurin", RandomMaclaurin.fit, (DotProductKernel,), dense=True, cost=_maclaurin_cost
    ),
    Approximation(
        "compact_maclaurin",
        CompactMaclaurin.fit,
        (DotProductKernel,),
        dense=True,
        cost=_compact_cost,
    ),
    Approximation(
        "spherical", SphericalFourier.fit, (SphericalPolynomial, Polynomial), _always, dense=True
    ),
    Approximation("arccosine", ArcCosineFeatures.fit, (ArcCosine,), _always, dense=True),
    Approximation("taylor", Taylor.fit, (RBF,)),
    Approximation("additive", _fit_additive, (Chi2, AdditiveChi2, Intersection), _always),
)

REGISTRY: Mapping[str, Approximation] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
"""Maps that are fitted from a sample of rows, by name; "random" takes the first that suits."""

APPROXIMATIONS = ("random", *REGISTRY)
"""What `approximation=` takes in every estimator that has it."""

# Rows that are their own features: what "random" takes for a linear kernel. Users get it by the
# kernel 'linear', not by name.
IDENTITY = Approximation("identity", _fit_identity, (Linear,), _always)


def approximate(
    name: str, sample: Array, kernel: Kernel, rank: int, seed: int, view: View
) -> FeatureMap:
    """The map called `name` for a kernel whose width is decided, from rows of the view."""
    fit = partial(approximate, name)
    if isinstance(kernel, SumKernel):
        return fit_sum(fit, sample, kernel, rank, seed, view)
    if isinstance(kernel, ProductKernel):
        if name == "random" and all(isinstance(part, StationaryKernel) for part in kernel.parts):
            fit = partial(approximate, "fourier")  # whose features can be multiplied elementwise
        return fit_product(fit, sample, kernel, rank, seed, view)
    entry = suited_to(kernel, sample.shape[1]) if name == "random" else REGISTRY[name]
    return entry.fit(sample, kernel, rank, seed, view)


def suited_to(kernel: Kernel, n_cols: int) -> Approximation:
    """The random features with the least error for the time they take."""
    for entry in (IDENTITY, *REGISTRY.values()):
        if entry.suits and isinstance(kernel, entry.kernels) and entry.suits(kernel, n_cols):
            return entry
    raise InputError(
        f"there are no random features for the {kernel.name} kernel. Use {TAKE_ANY_KERNEL}."
    )


def is_dense(name: Any) -> bool:
    """Whether this is the name of a map that keeps (or, "random", may keep) numbers d x M."""
    named = isinstance(name, str)
    return named and (name == "random" or (name in REGISTRY and REGISTRY[name].dense))


def numbers_kept(name: str, kernel: Kernel, n_cols: int, rank: int) -> int:
    """About how many numbers the map of this name keeps, for planning before it is fitted."""
    if name == "random" and isinstance(kernel, SumKernel | ProductKernel):
        return (n_cols + 2) * rank
    entry = suited_to(kernel, n_cols) if name == "random" else REGISTRY[name]
    if entry.cost is not None:
        return entry.cost(kernel, n_cols, rank)
    # Else a few numbers per feature (signs, lengths, phases) and column (hashes, a centre).
    return (n_cols + 2) * rank if entry.dense else 8 * (rank + n_cols)


def choose(kernel: Kernel, n_cols: int, *, sparse: bool) -> tuple[str, str]:
    """What "auto" takes where kernel columns need too much memory, and the reason to log."""
    if sparse:
        return "nystrom", "rows are sparse, and so are their landmarks"
    if isinstance(kernel, SumKernel | ProductKernel):
        return "random", Approximation.reason.format(kernel=kernel.name)
    try:
        entry = suited_to(kernel, n_cols)
    except InputError:
        return "nystrom", f"the {kernel.name} kernel has no random features"
    return entry.name, entry.reason.format(d=n_cols, kernel=kernel.name)
