"""States of feature maps that do not fit together: every finding is a `ModelFileError`."""

import numpy as np
import pytest

from knoi.arrays.random import View
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

ROWS = np.random.default_rng(0).standard_normal((30, 5))
CUBIC = Polynomial(2.0)


def fit(kind, kernel, rank=11, **options):
    return kind.fit(ROWS, kernel, rank, 0, View.X, **options)


def sketch():
    return fit(TensorSketch, CUBIC, sketch_size=8)


# the map, path of a value in its state, what stands there instead, the finding
DAMAGED = [
    (lambda: Identity(5), "columns", 0, "columns is 0, expected at least 1"),
    (lambda: Identity(5), "columns", 2.5, "'float' object cannot be interpreted as an integer"),
    (lambda: fit(Taylor, RBF(1.0)), "degree", 500, "degree is 500, expected 1 to 100"),
    (lambda: fit(RandomFourier, RBF(1.0)), "centre", [0.0] * 5, "centre is of type list, expected"),
    (lambda: fit(RandomFourier, RBF(1.0)), "centre", np.zeros(4), r"shape \(4,\), .* = \(5,\)"),
    (
        lambda: fit(RandomFourier, RBF(1.0)),
        "kernel",
        Linear().state_dict(),
        "kernel is of type Linear, expected StationaryKernel",
    ),
    (
        lambda: fit(SphericalFourier, SphericalPolynomial(4)),
        "total",
        float("inf"),
        "total is inf, expected a finite number",
    ),
    (
        lambda: Nystrom.fit(ROWS[:9], RBF(1.0)),
        "columns",
        Identity(5).state_dict(),
        "columns is of type Identity, expected KernelColumns",
    ),
    (
        lambda: KernelColumns(RBF(1.0), ROWS),
        "landmarks",
        np.ones((3, 5), np.int64),
        r"landmarks holds int64 of shape \(3, 5\), expected floats of shape \(M, d\)",
    ),
    (sketch, "hashes", np.full((2, 3, 6), 8, np.int16), "hashes holds indices outside -8 to 7"),
    (sketch, "hashes", np.full((2, 3, 6), 7, np.int16), "the last sketch has buckets beyond 3"),
    (sketch, "features", 17, r"hashes has shape \(2, 3, 6\), expected .* = \(3, 3, 6\)"),
    (
        lambda: fit(RandomMaclaurin, CUBIC),
        "exact/n_cols",
        7,
        "products take 5 columns, exact terms 7",
    ),
    (
        lambda: fit(RandomMaclaurin, Polynomial(2.0, 1)),
        "products/degrees",
        np.array([0, *[1] * 8, 2]),
        "degrees are not positive numbers that fall within each block",
    ),
    (
        lambda: fit(CompactMaclaurin, CUBIC),
        "mixed",
        500,
        "there are 2048 products for 500 mixtures of 2048",
    ),
]


@pytest.mark.parametrize(("make", "path", "value", "finding"), DAMAGED)
def test_a_damaged_value_is_named(make, path, value, finding):
    state = make().state_dict()
    map_from_state(state)
    *parents, name = path.split("/")
    inner = state
    for parent in parents:
        inner = inner[parent]
    inner[name] = value
    with pytest.raises(ModelFileError, match=finding) as raised:
        map_from_state(state)
    assert str(raised.value).endswith("altered after it was saved: save the model again.")


def test_a_missing_value_is_named():
    with pytest.raises(ModelFileError, match="'columns' is missing"):
        map_from_state({"kind": "identity"})
