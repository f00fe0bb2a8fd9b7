"""THE EXACT k(x, z): what feature maps approximate and are judged against."""

from knoi.kernels.additive import AdditiveChi2, Intersection
from knoi.kernels.alignment import learn_weights, with_learned_weights
from knoi.kernels.composite import ProductKernel, SumKernel, several_widths
from knoi.kernels.kernel import (
    KERNELS,
    Kernel,
    WidthKernel,
    kernel_from_state,
    register,
    resolve,
)
from knoi.kernels.nonstationary import ArcCosine, Chi2, DotProductKernel, Linear, Polynomial
from knoi.kernels.spherical import SphericalPolynomial
from knoi.kernels.stationary import RBF, Cauchy, Laplacian, Matern, StationaryKernel
from knoi.kernels.width import default_width, median_width, with_default_width

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
    "default_width",
    "kernel_from_state",
    "learn_weights",
    "median_width",
    "register",
    "resolve",
    "several_widths",
    "with_default_width",
    "with_learned_weights",
]
