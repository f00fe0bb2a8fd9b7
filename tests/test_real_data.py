"""The estimators on real two-view data, against numbers known for it.

The data sets are not part of the project: where they are absent these tests skip and say so.
"""

import numpy as np
import pytest
from scipy.io import loadmat

from knoi import LinearCCA, NystromCCA, component_correlations, total_correlation
from knoi.datasets.digits import read_idx

pytestmark = pytest.mark.shared_data


def halves(images):
    images = images.astype(np.float32) / 255
    return images[:, :, :14].reshape(len(images), -1), images[:, :, 14:].reshape(len(images), -1)


def windows(frames, utterance, reach=3):
    """Each frame with its neighbours; at the edges of an utterance the frame itself fills in."""
    here = np.arange(len(frames))
    columns = []
    for offset in range(-reach, reach + 1):
        there = np.clip(here + offset, 0, len(frames) - 1)
        columns.append(frames[np.where(utterance[there] == utterance, there, here)])
    return np.hstack(columns)


def test_mnist_halves(shared_data):
    X, Y = halves(read_idx(shared_data / "mnist" / "train-images-idx3-ubyte.gz"))
    test = halves(read_idx(shared_data / "mnist" / "t10k-images-idx3-ubyte.gz"))
    model = LinearCCA(50, reg=1e-5).fit(X, Y)
    assert total_correlation(*model.transform(*test)) == pytest.approx(28.6, abs=0.2)


@pytest.mark.parametrize(
    ("speaker", "known"),
    [
        ("fsew0", [0.84, 0.80, 0.75]),
        ("msak0", [0.86, 0.77, 0.73]),
        ("maps0", [0.80, 0.78, 0.77]),
    ],
)
def test_speech_and_articulation(shared_data, speaker, known):
    with np.load(shared_data / "mocha" / f"mocha_{speaker}.npz") as data:
        utterance = data["utt"]
        X = windows(data["mfcc"].astype(np.float32), utterance)
        Y = windows(data["ema"].astype(np.float32), utterance)
    train, test = utterance <= 400, utterance > 400
    linear = LinearCCA(3).fit(X[train], Y[train])
    found = component_correlations(*linear.transform(X[test], Y[test]))
    np.testing.assert_allclose(found, known, atol=0.011)
    kernel = NystromCCA(3, rank=300, random_state=0).fit(X[train][::5], Y[train][::5])
    assert kernel.score(X[test], Y[test]) > found.sum() + 0.1


def test_pictures_and_articles(shared_data):
    data = loadmat(shared_data / "wikipedia_rasiwasia" / "raw_features.mat")
    model = LinearCCA(3).fit(data["I_tr"], data["T_tr"])
    found = component_correlations(*model.transform(data["I_te"], data["T_te"]))
    np.testing.assert_allclose(found, [0.45, 0.36, 0.31], atol=0.025)


def test_two_descriptions_of_digits(shared_data):
    with np.load(shared_data / "mfeat" / "mfeat.npz") as data:
        X, Y = data["fou"], data["kar"]
    held_out = np.arange(2000) % 4 == 0
    model = LinearCCA(3).fit(X[~held_out], Y[~held_out])
    found = component_correlations(*model.transform(X[held_out], Y[held_out]))
    np.testing.assert_allclose(found, [0.90, 0.86, 0.81], atol=0.06)
