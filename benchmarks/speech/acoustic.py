"""Acoustic models of a phone recogniser: how likely a frame is in each state.

A model has `scores(frames)`, (frames, states): log-likelihoods up to a constant per frame. "gmm" is
a mixture of Gaussians with diagonal covariances per state, grown by splitting; "shared" has one
full covariance for all its Gaussians; "full" is one Gaussian per state with its own covariance;
"softmax" is multinomial logistic regression, divided by how frequent a state is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

Frames = NDArray[np.float32]
States = NDArray[np.int64]

LARGEST = 32  # Gaussians per state, at most
FRAMES_EACH = 40  # frames per Gaussian, at least
EM_STEPS = 4  # after each splitting
SMALLEST = 10.0  # Gaussians with fewer frames are dropped
FLOOR = 0.01  # of variances, relative to those of all frames
TOO_FEW = 5  # frames of a state; with fewer it keeps its model
SPLIT = 0.2  # standard deviations between a Gaussian and each of the two that replace it
# Frames of the average covariance that are added to those of a state.
PRIOR_FRAMES = 200.0
# Of "softmax": passes over the frames and steps at least, frames per step, first learning rate,
# weight decay.
EPOCHS, STEPS, BATCH, LEARNING_RATE, PENALTY = 20, 1000, 1000, 3e-2, 1e-4
ROWS = 8192  # frames scored at a time


@dataclass(frozen=True)
class Mixture:
    """A mixture of k Gaussians with diagonal covariances; weights are logarithms."""

    weights: NDArray[np.float64]  # (k,)
    means: NDArray[np.float64]  # (k, d)
    variances: NDArray[np.float64]  # (k, d)

    @classmethod
    def single(cls, mean: Any, variance: Any) -> "Mixture":
        """One Gaussian."""
        return cls(np.zeros(1), np.asarray(mean)[None], np.asarray(variance)[None])

    def log_densities(self, frames: Frames) -> NDArray[Any]:
        """(n, k): of each Gaussian, times its weight."""
        linear, constant = _as_linear([self])
        return np.hstack([frames, frames * frames]) @ linear + constant

    def split(self, wanted: int) -> "Mixture":
        """Replace the heaviest Gaussians by two each, as long as that gives at most `wanted`."""
        heaviest = np.argsort(-self.weights, kind="stable")[: max(0, wanted - len(self.weights))]
        apart = np.zeros_like(self.means)
        apart[heaviest] = SPLIT * np.sqrt(self.variances[heaviest])
        weights = self.weights.copy()
        weights[heaviest] -= np.log(2)
        return Mixture(
            np.r_[weights, weights[heaviest]],
            np.vstack([self.means - apart, (self.means + apart)[heaviest]]),
            np.vstack([self.variances, self.variances[heaviest]]),
        )

    def improved(self, frames: Frames, floor: Any = None) -> tuple["Mixture", float]:
        """One step of EM, and the log-likelihood of the frames before it.

        Gaussians that few frames belong to are dropped. `floor` is a lower limit of variances;
        without it they stay as they are.
        """
        densities = self.log_densities(frames).astype(np.float64)
        top = densities.max(axis=1, keepdims=True)
        belongs = np.exp(densities - top)
        total = belongs.sum(axis=1, keepdims=True)
        belongs /= total
        counts = belongs.sum(axis=0)
        kept = counts >= min(SMALLEST, counts.max())
        counts, belongs = counts[kept], belongs[:, kept].astype(frames.dtype)
        means = (belongs.T @ frames).astype(np.float64) / counts[:, None]
        variances = self.variances[kept]
        if floor is not None:
            squares = (belongs.T @ (frames * frames)).astype(np.float64) / counts[:, None]
            variances = np.maximum(squares - means**2, floor)
        likelihood = float((np.log(total) + top).sum())
        return Mixture(np.log(counts / counts.sum()), means, variances), likelihood


def _as_linear(mixtures: list[Mixture]) -> tuple[Frames, Frames]:
    """Log-densities as linear functions of [x, x^2]: a matrix (2 d, k) and constants (k,)."""
    means = np.vstack([one.means for one in mixtures])
    variances = np.vstack([one.variances for one in mixtures])
    weights = np.concatenate([one.weights for one in mixtures])
    linear = np.hstack([means / variances, -0.5 / variances]).T
    constant = weights - 0.5 * (means**2 / variances + np.log(2 * np.pi * variances)).sum(axis=1)
    return linear.astype(np.float32), constant.astype(np.float32)


class Mixtures:
    """A `Mixture` for each state."""

    def __init__(self, mixtures: list[Mixture]) -> None:
        self.mixtures = mixtures
        self._linear, self._constant = _as_linear(mixtures)
        self._first = np.r_[0, np.cumsum([len(one.weights) for one in mixtures])]

    def scores(self, frames: Frames) -> Frames:
        """(n, states)."""
        out = np.empty((len(frames), len(self.mixtures)), np.float32)
        for start in range(0, len(frames), ROWS):
            some = frames[start : start + ROWS]
            densities = np.hstack([some, some * some]) @ self._linear
            densities += self._constant
            _add_up(densities, self._first, out[start : start + ROWS])
        return out


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_up(densities: Any, first: Any, out: Any) -> None:
    """Log of the sum of the exponentials of columns first[s] to first[s + 1], for each s."""
    for i in range(densities.shape[0]):
        for s in range(out.shape[1]):
            top = densities[i, first[s]]
            for k in range(first[s] + 1, first[s + 1]):
                top = max(top, densities[i, k])
            total = np.float32(0)
            for k in range(first[s], first[s + 1]):
                below = densities[i, k] - top
                if below > -16:
                    total += np.exp(below)
            out[i, s] = top + np.log(total)


def by_state(states: States, n_states: int) -> list[NDArray[np.int64]]:
    """The frames of each state."""
    order = np.argsort(states, kind="stable")
    ends = np.cumsum(np.bincount(states, minlength=n_states))
    return np.split(order, ends[:-1])


def sizes(largest: int = LARGEST) -> Iterator[int]:
    """Gaussians per state as a model grows: 1, 2, 4, ..., `largest`."""
    size = 1
    while size < largest:
        yield size
        size *= 2
    yield largest


def grown(
    model: Mixtures | None, frames: Frames, states: States, n_states: int, size: int
) -> Mixtures:
    """Mixtures of up to `size` Gaussians for these states, grown from the model before."""
    mean, variance = frames.mean(axis=0), frames.var(axis=0)
    floor = FLOOR * variance
    mixtures = []
    for s, rows in enumerate(by_state(states, n_states)):
        own = frames[rows]
        if len(own) < TOO_FEW:
            mixture = Mixture.single(mean, variance) if model is None else model.mixtures[s]
        elif model is None or size == 1:
            mixture = Mixture.single(own.mean(axis=0), np.maximum(own.var(axis=0), floor))
        else:
            mixture = model.mixtures[s].split(min(size, max(1, len(own) // FRAMES_EACH)))
            for _ in range(EM_STEPS):
                mixture, _ = mixture.improved(own, floor)
        mixtures.append(mixture)
    return Mixtures(mixtures)


# Models of given states: no alignment of their own.


@dataclass(frozen=True)
class Whitened:
    """A model of linearly transformed frames."""

    transform: NDArray[np.float32]  # (d, d)
    model: Mixtures

    def scores(self, frames: Frames) -> Frames:
        """(n, states)."""
        return self.model.scores(frames @ self.transform)


def fit_shared(frames: Frames, states: States, n_states: int) -> Whitened:
    """Mixtures of Gaussians that all have the same full covariance.

    It is estimated again after each splitting. Frames are transformed so that it is the identity.
    """
    groups = by_state(states, n_states)
    covariance = _within(frames, states, n_states)
    unit = np.ones(frames.shape[1])
    mixtures = [Mixture.single(_mean(frames[rows], frames), unit) for rows in groups]
    for size in sizes():
        root = np.linalg.cholesky(covariance)
        whiten = np.linalg.inv(root).T.astype(np.float32)
        white = frames @ whiten
        explained = np.zeros_like(covariance)
        for s, rows in enumerate(groups):
            own, before = white[rows], mixtures[s]
            mixture = Mixture(before.weights, before.means @ whiten, before.variances)
            mixture = mixture.split(min(size, max(1, len(own) // FRAMES_EACH)))
            for _ in range(EM_STEPS if len(own) >= TOO_FEW else 0):
                mixture, _ = mixture.improved(own)
            mixtures[s] = mixture
            explained += (mixture.means.T * (len(own) * np.exp(mixture.weights))) @ mixture.means
        model = Whitened(whiten, Mixtures(mixtures))
        # What is left of the scatter around the means, in the original columns.
        scatter = (white.T @ white).astype(np.float64) - explained
        covariance = _conditioned(root @ scatter @ root.T / len(frames))
        mixtures = [Mixture(one.weights, one.means @ root.T, one.variances) for one in mixtures]
    return model


@dataclass(frozen=True)
class FullGaussians:
    """One Gaussian per state, with its own full covariance."""

    means: NDArray[np.float64]  # (states, d)
    factors: NDArray[np.float64]  # (states, d, d): lower Cholesky factors of covariances

    def scores(self, frames: Frames) -> Frames:
        """(n, states)."""
        out = np.empty((len(frames), len(self.means)), np.float32)
        for s, (mean, factor) in enumerate(zip(self.means, self.factors, strict=True)):
            whiten = solve_triangular(factor, np.eye(len(factor)), lower=True).T
            away = frames @ whiten.astype(np.float32) - (mean @ whiten).astype(np.float32)
            size = 2 * np.log(np.diag(factor)).sum()
            out[:, s] = -0.5 * (np.einsum("nd,nd->n", away, away) + size)
        return out


def fit_full(frames: Frames, states: States, n_states: int) -> FullGaussians:
    """Covariances of states, smoothed by the average covariance within states."""
    shared = _within(frames, states, n_states)
    means, factors = [], []
    for rows in by_state(states, n_states):
        own = frames[rows].astype(np.float64)
        mean = _mean(own, frames)
        scatter = (own - mean).T @ (own - mean) + PRIOR_FRAMES * shared
        means.append(mean)
        factors.append(np.linalg.cholesky(scatter / (len(own) + PRIOR_FRAMES)))
    return FullGaussians(np.array(means), np.array(factors))


@dataclass(frozen=True)
class Softmax:
    """Posteriors linear in the standardised frames, divided by the frequency of states."""

    coefficients: NDArray[np.float32]  # (d, states)
    constants: NDArray[np.float32]  # (states,)
    log_frequency: NDArray[np.float32]  # (states,)

    def scores(self, frames: Frames) -> Frames:
        """(n, states)."""
        logits = frames @ self.coefficients + self.constants
        logits -= np.logaddexp.reduce(logits, axis=1, keepdims=True)
        return np.asarray(logits - self.log_frequency, np.float32)


def fit_softmax(frames: Frames, states: States, n_states: int) -> Softmax:
    """Multinomial logistic regression by Adam on minibatches, with a falling learning rate."""
    mean, deviation = frames.mean(axis=0), frames.std(axis=0)
    deviation[deviation == 0] = 1
    inputs = np.hstack([(frames - mean) / deviation, np.ones((len(frames), 1), np.float32)])
    weights = np.zeros((inputs.shape[1], n_states), np.float32)
    moments, squares = np.zeros_like(weights), np.zeros_like(weights)
    starts = range(0, len(frames), BATCH)
    steps = max(STEPS, EPOCHS * len(starts))
    for step in range(1, steps + 1):
        epoch, place = divmod(step - 1, len(starts))
        if place == 0:
            order = np.random.default_rng([0, epoch]).permutation(len(frames))
        batch = order[starts[place] : starts[place] + BATCH]
        rows = inputs[batch]
        away = _softmax(rows @ weights)
        away[np.arange(len(batch)), states[batch]] -= 1
        gradient = rows.T @ away / len(batch)
        gradient[:-1] += PENALTY * weights[:-1]
        moments += 0.1 * (gradient - moments)
        squares += 0.001 * (gradient**2 - squares)
        size = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / steps)) / (1 - 0.9**step)
        weights -= (
            np.float32(size)
            * moments
            / (np.sqrt(squares / np.float32(1 - 0.999**step)) + np.float32(1e-8))
        )
    coefficients = weights[:-1] / deviation[:, None]
    counts = np.bincount(states, minlength=n_states)
    frequency = np.log(np.maximum(counts, 1) / len(states))
    return Softmax(coefficients, weights[-1] - mean @ coefficients, frequency)


def _softmax(logits: Frames) -> Frames:
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    return logits


FITTED = {"shared": fit_shared, "full": fit_full, "softmax": fit_softmax}
ACOUSTIC = ("gmm", *FITTED)


def _mean(own: Any, all_frames: Any) -> NDArray[np.float64]:
    """The mean of the frames of a state, or of all frames if it has none."""
    return np.asarray((own if len(own) else all_frames).mean(axis=0), np.float64)


def _within(frames: Frames, states: States, n_states: int) -> NDArray[np.float64]:
    """Covariance of frames around the mean of their state."""
    counts = np.bincount(states, minlength=n_states)
    sums = np.zeros((n_states, frames.shape[1]))
    for s, rows in enumerate(by_state(states, n_states)):
        sums[s] = frames[rows].sum(axis=0, dtype=np.float64)
    means = sums / np.maximum(counts, 1)[:, None]
    away = frames - means[states].astype(np.float32)
    return _conditioned((away.T @ away).astype(np.float64) / len(frames))


def _conditioned(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """The covariance with a ridge that makes it invertible in single precision."""
    symmetric = (covariance + covariance.T) / 2
    ridge = 1e-4 * np.diag(symmetric).mean()
    return np.asarray(symmetric + ridge * np.eye(len(symmetric)))
