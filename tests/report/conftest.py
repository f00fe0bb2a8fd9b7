"""The pages that the browser opens."""

import numpy as np
import pytest

from knoi import KNOI
from knoi.datasets import endless_digits
from knoi.report import model_report


@pytest.fixture(scope="session")
def digits():
    """Halves of digits: 600 training and 300 test images."""
    return endless_digits(600, 300)


@pytest.fixture(scope="session")
def digits_report(digits):
    """Everything a page can show: history, held-out rows, labels, images."""
    model = KNOI(4, rank=80, epochs=3, batch_size=100, random_state=0, verbose=False)
    model.fit(digits.X_train, digits.Y_train)
    return model_report(
        model,
        digits.X_train,
        digits.Y_train,
        test=(digits.X_test, digits.Y_test),
        labels=digits.labels_test,
        images=(digits.left_shape, digits.right_shape),
        command="knoi fit left.npy right.npy",
        facts=[("time", "3 s")],
    )


@pytest.fixture(scope="session")
def related():
    """300 training rows of two views that share two directions, and 200 test rows."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((500, 2))
    X = np.hstack([shared, rng.standard_normal((500, 4))]) + 0.5 * rng.standard_normal((500, 6))
    Y = np.hstack([shared, rng.standard_normal((500, 3))]) + 0.5 * rng.standard_normal((500, 5))
    return (X[:300], Y[:300]), (X[300:], Y[300:])
