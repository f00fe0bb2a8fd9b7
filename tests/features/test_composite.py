"""Maps of sums and products of kernels, made of the maps of their parts."""

import numpy as np
import pytest
import scipy.sparse

from knoi.arrays.random import Purpose, View, derived_seed
from knoi.exceptions import InputError
from knoi.features import (
    ArcCosineFeatures,
    ConcatenatedMap,
    Identity,
    KernelColumns,
    Nystrom,
    ProductMap,
    RandomFourier,
    TensorMap,
    fit_product,
    fit_sum,
)
from knoi.features.composite import factor_rank, split_rank
from knoi.features.structured import StructuredFourier
from knoi.kernels import (
    RBF,
    ArcCosine,
    Cauchy,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    ProductKernel,
)
from tests.contracts.feature_map import FeatureMapContract, MapCase

SUM = 2 * RBF(2.0) + 0.5 * Laplacian(6.0)
PRODUCT = RBF(2.0) * Laplacian(8.0)


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).standard_normal((60, 5))
    X.setflags(write=False)
    return X


def fourier(sample, kernel, rank, seed, view):
    return RandomFourier.fit(sample, kernel, rank, seed, view)


def paired(sample, kernel, rank, seed, view):
    return RandomFourier.fit(sample, kernel, rank, seed, view, paired=True)


def nystrom(sample, kernel, rank, seed, view):
    return Nystrom.fit(sample[:rank], kernel)


def either(sample, kernel, rank, seed, view):
    """Fourier features, or the features themselves."""
    if isinstance(kernel, Linear):
        return Identity(sample.shape[1])
    return fourier(sample, kernel, rank, seed, view)


def sum_of(rows, kernel=SUM, rank=40, seed=0, fit_one=fourier):
    return fit_sum(fit_one, rows, kernel, rank, seed, View.X)


def product_of(rows, kernel=PRODUCT, rank=40, seed=0, fit_one=fourier):
    return fit_product(fit_one, rows, kernel, rank, seed, View.X)


def multiplied(rows, rank=40, seed=0):
    """A product that is not joined into one Fourier map."""
    kernels = PRODUCT.parts
    seeds = [derived_seed(seed, Purpose.PARTS, i) for i in range(2)]
    parts = (fourier(rows, k, rank, s, View.X) for k, s in zip(kernels, seeds, strict=True))
    return ProductMap(PRODUCT, tuple(parts))


def case_of(make, rank, shared=0):
    return lambda rows: MapCase(
        make(rows, rank=rank),
        rows[:20],
        rank,
        make(rows, rank=2 * rank) if shared else None,
        shared,
    )


CASES = {
    # With equal shares both have 64 columns of each part first, then 11 and 86 more.
    "sum": case_of(lambda rows, rank: sum_of(rows, RBF(2.0) + Laplacian(6.0), rank), 150, 128),
    "sum-of-unlike": lambda rows: MapCase(
        sum_of(rows, 0.5 * RBF(2.0) + 3 * Linear(), 24, fit_one=either), rows[:20], 24
    ),
    "sum-of-columns": lambda rows: MapCase(
        ConcatenatedMap((KernelColumns(RBF(2.0), rows[:6]), Identity(5)), (2.0, 1.0)), rows[:20], 11
    ),
    "sum-of-sums": lambda rows: MapCase(
        ConcatenatedMap((sum_of(rows), product_of(rows), Identity(5)), (1, 2, 3)), rows[:20], 85
    ),
    "product": case_of(product_of, 30, 30),
    "product-feature-by-feature": case_of(multiplied, 30, 30),
    "tensor": lambda rows: MapCase(
        product_of(rows, RBF(2.0) * Polynomial(2.0), 56, fit_one=nystrom), rows[:20], 56
    ),
    "tensor-of-three": lambda rows: MapCase(
        TensorMap.of((Identity(5), fourier(rows, RBF(2.0), 3, 0, View.X), Identity(5))),
        rows[:20],
        75,
    ),
}


