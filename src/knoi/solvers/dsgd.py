r"""DSGD (Xie, Liang & Song, 2015): CCA by steps on a minibatch and one block of the features.

With W = [U; V], A = [0 Sxy; Syx 0] and B = diag(Sxx + rx I, Syy + ry I), CCA is

    max tr(W'AW) / 2  subject to  W'BW = I:

the scores of both views together have unit covariance. The Lagrangian has the gradient A W - B W C
with a symmetric C; where it vanishes, W' times it says C = W'AW = U'Sxy V + V'Syx U. A step goes
along the gradient with this C; nothing is whitened. In scores P = Phi U, Q = Psi V of a minibatch,
centred, and for block k of the features:

    C    = (P'Q + Q'P) / b
    U_k += eta_t (Phi_k' (Q - P C) / b - rx U_k C),    V_k likewise.

A step changes one block, while the scores are those of all features; blocks take turns.

This is the symmetric form, which finds the subspace: the final linear CCA turns it into components.
(The triangular form, with the upper triangle of C, finds them in order.) The solution is stable:
near it, small steps shrink sum_j |dw_j|^2 / rho_j, but for a rotation of the components. There the
curvature is at most 2 rho_1 times the largest eigenvalue of B: the inverse of that eigenvalue (of a
block's, where blocks take turns) is the longest step that is stable whatever the data.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.arrays.backend import Array, Backend
from knoi.engine import Engine
from knoi.solvers.noi import Coupling, Head, MinibatchFeatures, ViewState, inverse_root
from knoi.solvers.rule import Outcome, Scores, Weights, judge, project, undo, usable

# Weights whose W'BW is this far over I are on their way to diverge, and the further the shorter the
# steps that could still turn them: no place to go back to.
OUTGROWN = 2.0


@dataclass(frozen=True)
class Decay:
    """The length of step t: rate / (1 + t / halved)."""

    rate: float
    halved: float  # steps after which it is half as long; infinite: it stays

    def __call__(self, step: int) -> float:
        """The length of step number `step`, counted from 0."""
        return self.rate / (1 + step / self.halved)


@dataclass(frozen=True)
class BlockRule:
    """How a minibatch changes one block of the weights."""

    features: tuple[MinibatchFeatures, MinibatchFeatures]
    blocks: tuple[list[slice], list[slice]]  # of each view; step t is about number t, in a cycle
    step_sizes: tuple[Decay, Decay]
    ridge: tuple[float, float]  # rx, ry
    n_components: int
    backend: Backend
    engine: Engine

    def step(self, before: Weights, x: Array, y: Array) -> tuple[Weights, Outcome]:
        """Project, find the multipliers, move a block; or undo what was a bad step."""
        scores = project(self.features, before, (x, y), self.backend, self.engine)
        found = couple(scores) if usable(scores) else None
        coupling = None if found is None else found[0]
        rate = self.step_sizes[0](before.steps)
        after, outcome = judge(before, coupling, scores, rate, self.n_components)
        if found is None or outcome.undone:
            return undo(after, self.backend), outcome
        return self._descend(after, *found), outcome

    def penalty(self, view: int, U: Array) -> Array | None:
        """What the ridge adds to the covariance of the scores of a view, (L, L); None without."""
        r = self.ridge[view]
        return r * (U.T @ U) if r else None

    def _descend(self, weights: Weights, coupling: Coupling, C: NDArray[Any]) -> Weights:
        step = weights.steps - 1
        views = []
        for v, view in enumerate((weights.x, weights.y)):
            block = self.blocks[v][step % len(self.blocks[v])]
            R = coupling.residuals[v]
            R = self.backend.asarray(R / len(R))
            G = self.features[v].gradient(R, self.engine, within=block)
            if self.ridge[v]:
                G += view.U[block, :] @ self.backend.asarray(self.ridge[v] * C)
            U = self.backend.xp.asarray(view.U, copy=True)
            U[block, :] -= (self.step_sizes[v](step) * weights.shortened) * G
            views.append(ViewState(U, view.velocity))
        return replace(weights, x=views[0], y=views[1])


def couple(scores: Scores) -> tuple[Coupling, NDArray[Any]]:
    """What a minibatch says to each view, and the multipliers C, (L, L).

    The loss is the mean squared distance between the views' scores, tr(W'BW) - tr(W'AW) with no
    ridge: L less the total correlation once there.
    """
    P, Q = (S - S.mean(axis=0) for S in scores)  # (b, L)
    b = len(P)
    Sxy = P.T @ Q / b
    C = Sxy + Sxy.T
    loss = float(np.mean(np.sum((P - Q) ** 2, axis=1)))
    roots = (inverse_root(S.T @ S / b) for S in (P, Q))
    correlations = np.linalg.svd(next(roots) @ Sxy @ next(roots), compute_uv=False)
    # A minibatch shows a covariance of I with eigenvalues up to this, by chance.
    chance = (1 + np.sqrt(P.shape[1] / b)) ** 2
    sound = bool(np.linalg.norm((P.T @ P + Q.T @ Q) / b, 2) <= OUTGROWN * chance)
    residuals = (P @ C - Q, Q @ C - P)
    return Coupling(Head(), residuals, loss, np.clip(correlations, 0, 1), sound), C


def aligned(weights: tuple[Array, Array], scores: Scores, backend: Backend) -> tuple[Array, Array]:
    """The weights turned and scaled in R^L to meet the constraint on these scores: W'BW = I.

    C is positive then. From weights beyond the constraint a step may lead away from it.
    """
    P, Q = (S - S.mean(axis=0) for S in scores)  # (b, L)
    b = len(P)
    Rx, Ry = inverse_root(P.T @ P / b), inverse_root(Q.T @ Q / b)
    left, _, right = np.linalg.svd(Rx @ (P.T @ Q / b) @ Ry)
    turns = (Rx @ left / np.sqrt(2), Ry @ right.T / np.sqrt(2))
    U, V = (W @ backend.asarray(turn) for W, turn in zip(weights, turns, strict=True))
    return U, V
