"""Deformed images against a transcription of the index rule, one image at a time."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

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


@pytest.mark.parametrize("side", [12, 28])
def test_images_follow_the_index_rule(side):
    base = blobs(side=side)
    fields = naive_fields(side, seed=3)
    found = DeformedImages(base, seed=3).take(INDICES)
    assert found.dtype == np.uint8
    expected = np.array([naive_image(base, i, fields) for i in INDICES])
    np.testing.assert_array_equal(found, expected)
    assert {((i * 131071) % 2**32) % 1521 % 9 for i in INDICES if i >= 7} == set(range(9))


def test_offset():
    base, fields = blobs(), naive_fields(12, seed=0)
    images = DeformedImages(base, offset=4)
    expected = np.array([naive_image(base, i, fields, offset=4) for i in range(4, 30)])
    np.testing.assert_array_equal(images.take(np.arange(4, 30)), expected)
    assert images.base_of([4, 10, 11]).tolist() == [0, 6, 0]


def test_an_image_does_not_depend_on_what_is_taken_with_it():
    images = DeformedImages(blobs())
    indices = np.random.default_rng(0).integers(0, 10**6, 700)
    together = images.take(indices)
    np.testing.assert_array_equal(images.take(indices[::-1])[::-1], together)
    for j in (0, 255, 256, 699):
        np.testing.assert_array_equal(images.take(indices[j : j + 1])[0], together[j])
    assert images.take([]).shape == (0, 12, 12)


def test_seeds_and_images_that_are_not_square():
    base = blobs(side=20)[:, :, :11]
    first, again, other = (DeformedImages(base, seed=k).take(range(50)) for k in (5, 5, 6))
    assert first.shape == (50, 20, 11)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("call", "error", "fragment"),
    [
        (lambda: DeformedImages(blobs()[0] / 255), InputError, "dtype float64 and shape .12, 12"),
        (lambda: DeformedImages(blobs(), offset=-1), InputError, "offset=-1: wanted a whole"),
        (lambda: DeformedImages(blobs()).take([-1]), InputError, "There is no image -1: the first"),
        (lambda: DeformedImages(blobs()).take([0.5]), InputTypeError, "indices have dtype float64"),
    ],
)
def test_invalid_arguments(call, error, fragment):
    with pytest.raises(error, match=fragment):
        call()
