"""Exact kernels k(x, z), which feature maps approximate."""

from knoi.kernels.alignment import learn_weights, with_learned_weights
from knoi.kernels.base import (
    KERNELS,
    Kernel,
    WidthKernel,
    kernel_from_state,
    median_width,
    register,
    resolve,
    with_default_width,
)
from knoi.kernels.composite import ProductKernel, SumKernel, several_widths
from knoi.kernels.dot_product import (
    ArcCosine,
    DotProductKernel,
    Linear,
    Polynomial,
    SphericalPolynomial,
)
from knoi.kernels.histogram import AdditiveChi2, Chi2, Intersection
from knoi.kernels.stationary import RBF, Cauchy, Laplacian, Matern, StationaryKernel

__all__ = [
    "KERNELS",
    "RBF",
    "AdditiveChi2",
    "ArcCosine",
    "Cauchy",
    "Chi2",
    "DotProductKernel",
    "Intersection",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Polynomial",
    "ProductKernel",
    "SphericalPolynomial",
    "StationaryKernel",
    "SumKernel",
    "WidthKernel",
    "kernel_from_state",
    "learn_weights",
    "median_width",
    "register",
    "resolve",
    "several_widths",
    "with_default_width",
    "with_learned_weights",
]
