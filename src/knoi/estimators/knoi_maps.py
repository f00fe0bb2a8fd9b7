"""The feature maps `KNOI` trains on, each from a sample of the training rows."""

from typing import Any

from knoi.arrays.random import LANDMARK_ORDER, Purpose, View, generator
from knoi.arrays.sparse import same_rows
from knoi.checks import one_per_view
from knoi.data.pairs import PairSource, RowPair
from knoi.estimators.approximation import fitted
from knoi.estimators.knoi_parameters import approximation
from knoi.estimators.parameters import kernels_for
from knoi.estimators.plan import Plan
from knoi.estimators.training import Maps
from knoi.exceptions import InputError
from knoi.features import FeatureMap, Identity, KernelColumns
from knoi.features.landmarks import Selection, n_candidates, select_landmarks
from knoi.kernels import Kernel


def sampled_kernels(
    model: Any, plan: Plan, pairs: PairSource
) -> tuple[tuple[Kernel, Kernel], RowPair]:
    """One kernel a view, and the sample its width came from; refuses views that do not vary."""
    kernels, samples = kernels_for(model.kernel, model.width, pairs, plan.seed)
    for label, rows in zip("XY", samples, strict=True):
        if same_rows(rows):  # rounding alone would give its scores a variance
            n = "all its" if rows.shape[0] == pairs.n_rows else f"all {rows.shape[0]} sampled"
            raise InputError(
                f"view {label} does not vary: {n} rows are the same. Check the data of {label}."
            )
    return kernels, samples


def fit_maps(model: Any, plan: Plan, pairs: PairSource) -> Maps:
    """The feature map of each view, from a sample of the training rows."""
    kernels, samples = sampled_kernels(model, plan, pairs)
    given = one_per_view("approximation", model.approximation, approximation)
    maps: list[FeatureMap] = []
    for view, kernel, name in zip(View, kernels, plan.approximation, strict=True):
        rank = plan.rank[view]
        if name == "given":
            maps.append(given[view])
        elif name == "identity":
            maps.append(Identity(pairs.n_cols[view]))
        elif name == "nystrom":
            maps.append(_columns(pairs, kernel, rank, view, plan.seed, model.landmarks))
        else:
            L = model.n_components
            maps.append(fitted(name, samples[view], kernel, rank, plan.seed, view, L))
    return maps[0], maps[1]


def _columns(
    pairs: PairSource, kernel: Kernel, rank: int, view: View, seed: int, landmarks: Selection
) -> KernelColumns:
    n = n_candidates(landmarks, rank)
    candidates = pairs.sample(n, seed)[view].astype(pairs.dtype, copy=False)
    Z = select_landmarks(candidates, kernel, rank, seed, view, landmarks)
    # In no order, so that the first of them are as fair a sample as all.
    order = generator(seed, Purpose.LANDMARKS, view, LANDMARK_ORDER).permutation(Z.shape[0])
    return KernelColumns(kernel, Z[order])
