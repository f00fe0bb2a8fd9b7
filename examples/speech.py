"""Speech: how the articulators moved, predicted from the sound of one speaker.

    python examples/speech.py [--speaker mocha_msak0.npz] [--plot articulation.png]

A speaker of MOCHA-TIMIT is an .npz file with the cepstral coefficients (mfcc), the positions of
coils on tongue, lips and jaw (ema, in 1/100 mm) and the number of the utterance (utt) of every
frame. Without a file a speaker is made up: 7 articulators move smoothly, 14 noisy columns measure
their positions, and the sound is 13 noisy nonlinear functions of them.

As in the literature, every row is a window of 7 frames, and whole utterances are held out:
neighbouring frames are nearly equal, so randomly held-out rows would not be independent of the
training rows.
"""

import argparse

import numpy as np
from scipy.ndimage import gaussian_filter1d

from knoi import KNOI, LinearCCA

FRAMES, ARTICULATORS, WINDOW, COMPONENTS = 100, 7, 7, 20
SECONDS = 40  # for the fit, at most
DRAWN = 4  # channels


def made_up_speaker(n_utterances):
    """Lists of acoustic (100, 13) and articulatory (100, 14) frames; names of the channels."""
    rng = np.random.default_rng(0)
    hidden, shift = rng.standard_normal((ARTICULATORS, 40)) / 2, rng.uniform(0, 2 * np.pi, 40)
    mixing, measuring = rng.standard_normal((40, 13)) / 4, rng.standard_normal((ARTICULATORS, 14))
    sound, positions = [], []
    for number in range(n_utterances):
        rng = np.random.default_rng([1, number])
        moves = gaussian_filter1d(rng.standard_normal((FRAMES, ARTICULATORS)), sigma=4, axis=0)
        moves /= moves.std()
        heard = np.cos(moves @ hidden + shift) @ mixing
        sound.append(heard + 0.5 * rng.standard_normal(heard.shape))
        positions.append(moves @ measuring + 0.3 * rng.standard_normal((FRAMES, 14)))
    return sound, positions, [f"channel {k}" for k in range(14)]


def mocha_speaker(path, n_utterances):
    """The same from a file; positions in mm."""
    with np.load(path) as data:
        utterance = data["utt"]
        starts = 1 + np.flatnonzero(np.diff(utterance))
        sound, positions = (
            np.split(data[name].astype(np.float32), starts)[:n_utterances]
            for name in ("mfcc", "ema")
        )
        names = [f"{name}, mm" for name in data["ema_names"]]
        return sound, [one / 100 for one in positions], names


def windows(frames):
    """Each frame with 3 before and 3 after it, side by side: (n - 6, 7 * columns)."""
    view = np.lib.stride_tricks.sliding_window_view(frames, WINDOW, axis=0)
    return view.transpose(0, 2, 1).reshape(len(view), -1).astype(np.float32)


def middle(view):
    """The middle frame of windows."""
    columns = view.shape[1] // WINDOW
    return view[:, WINDOW // 2 * columns : (WINDOW // 2 + 1) * columns]


def mean_correlation(predicted, measured):
    """Of the middle frames, over the channels."""
    pairs = zip(middle(predicted).T, middle(measured).T, strict=True)
    return np.mean([np.corrcoef(one, other)[0, 1] for one, other in pairs])


def draw(path, predicted, measured, names):
    """One utterance: the channels that move most."""
    from matplotlib import pyplot as plt

    most = np.argsort(-measured.std(axis=0))[:DRAWN]
    seconds = (np.arange(len(measured)) + WINDOW // 2) / 100
    figure, axes = plt.subplots(DRAWN, sharex=True, figsize=(7.5, 6.5), layout="constrained")
    for place, channel in zip(axes, most, strict=True):
        place.plot(seconds, measured[:, channel], color="black", label="measured")
        place.plot(seconds, predicted[:, channel], color="#D55E00", label="predicted from sound")
        place.set_ylabel(names[channel])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    axes[-1].set_xlabel("seconds, of an utterance that was not trained on")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"{path} written")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--speaker", metavar="FILE", help="of MOCHA; default: a made-up one")
    parser.add_argument("--utterances", type=int, metavar="N", help="a fifth of them are held out")
    parser.add_argument("--plot", metavar="FILE", help="draw one utterance (needs matplotlib)")
    options = parser.parse_args(arguments)
    if options.speaker:
        spoken = mocha_speaker(options.speaker, options.utterances)
    else:
        spoken = made_up_speaker(options.utterances or 75)
    sound, positions, names = spoken

    acoustic, movement = ([windows(frames) for frames in view] for view in (sound, positions))
    held_out = len(acoustic) // 5
    X, X_test = np.concatenate(acoustic[held_out:]), np.concatenate(acoustic[:held_out])
    Y, Y_test = np.concatenate(movement[held_out:]), np.concatenate(movement[:held_out])
    print(f"{len(X):,} windows: {X.shape[1]} acoustic columns, {Y.shape[1]} articulatory ones")

    # The columns of a view may have any units: a metric, learned with the kernels, weighs them.
    models = {
        "linear CCA": LinearCCA(COMPONENTS),
        "KNOI": KNOI(COMPONENTS, rank=1000, max_time=SECONDS, random_state=0, verbose=False),
    }
    print(f"held-out utterances: total correlation of {COMPONENTS}, and of predicted positions")
    for name, model in models.items():
        model.fit(X, Y)
        predicted = model.predict(X_test)
        score, close = model.score(X_test, Y_test), mean_correlation(predicted, Y_test)
        print(f"  {name:10} {score:5.2f} {close:5.2f}")

    # At recognition time only the sound is available; its projection is the input of a recogniser.
    features = model.transform(acoustic[0])
    print(f"one utterance, sound only: {acoustic[0].shape} to {features.shape}")
    if options.plot:
        predicted = middle(model.predict(acoustic[0]))
        draw(options.plot, predicted, middle(movement[0]), names)


if __name__ == "__main__":
    main()
