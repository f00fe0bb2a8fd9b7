"""Estimators of CCA with scikit-learn's interface: fit, transform, predict, score, save."""

from pathlib import Path

from knoi.estimators.base import BaseCCA
from knoi.estimators.closed_form import FourierCCA, NystromCCA
from knoi.estimators.deep import DeepCCA
from knoi.estimators.dsgd import DoublyStochasticCCA
from knoi.estimators.kernel_cca import KernelCCA
from knoi.estimators.knoi import KNOI
from knoi.estimators.linear import LinearCCA
from knoi.estimators.pipeline import TwoViewPipeline
from knoi.exceptions import ModelFileError
from knoi.persistence import ModelFile, read_model

__all__ = [
    "ESTIMATORS",
    "KNOI",
    "DeepCCA",
    "DoublyStochasticCCA",
    "FourierCCA",
    "KernelCCA",
    "LinearCCA",
    "NystromCCA",
    "TwoViewPipeline",
    "load",
]

ESTIMATORS: tuple[type[BaseCCA], ...] = (
    LinearCCA,
    KernelCCA,
    FourierCCA,
    NystromCCA,
    KNOI,
    DoublyStochasticCCA,
    DeepCCA,
)


def load(path: str | Path) -> BaseCCA | TwoViewPipeline:
    """Read a fitted model of any class, or a pipeline, from the file its `save` wrote."""
    return from_model_file(read_model(path))


def from_model_file(file: ModelFile) -> BaseCCA | TwoViewPipeline:
    """Build the fitted model from a file already read by `knoi.persistence.read_model`."""
    written = file.header.get("class")
    if written == TwoViewPipeline.__name__:
        return TwoViewPipeline._from_file(file)
    for estimator in ESTIMATORS:
        if estimator.__name__ == written:
            return estimator._from_file(file)
    raise ModelFileError(
        f"{file.path} holds a {written!r}, which this version of knoi does not know. Upgrade knoi."
    )
