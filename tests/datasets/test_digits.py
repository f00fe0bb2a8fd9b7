"""Halves of images as paired sources, and the endless digits."""

import re
import threading

import numpy as np
import pytest
from sklearn.datasets import load_digits

from knoi.data.pairs import PairSource
from knoi.datasets.digits import DeformedImages, endless_digits, image_halves
from knoi.exceptions import InputError
from tests.contracts.view_source import SourceCase, ViewSourceContract


class CountingImages:
    """Deformed images that count how many were made."""

    def __init__(self, images):
        self.images = images
        self.image_shape = images.image_shape
        self.made = 0

    def take(self, indices):
        self.made += len(indices)
        return self.images.take(indices)


def deformed(width=9):
    base = np.random.default_rng(0).integers(0, 256, (5, 8, width)).astype(np.uint8)
    return DeformedImages(base)


def test_halves_make_the_whole_images():
    images = deformed()
    indices = np.random.default_rng(1).permutation(10_000)
    left, right = (half.read(20, 5000) for half in image_halves(images, indices))
    whole = np.concatenate([left.reshape(-1, 8, 4), right.reshape(-1, 8, 5)], axis=2)
    np.testing.assert_allclose(whole * 255, images.take(indices[20:5000]), atol=1e-4)
    assert left.dtype == right.dtype == np.float32


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_reading_both_halves_makes_the_images_once(order):
    images = CountingImages(deformed())
    runs = [(0, 5000), (7000, 7001), (6000, 9000)]
    # As pairs read a part: all runs of one view, then those of the other.
    for source in image_halves(images, range(100_000))[order]:
        for start, stop in runs:
            source.read(start, stop)
    assert images.made == sum(stop - start for start, stop in runs)


def test_rows_are_right_however_the_halves_are_read():
    images = deformed()
    expected = np.divide(images.take(range(300)), 255, dtype=np.float32)
    halves = image_halves(images, range(300))
    rng = np.random.default_rng(0)
    for _ in range(200):
        start, stop = np.sort(rng.integers(0, 301, 2) // 30 * 30).tolist()
        side = int(rng.integers(2))
        found = halves[side].read(start, stop)
        part = (expected[start:stop, :, :4], expected[start:stop, :, 4:])[side]
        np.testing.assert_array_equal(found, part.reshape(stop - start, 8 * part.shape[2]))
        found[:] = -1  # fresh memory


def test_the_cache_is_bounded_and_large_reads_are_not_cached(monkeypatch):
    monkeypatch.setattr("knoi.datasets.synthetic._MAX_CACHE_BYTES", 5000 * 8 * 5 * 4)
    images = CountingImages(deformed())
    left, right = image_halves(images, range(100_000))
    large = left.read(0, 5001)  # one row too many to cache the right half
    right.read(0, 5001)
    assert images.made == 2 * 5001
    assert large.shape == (5001, 32)
    images.made = 0
    for start in (0, 3000):  # together too many: the older one is evicted
        left.read(start, start + 3000)
    right.read(3000, 6000)
    assert images.made == 6000
    right.read(0, 3000)
    assert images.made == 9000


def test_each_thread_has_its_own_cache():
    images = CountingImages(deformed())
    left, right = image_halves(images, range(1000))
    left.read(0, 10)
    other = threading.Thread(target=lambda: right.read(0, 10))
    other.start()
    other.join()
    right.read(0, 10)
    assert images.made == 20


def test_millions_of_halves_pair_and_stream_without_a_file():
    images = deformed()
    with PairSource(*image_halves(images, range(10_000, 8_110_000))) as pairs:
        assert pairs.n_rows == 8_100_000
        X, Y = pairs.read(8_099_000, 8_100_000)
        sample, _ = pairs.sample(500, seed=0)
    assert (X.shape, Y.shape, sample.shape) == ((1000, 32), (1000, 40), (500, 32))
    last = images.take([8_109_999])[0] / 255
    np.testing.assert_allclose(X[-1].reshape(8, 4), last[:, :4], atol=1e-6)


class TestImageHalvesContract(ViewSourceContract):
    @pytest.fixture
    def case(self):
        images = deformed()
        left = images.take(range(13))[:, :, :4].reshape(13, 32)
        return SourceCase(
            open=lambda: image_halves(images, range(13))[0],
            expected=np.divide(left, 255, dtype=np.float32),
            random_access=True,
        )


@pytest.fixture(scope="module")
def digits():
    return endless_digits(30_000, 6_000)


def test_all_digits_are_distinct(digits):
    rows = [
        np.concatenate([X, Y], axis=1)
        for X, Y in ((digits.X_train, digits.Y_train), (digits.X_test, digits.Y_test))
    ]
    assert len({row.tobytes() for part in rows for row in part}) == 36_000


def test_digits_have_the_stated_shapes(digits):
    assert digits.image_shape == (16, 16)
    assert digits.left_shape == digits.right_shape == (16, 8)
    assert digits.X_train.shape == digits.Y_train.shape == (30_000, 128)
    assert digits.X_test.shape == digits.Y_test.shape == (6_000, 128)
    for part in (digits.X_train, digits.Y_train, digits.X_test, digits.Y_test):
        assert part.dtype == np.float32
        assert part.min() == 0.0
        assert part.max() == 1.0
    assert np.bincount(digits.labels_train).min() > 2000
    assert len(digits.labels_test) == 6_000


def test_the_parts_have_no_base_digit_in_common(digits):
    # The first round of each part holds its base digits undeformed.
    train = np.concatenate([digits.X_train, digits.Y_train], axis=1)[:1400]
    test = np.concatenate([digits.X_test, digits.Y_test], axis=1)[:397]
    base = {row.tobytes() for row in train} | {row.tobytes() for row in test}
    assert len(base) == len(load_digits().images) == 1797


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


def test_deformed_digits_stay_close_to_their_base(digits):
    # Base digit j of the training part comes back at 1400 + j, 2800 + j, ..., shifted by a pixel.
    mean = digits.X_train.mean(axis=0)
    base, copy, other = (digits.X_train[at : at + 1400] - mean for at in (0, 1400, 1400 * 3 + 1))
    likeness = [(base * Z).sum() / np.sqrt((base**2).sum() * (Z**2).sum()) for Z in (copy, other)]
    assert likeness[0] > 0.5
    assert likeness[1] < 0.2
    np.testing.assert_array_equal(digits.labels_train[:1400], digits.labels_train[1400:2800])


def test_seeds(digits):
    again, another = endless_digits(2000, 10), endless_digits(2000, 10, random_state=1)
    np.testing.assert_array_equal(again.Y_train, digits.Y_train[:2000])
    assert not np.array_equal(another.Y_train, again.Y_train)


def test_invalid_arguments():
    for call, message in [
        (lambda: endless_digits(10, 10, size=7), "size=7. The digits are 8 x 8 and only enlarged"),
        (lambda: endless_digits(0, 10), "n_train=0. Pass at least 1."),
        (lambda: endless_digits(10, -1), "n_test=-1. Pass at least 1."),
        (
            lambda: image_halves(deformed(width=1), range(3)),
            "Images of one column cannot be split into halves.",
        ),
    ]:
        with pytest.raises(InputError, match=f"^{re.escape(message)}"):
            call()
