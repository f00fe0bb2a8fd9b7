"""Quickstart: two tables whose rows belong together; a kernel finds what linear CCA cannot.

    python examples/quickstart.py [--rows 4000]

The views are synthetic: Y holds the squares of what X holds, mixed, so that nothing linear is
shared and all there is to find is known.
"""

import argparse

from knoi import FourierCCA, LinearCCA
from knoi.datasets import make_two_views


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4000)
    n = parser.parse_args(arguments).rows

    views = make_two_views(n + 1000, (5, 5), correlations=(0.9, 0.8), nonlinear=True)
    X, Y, X_test, Y_test = views.X[:n], views.Y[:n], views.X[n:], views.Y[n:]

    linear = LinearCCA(n_components=2).fit(X, Y)
    kernel = FourierCCA(n_components=2, rank=300, reg=1e-4, random_state=0).fit(X, Y)

    print(f"total correlation there is, of any functions: {sum(views.correlations):.2f}")
    print(f"linear CCA, pairs held out:                   {linear.score(X_test, Y_test):.2f}")
    print(f"kernel CCA, pairs held out:                   {kernel.score(X_test, Y_test):.2f}")

    test = kernel.permutation_test(X_test, Y_test, random_state=0)
    print(f"p-values of its components: {test.corrected_p_values.round(3)}")

    Zx = kernel.transform(X_test)  # (1000, 2); transform_y takes Y alone
    Y_hat = kernel.predict(X_test)  # the other view, as far as the components hold it
    print(f"projections {Zx.shape}, the other view predicted {Y_hat.shape}")


if __name__ == "__main__":
    main()
