"""Deformed images against a transcription of the index rule, one image at a time; IDX files."""

import gzip
import re

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from knoi.datasets import digits as images_module
from knoi.datasets.digits import MNIST8M_INDICES, DeformedImages, mnist8m_standin, read_idx
from knoi.exceptions import (
    InputError,
    InputTypeError,
    SourceFormatError,
    SourceNotFoundError,
)

SHIFTS = {
    0: "up",
    1: "down",
    2: "left",
    3: "right",
    4: "up left",
    5: "up right",
    6: "down left",
    7: "down right",
    8: "",
}


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
    direction = SHIFTS[k1 % 9]
    if "up" in direction:
        image = np.vstack([image[1:], np.zeros((1, side), np.uint8)])
    if "down" in direction:
        image = np.vstack([np.zeros((1, side), np.uint8), image[:-1]])
    if "left" in direction:
        image = np.hstack([image[:, 1:], np.zeros((side, 1), np.uint8)])
    if "right" in direction:
        image = np.hstack([np.zeros((side, 1), np.uint8), image[:, :-1]])
    return image


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


def test_every_shift_occurs_among_the_indices_tested():
    assert {((i * 131071) % 2**32) % 1521 % 9 for i in INDICES if i >= 7} == set(range(9))


def test_offset_and_preceding_images():
    base, before = blobs(), blobs(n=4, seed=9)
    fields = naive_fields(12, seed=0)
    images = DeformedImages(base, offset=4, preceding=before)
    found = images.take(np.arange(30))
    np.testing.assert_array_equal(found[:4], before)
    np.testing.assert_array_equal(found[4:11], base)
    expected = np.array([naive_image(base, i, fields, offset=4) for i in range(4, 30)])
    np.testing.assert_array_equal(found[4:], expected)
    assert images.base_of([0, 3, 4, 10, 11]).tolist() == [-1, -1, 0, 6, 0]


def test_an_image_does_not_depend_on_what_is_taken_with_it():
    images = DeformedImages(blobs())
    indices = np.random.default_rng(0).integers(0, 10**6, 700)
    together = images.take(indices)
    np.testing.assert_array_equal(images.take(indices[::-1])[::-1], together)
    for j in (0, 255, 256, 699):
        np.testing.assert_array_equal(images.take(indices[j : j + 1])[0], together[j])
    assert images.take([]).shape == (0, 12, 12)


def test_seeds():
    base = blobs()
    indices = np.arange(100, 120)
    np.testing.assert_array_equal(
        DeformedImages(base, seed=5).take(indices), DeformedImages(base, seed=5).take(indices)
    )
    assert not np.array_equal(
        DeformedImages(base, seed=5).take(indices), DeformedImages(base, seed=6).take(indices)
    )


def test_images_that_are_not_square():
    images = DeformedImages(blobs(side=20)[:, :, :11])
    assert images.take(np.arange(50)).shape == (50, 20, 11)


def test_mnist8m_standin_follows_infimnist(monkeypatch):
    # Only 5 of the 60000 images are filled, so only those need to be differentiated.
    train = np.zeros((60_000, 28, 28), np.uint8)
    train[:5] = blobs(n=5, side=28)

    def tangents(base, compute=images_module._tangents):
        found = np.zeros((2, *base.shape), np.float32)
        found[:, :5] = compute(base[:5])
        return found

    monkeypatch.setattr(images_module, "_tangents", tangents)
    images = mnist8m_standin(train)
    fields = naive_fields(28, seed=0)
    indices = [10_000, 10_004, 70_000, 70_003, 130_002, 10_000 + 60_000 * 134 + 1]
    expected = np.array([naive_image(train, i, fields, offset=10_000) for i in indices])
    assert expected.any(axis=(1, 2)).all()
    np.testing.assert_array_equal(images.take(indices), expected)
    assert len(MNIST8M_INDICES) == 8_100_000
    message = "There is no image 9999: the first image has index 10000. Pass the preceding images."
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        images.take([9_999])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: DeformedImages(blobs() / 255), InputTypeError, "base has dtype float64. Scale"),
        (
            lambda: DeformedImages(blobs()[0]),
            InputError,
            "base has shape (12, 12). Pass (images, height, width), none of them 0.",
        ),
        (
            lambda: DeformedImages(blobs(), offset=2, preceding=blobs(n=3)),
            InputError,
            "preceding has shape (3, 12, 12). Pass the images below the offset, shape (2, 12, 12).",
        ),
        (lambda: DeformedImages(blobs(), offset=-1), InputError, "offset=-1. Pass 0 or more."),
        (lambda: DeformedImages(blobs()).take([-1]), InputError, "There is no image -1: the first"),
        (
            lambda: DeformedImages(blobs()).take([0.5]),
            InputTypeError,
            "indices have dtype float64 and shape (1,). Pass a 1-D array of integers.",
        ),
        (
            lambda: mnist8m_standin(blobs()),
            InputError,
            "train_images has shape (7, 12, 12). Pass MNIST's (60000, 28, 28)",
        ),
    ],
)
def test_invalid_arguments(call, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call()


def idx_bytes(values, code):
    header = bytes([0, 0, code, values.ndim]) + b"".join(n.to_bytes(4) for n in values.shape)
    return header + values.astype(values.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize(
    ("dtype", "code", "pack"),
    [("u1", 0x08, bytes), ("u1", 0x08, gzip.compress), ("i2", 0x0B, bytes), ("f8", 0x0E, bytes)],
)
def test_idx_files(tmp_path, dtype, code, pack):
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)
    path = tmp_path / "images"
    path.write_bytes(pack(idx_bytes(values, code)))
    found = read_idx(path)
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, values)
    found[0] = 0  # fresh memory


def test_truncated_idx_files(tmp_path):
    content = idx_bytes(np.arange(6, dtype="u1").reshape(2, 3), 0x08)
    path = tmp_path / "images"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(SourceFormatError, match=f"^{re.escape(str(path))} .* Pass|Download"):
            read_idx(path)


def test_files_that_are_not_idx_files(tmp_path):
    path = tmp_path / "images.gz"
    for content, message in [
        (b"\x89PNG", f"{path} starts with 89 50 4e 47 and is not an IDX file. Pass an IDX file"),
        (
            idx_bytes(np.zeros((2, 3), "u1"), 0x08)[:-1],
            f"{path} is damaged: its shape (2, 3) takes 18 bytes, but it has 17. Download it again",
        ),
        (gzip.compress(bytes(900))[:-9], f"{path} is a damaged gzip file"),
    ]:
        path.write_bytes(content)
        with pytest.raises(SourceFormatError, match=f"^{re.escape(message)}"):
            read_idx(path)
    with pytest.raises(SourceNotFoundError, match=r"^There is no file .*nothing\.gz"):
        read_idx(tmp_path / "nothing.gz")
    with pytest.raises(SourceFormatError, match="is a folder"):
        read_idx(tmp_path)
