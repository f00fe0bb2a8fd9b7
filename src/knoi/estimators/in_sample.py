"""Whether correlations of the training rows can mean anything: a count of rows and directions.

n centred rows span n - 1 dimensions. Views that vary in p and q directions of it share at least
p + q - (n - 1), whatever the data: as many correlations are 1, by geometry and not by relation. A
regularisation r counts a direction of variance v out where it holds its correlation v / (v + r)
back.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, numpy_backend
from knoi.arrays.random import View
from knoi.arrays.sparse import dense
from knoi.data.pairs import PairSource
from knoi.features.base import PROJECTED_COLUMNS
from knoi.projection import Projection, ViewProjection

# Correlations above it are perfect to who reads them.
PERFECT = 0.999
# Directions are counted on at most so many rows; the count is all but free beside a fit.
_ROWS = 1000
# Share of the variance under which a direction may be rounding.
_ROUNDING = 1e-9
_SAMPLE_SEED = 0x6B6E6F69


def verdict(projection: Projection, pairs: PairSource, reg: Any) -> str | None:
    """What to warn of: all correlations perfect, and bound to be for any views; None if not.

    `reg` is the parameter of the estimator; what is not a number regularises nothing here.
    """
    n, L = pairs.n_rows, len(projection.correlations)
    views = projection.x, projection.y
    most = [min(view.features.rank, n - 1) for view in views]
    if projection.correlations.min() < PERFECT or sum(most) < n - 1 + L:
        return None
    regs = reg if isinstance(reg, list | tuple) else (reg, reg)
    sample = pairs.sample(_ROWS, _SAMPLE_SEED)
    found = []
    for view, own, bound in zip(View, views, most, strict=True):
        m = int(sample[view].shape[0])
        r = float(regs[view]) if isinstance(regs[view], int | float) else 0.0
        directions = min(bound, _directions(own, sample[view], r))
        # Where a sample has as many as it can, all rows may have as many as they can.
        found.append(bound if m < n and directions >= min(m - 1, bound) else directions)
    if sum(found) < n - 1 + L:
        return None
    return (
        f"the {L} correlations found are at least {PERFECT}, but would be for any two views, "
        f"related or not: X varies in {found[0]} directions and Y in {found[1]}, together more "
        f"than the {n} rows can tell apart. correlations_ means nothing here. Judge by score or "
        "permutation_test on rows not used in fit; pass more rows, or raise reg."
    )


def _directions(view: ViewProjection, rows: Array, reg: float) -> int:
    """Directions of the rows' features that `reg` leaves free to correlate perfectly."""
    values = np.linalg.eigvalsh(_gram(view, rows, equilibrated=reg == 0.0))
    # v / (v + r) >= PERFECT, with r relative to the total variance
    least = max(reg * PERFECT / (1.0 - PERFECT), _ROUNDING)
    return int((values > least * values.sum()).sum())


def _gram(view: ViewProjection, rows: Array, *, equilibrated: bool) -> NDArray[np.float64]:
    """Inner products (m, m) of the centred features of rows, their columns at one scale if asked.

    Without regularisation the scale of a column does not matter, and must not decide.
    """
    backend = numpy_backend("float64")
    features = view.features.to(backend)
    X = backend.asarray(rows)
    if features.landmark_rows is not None:
        # Weights on kernel columns stand for features whose inner products are the kernel itself.
        G = np.asarray(dense(features.kernel(X, X)))
        G = G - G.mean(axis=0)
        return np.asarray(G - G.mean(axis=1, keepdims=True))
    G = np.zeros((int(rows.shape[0]),) * 2)
    prepared = features.prepare(X)
    for columns in features.slices(PROJECTED_COLUMNS):
        F = features.block(prepared, columns)
        largest = np.abs(F).max(axis=0)
        F = F - F.mean(axis=0)
        if equilibrated:
            deviation = F.std(axis=0)
            F /= np.where(deviation <= _ROUNDING * largest, np.inf, deviation)
        G += F @ F.T
    return G
