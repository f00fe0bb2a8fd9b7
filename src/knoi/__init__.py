"""Nonlinear canonical correlation analysis at any size.

The public names are resolved on first use, so that `import knoi` is quick and loads no optional
dependency. Type checkers see ordinary imports.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

__all__ = [
    "KNOI",
    "DeepCCA",
    "DoublyStochasticCCA",
    "FourierCCA",
    "KernelCCA",
    "KnoiError",
    "LinearCCA",
    "NystromCCA",
    "TwoViewPipeline",
    "component_correlations",
    "cross_view_retrieval",
    "load",
    "total_correlation",
    "tune",
]

_HOMES = {
    "DeepCCA": "knoi.estimators.deep",
    "DoublyStochasticCCA": "knoi.estimators.dsgd",
    "FourierCCA": "knoi.estimators.closed_form",
    "KNOI": "knoi.estimators.knoi",
    "KernelCCA": "knoi.estimators.kernel_cca",
    "KnoiError": "knoi.exceptions",
    "LinearCCA": "knoi.estimators.linear",
    "NystromCCA": "knoi.estimators.closed_form",
    "TwoViewPipeline": "knoi.estimators.pipeline",
    "component_correlations": "knoi.metrics",
    "cross_view_retrieval": "knoi.metrics",
    "load": "knoi.estimators",
    "total_correlation": "knoi.metrics",
    "tune": "knoi.estimators.tune",
}

if TYPE_CHECKING:
    from knoi.estimators import load
    from knoi.estimators.closed_form import FourierCCA, NystromCCA
    from knoi.estimators.deep import DeepCCA
    from knoi.estimators.dsgd import DoublyStochasticCCA
    from knoi.estimators.kernel_cca import KernelCCA
    from knoi.estimators.knoi import KNOI
    from knoi.estimators.linear import LinearCCA
    from knoi.estimators.pipeline import TwoViewPipeline
    from knoi.estimators.tune import tune
    from knoi.exceptions import KnoiError
    from knoi.metrics import component_correlations, cross_view_retrieval, total_correlation
else:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'knoi' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
