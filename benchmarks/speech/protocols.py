"""Who trains what: protocols of the phone recognition experiment, and variants of it.

A protocol divides a corpus into folds; sentence i is in part i modulo 6. A variant changes the
frames, the amount of training data or the recogniser, in search of conditions in which learned
features help more. Corpora come as they are read; `prepared` ends with normalised ones.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.speech.acoustic import Frames
from benchmarks.speech.corpora import (
    CEPSTRA,
    FOLDS,
    RECOGNISER_SPEAKERS,
    Corpus,
    acoustic_windows,
    normalised,
)
from knoi.exceptions import InputError

Utterances = NDArray[np.int64]


@dataclass(frozen=True)
class Fold:
    """Utterances of one cell of the experiment.

    Attributes
    ----------
    name : str
    learn : ndarray
        Utterances that features are learned on, both views.
    train, tune, test : ndarrays
        Utterances of the recogniser, sound only.
    number : int
        Which of the six folds it is.
    """

    name: str
    learn: Utterances
    train: Utterances
    tune: Utterances
    test: Utterances
    number: int


def same_speaker(corpus: Corpus) -> Iterator[Fold]:
    """Features and recogniser from one speaker's training sentences: 4/6, 1/6 and 1/6 of them."""
    for speaker in _names(corpus):
        for k in range(FOLDS):
            train, tune, test = _thirds(corpus, corpus.speakers == speaker, k)
            yield Fold(f"{speaker}-{k}", train, train, tune, test, k)


def other_speakers(corpus: Corpus) -> Iterator[Fold]:
    """As `same_speaker`, but features are learned on all sentences of the other speakers.

    As in the paper no label is used for them, and speakers read the same sentences.
    """
    _several(corpus, "other")
    for speaker in _names(corpus):
        others = np.flatnonzero(corpus.speakers != speaker)
        for k in range(FOLDS):
            train, tune, test = _thirds(corpus, corpus.speakers == speaker, k)
            yield Fold(f"{speaker}-{k}", others, train, tune, test, k)


def unseen_speaker(corpus: Corpus) -> Iterator[Fold]:
    """Features and recogniser from the training sentences of the others, one speaker tested.

    The tuning sentences are the tested speaker's, too: they set the number of features, the weight
    of the language model and the penalty of a phone.
    """
    _several(corpus, "unseen")
    for speaker in _names(corpus):
        for k in range(FOLDS):
            train, _, _ = _thirds(corpus, corpus.speakers != speaker, k)
            _, tune, test = _thirds(corpus, corpus.speakers == speaker, k)
            yield Fold(f"{speaker}-{k}", train, train, tune, test, k)


def paper(corpus: Corpus) -> Iterator[Fold]:
    """The paper's: features from 35 speakers; of twelve others, eight train, two tune, two test."""
    others = [one for one in _names(corpus) if one not in corpus.learners]
    if not corpus.learners or len(others) != RECOGNISER_SPEAKERS:
        raise InputError(
            f"{corpus.name} has {len(corpus.learners)} speakers for learning features and "
            f"{len(others)} others; the protocol 'paper' needs some and {RECOGNISER_SPEAKERS}. "
            "Choose another protocol."
        )
    learn = np.flatnonzero(np.isin(corpus.speakers, corpus.learners))
    two = RECOGNISER_SPEAKERS // FOLDS
    for k in range(FOLDS):
        turned = np.roll(others, -two * k)
        test, tune, train = (
            np.flatnonzero(np.isin(corpus.speakers, some))
            for some in (turned[:two], turned[two : 2 * two], turned[2 * two :])
        )
        yield Fold(f"fold-{k}", learn, train, tune, test, k)


PROTOCOLS: dict[str, Callable[[Corpus], Iterator[Fold]]] = {
    "same": same_speaker,
    "other": other_speakers,
    "unseen": unseen_speaker,
    "paper": paper,
}


def _names(corpus: Corpus) -> list[str]:
    return list(dict.fromkeys(corpus.speakers.tolist()))


def _several(corpus: Corpus, protocol: str) -> None:
    if len(_names(corpus)) < 2:
        raise InputError(f"The protocol {protocol!r} needs two speakers or more.")