@pytest.fixture(params=CASES, scope="module")
def case(request, rows):
    return CASES[request.param](rows)


class TestEveryMap(FeatureMapContract):
    pass


def assert_unbiased(make, kernel, rows, seeds=200):
    """The mean over draws is the kernel, within 4.5 standard errors everywhere."""
    X = rows[:6]
    found = np.stack([Phi @ Phi.T for Phi in (make(seed).transform(X) for seed in range(seeds))])
    error = np.abs(found.mean(0) - kernel(X, X))
    assert (error <= 4.5 * found.std(0) / np.sqrt(seeds) + 1e-12).all()


def assert_falls_like_one_over_root_rank(make, kernel, rows):
    exact = kernel(rows, rows)

    def error(rank):
        squares = []
        for seed in range(6):
            Phi = make(rank, seed).transform(rows)
            squares.append(np.mean((Phi @ Phi.T - exact) ** 2))
        return np.sqrt(np.mean(squares))

    assert 3.0 < error(64) / error(1024) < 5.3  # sixteen times the rank, a quarter of the error


class TestSums:
    def test_is_the_formula(self, rows):
        features = sum_of(rows)
        Phi = np.hstack(
            [
                np.sqrt(w) * part.transform(rows)
                for w, part in zip(features.weights, features.parts, strict=True)
            ]
        )
        found = features.transform(rows)
        order = [np.nonzero((found == column[:, None]).all(0))[0] for column in Phi.T]
        assert sorted(int(i) for (i,) in order) == list(range(40))  # each once, in some order

    def test_error_falls(self, rows):
        assert_falls_like_one_over_root_rank(
            lambda rank, seed: sum_of(rows, rank=rank, seed=seed), SUM, rows
        )

    def test_exact_parts_give_the_exact_sum(self, rows):
        kernel = RBF(2.0) + 3 * Laplacian(4.0)
        features = sum_of(rows, kernel, 120, fit_one=lambda X, k, r, s, v: Nystrom.fit(X, k))
        Phi = features.transform(rows)
        np.testing.assert_allclose(Phi @ Phi.T, kernel(rows, rows), atol=1e-7)
        assert features.kernel == kernel

    @pytest.mark.parametrize("ranks", [(64, 700, 1300), (1, 999)])
    def test_the_first_columns_are_a_fair_sample(self, rows, ranks):
        kernels = [RBF(2.0), Laplacian(4.0), Cauchy(2.0)]
        parts = tuple(
            fourier(rows, kernel, rank, 0, View.X)
            for kernel, rank in zip(kernels, ranks, strict=False)
        )
        features = ConcatenatedMap(parts, (1.0,) * len(parts))
        first = 400
        for i, rank in enumerate(ranks):
            places = features._places(i, 0, first)
            seen = sum(size for _, size, _ in places)
            assert abs(seen - first * rank / sum(ranks)) <= 64 * len(ranks)
            assert [own for own, _, _ in places] == sorted(own for own, _, _ in places)

    def test_features_go_where_the_trace_is(self, rows):
        features = sum_of(rows, 3 * RBF(2.0) + Laplacian(4.0), 100)
        assert [part.rank for part in features.parts] == [75, 25]
        # Of all splits into two, none has a smaller error to be expected, the sum of w^2 / M.
        errors = [9 / m + 1 / (100 - m) for m in range(1, 100)]
        assert errors[74] == min(errors)

    def test_what_a_part_cannot_use_goes_to_the_others(self, rows):
        # Linear has most of the trace, but five features are all it has.
        kernel = 9 * Linear() + RBF(2.0) + Laplacian(4.0)
        features = sum_of(rows, kernel, 101, fit_one=either)
        assert [part.rank for part in features.parts] == [5, 48, 48]

    def test_parts_are_drawn_apart(self, rows):
        one, two = sum_of(rows, RBF(2.0) + RBF(2.0), 20).parts
        assert np.abs(one.W - two.W).min() > 0

    def test_wide_sparse_rows_stay_sparse(self):
        rng = np.random.default_rng(0)
        d = 200_000
        X = scipy.sparse.random_array((30, d), density=5e-5, format="csr", rng=rng)
        kernel = 2 * RBF(1.0) + Linear()
        features = ConcatenatedMap(
            (KernelColumns(RBF(1.0), X[:4, :]), KernelColumns(Linear(), X[:3, :])), (2.0, 1.0)
        )
        prepared = features.prepare(X)
        assert scipy.sparse.issparse(prepared)
        assert prepared.nnz < 4 * X.nnz + 100
        assert features.kernel == kernel
        K = RBF(1.0)(X, X[:4, :])
        np.testing.assert_allclose(features.transform(X)[:, :4], np.sqrt(2) * K, atol=1e-12)

    @pytest.mark.parametrize(
        ("make", "text"),
        [
            (
                lambda rows: sum_of(rows, rank=1),
                r"rank=1 is below the 2 kernels of SumKernel\(.*\): each needs at least one "
                r"feature\. Raise rank to 2 or more",
            ),
            (
                lambda rows: ConcatenatedMap((Identity(5), Identity(4)), (1.0, 1.0)),
                r"the maps take rows of \[5, 4\] columns: they must be of the same view",
            ),
            (lambda rows: ConcatenatedMap((), ()), "needs at least one of them"),
            (
                lambda rows: ConcatenatedMap((Identity(5),), (1.0, 2.0)),
                "weights has 2 numbers for 1 kernels",
            ),
            (lambda rows: ConcatenatedMap((Identity(5),), (0.0,)), r"weights\[0\]=0\.0: wanted"),
        ],
    )
    def test_what_makes_no_sense_raises(self, rows, make, text):
        with pytest.raises(InputError, match=text):
            make(rows)


