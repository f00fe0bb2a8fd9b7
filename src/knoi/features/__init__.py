"""phi(x), BLOCK BY BLOCK: maps whose inner products approximate a kernel."""

from knoi.features.feature_map import FeatureMap, Identity, map_from_state
from knoi.features.fourier import RandomFourier
from knoi.features.nystrom import KernelColumns, Nystrom

__all__ = ["FeatureMap", "Identity", "KernelColumns", "Nystrom", "RandomFourier", "map_from_state"]