def _thirds(corpus: Corpus, own: NDArray[np.bool_], k: int) -> tuple[Utterances, ...]:
    """Training, tuning and test utterances of fold k, of those in `own`."""
    part = (corpus.sentences - corpus.sentences.min()) % FOLDS
    tune, test = part == (k + 1) % FOLDS, part == k
    return tuple(np.flatnonzero(own & some) for some in (~tune & ~test, tune, test))


# Variants.

WARPS = (0.85, 0.91, 0.97, 1.03, 1.09, 1.15)  # of the frequency axis, one per fold
LIFTER = 22  # cepstra of MOCHA and XRMB are liftered as by HTK and Kaldi


def with_noise(corpus: Corpus, level: float) -> Corpus:
    """Gaussian noise on the cepstra, `level` times their standard deviation per speaker.

    Slopes and windows are computed from the noisy cepstra; articulation and labels stay.
    """
    cepstra = _cepstra(normalised(corpus))
    noise = np.random.default_rng([0, round(100 * level)]).standard_normal(cepstra.shape)
    noisy = (cepstra + level * noise).astype(np.float32)
    return replace(corpus, X=acoustic_windows(noisy, corpus.utterance_of_frame))


def with_warps(corpus: Corpus) -> Corpus:
    """Every speaker as six, one per fold, who differ in the length of their vocal tract.

    The frequency axis of the spectrum that the cepstra describe is stretched, which is linear in
    the cepstra. Each of the six is normalised as a speaker; so test sentences come from one whom
    neither features nor recogniser have met.
    """
    part = (corpus.sentences - corpus.sentences.min()) % FOLDS
    of_frame = corpus.utterance_of_frame
    cepstra = _cepstra(corpus).copy()
    for k, warp in enumerate(WARPS):
        own = (part == k)[of_frame]
        cepstra[own] = cepstra[own] @ warping(warp).T
    names = np.array([f"{one}/{k}" for one, k in zip(corpus.speakers, part, strict=True)])
    changed = replace(corpus, X=acoustic_windows(cepstra, of_frame), speakers=names)
    return replace(normalised(changed), speakers=corpus.speakers)


def warping(factor: float, n: int = CEPSTRA, points: int = 512) -> NDArray[np.float64]:
    """The matrix (n, n) of what stretching the frequency axis by `factor` does to cepstra.

    The axis is that of the filters, near the mel scale; beyond its end the spectrum continues as at
    the end. Cepstra are those of an orthonormal DCT, multiplied by the sine window of a lifter.
    """
    lifter = 1 + LIFTER / 2 * np.sin(np.pi * np.arange(n) / LIFTER)
    scale = np.r_[1, np.full(n - 1, np.sqrt(2))]
    here = (np.arange(points) + 0.5) / points
    from_there = np.minimum(here / factor, 1)
    original, stretched = (
        scale * np.cos(np.pi * np.outer(where, np.arange(n))) for where in (here, from_there)
    )
    return np.asarray(lifter[:, None] * (original.T @ stretched / points) / lifter)


def _cepstra(corpus: Corpus) -> Frames:
    """The static coefficients of every frame."""
    return corpus.mfcc[:, :CEPSTRA]


def less_training(fold: Fold, share: int = 4) -> Fold:
    """The recogniser is trained on every fourth of the sentences that features are learned on."""
    return replace(fold, train=fold.train[::share])


def prepared(corpus: Corpus, variant: "Variant") -> Corpus:
    """The corpus of a variant, every column normalised speaker by speaker."""
    return normalised(variant.corpus(corpus))


@dataclass(frozen=True)
class Variant:
    """A change of the experiment."""

    label: str
    corpus: Callable[[Corpus], Corpus] = lambda corpus: corpus
    fold: Callable[[Fold], Fold] = lambda fold: fold
    acoustic: tuple[str, ...] = ("gmm", "softmax")
    rotated: bool = False  # appended features go through PCA together with the MFCC


VARIANTS = {
    "plain": Variant("as recorded"),
    "noise": Variant("noise, half a standard deviation", lambda c: with_noise(c, 0.5)),
    "more-noise": Variant("noise, one standard deviation", lambda c: with_noise(c, 1.0)),
    "less": Variant("a quarter of the sentences train the recogniser", fold=less_training),
    "warped": Variant("six vocal tract lengths", with_warps),
    "rotated": Variant("tandem features through PCA", acoustic=("gmm",), rotated=True),
    "covariance": Variant("other covariances", acoustic=("shared", "full")),
}