class TestProducts:
    @pytest.mark.parametrize("fit_one", [fourier, paired])
    def test_unbiased(self, rows, fit_one):
        def make(seed):
            return product_of(rows, rank=20, seed=seed, fit_one=fit_one)

        assert_unbiased(make, PRODUCT, rows)

    @pytest.mark.parametrize(
        ("kernel", "fit", "other"),
        [
            (Matern(4.0), StructuredFourier.fit, fourier),
            (ArcCosine(0), ArcCosineFeatures.fit, paired),
        ],
        ids=["structured", "steps"],
    )
    def test_unbiased_with_features_of_other_kinds(self, rows, kernel, fit, other):
        # Pairs as well, as long as the others are not.
        product = RBF(2.0) * kernel

        def fit_one(sample, part, rank, seed, view):
            return (other if part == RBF(2.0) else fit)(sample, part, rank, seed, view)

        features = product_of(rows, product, 20, fit_one=fit_one)
        assert isinstance(features, ProductMap)
        assert len(features.parts) == 2
        assert_unbiased(lambda seed: product_of(rows, product, 20, seed, fit_one), product, rows)

    def test_error_falls(self, rows):
        assert_falls_like_one_over_root_rank(
            lambda rank, seed: multiplied(rows, rank=rank, seed=seed), PRODUCT, rows
        )

    def test_fourier_maps_become_one(self, rows):
        features = product_of(rows)
        (joined,) = features.parts
        assert isinstance(joined, RandomFourier)
        assert features.kernel == PRODUCT
        one, two = (
            fourier(rows, kernel, 40, derived_seed(0, Purpose.PARTS, i), View.X)
            for i, kernel in enumerate(PRODUCT.parts)
        )
        np.testing.assert_allclose(joined.W, one.W + two.W, atol=1e-12)
        np.testing.assert_array_equal(joined.phases, one.phases)

    def test_pairs_may_not_be_multiplied_elementwise(self, rows):
        parts = tuple(paired(rows, kernel, 20, 0, View.X) for kernel in PRODUCT.parts)
        expected = (
            r"^the features of these maps \(random_fourier\) cannot be multiplied elementwise: "
            r"they are not draws of one distribution, each unbiased on its own\. Use TensorMap, "
            r"which multiplies each with each\.$"
        )
        with pytest.raises(InputError, match=expected):
            ProductMap(PRODUCT, parts)

    def test_ranks_must_agree(self, rows):
        parts = (fourier(rows, RBF(1.0), 4, 0, View.X), fourier(rows, RBF(1.0), 5, 1, View.X))
        with pytest.raises(InputError, match=r"have ranks \[4, 5\]: to be multiplied elementwise"):
            ProductMap.of(parts)

    def test_which_maps_have_iid_features(self, rows):
        random = fourier(rows, RBF(1.0), 4, 0, View.X)
        assert random.features_iid
        assert multiplied(rows).features_iid
        assert TensorMap((random, random)).features_iid
        fixed = nystrom(rows, RBF(1.0), 4, 0, View.X)
        for features in (paired(rows, RBF(1.0), 4, 0, View.X), fixed, Identity(5), sum_of(rows)):
            assert not features.features_iid
            assert not TensorMap((random, features)).features_iid

    def test_tensor_multiplies_inner_products(self, rows):
        one, two = fourier(rows, RBF(2.0), 7, 0, View.X), Identity(5)
        Phi = TensorMap((one, two)).transform(rows)
        A, B = one.transform(rows), two.transform(rows)
        np.testing.assert_allclose(Phi @ Phi.T, (A @ A.T) * (B @ B.T), atol=1e-12)
        every = np.einsum("ni,nj->nij", A, B).reshape(60, -1)
        found, expected = (np.sort(M, axis=1) for M in (Phi, every))
        np.testing.assert_allclose(found, expected, atol=1e-14)

    def test_the_first_columns_of_a_tensor_are_of_both(self, rows):
        one, two = fourier(rows, RBF(2.0), 8, 0, View.X), fourier(rows, RBF(2.0), 9, 1, View.X)
        found = TensorMap((one, two)).transform(rows)[:, :16]
        A, B = one.transform(rows), two.transform(rows)
        np.testing.assert_allclose(found[:, :8], A * B[:, :8], atol=1e-14)
        np.testing.assert_allclose(found[:, 8:], A * B[:, 1:9], atol=1e-14)

    def test_with_all_points_a_tensor_of_nystrom_maps_is_the_kernel(self, rows):
        few = rows[:12]
        kernel = RBF(2.0) * Polynomial(2.0, degree=2)
        features = product_of(
            few, kernel, 144, fit_one=lambda X, k, rank, seed, view: Nystrom.fit(X, k)
        )
        assert isinstance(features, TensorMap)
        assert features.kernel == kernel
        Phi = features.transform(few)
        np.testing.assert_allclose(Phi @ Phi.T, kernel(few, few), rtol=1e-6)

    def test_fourier_maps_are_joined_beside_others(self, rows):
        other = product_of(rows, RBF(1.0) * RBF(2.0), 12, seed=5)
        parts = (fourier(rows, RBF(2.0), 12, 0, View.X), other, fourier(rows, RBF(3.0), 12, 1, 0))
        features = ProductMap.of(parts)
        assert len(features.parts) == 2
        assert features.kernel == ProductKernel(tuple(part.kernel for part in parts))
        assert features.rank == 12


class TestSplits:
    def test_rank(self):
        assert split_rank([1, 1, 1], 10) == [4, 3, 3]
        assert split_rank([3, 1], 100) == [75, 25]
        assert split_rank([1, 1e9, 1], 3) == [1, 1, 1]
        assert split_rank([0, 0], 5) == [3, 2]

    def test_factors(self):
        assert factor_rank(1000, 2) == [32, 31]
        assert factor_rank(7, 3) == [2, 2, 1]
        assert factor_rank(1, 2) == [1, 1]
