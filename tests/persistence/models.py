"""Model files to write, read and forge, for tests."""

import math
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from knoi.persistence import (
    read_model,
)

HEADER = {
    "estimator": "FourierCCA",
    "params": {"rank": 1000, "width": [1.5, 1e-300], "reg": 0.1, "kernel": None, "center": True},
    "note": 'größe \U0001f600 "quoted" \\ \n',
}
TENSORS = {
    "x/weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    "mean": np.array([0.1, -0.0, np.nan, np.inf]),
    "n": np.array(7),
    "mask": np.array([True, False, True]),
    "none": np.empty((0, 3), dtype=np.float16),
}
ADDED = {"format", "knoi_version", "sha256"}
json_keys = st.text(max_size=5).filter(lambda key: key not in ("$float", "$csr") and "/" not in key)
json_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
json_values = st.recursive(
    json_leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_keys, inner, max_size=3),
    max_leaves=8,
)
headers = st.dictionaries(json_keys.filter(lambda key: key not in ADDED), json_values, max_size=4)
dtypes = st.sampled_from(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
tensor_dicts = st.dictionaries(names, arrays, max_size=4)


def same(a, b):
    """Equality that tells 1 from 1.0 and True, -0.0 from 0.0, and finds NaN equal to NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b


def without_added(header):
    return {key: value for key, value in header.items() if key not in ADDED}


def raises_exactly(error, text):
    return pytest.raises(error, match=f"^{re.escape(text)}$")


def read_bytes_as_model(content, directory):
    file = Path(directory) / "bytes.knoi"
    file.write_bytes(content)
    return read_model(file)


def forged(header_text, tensors=None):
    """A safetensors file with any text where the model header belongs."""
    return safetensors.numpy.save(tensors or {}, metadata={"knoi": header_text})
