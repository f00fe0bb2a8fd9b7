"""Text in two languages: rows of word counts, few words a row of very many, with known topics.

Every document has each topic or not, by the toss of a coin. In both languages it has a Poisson
number of words on each of its topics, and some words on none; which words is a Zipf law.
"""

import numpy as np
import scipy.sparse

TOPICS = 3
_PRIME = 999_983  # scatters the words of a topic all over the columns


def two_languages(n_rows, n_cols, *, seed=0, rate=60.0, other=20.0, dtype=np.float32):
    """Both views (n_rows, n_cols), CSR of word counts, and the correlation of a topic's counts."""
    rng = np.random.default_rng(seed)
    has = rng.random((n_rows, TOPICS)) < 0.5
    rates = np.column_stack([rate * has, np.full(n_rows, other)])  # (n, topics + 1)
    rows, topics = (place.ravel() for place in np.indices(rates.shape))
    views = []
    for language in range(2):
        lengths = rng.poisson(rates).ravel()
        row, topic = np.repeat(rows, lengths), np.repeat(topics, lengths)
        word = np.floor((n_cols // (TOPICS + 1)) ** rng.random(len(row))).astype(np.int64) - 1
        column = ((word * (TOPICS + 1) + topic) * _PRIME + language) % n_cols
        ones = np.ones(len(row), dtype)
        counts = scipy.sparse.coo_array((ones, (row, column)), shape=(n_rows, n_cols))
        views.append(counts.tocsr())
    # The variance of the expected count, in that of the count, which has the Poisson's own too.
    return *views, rate**2 / 4 / (rate**2 / 4 + rate / 2)
