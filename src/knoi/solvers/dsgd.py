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
from knoi.solvers.loop import (
    NO_STATS,
    CoupledBatch,
    OptimizerState,
    Scores,
    StepResult,
    ViewState,
    check_step,
    finite,
    roll_back,
)
from knoi.solvers.noi import MinibatchFeatures, inverse_root, project_batch

# Weights whose W'BW exceeds I by this factor are about to diverge: they are not good weights to
# roll back to.
TOO_LARGE = 2.0


@dataclass(frozen=True)
class DecayingStepSize:
    """The length of step t: rate / (1 + t / half_life)."""

    rate: float
    half_life: float  # steps after which it is half as long; infinite: constant

    def __call__(self, step: int) -> float:
        """The length of step number `step`, counted from 0."""
        return self.rate / (1 + step / self.half_life)


@dataclass(frozen=True)
class DSGDUpdate:
    """One step of DSGD: it changes one block of the weights of each view."""

    features: tuple[MinibatchFeatures, MinibatchFeatures]
    blocks: tuple[list[slice], list[slice]]  # per view; step t changes block t, cyclically
    step_sizes: tuple[DecayingStepSize, DecayingStepSize]
    ridge: tuple[float, float]  # rx, ry
    n_components: int
    backend: Backend
    engine: Engine

    def step(self, state: OptimizerState, x: Array, y: Array) -> tuple[OptimizerState, StepResult]:
        """Project, find the multipliers, update a block; or roll back a bad step."""
        scores = project_batch(self.features, state, (x, y), self.backend, self.engine)
        found = couple_scores(scores) if finite(scores) else None
        coupled = None if found is None else found[0]
        rate = self.step_sizes[0](state.steps)
        state, result = check_step(state, coupled, scores, rate, self.n_components)
        if found is None or result.rolled_back:
            return roll_back(state, self.backend), result
        return self._descend(state, *found), result

    def penalty(self, view: int, U: Array) -> Array | None:
        """What the ridge adds to the covariance of the scores of a view, (L, L), or None."""
        r = self.ridge[view]
        return r * (U.T @ U) if r else None

    def _descend(
        self, state: OptimizerState, coupled: CoupledBatch, C: NDArray[Any]
    ) -> OptimizerState:
        step = state.steps - 1
        views = []
        for v, view in enumerate((state.x, state.y)):
            block = self.blocks[v][step % len(self.blocks[v])]
            R = self.backend.asarray(coupled.residuals[v] / len(coupled.residuals[v]))
            G = self.features[v].gradient(R, self.engine, within=block)
            if self.ridge[v]:
                G += view.U[block, :] @ self.backend.asarray(self.ridge[v] * C)
            U = self.backend.xp.asarray(view.U, copy=True)
            U[block, :] -= (self.step_sizes[v](step) * state.lr_scale) * G
            views.append(ViewState(U, view.velocity))
        return replace(state, x=views[0], y=views[1])


def couple_scores(scores: Scores) -> tuple[CoupledBatch, NDArray[Any]]:
    """Residuals of a minibatch in each view, and the multipliers C, (L, L).

    The loss is the mean squared distance between the scores of the views, tr(W'BW) - tr(W'AW)
    without ridge: at the solution L minus the total correlation.
    """
    P, Q = (S - S.mean(axis=0) for S in scores)  # (b, L)
    b = len(P)
    Sxy = P.T @ Q / b
    C = Sxy + Sxy.T
    loss = float(np.mean(np.sum((P - Q) ** 2, axis=1)))
    Rx, Ry = inverse_root(P.T @ P / b), inverse_root(Q.T @ Q / b)
    correlations = np.linalg.svd(Rx @ Sxy @ Ry, compute_uv=False)
    # By chance, eigenvalues of the covariance of a minibatch reach this if the true one is I.
    chance = (1 + np.sqrt(P.shape[1] / b)) ** 2
    stable = bool(np.linalg.norm((P.T @ P + Q.T @ Q) / b, 2) <= TOO_LARGE * chance)
    residuals = (P @ C - Q, Q @ C - P)
    return CoupledBatch(NO_STATS, residuals, loss, np.clip(correlations, 0, 1), stable), C


def aligned(weights: tuple[Array, Array], scores: Scores, backend: Backend) -> tuple[Array, Array]:
    """Rotate and scale the weights in R^L so that these scores meet the constraint W'BW = I.

    Then C is positive. From weights outside the constraint a step may lead away from it.
    """
    P, Q = (S - S.mean(axis=0) for S in scores)  # (b, L)
    b = len(P)
    Rx, Ry = inverse_root(P.T @ P / b), inverse_root(Q.T @ Q / b)
    left, _, right = np.linalg.svd(Rx @ (P.T @ Q / b) @ Ry)
    rotations = (Rx @ left / np.sqrt(2), Ry @ right.T / np.sqrt(2))
    U, V = (W @ backend.asarray(R) for W, R in zip(weights, rotations, strict=True))
    return U, V
