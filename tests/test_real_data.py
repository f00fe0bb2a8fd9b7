"""The estimators on real two-view data, against known results; skipped without the data."""

import numpy as np
import pytest
from scipy.io import loadmat

from benchmarks.paper.lopez_paz import halves
from benchmarks.paper.mnist import read_idx
from benchmarks.speech.corpora import windows
from knoi import LinearCCA, NystromCCA, component_correlations, total_correlation

pytestmark = pytest.mark.shared_data


def test_mnist_halves(shared_data):
    X, Y = halves(read_idx(shared_data / "mnist" / "train-images-idx3-ubyte.gz"))
    test = halves(read_idx(shared_data / "mnist" / "t10k-images-idx3-ubyte.gz"))
    model = LinearCCA(50, reg=1e-5).fit(X, Y)
    assert total_correlation(*model.transform(*test)) == pytest.approx(28.6, abs=0.2)


def test_speech_and_articulation(shared_data):
    with np.load(shared_data / "mocha" / "mocha_fsew0.npz") as data:
        utterance = data["utt"]
        X = windows(data["mfcc"].astype(np.float32), utterance)
        Y = windows(data["ema"].astype(np.float32), utterance)
    train, test = utterance <= 400, utterance > 400
    linear = LinearCCA(3).fit(X[train], Y[train])
    found = component_correlations(*linear.transform(X[test], Y[test]))
    np.testing.assert_allclose(found, [0.84, 0.80, 0.75], atol=0.011)
    kernel = NystromCCA(3, rank=300, random_state=0).fit(X[train][::5], Y[train][::5])
    assert kernel.score(X[test], Y[test]) > found.sum() + 0.1


def test_pictures_and_articles(shared_data):
    data = loadmat(shared_data / "wikipedia_rasiwasia" / "raw_features.mat")
    model = LinearCCA(3, reg=0).fit(data["I_tr"], data["T_tr"])
    found = component_correlations(*model.transform(data["I_te"], data["T_te"]))
    np.testing.assert_allclose(found, [0.45, 0.36, 0.31], atol=0.025)


def test_two_descriptions_of_digits(shared_data):
    with np.load(shared_data / "mfeat" / "mfeat.npz") as data:
        X, Y = data["fou"], data["kar"]
    held_out = np.arange(2000) % 4 == 0
    model = LinearCCA(3).fit(X[~held_out], Y[~held_out])
    found = component_correlations(*model.transform(X[held_out], Y[held_out]))
    np.testing.assert_allclose(found, [0.90, 0.86, 0.81], atol=0.06)
