"""A phone recogniser: training by realignment, tuning, phone error rate, paired bootstrap.

Training data have a phone per frame; only their order and, at first, their boundaries are used. The
error rate counts substitutions, insertions and deletions of phones per phone of the reference;
silence and breath are left out of both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.speech import acoustic
from benchmarks.speech.acoustic import Frames, Mixtures, States
from benchmarks.speech.search import STATES, Phones, align, bigram, decode, edit_distance, states_of

# Weights of the language model that are tried, and penalties of a phone in units of that weight.
SCALES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 11.0, 15.0, 20.0)
PENALTIES = (-2.0, -1.0, 0.0, 1.0, 2.0)
RESAMPLES = 2000  # of the bootstrap


@dataclass(frozen=True)
class Utterances:
    """Frames of some utterances, one after the other, and the phone of each frame."""

    frames: Frames  # (n, d)
    labels: NDArray[np.int64]  # (n,)
    bounds: NDArray[np.int64]  # (utterances + 1,): where each begins, and the end

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def slices(self) -> list[slice]:
        """The rows of each utterance."""
        return [slice(a, b) for a, b in zip(self.bounds[:-1], self.bounds[1:], strict=True)]

    def phones(self) -> list[Phones]:
        """The phones of each utterance."""
        return [segments(self.labels[rows])[0] for rows in self.slices()]

    def with_frames(self, frames: Frames) -> "Utterances":
        """The same utterances with other features."""
        return replace(self, frames=frames)


def segments(labels: NDArray[np.int64]) -> tuple[Phones, NDArray[np.int64]]:
    """The phones of an utterance, and where each begins, with the end."""
    starts = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]])
    return labels[starts], np.r_[starts, len(labels)]


def even_states(utterances: Utterances) -> States:
    """States for a start: every phone in three equal parts."""
    found = np.empty(len(utterances.labels), np.int64)
    for rows in utterances.slices():
        phones, bounds = segments(utterances.labels[rows])
        for phone, start, stop in zip(phones, bounds[:-1], bounds[1:], strict=True):
            part = np.arange(stop - start) * STATES // (stop - start)
            found[rows.start + start : rows.start + stop] = STATES * phone + part
    return found


def realigned(model: Any, utterances: Utterances, states: States) -> States:
    """The most likely states of a model for the phones of each utterance.

    An utterance with fewer frames than states keeps the states it has.
    """
    scores = model.scores(utterances.frames)
    found = states.copy()
    for rows, phones in zip(utterances.slices(), utterances.phones(), strict=True):
        path = states_of(phones)
        if len(path) <= rows.stop - rows.start:
            found[rows] = path[align(scores[rows], path)[0]]
    return found


def train_gmm(
    utterances: Utterances, n_phones: int, largest: int = acoustic.LARGEST
) -> tuple[Mixtures, States]:
    """Mixtures of up to `largest` Gaussians per state, and the states of the frames.

    States are found again with 1 and 2 Gaussians, with half of the largest number, and in the end.
    """
    states, model = even_states(utterances), None
    for size in acoustic.sizes(largest):
        model = acoustic.grown(model, utterances.frames, states, STATES * n_phones, size)
        if size in (1, 2, largest // 2, largest):
            states = realigned(model, utterances, states)
    assert model is not None
    return model, states


@dataclass(frozen=True)
class Recogniser:
    """A trained recogniser."""

    model: Any  # with `scores(frames)`
    language: NDArray[np.float64]  # as made by `bigram`
    left_out: tuple[int, ...]  # phones that do not count as errors
    scale: float = 1.0
    penalty: float = 0.0

    def recognise(self, scores: Frames) -> Phones:
        """The phones of an utterance, without those left out."""
        phones, _ = decode(scores, self.scale * (self.language - self.penalty))
        return np.asarray(phones[~np.isin(phones, self.left_out)])

    def errors(self, utterances: Utterances, scores: Frames | None = None) -> "Errors":
        """Errors of each utterance. `scores` are those of the model, if they are known."""
        scores = self.model.scores(utterances.frames) if scores is None else scores
        errors, phones = [], []
        for rows, reference in zip(utterances.slices(), utterances.phones(), strict=True):
            reference = reference[~np.isin(reference, self.left_out)]
            errors.append(edit_distance(reference, self.recognise(scores[rows])))
            phones.append(len(reference))
        return Errors(np.array(errors), np.array(phones))

    def tuned(self, utterances: Utterances) -> tuple["Recogniser", float]:
        """With the scale and the penalty of the lowest error rate on these utterances.

        First the scale is searched, then the penalty, then scales next to the best.
        """
        scores = self.model.scores(utterances.frames)
        rates: dict[tuple[float, float], float] = {}

        def best(tried: Sequence[tuple[float, float]]) -> tuple[float, float]:
            for scale, penalty in tried:
                if (scale, penalty) not in rates:
                    one = replace(self, scale=scale, penalty=penalty)
                    rates[scale, penalty] = one.errors(utterances, scores).rate
            return min(rates, key=rates.__getitem__)

        scale, _ = best([(scale, 0.0) for scale in SCALES])
        _, penalty = best([(scale, penalty) for penalty in PENALTIES])
        place = SCALES.index(scale)
        found = best([(near, penalty) for near in SCALES[max(0, place - 1) : place + 2]])
        return replace(self, scale=found[0], penalty=found[1]), rates[found]


def train(
    utterances: Utterances,
    n_phones: int,
    left_out: tuple[int, ...],
    kind: str = "gmm",
    states: States | None = None,
) -> Recogniser:
    """Train a recogniser; all kinds but "gmm" need the states of the frames."""
    if kind == "gmm":
        model: Any = train_gmm(utterances, n_phones)[0]
    else:
        model = acoustic.FITTED[kind](utterances.frames, states, STATES * n_phones)
    return Recogniser(model, bigram(utterances.phones(), n_phones), left_out)


# Error rates.


@dataclass(frozen=True)
class Errors:
    """Errors and phones of the reference, per utterance."""

    errors: NDArray[np.int64]
    phones: NDArray[np.int64]

    @property
    def rate(self) -> float:
        """Errors per phone."""
        return float(self.errors.sum() / self.phones.sum())

    @classmethod
    def of(cls, errors: Sequence[int], phones: Sequence[int]) -> "Errors":
        """From stored lists."""
        return cls(np.array(errors), np.array(phones))

    @classmethod
    def joined(cls, parts: Sequence["Errors"]) -> "Errors":
        """Of several sets of utterances together."""
        return cls(
            np.concatenate([one.errors for one in parts]),
            np.concatenate([one.phones for one in parts]),
        )

    def standard_error(self) -> float:
        """Of the rate, by drawing utterances with replacement."""
        return _bootstrap(self.errors, self.phones)

    def standard_error_of_difference(self, other: "Errors") -> float:
        """Of the difference of the rates on the same utterances, which are drawn together."""
        if not np.array_equal(self.phones, other.phones):
            raise ValueError("Errors of different utterances cannot be paired.")
        return _bootstrap(self.errors - other.errors, self.phones)


def _bootstrap(counts: NDArray[np.int64], phones: NDArray[np.int64]) -> float:
    draws = np.random.default_rng(0).integers(len(phones), size=(RESAMPLES, len(phones)))
    return float((counts[draws].sum(axis=1) / phones[draws].sum(axis=1)).std())
