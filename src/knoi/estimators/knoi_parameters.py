"""What `KNOI` was given, checked once in `fit`: what to plan for, how to step, how long."""

from dataclasses import dataclass, replace
from typing import Any

from knoi.arrays.random import View
from knoi.arrays.sparse import nested_bytes
from knoi.callbacks.stopping import CONVERGED, EarlyStop
from knoi.checks import (
    at_least_zero,
    count,
    flag,
    fraction,
    one_of,
    one_per_view,
    optional,
    positive,
    whole,
)
from knoi.data.pairs import PairSource
from knoi.estimators.approximation import approximation as approximation_of
from knoi.estimators.approximation import check_given
from knoi.estimators.knoi_steps import StepParameters
from knoi.estimators.parameters import rank_for
from knoi.estimators.plan import Request
from knoi.exceptions import InputError
from knoi.features import FeatureMap
from knoi.kernels import Linear, resolve
from knoi.solvers.loop import Run

NOT_RANDOM = ("auto", "nystrom")  # approximations besides random features
PRECONDITIONERS = ("auto", "columns", "low_rank", None)


@dataclass(frozen=True)
class Limits:
    """How long to train, checked; what a resumed run may change."""

    n_components: int
    epochs: int | None
    max_time: float | None
    tol: float | None = None
    checkpoint_seconds: float = 60.0

    def judged_anew(self, run: Run) -> Run:
        """A run of a checkpoint: over only if it had converged, by this `tol` too."""
        if run.stopped != CONVERGED or self.tol is None:
            return replace(run, stopped=None)
        return run if EarlyStop(self.tol).converged(run.history) else replace(run, stopped=None)


def limits_of(model: Any) -> Limits:
    """How long to train."""
    return Limits(
        n_components=count("n_components", model.n_components),
        epochs=optional(count, "epochs", model.epochs),
        max_time=optional(positive, "max_time", model.max_time),
        tol=optional(at_least_zero, "tol", model.tol),
        checkpoint_seconds=positive("checkpoint_seconds", model.checkpoint_seconds),
    )


def steps_of(model: Any) -> StepParameters:
    """How to step."""
    fall = None if model.fall is None else positive("fall", model.fall, infinite=True)
    return StepParameters(
        learning_rate=optional(positive, "learning_rate", model.learning_rate),
        fall=fall,
        momentum=optional(fraction, "momentum", model.momentum),
        weight_decay=optional(at_least_zero, "weight_decay", model.weight_decay),
        time_constant=fraction("time_constant", model.time_constant),
        average=optional(flag, "average", model.average),
        reg=one_per_view("reg", model.reg, _regularisation),
    )


def request_of(model: Any, pairs: PairSource, *, streaming: bool) -> Request:
    """What to plan for."""
    L = count("n_components", model.n_components)
    kernels = one_per_view("kernel", model.kernel, lambda _name, one: resolve(one))
    asked = one_per_view("approximation", model.approximation, approximation)
    names, ranks = [], []
    for view, kernel, one in zip(View, kernels, asked, strict=True):
        rank = rank_for(model.rank, L)
        if isinstance(one, FeatureMap):
            check_given(one, view, pairs.n_cols[view], L)
            name, rank = "given", one.rank
        elif one == "auto" and isinstance(kernel, Linear):
            name = "identity"
            if pairs.n_cols[view] < L:
                raise InputError(
                    f"n_components={L} but {'XY'[view]} has n_features={pairs.n_cols[view]}: "
                    "linear CCA has no more components than columns. Set n_components to at "
                    f"most {pairs.n_cols[view]}."
                )
        else:
            name = one
        names.append(name)
        ranks.append(rank)
    b = None if model.batch_size is None else count("batch_size", model.batch_size)
    extra = model.extra_directions
    return Request(
        n_components=L,
        rank=(ranks[0], ranks[1]),
        approximation=(names[0], names[1]),
        kernels=kernels,
        precondition=one_of("precondition", model.precondition, PRECONDITIONERS),
        batch_size=b,
        extra_directions=None if extra is None else whole("extra_directions", extra),
        held_out=0.0 if streaming else fraction("held_out", model.held_out),
        epochs=1 if streaming else optional(count, "epochs", model.epochs),
        map_bytes=(_map_bytes(asked[0]), _map_bytes(asked[1])),
    )


def approximation(name: str, value: Any) -> Any:
    """A name that is known, or a fitted feature map."""
    return approximation_of(name, value, others=NOT_RANDOM)


def _map_bytes(asked: Any) -> int:
    """Bytes of the arrays of a map that was given."""
    return nested_bytes(asked.state_dict()) if isinstance(asked, FeatureMap) else 0


def _regularisation(name: str, value: Any) -> float | None:
    return None if isinstance(value, str) and value == "auto" else at_least_zero(name, value)
