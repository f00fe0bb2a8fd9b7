"""One step of KNOI: its parts handed in, its state a value, a bad step undone and shortened."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend
from knoi.arrays.blocks import even_slices
from knoi.data.pairs import RowPair
from knoi.engine import Engine
from knoi.exceptions import InputError
from knoi.solvers.noi import Coupling, Head, MinibatchFeatures, ViewState, couple, descend
from knoi.solvers.precondition import Preconditioner, plain

# A minibatch whose total correlation falls below this part of what it was shows a collapse ...
COLLAPSED = 0.5
# ... if it falls that low by this many standard deviations of its own ...
SURE = 4.0
# ... and one that keeps this part of it confirms the weights it was projected with.
CONFIRMED = 0.98
# Residuals this many times those of the anchor, or of zero weights, show that steps diverge. A lone
# direction can do so while the views agree as well as ever.
DIVERGED = 100.0
# Scores beyond it have squares, or sums of them, that are no numbers.
LARGEST_SCORE = 1e100
EMPTY_HEAD = Head()
# Columns of a gradient worth a worker of their own.
LEAST_COLUMNS = 16
# The learning rate is multiplied by this when a step is undone.
SHORTENING = 0.5

Scores = tuple[NDArray[Any], NDArray[Any]]  # (b, L) each, float64


@dataclass(frozen=True)
class Anchor:
    """Weights that a minibatch they had not seen has confirmed: what a bad step goes back to."""

    U: Array  # (Mx, L)
    V: Array  # (My, L)
    correlation: float | None  # None: to be measured on the next minibatch
    noise: float  # by how much chance alone may change it
    loss: float  # mean squared residual


@dataclass(frozen=True)
class Weights:
    """All that a step changes."""

    x: ViewState
    y: ViewState
    head: Head = EMPTY_HEAD
    steps: int = 0
    samples: int = 0
    shortened: float = 1.0  # how much bad steps have cut the learning rate
    anchor: Anchor | None = None
    average: tuple[Array, Array] | None = None  # of U and of V
    averaged: int = 0  # how many went into it

    @property
    def result(self) -> tuple[Array, Array]:
        """U and V as training would end now: the average, where there is one."""
        return (self.x.U, self.y.U) if self.average is None else self.average

    def state_dict(self, backend: Backend) -> dict[str, Any]:
        """Plain values and NumPy arrays."""
        arrays = {"U": self.x.U, "V": self.y.U, "U_velocity": self.x.velocity}
        arrays["V_velocity"] = self.y.velocity
        if self.anchor is not None:
            arrays |= {"anchor_U": self.anchor.U, "anchor_V": self.anchor.V}
        if self.average is not None:
            arrays |= {"average_U": self.average[0], "average_V": self.average[1]}
        state: dict[str, Any] = {name: backend.to_numpy(array) for name, array in arrays.items()}
        if self.head.means is not None and self.head.covariances is not None:
            state |= {"mean_x": self.head.means[0], "mean_y": self.head.means[1]}
            state |= {"Sxx": self.head.covariances[0], "Syy": self.head.covariances[1]}
        state |= {"steps": self.steps, "samples": self.samples, "shortened": self.shortened}
        state["averaged"] = self.averaged
        if self.anchor is not None:
            state["anchor_correlation"] = self.anchor.correlation
            state |= {"anchor_noise": self.anchor.noise, "anchor_loss": self.anchor.loss}
        return state

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any], backend: Backend) -> Self:
        """The inverse of `state_dict`."""
        place = backend.asarray
        head, anchor, average = Head(), None, None
        if "Sxx" in state:
            head = Head((state["mean_x"], state["mean_y"]), (state["Sxx"], state["Syy"]))
        if "anchor_U" in state:
            U, V = place(state["anchor_U"]), place(state["anchor_V"])
            measured = (state["anchor_correlation"], state["anchor_noise"], state["anchor_loss"])
            anchor = Anchor(U, V, *measured)
        if "average_U" in state:
            average = place(state["average_U"]), place(state["average_V"])
        return cls(
            ViewState(place(state["U"]), place(state["U_velocity"])),
            ViewState(place(state["V"]), place(state["V_velocity"])),
            head,
            int(state["steps"]),
            int(state["samples"]),
            float(state["shortened"]),
            anchor,
            average,
            int(state["averaged"]),
        )


@dataclass(frozen=True)
class Outcome:
    """What one minibatch showed, of the weights before the step."""

    loss: float
    correlation: float  # of the minibatch's own scores, the n_components largest
    learning_rate: float
    undone: bool
    scores: Scores  # (b, L) of the weights before the step


@dataclass(frozen=True)
class StepSize:
    """The length of step t: `rate`, falling as fall / t once that is shorter.

    A step of fall / t weighs all minibatches so far alike (fall = 1) or the recent ones more: noise
    averages out as samples come in, and no number of samples has to be known beforehand.
    """

    rate: float
    fall: float | None  # None: the rate stays

    def __call__(self, step: int) -> float:
        """The length of step number `step`, counted from 0."""
        return self.rate if self.fall is None else min(self.rate, self.fall / (step + 1))


@dataclass(frozen=True)
class Rule:
    """How a minibatch changes the weights."""

    features: tuple[MinibatchFeatures, MinibatchFeatures]
    precondition: tuple[Preconditioner, Preconditioner]
    step_sizes: tuple[StepSize, StepSize]
    n_components: int
    rho: float
    momentum: float
    weight_decay: float
    average_from: int | None  # step from which weights are averaged
    backend: Backend
    engine: Engine

    def step(self, before: Weights, x: Array, y: Array) -> tuple[Weights, Outcome]:
        """Project, couple, and descend; or undo what the minibatch shows was a bad step."""
        scores = project(self.features, before, (x, y), self.backend, self.engine)
        coupling = couple(before.head, scores, self.rho) if usable(scores) else None
        rate = self.step_sizes[0](before.steps)
        after, outcome = judge(before, coupling, scores, rate, self.n_components)
        if coupling is None or outcome.undone:
            return undo(after, self.backend), outcome
        return self._descend(after, coupling), outcome

    def penalty(self, view: int, U: Array) -> Array | None:
        """What the ridge adds to the covariance of the scores of a view, (L, L); None without."""
        return self.precondition[view].penalty(U)

    def _descend(self, weights: Weights, coupling: Coupling) -> Weights:
        gradients = []
        for features, R in zip(self.features, coupling.residuals, strict=True):
            gradients.append(features.gradient(self.backend.asarray(R / len(R)), self.engine))
        directions = self._directions(gradients, (weights.x.U, weights.y.U))

        def move(v: int) -> ViewState:
            step = self.step_sizes[v](weights.steps - 1) * weights.shortened
            view = (weights.x, weights.y)[v]
            return descend(view, directions[v], step, self.momentum, self.weight_decay)

        views = self.engine.map(move, (0, 1))
        moved = replace(weights, x=views[0], y=views[1], head=coupling.head)
        if self.average_from is None or moved.steps <= self.average_from:
            return moved
        return replace(moved, average=_averaged(moved), averaged=moved.averaged + 1)

    def _directions(self, gradients: Sequence[Array], U: tuple[Array, Array]) -> list[Array]:
        """P G of both views, their columns shared among workers: each is a problem of its own."""
        if all(one is plain for one in self.precondition):
            return list(gradients)
        L = int(gradients[0].shape[1])
        # Few wide parts: a part reads all of P, and products are faster the wider they are.
        wide = max(LEAST_COLUMNS, -(-2 * L // self.engine.n_workers))
        work = [(v, part) for v in (0, 1) for part in even_slices(L, wide)]

        def apply(one: tuple[int, slice]) -> Array:
            v, part = one
            return self.precondition[v](gradients[v][:, part], U[v][:, part])

        found = self.engine.map(apply, work)
        half = len(found) // 2
        return [self._joined(found[:half]), self._joined(found[half:])]

    def _joined(self, parts: Sequence[Array]) -> Array:
        return parts[0] if len(parts) == 1 else self.backend.xp.concat(parts, axis=1)


def project(
    features: tuple[MinibatchFeatures, MinibatchFeatures],
    weights: Weights,
    rows: RowPair,
    backend: Backend,
    engine: Engine,
) -> Scores:
    """Phi U and Psi V of a minibatch, which stays loaded; float64."""
    engine.map(lambda v: features[v].load(backend.asarray(rows[v])), (0, 1))
    scores = []
    for work, view in zip(features, (weights.x, weights.y), strict=True):
        P = backend.to_numpy(work.project(view.U, engine))
        scores.append(P.astype(np.float64))
    return scores[0], scores[1]


def usable(scores: Scores) -> bool:
    """Whether products of scores are numbers; false for NaN."""
    return all(bool(np.abs(P).max() < LARGEST_SCORE) for P in scores)


def judge(
    before: Weights, coupling: Coupling | None, scores: Scores, rate: float, n_components: int
) -> tuple[Weights, Outcome]:
    """The weights with this minibatch counted, and whether it shows that they must be undone.

    If it speaks for them instead they become the anchor. `coupling` is None where there is none to
    be had of these scores; `rate` is the step size before bad steps have cut it.
    """
    b = len(scores[0])
    after = replace(before, steps=before.steps + 1, samples=before.samples + b)
    rate *= before.shortened
    if coupling is None:
        return after, Outcome(float("inf"), float("nan"), rate, True, scores)
    wanted = coupling.correlations[:n_components]
    correlation = float(wanted.sum())
    bad = collapsed(correlation, before.anchor) or _diverged(coupling, before.anchor)
    if not bad:
        reached = Anchor(before.x.U, before.y.U, correlation, _noise(wanted, b), coupling.loss)
        if _confirmed(coupling, reached, before.anchor):
            after = replace(after, anchor=reached)
    return after, Outcome(coupling.loss, correlation, rate, bad, scores)


def undo(weights: Weights, backend: Backend) -> Weights:
    """Back to the anchor, at rest, with shorter steps; its correlation is measured anew."""
    if weights.anchor is None:
        raise InputError(
            "the features of the first minibatch are not finite or its scores do not vary. "
            "Check the scale of the data, or standardise it."
        )
    anchor = weights.anchor
    x, y = (ViewState(U, backend.zeros(tuple(U.shape))) for U in (anchor.U, anchor.V))
    return replace(
        weights,
        x=x,
        y=y,
        head=Head(),
        shortened=weights.shortened * SHORTENING,
        anchor=replace(anchor, correlation=None),
        average=None,
        averaged=0,
    )


def collapsed(correlation: float, anchor: Anchor | None) -> bool:
    """Whether a total correlation shows that the views fell apart since the anchor."""
    if anchor is None or anchor.correlation is None:
        return False
    return not correlation >= COLLAPSED * anchor.correlation - anchor.noise


def _noise(correlations: NDArray[Any], n: int) -> float:
    """How far chance may take the sum of correlations measured on n rows."""
    # The standard deviation of a sample correlation is about (1 - r^2) / sqrt(n).
    return SURE * float(np.sqrt(np.sum((1 - correlations**2) ** 2) / n))


def _diverged(coupling: Coupling, anchor: Anchor | None) -> bool:
    """Whether the weights have outgrown their targets since the anchor."""
    if anchor is None or anchor.correlation is None:
        return False
    return not coupling.loss <= DIVERGED * max(anchor.loss, _loss_of_nothing(coupling))


def _confirmed(coupling: Coupling, reached: Anchor, anchor: Anchor | None) -> bool:
    """Whether a minibatch speaks for the weights it was projected with, against the anchor's."""
    if anchor is None or anchor.correlation is None or reached.correlation is None:
        return True
    # Were the loss of an anchor free to rise, slow divergence would take the anchor along.
    as_close = reached.loss <= max(anchor.loss, _loss_of_nothing(coupling))
    return coupling.sound and as_close and reached.correlation >= CONFIRMED * anchor.correlation


def _loss_of_nothing(coupling: Coupling) -> int:
    """The mean squared residual of zero weights: one for each direction of whitened targets."""
    return int(coupling.residuals[0].shape[1])


def _averaged(weights: Weights) -> tuple[Array, Array]:
    """The average with the latest weights in it."""
    new = (weights.x.U, weights.y.U)
    if weights.average is None:
        return new
    # Weights grow with the square of the number: the tail counts, the start is forgotten.
    share = 3 / (weights.averaged + 3)
    U, V = (old + share * (now - old) for old, now in zip(weights.average, new, strict=True))
    return U, V
