"""Columns as they are, standardised, or whichever does better on held-out rows (`scale`).

    python -m benchmarks.paper.scale [--only breast_cancer mnist ...] [--methods ...] [--seeds 3]

Tables whose columns have different units, descriptions of digits, pictures, sound and text; none is
scaled beforehand. A table is cut into two views by what its columns mean. A seed draws the rows
that train (at most 3000) and test, and fixes the method. Everything else has its defaults, but for
smaller ranks and fewer epochs. Test rows are used once per cell and choose nothing.
"""

import argparse
import time
from functools import partial

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

from benchmarks.fits import evaluate
from benchmarks.harness import DATA, Results
from benchmarks.paper import lopez_paz
from benchmarks.paper.defaults import photographs
from benchmarks.paper.two_views import bibles, wikipedia, windows
from knoi import KNOI, LinearCCA, NystromCCA
from knoi.datasets import make_two_views
from knoi.exceptions import SourceNotFoundError

NAME = "scale"
MOST_ROWS = 3000
SCALES = (None, "standard", "auto")

# Each returns X and Y of all rows, and how many components are looked for.


def breast_cancer():
    """Sizes of cell nuclei, and their shape and texture."""
    data = load_breast_cancer()
    sizes = [
        any(word in name for word in ("radius", "perimeter", "area")) for name in data.feature_names
    ]
    return data.data[:, sizes], data.data[:, ~np.array(sizes)], 5


def wine():
    """Alcohol, acids, minerals and proline of wines; their phenols and colour."""
    table = load_wine().data
    return table[:, [0, 1, 2, 3, 4, 12]], table[:, 5:12], 4


def diabetes():
    """Age, sex, weight and blood pressure of patients; their blood serum."""
    table = load_diabetes(scaled=False).data
    return table[:, :4], table[:, 4:], 4


def units():
    """Nonlinear relations of columns in random units, which differ by up to a million."""
    views = make_two_views(6000, (5, 5), (0.9, 0.8), nonlinear=True, random_state=0)
    rng = np.random.default_rng(1)
    return views.X * 10 ** rng.uniform(-3, 3, 5), views.Y * 10 ** rng.uniform(-3, 3, 5), 5


def digits():
    """Left and right halves of digits of 8 x 8 pixels."""
    images = load_digits().images
    return images[:, :, :4].reshape(-1, 32), images[:, :, 4:].reshape(-1, 32), 10


def mnist():
    """Left and right halves of MNIST's digits."""
    _, _, test = lopez_paz.load()
    return *test, 20


def halves_of_photographs():
    """Left and right halves of patches of two photographs."""
    data = photographs()
    X, Y = (np.concatenate(views) for views in zip(data.train, data.test, strict=True))
    return X, Y, 20


def mfeat(x, y, n_components):
    """Two of the descriptions of 2000 handwritten digits."""
    with np.load(DATA / "mfeat" / "mfeat.npz") as data:
        return data[x].astype(np.float64), data[y].astype(np.float64), n_components


def mocha():
    """Sound and articulation of one speaker: windows of 7 frames that do not overlap."""
    with np.load(DATA / "mocha" / "mocha_fsew0.npz") as data:
        utterance = data["utt"].astype(int)
        X, Y = (windows(data[name].astype(np.float64), utterance) for name in ("mfcc", "ema"))
    return X[::30], Y[::30], 20


def pictures_and_topics():
    """Pictures (128 visual words) and texts (10 topics) of articles."""
    data = wikipedia()
    X, Y = (np.concatenate(views) for views in zip(data.train, data.tune, data.test, strict=True))
    return X, Y, 9


def verses():
    """Verses of two Bibles, as sparse tf-idf."""
    return *bibles().train, 20


SETS = {
    "breast_cancer": breast_cancer,
    "wine": wine,
    "diabetes": diabetes,
    "units": units,
    "mfeat-mor-fou": partial(mfeat, "mor", "fou", 6),
    "mfeat-zer-kar": partial(mfeat, "zer", "kar", 20),
    "mfeat-fou-kar": partial(mfeat, "fou", "kar", 20),
    "mocha": mocha,
    "digits": digits,
    "mnist": mnist,
    "photographs": halves_of_photographs,
    "wikipedia": pictures_and_topics,
    "bibles": verses,
}
METHODS = {
    "LinearCCA": lambda L, _seed, **own: LinearCCA(L, **own),
    "NystromCCA": lambda L, seed, **own: NystromCCA(L, rank=500, random_state=seed, **own),
    "KNOI": lambda L, seed, **own: KNOI(
        L, rank=500, solver="stochastic", epochs=20, random_state=seed, verbose=False, **own
    ),
}


def split(X, Y, seed):
    """Training and test rows, two thirds and a third of the rows, within the limit."""
    n = X.shape[0]
    n_train, n_test = min(MOST_ROWS, 2 * n // 3), min(MOST_ROWS, n // 3)
    order = np.random.default_rng(seed).permutation(n)[: n_train + n_test]
    train, test = np.sort(order[:n_train]), np.sort(order[n_train:])
    return (X[train], Y[train]), (X[test], Y[test])


def measure(method, data, seed, scale):
    X, Y, n_components = data
    train, test = split(X, Y, seed)
    model = METHODS[method](n_components, seed, scale=scale)
    start = time.perf_counter()
    model.fit(*train)
    return {
        **evaluate(model, test),
        "seconds": time.perf_counter() - start,
        "rows": train[0].shape[0],
        "columns": [view.shape[1] for view in train],
        "n_components": n_components,
        "scaled": list(model.scale_),
        "metric": [metric is not None for metric in (model.x_metric_, model.y_metric_)],
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", nargs="+", choices=SETS, default=list(SETS))
    arguments.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--again", action="store_true")
    options = arguments.parse_args()
    results = Results(NAME)
    for name in options.only:
        try:
            data = SETS[name]()
        except (FileNotFoundError, SourceNotFoundError) as error:
            print(f"{name}: skipped, {error}")
            continue
        for method in options.methods:
            if method == "LinearCCA" and name == "bibles":
                continue  # too many columns
            for seed in range(options.seeds):
                for scale in SCALES:
                    key = f"{name}, {method}, scale={scale}, seed {seed}"
                    cell = results.cell(
                        key,
                        lambda: measure(method, data, seed, scale),  # noqa: B023
                        again=options.again,
                    )
                    print(
                        f"{key}: fitted {cell['fitted']:.2f}, {cell['seconds']:.1f} s, "
                        f"{cell['scaled']}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
