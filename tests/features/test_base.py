"""States of feature maps that do not fit together: every finding is a `ModelFileError`."""

from functools import reduce
from operator import getitem

import numpy as np
import pytest

from knoi.exceptions import ModelFileError
from knoi.features import (
    CompactMaclaurin,
    Identity,
    KernelColumns,
    Nystrom,
    RandomFourier,
    RandomMaclaurin,
    SphericalFourier,
    Taylor,
    TensorSketch,
    map_from_state,
)
from knoi.kernels import RBF, Linear, Polynomial, SphericalPolynomial
from tests.features.fitting import fit

ROWS = np.random.default_rng(0).standard_normal((30, 5))
CUBIC = Polynomial(2.0)

FOURIER = fit(RandomFourier, ROWS, RBF(1.0), 11)
SKETCH = fit(TensorSketch, ROWS, CUBIC, 11, sketch_size=8)
SPHERICAL = fit(SphericalFourier, ROWS, SphericalPolynomial(4), 11)
NYSTROM = Nystrom.fit(ROWS[:9], RBF(1.0))
COLUMNS = KernelColumns(RBF(1.0), ROWS)
MACLAURIN = fit(RandomMaclaurin, ROWS, CUBIC, 11)
COMPACT = fit(CompactMaclaurin, ROWS, CUBIC, 11)
NOT_FALLING = MACLAURIN.products.degrees[::-1]
# the map, path of a value in its state, what stands there instead, the finding
DAMAGED = [
    (Identity(5), "columns", 0, "columns is 0, expected at least 1"),
    (Identity(5), "columns", 2.5, "'float' object cannot be interpreted as an integer"),
    (Taylor(RBF(1.0), 1, np.ones(5)), "degree", 500, "degree is 500, expected 1 to 100"),
    (FOURIER, "centre", [0.0] * 5, "centre is of type list, expected"),
    (FOURIER, "centre", np.zeros(4), r"shape \(4,\), .* = \(5,\)"),
    (FOURIER, "kernel", Linear().state_dict(), "kernel is of type Linear, expected StationaryKer"),
    (SPHERICAL, "total", float("inf"), "total is inf, expected a finite number"),
    (NYSTROM, "columns", Identity(5).state_dict(), "is of type Identity, expected KernelColumns"),
    (COLUMNS, "landmarks", np.ones((3, 5), int), r"int64 of shape \(3, 5\), expected floats of s"),
    (SKETCH, "hashes", np.full((2, 3, 6), 8, np.int16), "hashes holds indices outside -8 to 7"),
    (SKETCH, "hashes", np.full((2, 3, 6), 7, np.int16), "the last sketch has buckets beyond 3"),
    (SKETCH, "features", 17, r"hashes has shape \(2, 3, 6\), expected .* = \(3, 3, 6\)"),
    (MACLAURIN, "exact/n_cols", 7, "products take 5 columns, exact terms 7"),
    (MACLAURIN, "products/degrees", NOT_FALLING, "degrees are not positive numbers that fall with"),
    (COMPACT, "mixed", 500, "there are 2048 products for 500 mixtures of 2048"),
]


@pytest.mark.parametrize(("features", "path", "value", "finding"), DAMAGED)
def test_a_damaged_value_is_named(features, path, value, finding):
    state = features.state_dict()
    map_from_state(state)
    *parents, name = path.split("/")
    reduce(getitem, parents, state)[name] = value
    with pytest.raises(ModelFileError, match=finding) as raised:
        map_from_state(state)
    assert str(raised.value).endswith("altered after it was saved: save the model again.")


def test_a_missing_value_or_an_unknown_kind_is_named():
    with pytest.raises(ModelFileError, match="'columns' is missing"):
        map_from_state({"kind": "identity"})
    with pytest.raises(ModelFileError, match=r"kind 'wavelet', .*\(it knows .*identity"):
        map_from_state({"kind": "wavelet"})
