"""Feature maps phi(x), computed block by block, whose inner products approximate a kernel."""

from knoi.features.additive import Additive
from knoi.features.arccosine import ArcCosineFeatures
from knoi.features.base import FeatureMap, Identity, map_from_state
from knoi.features.composite import (
    Chain,
    ConcatenatedMap,
    ProductMap,
    TensorMap,
    fit_chi2,
    fit_product,
    fit_sketched,
    fit_sum,
)
from knoi.features.fourier import RandomFourier
from knoi.features.maclaurin import CompactMaclaurin, RandomMaclaurin
from knoi.features.metric import ColumnWeights, LinearTransform
from knoi.features.network import ReLULayer, TorchNetwork
from knoi.features.nystrom import KernelColumns, Nystrom
from knoi.features.sketch import CountSketch, TensorSketch
from knoi.features.spherical import SphericalFourier
from knoi.features.structured import StructuredFourier
from knoi.features.taylor import Taylor

__all__ = [
    "Additive",
    "ArcCosineFeatures",
    "Chain",
    "ColumnWeights",
    "CompactMaclaurin",
    "ConcatenatedMap",
    "CountSketch",
    "FeatureMap",
    "Identity",
    "KernelColumns",
    "LinearTransform",
    "Nystrom",
    "ProductMap",
    "RandomFourier",
    "RandomMaclaurin",
    "ReLULayer",
    "SphericalFourier",
    "StructuredFourier",
    "Taylor",
    "TensorMap",
    "TensorSketch",
    "TorchNetwork",
    "fit_chi2",
    "fit_product",
    "fit_sketched",
    "fit_sum",
    "map_from_state",
]
