"""Deformed images against a transcription of the index rule; endless digits, in separate parts."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits

from knoi.datasets import endless_digits
from knoi.datasets.digits import DeformedImages
from knoi.exceptions import InputError, InputTypeError

SHIFTS = [(-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1), (0, 0)]


def naive_fields(side, seed):
    sigma = 4 * side / 28
    margin = int(np.ceil(2 * sigma))
    rng = np.random.default_rng(seed)
    fields = []
    for _ in range(1522):
        noise = rng.uniform(-1, 1, (side + 2 * margin, side + 2 * margin))
        smooth = gaussian_filter(noise, sigma)
        fields.append(smooth[margin : margin + side, margin : margin + side])
    fields = np.array(fields).astype(np.float32)
    return fields * np.float32(0.4 / fields.std())


def naive_image(base, i, fields, offset=0):
    if i - offset < len(base):
        return base[i - offset]
    side = base.shape[1]
    x = base[(i - offset) % len(base)].astype(np.float32)
    k1 = ((i * 131071) % 2**32) % 1521
    k2 = (k1 + 1 + 2 * i) % 1522
    s = np.float32(1 if (k1 + k2) % 2 == 0 else -1)
    tx = gaussian_filter(x, side / 28, order=(0, 1))
    ty = gaussian_filter(x, side / 28, order=(1, 0))
    image = np.clip(x + s * (fields[k1] * tx - fields[k2] * ty), 0, 255).astype(np.uint8)
    down, right = SHIFTS[k1 % 9]
    padded = np.pad(image, 1)
    return padded[1 - down : 1 - down + side, 1 - right : 1 - right + side]


def blobs(n=7, side=12, seed=0):
    noise = np.random.default_rng(seed).uniform(0, 1, (n, side, side))
    smooth = gaussian_filter(noise, (0, 1, 1))
    smooth = (smooth - smooth.min()) / (smooth.max() - smooth.min())
    return (255 * smooth).astype(np.uint8)


# Past 2^32 / 131071 = 32768 the product wraps around; the last ones wrap it many times over.
INDICES = [*range(40), 32_767, 32_768, 32_769, 8_109_999, 2**31 + 5, 2**40 + 3]


@pytest.mark.parametrize(("side", "offset"), [(12, 4), (28, 0)])
def test_images_follow_the_index_rule(side, offset):
    base, fields, indices = blobs(side=side), naive_fields(side, seed=3), INDICES[offset:]
    images = DeformedImages(base, seed=3, offset=offset)
    expected = np.array([naive_image(base, i, fields, offset) for i in indices])
    found = images.take(indices)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, expected)
    assert images.base_of([offset, offset + 6, offset + 7]).tolist() == [0, 6, 0]
    assert {((i * 131071) % 2**32) % 1521 % 9 for i in INDICES if i >= 7} == set(range(9))


def test_an_image_does_not_depend_on_what_is_taken_with_it():
    images = DeformedImages(blobs())
    indices = np.random.default_rng(0).integers(0, 10**6, 700)
    together = images.take(indices)
    np.testing.assert_array_equal(images.take(indices[::-1])[::-1], together)
    for j in (0, 255, 256, 699):
        np.testing.assert_array_equal(images.take(indices[j : j + 1])[0], together[j])
    assert images.take([]).shape == (0, 12, 12)


def test_images_that_are_not_square():
    assert DeformedImages(blobs(side=20)[:, :, :11]).take(range(50)).shape == (50, 20, 11)


@pytest.mark.parametrize(
    ("call", "error", "fragment"),
    [
        (lambda: DeformedImages(blobs()[0] / 255), InputError, "dtype float64 and shape .12, 12"),
        (lambda: DeformedImages(blobs(), offset=-1), InputError, "offset=-1: wanted a whole"),
        (lambda: DeformedImages(blobs()).take([-1]), InputError, "There is no image -1: the first"),
        (lambda: DeformedImages(blobs()).take([0.5]), InputTypeError, "indices have dtype float64"),
    ],
)
def test_invalid_images(call, error, fragment):
    with pytest.raises(error, match=fragment):
        call()


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
