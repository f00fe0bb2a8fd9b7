"""Genomics: integrate two sparse count matrices of the same cells, without labels.

    python examples/genomics_counts.py [--cells 2000] [--genes 3000] [--peaks 4000]

Synthetic data in place of expression and accessibility of the same cells: each cell has one of
6 types and a position on a gradient; genes and peaks respond to both; counts are Poisson, mostly
zero, with a different depth in each cell. Only a chunk of rows is ever dense.
"""

import argparse

import numpy as np
import scipy.sparse
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import normalize

from knoi import NystromCCA, cross_view_retrieval

TYPES = 6


def make_cells(n, n_genes, n_peaks, seed=0):
    """Two CSR matrices of counts, (n, genes) and (n, peaks), and the type of each cell."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, TYPES, n)
    state = np.zeros((n, 2 * TYPES))  # the type, and the position on its gradient
    state[np.arange(n), kind] = 1.0
    state[np.arange(n), TYPES + kind] = rng.standard_normal(n)
    counts = []
    for n_columns, per_cell in ((n_genes, 300.0), (n_peaks, 200.0)):
        response = rng.standard_normal((2 * TYPES, n_columns)) * (
            rng.random((2 * TYPES, n_columns)) < 0.1
        )
        base = rng.standard_normal(n_columns)
        depth = per_cell * rng.lognormal(sigma=0.4, size=n)
        rows = []
        for at in range(0, n, 500):
            rate = np.exp(base + state[at : at + 500] @ response)
            rate *= depth[at : at + 500, None] / rate.sum(axis=1, keepdims=True)
            rows.append(scipy.sparse.csr_array(rng.poisson(rate).astype(np.float32)))
        counts.append(scipy.sparse.vstack(rows, format="csr"))
    return *counts, kind


def log_normalised(counts):
    """log(1 + counts per 10,000): zeros stay zeros, so sparse stays sparse."""
    scaled = normalize(counts, norm="l1") * np.float32(1e4)
    return scaled.log1p()


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--genes", type=int, default=3000)
    parser.add_argument("--peaks", type=int, default=4000)
    options = parser.parse_args(arguments)
    n = options.cells

    genes, peaks, kind = make_cells(n + 500, options.genes, options.peaks)
    share = 100 * genes.nnz / (genes.shape[0] * genes.shape[1])
    print(f"{n} cells, {options.genes} genes ({share:.0f}% nonzero), {options.peaks} peaks")
    X, Y = log_normalised(genes), log_normalised(peaks)
    X, X_test, Y, Y_test = X[:n], X[n:], Y[:n], Y[n:]

    # A linear kernel: linear CCA of all columns, without forming their covariances.
    model = NystromCCA(n_components=10, rank=300, kernel="linear", reg=1e-3, random_state=0)
    model.fit(X, Y)
    Zx, Zy = model.transform(X_test, Y_test)
    print(f"held-out cells, total correlation: {model.score(X_test, Y_test):.2f} of 10")
    test = model.permutation_test(X_test, Y_test, random_state=0)
    print(f"significant components: {(test.corrected_p_values < 0.01).sum()}")
    found = cross_view_retrieval(Zx, Zy)
    print(f"the same cell among the 10 nearest of 500: {found.recall[10]:.2f} (chance 0.02)")

    # Types learned from expression, assigned to cells by accessibility alone.
    knn = KNeighborsClassifier(15).fit(model.transform(X), kind[:n])
    right = (knn.predict(Zy) == kind[n:]).mean()
    print(f"accuracy of cell types, from genes to peaks: {right:.2f}")


if __name__ == "__main__":
    main()
