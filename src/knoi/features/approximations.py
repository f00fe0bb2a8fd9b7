"""Names of approximations to feature maps: what `approximation=` of an estimator means.

"random" takes, kernel by kernel, the random features that `suited_to` names. Sums and products of
kernels are approximated part by part.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from knoi.arrays.backend import Array
from knoi.arrays.random import View
from knoi.exceptions import InputError
from knoi.features.additive import Additive
from knoi.features.arccosine import ArcCosineFeatures
from knoi.features.base import FeatureMap, Identity
from knoi.features.chain import fit_chi2, fit_sketched
from knoi.features.compact_maclaurin import CompactMaclaurin
from knoi.features.composite import fit_product, fit_sum
from knoi.features.count_sketch import CountSketch
from knoi.features.fourier import RandomFourier
from knoi.features.maclaurin import RandomMaclaurin
from knoi.features.spherical import SphericalFourier
from knoi.features.structured import StructuredFourier
from knoi.features.taylor import Taylor
from knoi.features.tensor_sketch import TensorSketch
from knoi.kernels import (
    AdditiveChi2,
    ArcCosine,
    Chi2,
    Intersection,
    Kernel,
    Linear,
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
# Beyond, a Sobol sequence has no more coordinates worth their time.
MOST_QMC_COLUMNS = 1024
# Columns that text is hashed to before it meets frequencies.
BUCKETS = 8192

Fit = Callable[[Array, Kernel, int, int, View], FeatureMap]


def approximate(
    name: str, sample: Array, kernel: Kernel, rank: int, seed: int, view: View
) -> FeatureMap:
    """The map called `name` for a kernel whose width is decided, from rows of the view."""
    fit = partial(approximate, name)
    if isinstance(kernel, SumKernel):
        return fit_sum(fit, sample, kernel, rank, seed, view)
    if isinstance(kernel, ProductKernel):
        # Features that are drawn one by one can be multiplied one by one.
        elementwise = partial(approximate, "fourier" if name == "random" else name)
        stationary = all(isinstance(part, StationaryKernel) for part in kernel.parts)
        return fit_product(elementwise if stationary else fit, sample, kernel, rank, seed, view)
    if name == "random":
        name = suited_to(kernel, sample.shape[1])
    if name == "identity":
        return _linear(sample, kernel, rank, seed, view)
    return FITS[name](sample, kernel, rank, seed, view)


def suited_to(kernel: Kernel, n_cols: int) -> str:
    """The random features with the least error for the time they take, by name."""
    if isinstance(kernel, SumKernel | ProductKernel):
        return "random"
    if isinstance(kernel, StationaryKernel):
        if not kernel.isotropic:
            return "qmc" if n_cols <= MOST_QMC_COLUMNS else "fourier"
        if n_cols <= FEW_COLUMNS:
            return "qmc"
        return "orthogonal" if n_cols < MANY_COLUMNS else "hadamard"
    for kinds, name in _OTHERS:
        if isinstance(kernel, kinds):
            return name
    raise InputError(
        f"there are no random features for the {kernel.name} kernel. Use 'nystrom', which takes "
        "any kernel."
    )


def _linear(sample: Array, kernel: Kernel, rank: int, seed: int, view: View) -> FeatureMap:
    d = int(sample.shape[1])
    return Identity(d) if d <= rank else CountSketch.fit(sample, kernel, rank, seed, view)


def _hashed(sample: Array, kernel: Kernel, rank: int, seed: int, view: View) -> FeatureMap:
    if sample.shape[1] <= BUCKETS:  # no fewer columns to be had
        return RandomFourier.fit(sample, kernel, rank, seed, view)
    return fit_sketched(sample, kernel, rank, seed, view, buckets=BUCKETS)


def _additive(sample: Array, kernel: Kernel, rank: int, seed: int, view: View) -> FeatureMap:
    if isinstance(kernel, Chi2):
        return fit_chi2(sample, kernel, rank, seed, view)
    return Additive.fit(sample, kernel, rank, seed, view)


_OTHERS: tuple[tuple[type[Kernel] | tuple[type[Kernel], ...], str], ...] = (
    (Linear, "identity"),
    (Polynomial, "tensor_sketch"),
    (SphericalPolynomial, "spherical"),
    (ArcCosine, "arccosine"),
    ((Chi2, AdditiveChi2, Intersection), "additive"),
)

FITS: Mapping[str, Fit] = MappingProxyType(
    {
        "fourier": RandomFourier.fit,
        "orthogonal": partial(RandomFourier.fit, frequencies="orthogonal", paired=True),
        "qmc": partial(RandomFourier.fit, frequencies="qmc", paired=True),
        "hadamard": StructuredFourier.fit,
        "fastfood": partial(StructuredFourier.fit, construction="fastfood"),
        "hashed_fourier": _hashed,
        "tensor_sketch": TensorSketch.fit,
        "maclaurin": RandomMaclaurin.fit,
        "compact_maclaurin": CompactMaclaurin.fit,
        "spherical": SphericalFourier.fit,
        "arccosine": ArcCosineFeatures.fit,
        "taylor": Taylor.fit,
        "additive": _additive,
    }
)
"""Maps that are fitted from a sample of rows, by name."""

APPROXIMATIONS = ("random", *FITS)

# Those that hold a number for each column and feature.
DENSE = (
    *("random", "fourier", "orthogonal", "qmc", "spherical", "arccosine"),
    *("maclaurin", "compact_maclaurin"),
)


def numbers_kept(name: str, kernel: Kernel, n_cols: int, rank: int) -> int:
    """About how many numbers a map holds, for planning before it is fitted."""
    if name == "random" and not isinstance(kernel, SumKernel | ProductKernel):
        name = suited_to(kernel, n_cols)
    if name == "hashed_fourier":
        return min(BUCKETS, n_cols) * rank + n_cols
    if name in ("maclaurin", "compact_maclaurin"):  # a vector for each factor of a product
        degree = kernel.degree if isinstance(kernel, Polynomial) else 1
        products = rank if name == "maclaurin" else 8 * rank + 1024  # and signs to mix them
        return products * (degree * (n_cols + 2) + 128)
    if name in DENSE:
        return (n_cols + 2) * rank
    # A few numbers a feature (signs, lengths, phases) and a column (hashes, a centre).
    return 8 * (rank + n_cols)
