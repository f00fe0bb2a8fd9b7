"""Documents in two languages: sparse rows of word counts with known topics.

Each document has each topic with probability 1/2. In both languages it has a Poisson number of
words per topic, and some words of no topic; the words follow a Zipf law.
"""

import numpy as np
import scipy.sparse

TOPICS = 3
_PRIME = 999_983  # scatters the words of a topic over the columns


def two_languages(n_rows, n_cols, *, seed=0, rate=60.0, other=20.0, dtype=np.float32):
    """Both views (n_rows, n_cols), CSR of word counts, and the correlation of a topic's counts."""
    rng = np.random.default_rng(seed)
    has = rng.random((n_rows, TOPICS)) < 0.5
    rates = np.column_stack([rate * has, np.full(n_rows, other)])  # (n, topics + 1)
    rows, topics = (index.ravel() for index in np.indices(rates.shape))
    views = []
    for language in range(2):
        lengths = rng.poisson(rates).ravel()
        row, topic = np.repeat(rows, lengths), np.repeat(topics, lengths)
        word = np.floor((n_cols // (TOPICS + 1)) ** rng.random(len(row))).astype(np.int64) - 1
        column = ((word * (TOPICS + 1) + topic) * _PRIME + language) % n_cols
        ones = np.ones(len(row), dtype)
        counts = scipy.sparse.coo_array((ones, (row, column)), shape=(n_rows, n_cols))
        views.append(counts.tocsr())
    # Variance of the expected count over the variance of the count, which adds the Poisson's.
    return *views, rate**2 / 4 / (rate**2 / 4 + rate / 2)
