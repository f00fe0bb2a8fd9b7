"""phi(x), BLOCK BY BLOCK: maps whose inner products approximate a kernel."""

from knoi.features.additive import Additive
from knoi.features.arccosine import ArcCosineFeatures
from knoi.features.base import FeatureMap, Identity, map_from_state
from knoi.features.chain import Chain, fit_chi2, fit_sketched
from knoi.features.compact_maclaurin import CompactMaclaurin
from knoi.features.composite import fit_product, fit_sum
from knoi.features.concatenated import ConcatenatedMap
from knoi.features.count_sketch import CountSketch
from knoi.features.fourier import RandomFourier
from knoi.features.maclaurin import RandomMaclaurin
from knoi.features.multiplied import ProductMap, TensorMap
from knoi.features.nystrom import KernelColumns, Nystrom
from knoi.features.spherical import SphericalFourier
from knoi.features.structured import StructuredFourier
from knoi.features.taylor import Taylor
from knoi.features.tensor_sketch import TensorSketch

__all__ = [
    "Additive",
    "ArcCosineFeatures",
    "Chain",
    "CompactMaclaurin",
    "ConcatenatedMap",
    "CountSketch",
    "FeatureMap",
    "Identity",
    "KernelColumns",
    "Nystrom",
    "ProductMap",
    "RandomFourier",
    "RandomMaclaurin",
    "SphericalFourier",
    "StructuredFourier",
    "Taylor",
    "TensorMap",
    "TensorSketch",
    "fit_chi2",
    "fit_product",
    "fit_sketched",
    "fit_sum",
    "map_from_state",
]
