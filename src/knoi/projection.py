"""Fitted projections of both views: a feature map, its mean and weights per view."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend
from knoi.engine import Engine, even_slices
from knoi.features import FeatureMap, map_from_state
from knoi.features.base import PROJECTED_COLUMNS

# Rows that one thread projects at a time: few enough to share them evenly among threads, enough for
# BLAS to run at speed.
PIECE_ROWS = 640


def features_of(features: FeatureMap, rows: Array, backend: Backend, engine: Engine) -> Array:
    """All features of the rows, dense, (n, M): pieces of the rows are shared among the workers."""
    out = backend.empty((int(rows.shape[0]), features.rank))
    rows = backend.uploaded(rows)

    def fill(piece: slice) -> None:
        prepared = features.prepare(backend.asarray(rows[piece]))
        features.block(prepared, slice(0, features.rank), out=out[piece, :])

    engine.map(fill, even_slices(int(rows.shape[0]), PIECE_ROWS))
    return out


@dataclass(frozen=True)
class ViewProjection:
    """One view: z = W'(phi(x) - mean)."""

    features: FeatureMap
    mean: Array  # (M,)
    weights: Array  # (M, L)

    def __call__(self, X: Array) -> Array:
        """Project rows X (b, d) to (b, L), block of features by block."""
        return self.features.project(X, self.mean, self.weights)

    @cached_property
    def folded(self) -> "ViewProjection":
        """The same projection in the form that is cheapest to apply."""
        # In the layout of a model file, so that a loaded model projects to the same bits.
        weights = np.ascontiguousarray(self.weights)
        return ViewProjection(*self.features.folded(self.mean, weights))

    def to(self, backend: Backend) -> Self:
        """The same projection with its arrays on `backend`."""
        return replace(
            self,
            features=self.features.to(backend),
            mean=backend.asarray(self.mean),
            weights=backend.asarray(self.weights),
        )

    def numbers_per_row(self) -> int:
        """Working memory per row while it is projected, in numbers: its features twice, and z."""
        block = min(self.features.rank, PROJECTED_COLUMNS)
        inside = self.features.scratch_per_row() + 2 * block
        return inside + 2 * int(self.weights.shape[1])

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to build it again."""
        features = self.features.state_dict()
        return {"features": features, "mean": self.mean, "weights": self.weights}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        return cls(map_from_state(state["features"]), state["mean"], state["weights"])


@dataclass(frozen=True)
class Projection:
    """Projections of both views, and their correlations on the rows that they were solved for."""

    x: ViewProjection
    y: ViewProjection
    correlations: NDArray[np.float64]  # (L,)
    # (L,), descending: the correlations, shrunk by the regularisers that they were solved with.
    singular_values: NDArray[np.float64]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to build it again."""
        return {
            "x": self.x.state_dict(),
            "y": self.y.state_dict(),
            "correlations": self.correlations,
            "singular_values": self.singular_values,
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state_dict`."""
        x, y = (ViewProjection.from_state_dict(state[view]) for view in "xy")
        # Earlier versions kept the singular values alone, as correlations.
        singular_values = state.get("singular_values", state["correlations"])
        return cls(x, y, state["correlations"], singular_values)
