"""MNIST's files, the stand-in for MNIST8M, halves of images as paired sources."""

import gzip
import re
import threading

import numpy as np
import pytest

from benchmarks.paper.mnist import MNIST8M_INDICES, image_halves, mnist8m_standin, read_idx
from knoi.datasets import digits
from knoi.datasets.digits import DeformedImages
from knoi.exceptions import InputError, SourceFormatError, SourceNotFoundError
from tests.datasets.test_digits import blobs, naive_fields, naive_image


def test_mnist8m_standin_follows_infimnist(monkeypatch):
    # Only 5 of the 60000 images are filled, so only those need to be differentiated.
    train = np.zeros((60_000, 28, 28), np.uint8)
    train[:5] = blobs(n=5, side=28)

    def tangents(base, compute=digits._tangents):
        found = np.zeros((2, *base.shape), np.float32)
        found[:, :5] = compute(base[:5])
        return found

    monkeypatch.setattr(digits, "_tangents", tangents)
    images = mnist8m_standin(train)
    fields = naive_fields(28, seed=0)
    indices = [10_000, 10_004, 70_000, 70_003, 130_002, 10_000 + 60_000 * 134 + 1]
    expected = np.array([naive_image(train, i, fields, offset=10_000) for i in indices])
    assert expected.any(axis=(1, 2)).all()
    np.testing.assert_array_equal(images.take(indices), expected)
    assert len(MNIST8M_INDICES) == 8_100_000
    with pytest.raises(InputError, match="There is no image 9999: the first image has index 10000"):
        images.take([9_999])
    with pytest.raises(InputError, match=re.escape("train_images has shape (7, 12, 12). Pass")):
        mnist8m_standin(blobs())


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
    images, rng = deformed(), np.random.default_rng(0)
    indices = rng.integers(8_000_000, size=300)
    expected = np.divide(images.take(indices), 255, dtype=np.float32)
    halves = image_halves(images, indices)
    for _ in range(200):
        start, stop = np.sort(rng.integers(0, 301, 2) // 30 * 30).tolist()
        side = int(rng.integers(2))
        found = halves[side].read(start, stop)
        part = (expected[start:stop, :, :4], expected[start:stop, :, 4:])[side]
        np.testing.assert_array_equal(found, part.reshape(stop - start, 8 * part.shape[2]))
        found[:] = -1  # fresh memory


def test_the_cache_of_a_thread_is_bounded_and_large_reads_are_not_cached(monkeypatch):
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
    left.read(0, 10)
    other = threading.Thread(target=lambda: right.read(0, 10))  # each thread has its own cache
    other.start()
    other.join()
    assert images.made == 9020


def test_images_of_one_column():
    with pytest.raises(InputError, match=r"^Images of one column cannot be split"):
        image_halves(deformed(width=1), range(3))


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


def test_files_that_are_not_idx_files(tmp_path):
    path = tmp_path / "images.gz"
    content = idx_bytes(np.zeros((2, 3), "u1"), 0x08)
    for damaged, message in [
        (b"\x89PNG", "starts with 89 50 4e 47 and is not an IDX file. Pass an IDX file"),
        (content[:2], "starts with 00 00 and is not an IDX file"),
        (content[:7], "is truncated: its header takes 12 bytes. Download it again"),
        (content[:-1], "is damaged: its shape (2, 3) takes 18 bytes, but it has 17"),
        (gzip.compress(bytes(900))[:-9], "is a damaged gzip file"),
    ]:
        path.write_bytes(damaged)
        with pytest.raises(SourceFormatError, match=f"^{re.escape(f'{path} {message}')}"):
            read_idx(path)
    with pytest.raises(SourceNotFoundError, match=r"^There is no file .*nothing\.gz"):
        read_idx(tmp_path / "nothing.gz")
    with pytest.raises(SourceFormatError, match="is a folder"):
        read_idx(tmp_path)
