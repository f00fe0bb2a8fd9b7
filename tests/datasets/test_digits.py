"""Endless digits: distinct images, under their labels, in parts without a common digit."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from knoi.datasets import endless_digits
from knoi.exceptions import InputError


@pytest.fixture(scope="module")
def digits():
    return endless_digits(30_000, 6_000)


def test_images_are_distinct_and_the_parts_have_no_base_digit_in_common(digits):
    train, test = (
        [row.tobytes() for row in np.concatenate(views, axis=1)]
        for views in ((digits.X_train, digits.Y_train), (digits.X_test, digits.Y_test))
    )
    assert len({*train, *test}) == 36_000
    # The first round of each part holds its base digits undeformed.
    assert len({*train[:1400], *test[:397]}) == len(load_digits().images) == 1797


def test_digits_have_the_stated_shapes(digits):
    assert digits.image_shape == (16, 16)
    assert digits.left_shape == digits.right_shape == (16, 8)
    assert digits.X_train.shape == digits.Y_train.shape == (30_000, 128)
    assert digits.X_test.shape == digits.Y_test.shape == (6_000, 128)
    for part in (digits.X_train, digits.Y_train, digits.X_test, digits.Y_test):
        assert part.dtype == np.float32
        assert (part.min(), part.max()) == (0.0, 1.0)
    assert np.bincount(digits.labels_train).min() > 2000
    # Base digit j of the training part comes back at 1400 + j, 2800 + j, ...
    np.testing.assert_array_equal(digits.labels_train[:1400], digits.labels_train[1400:2800])
    assert len(digits.labels_test) == 6_000


def test_enlarged_digits_look_like_the_bundled_ones_under_their_labels():
    bundled = load_digits()
    digits = endless_digits(1400, 397, size=24)
    whole = np.concatenate(
        [digits.X_train.reshape(-1, 24, 12), digits.Y_train.reshape(-1, 24, 12)], axis=2
    )
    small = whole.reshape(-1, 8, 3, 8, 3).mean(axis=(2, 4)).reshape(len(whole), -1)  # 8 x 8 again
    original = bundled.images.reshape(-1, 64) / 16
    nearest = [int(((original - image) ** 2).sum(axis=1).argmin()) for image in small]
    assert len(set(nearest)) > 1395  # enlarging smooths, and two of the bundled ones are very alike
    np.testing.assert_array_equal(bundled.target[nearest], digits.labels_train)


def test_seeds(digits):
    again, another = endless_digits(2000, 10), endless_digits(2000, 10, random_state=1)
    np.testing.assert_array_equal(again.Y_train, digits.Y_train[:2000])
    assert not np.array_equal(another.Y_train, again.Y_train)


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"size": 7}, "size=7: wanted a whole number >= 8"),
        ({"n_train": 0}, "n_train=0: wanted a whole number >= 1"),
        ({"n_test": -1}, "n_test=-1: wanted a whole number >= 1"),
    ],
)
def test_invalid_arguments(options, fragment):
    with pytest.raises(InputError, match=fragment):
        endless_digits(**{"n_train": 10, "n_test": 10, **options})
