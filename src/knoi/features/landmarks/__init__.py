"""Which rows stand for the data: how Nystrom maps get their landmarks, from arrays or a stream."""

from knoi.features.landmarks.cholesky import pivoted_cholesky, randomly_pivoted_cholesky
from knoi.features.landmarks.leverage import ridge_leverage_sample
from knoi.features.landmarks.reservoir import reservoir
from knoi.features.landmarks.selection import (
    Selection,
    landmarks_from_chunks,
    n_candidates,
    select_landmarks,
)

__all__ = [
    "Selection",
    "landmarks_from_chunks",
    "n_candidates",
    "pivoted_cholesky",
    "randomly_pivoted_cholesky",
    "reservoir",
    "ridge_leverage_sample",
    "select_landmarks",
]
