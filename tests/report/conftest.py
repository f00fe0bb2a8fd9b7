"""The pages that the browser opens."""

import pytest

from knoi import KNOI
from knoi.datasets import endless_digits, make_two_views
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
    views = make_two_views(500, (6, 5), correlations=(0.8, 0.7), random_state=0)
    return (views.X[:300], views.Y[:300]), (views.X[300:], views.Y[300:])
