"""Search in a phone recogniser: forced alignment, exact decoding with a bigram, edit distance.

A phone has three states that are passed from left to right, so it lasts at least three frames.
Column 3 p + s of a matrix of scores is state s of phone p: log-likelihoods of frames, one per row.
Transitions within a phone cost nothing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

STATES = 3
Phones = NDArray[np.int64]


def states_of(phones: Phones) -> NDArray[np.int64]:
    """The states of a sequence of phones, in the order in which they are passed."""
    return (STATES * phones[:, None] + np.arange(STATES)).ravel()


def bigram(sequences: Sequence[Phones], n_phones: int) -> NDArray[np.float64]:
    """Log-probabilities of the next phone, smoothed as by Witten and Bell.

    The last row is the start of an utterance and the last column its end.
    """
    edge = n_phones
    counts = np.zeros((n_phones + 1, n_phones + 1))
    for phones in sequences:
        np.add.at(counts, (np.r_[edge, phones], np.r_[phones, edge]), 1)
    overall = counts.sum(axis=0) + 0.5
    overall /= overall.sum()
    seen = counts.sum(axis=1, keepdims=True)
    kinds = (counts > 0).sum(axis=1, keepdims=True) + 1  # the weight of what was not seen
    return np.asarray(np.log((counts + kinds * overall) / (seen + kinds)))


@njit(cache=True, nogil=True)
def align(scores: Any, path: Any) -> Any:
    """The most likely way to pass the states of `path`: a place in `path` per frame, and its score.

    There must be at least as many frames as states.
    """
    n_frames, n_states = scores.shape[0], path.shape[0]
    moved = np.zeros((n_frames, n_states), np.bool_)
    best = np.full(n_states, -np.inf)
    best[0] = scores[0, path[0]]
    for t in range(1, n_frames):
        for s in range(n_states - 1, -1, -1):
            if s > 0 and best[s - 1] > best[s]:
                best[s] = best[s - 1]
                moved[t, s] = True
            best[s] += scores[t, path[s]]
    places = np.empty(n_frames, np.int64)
    s = n_states - 1
    for t in range(n_frames - 1, -1, -1):
        places[t] = s
        if moved[t, s]:
            s -= 1
    return places, best[n_states - 1]


@njit(cache=True, nogil=True)
def decode(scores: Any, transitions: Any) -> Any:
    """The most likely sequence of phones, and its score.

    `transitions` has the form of `bigram`: what is added to the score from phone to phone.
    """
    n_frames, n_phones = scores.shape[0], scores.shape[1] // 3
    best = np.full((n_phones, 3), -np.inf)  # of all that end in this state
    before = np.full((n_frames, n_phones), -1, np.int64)  # the phone before, where a phone starts
    moved = np.zeros((n_frames, n_phones, 2), np.bool_)  # into the second, into the third state
    into = np.ascontiguousarray(transitions.T)
    for p in range(n_phones):
        best[p, 0] = into[p, n_phones] + scores[0, 3 * p]
    for t in range(1, n_frames):
        left = best[:, 2].copy()
        for p in range(n_phones):
            for s in (2, 1):
                if best[p, s - 1] > best[p, s]:
                    best[p, s] = best[p, s - 1]
                    moved[t, p, s - 1] = True
            for q in range(n_phones):
                entered = left[q] + into[p, q]
                if entered > best[p, 0]:
                    best[p, 0] = entered
                    before[t, p] = q
            for s in range(3):
                best[p, s] += scores[t, 3 * p + s]
    last = 0
    for q in range(n_phones):
        best[q, 2] += into[n_phones, q]
        if best[q, 2] > best[last, 2]:
            last = q
    found = np.empty(n_frames, np.int64)
    n, p, s = 0, last, 2
    for t in range(n_frames - 1, -1, -1):
        if s > 0:
            if moved[t, p, s - 1]:
                s -= 1
        elif before[t, p] >= 0:
            found[n] = p
            n += 1
            p, s = before[t, p], 2
    found[n] = p
    return found[: n + 1][::-1].copy(), best[last, 2]


@njit(cache=True, nogil=True)
def edit_distance(reference: Any, hypothesis: Any) -> int:
    """The fewest substitutions, insertions and deletions between two sequences."""
    n = hypothesis.shape[0]
    row = np.arange(n + 1)
    for i in range(reference.shape[0]):
        diagonal = row[0]
        row[0] = i + 1
        for j in range(n):
            substituted = diagonal + (reference[i] != hypothesis[j])
            diagonal = row[j + 1]
            row[j + 1] = min(substituted, row[j] + 1, row[j + 1] + 1)
    return row[n]
