"""Quickstart: a kernel method finds a relation between two views that linear CCA cannot find.

    python examples/quickstart.py [--rows 4000]

The views are synthetic: Y contains the squares of what X contains, mixed, so that the views share
nothing linear, and the best possible correlation is known.
"""

import argparse

from knoi import FourierCCA, LinearCCA
from knoi.datasets import make_two_views


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4000)
    n = parser.parse_args(arguments).rows

    given = {"correlations": (0.9, 0.8), "nonlinear": True, "random_state": 0}
    views = make_two_views(n + 1000, (5, 5), **given)
    X, Y, X_test, Y_test = views.X[:n], views.Y[:n], views.X[n:], views.Y[n:]

    linear = LinearCCA(n_components=2).fit(X, Y)
    kernel = FourierCCA(n_components=2, rank=300, random_state=0).fit(X, Y)

    print(f"best possible total correlation: {sum(views.correlations):.2f}")
    print(f"linear CCA, held-out pairs:      {linear.score(X_test, Y_test):.2f}")
    print(f"kernel CCA, held-out pairs:      {kernel.score(X_test, Y_test):.2f}")

    test = kernel.permutation_test(X_test, Y_test, random_state=0)
    print(f"p-values of the components: {test.corrected_p_values.round(3)}")

    Zx = kernel.transform(X_test)  # (1000, 2); transform_y takes Y alone
    Y_hat = kernel.predict(X_test)  # the other view, estimated from the components
    print(f"projections: {Zx.shape}; predictions of the other view: {Y_hat.shape}")


if __name__ == "__main__":
    main()
