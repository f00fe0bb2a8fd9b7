"""Image-text retrieval: find the text that belongs to an image, and vice versa.

    python examples/image_text_retrieval.py [--rows 3000] [--words 5000]

The data are synthetic. Every item has a few of 12 topics. Its image is a dense row of 64 numbers, a
nonlinear function of the topics plus noise, like the features of a network. Its text is a sparse
row of word counts, with different words for each topic. For real data, replace `make_items` by two
files: "features.npy", and "words.npz" from `scipy.sparse.save_npz`.
"""

import argparse

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import TfidfTransformer

from knoi import LinearCCA, NystromCCA, cross_view_retrieval
from knoi.metrics import top_matches

TOPICS, PIXELS = 12, 64


def make_items(n, n_words, seed=0):
    """Image features (n, 64), word counts (n, words) in CSR, and the topics of each item."""
    rng = np.random.default_rng(seed)
    topics = rng.random((n, TOPICS)) * (rng.random((n, TOPICS)) < 0.3)
    layer = rng.standard_normal((TOPICS, 4 * PIXELS))
    images = np.cos(2 * topics @ layer) @ rng.standard_normal((4 * PIXELS, PIXELS))
    images += 2.0 * rng.standard_normal(images.shape)
    words = rng.zipf(1.3, size=(TOPICS, 4000)) % n_words  # frequent words and rare ones
    items, _ = np.nonzero(rng.random((n, 40)) < 0.8)  # about 32 words per item
    weights = topics + 0.05  # and some words of other topics
    share = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
    topic = (rng.random(len(items))[:, None] > share[items]).sum(axis=1)
    word = (words[topic, rng.integers(0, 4000, len(items))] + 397 * topic) % n_words
    counts = scipy.sparse.coo_array((np.ones(len(items)), (items, word)), shape=(n, n_words))
    return images.astype(np.float32), counts.tocsr().astype(np.float32), topics


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--words", type=int, default=5000)
    options = parser.parse_args(arguments)
    n = options.rows

    images, counts, topics = make_items(n + 500, options.words)
    texts = TfidfTransformer().fit(counts[:n]).transform(counts)  # sparse, rows of length 1
    X, Y, X_test, Y_test = images[:n], texts[:n], images[n:], texts[n:]
    print(
        f"{n} images of {PIXELS} features; texts of {options.words} words, {Y.nnz / n:.0f} per row"
    )

    settings = {"n_components": 10, "rank": 400, "reg": 1e-3, "random_state": 0}
    model = NystromCCA(kernel=("rbf", "linear"), **settings).fit(X, Y)
    Zx, Zy = model.transform(X_test, Y_test)
    # Linear CCA needs the covariance of all columns, so it gets only the frequent words.
    frequent = np.argsort(-np.asarray(counts[:n].sum(axis=0)).ravel())[:300]
    linear = LinearCCA(n_components=10, reg=1e-3).fit(X, Y[:, frequent])
    plain = linear.transform(X_test, Y_test[:, frequent])

    print("recall@10 of 500 held-out items (chance: 0.02)   image to text   text to image")
    for name, pair in (("linear CCA, frequent words", plain), ("NystromCCA, all words", (Zx, Zy))):
        there, back = (
            cross_view_retrieval(*pair, direction=way).recall[10] for way in ("x_to_y", "y_to_x")
        )
        print(f"  {name:45}  {there:13.2f}   {back:13.2f}")

    matches, _ = top_matches(Zx, Zy, k=3)  # (500, 3): rows of the texts, the best first
    for item in range(2):
        own = np.flatnonzero(topics[n + item] > 0.3)
        found = [np.flatnonzero(topics[n + j] > 0.3).tolist() for j in matches[item]]
        print(f"image {item} is about topics {own.tolist()}; its nearest texts about {found}")


if __name__ == "__main__":
    main()
