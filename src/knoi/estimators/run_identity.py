"""The identity of a run: what a checkpoint must agree with to be gone on from."""

import hashlib
from typing import Any

import numpy as np

from knoi.data.pairs import PairSource
from knoi.estimators.base import portable
from knoi.estimators.plan import Plan
from knoi.estimators.training import Maps
from knoi.persistence import flatten_state

# Parameters that change how long a run goes on or what it shows, not the steps it takes.
_NOT_IDENTITY = frozenset(
    (
        *("epochs", "max_time", "tol", "checkpoint", "checkpoint_seconds", "verbose"),
        *("memory_budget", "n_jobs", "device"),
    )
)
# Rows whose values stand for the data.
IDENTITY_ROWS = 256


def identity_of(model: Any, plan: Plan, maps: Maps, pairs: PairSource) -> dict[str, Any]:
    """All of it: what was asked for, what was planned, the data and the maps made from it."""
    return {
        **asked_of(model, pairs),
        "plan": plan.state_dict(),
        "rows": _digest(dict(zip("XY", pairs.sample(IDENTITY_ROWS, plan.seed), strict=True))),
        "features": [_digest(features.state_dict()) for features in maps],
    }


def asked_of(model: Any, pairs: PairSource) -> dict[str, Any]:
    """The part that is known before anything is computed."""
    parameters = model.get_params(deep=False).items()
    return {
        "estimator": type(model).__name__,
        "n_rows": pairs.n_rows,
        "n_cols": list(pairs.n_cols),
        **{name: portable(v) for name, v in parameters if name not in _NOT_IDENTITY},
    }


def _digest(state: dict[str, Any]) -> str:
    """A fingerprint of a map, and so of the data it came from, or of rows."""
    plain, tensors = flatten_state(state)
    digest = hashlib.sha256(repr(sorted(plain.items())).encode())
    for name in sorted(tensors):
        digest.update(np.ascontiguousarray(tensors[name]).data)
    return digest.hexdigest()
