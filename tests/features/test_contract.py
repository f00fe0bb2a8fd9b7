"""The contract of feature maps: what each of them must do, whatever it computes."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

from knoi.arrays.backend import numpy_backend, torch_backend
from knoi.engine import even_slices
from knoi.exceptions import ModelFileError, NonFiniteError
from knoi.features import (
    Additive,
    ArcCosineFeatures,
    Chain,
    ColumnWeights,
    CompactMaclaurin,
    ConcatenatedMap,
    CountSketch,
    FeatureMap,
    Identity,
    KernelColumns,
    LinearTransform,
    Nystrom,
    ProductMap,
    RandomFourier,
    RandomMaclaurin,
    SphericalFourier,
    StructuredFourier,
    Taylor,
    TensorMap,
    TensorSketch,
    fit_chi2,
    fit_product,
    fit_sketched,
    fit_sum,
    map_from_state,
)
from knoi.features.network import relu_layers
from knoi.kernels import (
    RBF,
    AdditiveChi2,
    ArcCosine,
    Cauchy,
    Chi2,
    Intersection,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
)
from knoi.persistence import flatten_state, unflatten_state
from tests.features.fitting import fit

CUBIC = Polynomial(2.0)
SUM = 2 * RBF(2.0) + 0.5 * Laplacian(6.0)
PRODUCT = RBF(2.0) * Laplacian(8.0)


@dataclass(frozen=True)
class Case:
    """A fitted map and rows to try it on."""

    features: FeatureMap
    X: NDArray[Any]  # (20, d) float64
    rank: int
    # For maps that are drawn: the same draw at a higher rank, and how many leading features of both
    # must then be the same but for one factor.
    larger: FeatureMap | None = None
    shared: int = 0


def made(make, rank, larger=0, shared=0, d=5, nonnegative=False):
    """How to build the case of `make(X, rank)`."""

    def build():
        X = np.random.default_rng(0).standard_normal((60, d))
        if nonnegative:
            np.maximum(X, 0.0, out=X)
        X.setflags(write=False)
        return Case(make(X, rank), X[:20], rank, make(X, larger) if larger else None, shared)

    return build


def drawn(kind, kernel, rank, larger=0, shared=0, d=5, nonnegative=False, **options):
    def make(X, M):
        return fit(kind, X, kernel, M, **options)

    return made(make, rank, larger, shared, d, nonnegative)


def fixed(make, rank):
    return made(lambda X, M: make(X), rank)


def nystrom(X, kernel, rank, seed, view):
    return Nystrom.fit(X[:rank], kernel)


def multiplied(X, rank):
    """A product that is not joined into one Fourier map."""
    parts = (fit(RandomFourier, X, kernel, rank, i) for i, kernel in enumerate(PRODUCT.parts))
    return ProductMap(PRODUCT, tuple(parts))


def relu_network(X):
    rng = np.random.default_rng(1)
    sizes = ((5, 8), (8, 11))
    return relu_layers(
        5, [(rng.standard_normal(size), rng.standard_normal(size[1])) for size in sizes]
    )


def sum_of_sums(X):
    parts = (partial(fit_part, RandomFourier.fit) for fit_part in (fit_sum, fit_product))
    one, two = (
        fit(part, X, kernel, 40) for part, kernel in zip(parts, (SUM, PRODUCT), strict=True)
    )
    return ConcatenatedMap((one, two, Identity(5)), (1, 2, 3))


def transformed(X):
    """Kernel columns in a learned metric."""
    T = LinearTransform(np.random.default_rng(1).standard_normal((5, 3)), X.mean(axis=0))
    return Chain(T, KernelColumns(RBF(3.0), T.transform(X[:11])), RBF(3.0))


CASES = {
    "identity": fixed(lambda X: Identity(5), 5),
    "linear-transform": fixed(lambda X: LinearTransform(X[:5, :3].copy(), X.mean(axis=0)), 3),
    "column-weights": fixed(lambda X: ColumnWeights(np.abs(X[0])), 5),
    "learned-metric": fixed(transformed, 11),
    "nystrom": fixed(lambda X: Nystrom.fit(X[:11], CUBIC), 11),
    "nystrom-duplicates": fixed(lambda X: Nystrom.fit(np.vstack([X[:8], X[:4]]), RBF(2.0)), 8),
    "kernel-columns": fixed(lambda X: KernelColumns(Laplacian(4.0), X[:11]), 11),
    "iid-two-blocks": drawn(RandomFourier, RBF(2.0), 1100, 2500, 1100),
    # Of an odd number the last is not paired, but would be in a larger map.
    "iid-paired-odd": drawn(RandomFourier, Matern(2.0), 11, 40, 10, paired=True),
    "orthogonal-one-column": drawn(
        RandomFourier, RBF(1.0), 11, 40, 11, 1, frequencies="orthogonal"
    ),
    "qmc": drawn(RandomFourier, Laplacian(5.0), 11, 1100, 11, frequencies="qmc"),
    "qmc-paired": drawn(RandomFourier, Cauchy(2.0), 12, 40, 12, frequencies="qmc", paired=True),
    # An unfinished block begins as the whole one.
    "hadamard": drawn(StructuredFourier, Matern(4.0), 300, 1100, 300),
    "hadamard-phases": drawn(StructuredFourier, Matern(35.0), 300, 1100, 300, 300, paired=False),
    "fastfood": drawn(StructuredFourier, RBF(2.0), 300, 1100, 300, 1, construction="fastfood"),
    "spherical": drawn(SphericalFourier, CUBIC, 11, 1500, 11),
    "arccosine-0": drawn(ArcCosineFeatures, ArcCosine(0), 11, 30, 11),
    "arccosine-2": drawn(ArcCosineFeatures, ArcCosine(2), 11, 30, 11),
    "tensor-sketch": drawn(TensorSketch, CUBIC, 11, 21, 8, sketch_size=4),
    "tensor-sketch-degree-1": drawn(TensorSketch, Polynomial(2.0, 1), 11, sketch_size=4),
    "maclaurin-two-blocks": drawn(RandomMaclaurin, CUBIC, 1100, 2100, 1024),
    "maclaurin-exact": drawn(RandomMaclaurin, CUBIC, 11, exact="linear"),
    "maclaurin-homogeneous": drawn(RandomMaclaurin, Polynomial(2.0, 3, 0.0), 11),
    "compact-two-groups": drawn(CompactMaclaurin, CUBIC, 300, 600, 299, expansion=4),
    "compact-exact": drawn(CompactMaclaurin, CUBIC, 11, 40, 5, expansion=4, exact="linear"),
    # Buckets of one rank are not buckets of another.
    "count-sketch": drawn(CountSketch, Linear(), 7),
    "count-sketch-wide": drawn(CountSketch, Linear(), 100),
    "taylor-degree-1": drawn(Taylor, RBF(2.0), 6),
    "taylor-degree-3": drawn(Taylor, RBF(2.0), 56),
    "taylor-of-sparse": made(lambda X, M: fit(Taylor, scipy.sparse.csr_array(X), RBF(2.0), M), 126),
    "additive-one-each": drawn(Additive, AdditiveChi2(), 5, nonnegative=True),
    "additive-five-each": drawn(Additive, Intersection(), 25, nonnegative=True),
    "chi2": drawn(fit_chi2, Chi2(0.8), 11, 30, 11, nonnegative=True),
    "sketched": drawn(fit_sketched, RBF(0.5), 11, 30, 11, buckets=8),
    # With equal shares both have 64 columns of each part first, then 11 and 86 more.
    "sum": drawn(partial(fit_sum, RandomFourier.fit), RBF(2.0) + Laplacian(6.0), 150, 300, 128),
    "sum-of-columns": fixed(
        lambda X: ConcatenatedMap((KernelColumns(RBF(2.0), X[:6]), Identity(5)), (2.0, 1.0)), 11
    ),
    "relu-network": fixed(relu_network, 11),
    "sum-of-sums": fixed(sum_of_sums, 85),
    "product": drawn(partial(fit_product, RandomFourier.fit), PRODUCT, 30, 60, 30),
    "product-feature-by-feature": made(multiplied, 30, 60, 30),
    "tensor": drawn(partial(fit_product, nystrom), RBF(2.0) * CUBIC, 56),
    "tensor-of-three": fixed(
        lambda X: TensorMap.of((Identity(5), fit(RandomFourier, X, RBF(2.0), 3), Identity(5))), 75
    ),
}


@pytest.fixture(params=CASES, scope="module")
def case(request):
    return CASES[request.param]()


def test_sizes_are_integers_and_match_the_features(case):
    assert case.features.n_cols == case.X.shape[1]
    assert case.features.rank == case.rank
    assert type(case.features.rank) is type(case.features.n_cols) is int
    assert case.features.scratch_per_row() >= 0
    assert case.features.transform(case.X).shape == (len(case.X), case.rank)


def test_blocks_make_the_whole(case):
    prepared = case.features.prepare(case.X)
    whole = case.features.transform(case.X)
    for largest in (1, 3, 7, 1000):
        slices = case.features.slices(largest)
        assert all(0 < s.stop - s.start <= largest for s in slices)
        grain = case.features.grain
        assert largest < grain or all(s.start % grain == 0 for s in slices)
        blocks = [case.features.block(prepared, columns) for columns in slices]
        np.testing.assert_allclose(np.hstack(blocks), whole, atol=1e-12)


def test_pieces_of_rows_make_the_whole(case):
    whole = case.features.transform(case.X)
    pieces = [case.features.transform(rows) for rows in np.array_split(case.X, 4)]
    np.testing.assert_allclose(np.vstack(pieces), whole, atol=1e-12)
    np.testing.assert_allclose(case.features.transform(case.X[2:3]), whole[2:3], atol=1e-12)
    prepared, columns = case.features.prepare(case.X), slice(0, case.rank)
    cuts = even_slices(len(case.X), 5)
    parts = [case.features.block(prepared[rows, :], columns) for rows in cuts]
    np.testing.assert_allclose(np.vstack(parts), whole, atol=1e-12)


def test_out_is_filled_and_the_rows_are_left_alone(backend, case):
    features = case.features.to(backend)
    X = backend.asarray(case.X.copy())
    prepared = features.prepare(X)
    columns = slice(1, case.rank)
    room = backend.empty((len(case.X) + 2, case.rank - 1))
    out = room[: len(case.X), :]
    assert features.block(prepared, columns, out=out) is out
    fresh = backend.to_numpy(features.block(prepared, columns))
    np.testing.assert_array_equal(backend.to_numpy(room)[: len(case.X)], fresh)
    np.testing.assert_array_equal(backend.to_numpy(X), case.X)
    none = features.transform(backend.asarray(case.X[:0]))
    assert backend.to_numpy(none).shape == (0, case.rank)


def test_projections_agree(case):
    rng = np.random.default_rng(0)
    phi = case.features.transform(case.X)
    mean, weights = phi.mean(axis=0), rng.standard_normal((case.rank, 3))
    expected = (phi - mean) @ weights
    atol = 1e-9 * np.abs(expected).max()
    features, centre, W = case.features.folded(mean, weights)
    np.testing.assert_allclose((features.transform(case.X) - centre) @ W, expected, atol=atol)
    for rows in (case.X, scipy.sparse.csr_array(case.X)):
        np.testing.assert_allclose(case.features.project(rows, mean, weights), expected, atol=atol)


def test_state_goes_round_through_a_file(case):
    plain, tensors = flatten_state(case.features.state_dict())
    again = map_from_state(unflatten_state(plain, tensors))
    assert type(again) is type(case.features)
    assert again.kernel == case.features.kernel
    np.testing.assert_array_equal(again.transform(case.X), case.features.transform(case.X))


def test_a_damaged_state_raises(case):
    plain, tensors = flatten_state(case.features.state_dict())
    for name, array in tensors.items():
        floats = array.dtype.kind == "f"
        bad = np.full_like(array, np.nan if floats else np.iinfo(array.dtype).max)
        for wrong in (array[None], array[..., :0], array.astype(np.complex128), bad):
            if array.size:
                with pytest.raises(ModelFileError, match="is damaged: "):
                    map_from_state(unflatten_state(plain, {**tensors, name: wrong}))


def test_backends_agree(case):
    expected = case.features.transform(case.X)
    for dtype, tolerance in (("float64", 1e-11), ("float32", 2e-4)):
        for backend in (numpy_backend(dtype), torch_backend("cpu", dtype)):
            found = case.features.to(backend).transform(backend.asarray(case.X))
            found = backend.to_numpy(found)
            assert found.dtype == np.dtype(dtype)
            np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


def test_sparse_rows_give_what_dense_rows_give(case):
    some_zeros = np.where(np.arange(case.X.size).reshape(case.X.shape) % 3 == 0, case.X, 0.0)
    some_zeros[1] = 0.0
    sparse = scipy.sparse.csr_array(some_zeros)
    found = case.features.transform(sparse)
    assert isinstance(found, np.ndarray)
    expected = case.features.transform(some_zeros)
    np.testing.assert_allclose(found, expected, atol=1e-11 * np.abs(expected).max())
    prepared = case.features.prepare(sparse)
    for columns in case.features.slices(4):
        for rows in (slice(0, 7), slice(7, len(case.X))):
            room = np.full((rows.stop - rows.start, columns.stop - columns.start), np.nan)
            assert case.features.block(prepared[rows, :], columns, out=room) is room
            np.testing.assert_allclose(room, found[rows, columns], atol=1e-12)


@pytest.mark.parametrize(
    "features",
    [Taylor(RBF(2.0), 2, np.zeros(5)), CASES["additive-five-each"]().features],
    ids=["taylor", "additive"],
)
def test_entries_stored_twice_or_as_zero_count_once(features):
    stored = np.array([0.25, 0.75, 0.0, 2.0]), np.array([1, 1, 0, 2]), np.array([0, 4])
    X = scipy.sparse.csr_array(stored, shape=(1, 5))
    wanted = features.transform(X.toarray())
    np.testing.assert_allclose(features.transform(X), wanted, rtol=1e-12, atol=1e-14)


def test_a_larger_map_begins_with_the_smaller_one(case):
    if case.larger is None:
        pytest.skip("this map is not drawn at random, feature by feature")
    assert case.larger.rank > case.rank
    small, large = (
        features.transform(case.X)[:, : case.shared] for features in (case.features, case.larger)
    )
    assert case.shared > 0
    assert np.abs(small).max() > 0
    factor = np.linalg.norm(large) / np.linalg.norm(small)
    np.testing.assert_allclose(large, factor * small, atol=1e-12 * np.abs(large).max())


def test_rows_with_nan_or_infinity_raise(case):
    for bad in (np.nan, np.inf, -np.inf):
        X = case.X.copy()
        X[3, 0] = bad
        for rows in (X, scipy.sparse.csr_array(X)):
            with pytest.raises(NonFiniteError, match="hold NaN or infinite values"):
                case.features.transform(rows)
