"""Speech: acoustic frames and the movements of the articulators that made them.

    python examples/speech.py [--utterances 60]

Synthetic data in place of recordings such as MOCHA or the X-ray microbeam: 7 articulators move
smoothly, 14 noisy columns measure their positions, and the sound is 13 noisy nonlinear functions of
them, like cepstral coefficients. As in the literature, every row is a window of 7 frames, and whole
utterances are held out: neighbouring frames are nearly equal, so randomly held-out rows would not
be independent of the training rows.
"""

import argparse

import numpy as np
from scipy.ndimage import gaussian_filter1d

from knoi import KNOI, LinearCCA, component_correlations

FRAMES, ARTICULATORS, WINDOW, COMPONENTS = 100, 7, 7, 10


def make_utterance(number, layer, mixing):
    """Acoustic (100, 13) and articulatory (100, 14) frames of one utterance."""
    rng = np.random.default_rng([1, number])
    moves = gaussian_filter1d(rng.standard_normal((FRAMES, ARTICULATORS)), sigma=4, axis=0)
    moves /= moves.std()
    sound = np.cos(moves @ layer[0] + layer[2]) @ layer[1] / 4
    sound += 0.5 * rng.standard_normal(sound.shape)
    measured = moves @ mixing + 0.3 * rng.standard_normal((FRAMES, mixing.shape[1]))
    return sound, measured


def windows(frames):
    """Each frame with 3 before and 3 after it, side by side: (94, 7 * columns)."""
    view = np.lib.stride_tricks.sliding_window_view(frames, WINDOW, axis=0)
    return view.transpose(0, 2, 1).reshape(len(view), -1)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--utterances", type=int, default=60)
    n = parser.parse_args(arguments).utterances

    rng = np.random.default_rng(0)
    layer = (
        rng.standard_normal((ARTICULATORS, 40)) / 2,
        rng.standard_normal((40, 13)),
        rng.uniform(0, 2 * np.pi, 40),
    )
    mixing = rng.standard_normal((ARTICULATORS, 14))
    spoken = [make_utterance(k, layer, mixing) for k in range(n + n // 4)]
    acoustic, movement = (
        [windows(each[view]).astype(np.float32) for each in spoken] for view in range(2)
    )
    X, X_test = np.concatenate(acoustic[:n]), np.concatenate(acoustic[n:])
    Y, Y_test = np.concatenate(movement[:n]), np.concatenate(movement[n:])
    print(f"{len(X):,} windows: {X.shape[1]} acoustic columns, {Y.shape[1]} articulatory ones")

    linear = LinearCCA(n_components=COMPONENTS, reg=1e-4).fit(X, Y)
    model = KNOI(n_components=COMPONENTS, rank=400, epochs=5, random_state=0).fit(X, Y)
    print(f"held-out utterances, total correlation of {COMPONENTS}:")
    print(f"  linear CCA {linear.score(X_test, Y_test):.2f}")
    print(f"  KNOI       {model.score(X_test, Y_test):.2f}")
    by_component = component_correlations(*model.transform(X_test, Y_test))
    print(f"  KNOI, by component: {by_component.round(2)}")

    # At recognition time only the sound is available; its projection is the input of a recogniser.
    features = model.transform(acoustic[-1])
    print(f"one utterance, sound only: {acoustic[-1].shape} to {features.shape}")


if __name__ == "__main__":
    main()
