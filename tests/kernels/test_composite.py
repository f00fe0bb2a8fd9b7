"""Sums and products of kernels, and one kernel at several widths."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from knoi import KNOI, KernelCCA, NystromCCA, load
from knoi.arrays.sparse import PreparedParts
from knoi.exceptions import InputError, InputTypeError
from knoi.features import KernelColumns
from knoi.kernels import (
    RBF,
    ArcCosine,
    Chi2,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    ProductKernel,
    SumKernel,
    kernel_from_state,
    resolve,
    several_widths,
    with_default_width,
)
from tests.oracles import kernels as oracle

SUM = 0.5 * RBF(1.0) + 2 * Laplacian(4.0) + Linear()
PRODUCT = RBF(2.0) * Chi2(3.0) * Polynomial(2.0)
NESTED = 3 * (RBF(2.0) + Linear()) * Chi2(1.5) + Matern(2.0)
NO_FAST_PART = Linear() + Polynomial(2.0)


def by_hand(kernel):
    """The pair function of the kernels above, from the oracles."""
    rbf, chi2, linear = oracle.rbf, oracle.chi2, oracle.linear()
    if kernel is SUM:
        return lambda x, z: 0.5 * rbf(1.0)(x, z) + 2 * oracle.laplacian(4.0)(x, z) + linear(x, z)
    if kernel is PRODUCT:
        cubic = oracle.polynomial(2.0, 3, 1.0)
        return lambda x, z: rbf(2.0)(x, z) * chi2(3.0)(x, z) * cubic(x, z)
    if kernel is NO_FAST_PART:
        return lambda x, z: linear(x, z) + oracle.polynomial(2.0, 3, 1.0)(x, z)
    return lambda x, z: (
        3 * (rbf(2.0)(x, z) + linear(x, z)) * chi2(1.5)(x, z) + oracle.matern(2.0, 1.5)(x, z)
    )


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(0, 2, (9, 4)), rng.uniform(0, 2, (7, 4))
    X[2, 1] = Z[3, 0] = 0.0
    for one in (X, Z):
        one.setflags(write=False)
    return X, Z


@pytest.mark.parametrize("kernel", [SUM, PRODUCT, NESTED, NO_FAST_PART], ids=repr)
class TestValues:
    def test_equal_the_formula(self, backend, rows, kernel):
        X, Z = (backend.asarray(one) for one in rows)
        expected = oracle.gram(by_hand(kernel), *rows)
        np.testing.assert_allclose(backend.to_numpy(kernel(X, Z)), expected, rtol=1e-12)
        diagonal = np.diagonal(oracle.gram(by_hand(kernel), rows[0], rows[0]))
        np.testing.assert_allclose(backend.to_numpy(kernel.diag(X)), diagonal, rtol=1e-12)

    def test_at_landmarks_are_the_same(self, backend, rows, kernel):
        X, Z = (backend.asarray(one) for one in rows)
        expected = backend.to_numpy(kernel(X, Z))
        values = kernel.at_landmarks(Z)
        prepared = values.prepare(X)
        for columns in (slice(0, 7), slice(2, 5)):
            found = backend.to_numpy(values.block(prepared, columns))
            np.testing.assert_allclose(found, expected[:, columns], rtol=1e-9)
            out = backend.empty((9, columns.stop - columns.start))
            assert values.block(prepared, columns, out=out) is out
            np.testing.assert_array_equal(backend.to_numpy(out), found)
        assert values.scratch_per_row() > prepared.shape[1]

    def test_sparse_rows_and_landmarks(self, rows, kernel):
        X, Z = rows
        expected = kernel(X, Z)
        some = scipy.sparse.csr_array(X)
        for landmarks in (Z, scipy.sparse.csr_array(Z)):
            np.testing.assert_allclose(kernel(some, landmarks), expected, rtol=1e-10)
            features = KernelColumns(kernel, landmarks)
            np.testing.assert_allclose(features.transform(some), expected, rtol=1e-9)
        single = KernelColumns(kernel, Z.astype(np.float32)).transform(some.astype(np.float32))
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, expected, rtol=1e-4)


LEAVES = [RBF(1.0), Linear(), Matern(2.0, nu=0.5), Polynomial(3.0, degree=2), ArcCosine()]


@st.composite
def expressions(draw, depth=3):
    """A kernel written with + and *."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(LEAVES))
    one, other = draw(expressions(depth=depth - 1)), draw(expressions(depth=depth - 1))
    weight = draw(st.sampled_from([0.25, 1, 3.0]))
    return weight * one + other if draw(st.booleans()) else one * (weight * other)


def evaluate(kernel, X, Z):
    if isinstance(kernel, SumKernel):
        pairs = zip(kernel.weights, kernel.parts, strict=True)
        return sum(weight * evaluate(part, X, Z) for weight, part in pairs)
    if isinstance(kernel, ProductKernel):
        return np.prod([evaluate(part, X, Z) for part in kernel.parts], axis=0)
    return kernel(X, Z)


@settings(max_examples=25)
@given(one=expressions(), other=expressions())
def test_operators_act_on_values(one, other):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((4, 3)), rng.standard_normal((3, 3))
    K, L = one(X, Z), other(X, Z)
    np.testing.assert_allclose((one + other)(X, Z), K + L, rtol=1e-12, atol=1e-12 * np.abs(K).max())
    np.testing.assert_allclose((one * other)(X, Z), K * L, rtol=1e-12)
    np.testing.assert_allclose(K, evaluate(one, X, Z), rtol=1e-12, atol=1e-12 * np.abs(K).max())
    for kernel in (one + other, one * other):
        assert kernel_from_state(json.loads(json.dumps(kernel.state_dict()))) == kernel
        assert hash(replace(kernel)) == hash(kernel)
        assert not any(type(part) is type(kernel) for part in kernel.parts)


class TestAlgebra:
    def test_sums_and_products_are_flat(self):
        nested = 2 * (RBF(1.0) + 3 * Linear()) + ArcCosine()
        assert nested == SumKernel((RBF(1.0), Linear(), ArcCosine()), (2.0, 6.0, 1.0))
        product = RBF(1.0) * (Linear() * ArcCosine())
        assert product.parts == (RBF(1.0), Linear(), ArcCosine())

    def test_numbers_move_to_the_front_of_a_product(self):
        expected = SumKernel((RBF(1.0) * Linear(),), (6.0,))
        assert (2 * RBF(1.0)) * (Linear() * 3.0) == expected
        assert RBF(1.0) * 1 == RBF(1.0)

    def test_any_kind_of_number(self):
        for number in (np.float64(2), np.float32(2), np.int64(2), 2):
            assert number * RBF(1.0) == RBF(1.0) * number == SumKernel((RBF(1.0),), (2.0,))

    def test_repr_is_the_expression(self):
        assert repr(0.5 * RBF(1.0) + Linear()) == "SumKernel(0.5 * RBF(width=1.0) + Linear())"
        product = (RBF(1.0) + Linear()) * ArcCosine()
        assert repr(product) == ("ProductKernel((RBF(width=1.0) + Linear()) * ArcCosine(order=1))")
        assert repr(several_widths("rbf", (0.5, 1), learn=True)) == (
            "SumKernel(RBF(width=0.5 * default) + RBF(width=None), learn=True)"
        )

    def test_parts_can_be_names(self):
        assert SumKernel(["rbf", "linear"]) == RBF() + Linear()
        assert ProductKernel(["rbf", Chi2(2.0)]) == RBF() * Chi2(2.0)

    @pytest.mark.parametrize(
        ("make", "error", "text"),
        [
            (lambda: 0 * RBF(), InputError, "weight=0: wanted a finite number > 0"),
            (lambda: RBF() * True, InputTypeError, "weight=True: wanted a number > 0"),
            (lambda: RBF() + 1, TypeError, "unsupported operand"),
            (lambda: RBF() * "linear", TypeError, "can't multiply|unsupported operand"),
            (lambda: RBF() * np.ones(2), TypeError, "operand 'RBF' does not support ufuncs"),
            (lambda: SumKernel([]), InputError, "parts is empty: wanted at least one kernel"),
            (lambda: SumKernel("rbf"), InputTypeError, r"parts='rbf': wanted a list of kernels"),
            (lambda: ProductKernel([3]), InputTypeError, "kernel is 3: wanted a name or a kernel"),
            (
                lambda: SumKernel([RBF(), Linear()], [1.0]),
                InputError,
                r"weights has 1 numbers for 2 kernels: wanted one each\.",
            ),
            (lambda: SumKernel([RBF()], [0.0]), InputError, r"weights\[0\]=0\.0: wanted a finite"),
            (lambda: SumKernel([RBF()], 2.0), InputTypeError, r"weights=2\.0: wanted a list"),
            (lambda: SumKernel([RBF()], learn=1), InputTypeError, "learn=1: wanted True or False"),
            (
                lambda: SumKernel([RBF(1.0)], factors=[2.0]),
                InputError,
                r"factors has 2 for RBF\(width=1\.0\), but a factor is for a kernel whose width "
                r"is not chosen yet, e\.g\. RBF\(\)\. Make it 1\.",
            ),
            (
                lambda: several_widths(RBF(), learn=True) * Linear(),
                InputError,
                r"is a factor of a product, where its weights cannot be learned\. Multiply out",
            ),
            (
                lambda: several_widths(Linear()),
                InputError,
                r"several_widths needs a kernel with a width, e\.g\. RBF\(\), but got Linear\(\)",
            ),
            (lambda: several_widths(RBF(), ()), InputError, "factors has 0 numbers"),
            (lambda: resolve("sum"), InputError, "there is no kernel 'sum'. Pass one of"),
            (
                lambda: kernel_from_state({"name": "sum", "parts": [], "power": 2}),
                InputError,
                "the sum kernel has no parameter 'power'; it has factors, learn, parts, weights",
            ),
        ],
    )
    def test_invalid_arguments_raise(self, make, error, text):
        with pytest.raises(error, match=text):
            make()

    def test_values_that_one_part_cannot_take_raise(self, rows):
        X = rows[0].copy()
        X[4, 2] = -1.0
        for kernel in (RBF(1.0) + Chi2(1.0), RBF(1.0) * Chi2(1.0)):
            assert kernel.nonnegative
            kernel.check(rows[0])
            with pytest.raises(InputError, match="row 14, column 2 has -1, but the chi2 kernel"):
                kernel.check(X, first_row=10)
        assert not SUM.nonnegative
        SUM.check(X)


class TestWidths:
    def test_every_part_gets_its_default(self, rows):
        X = rows[0]
        kernel = with_default_width(RBF() + 2 * Laplacian(7.0) + Polynomial() * Linear(), X)
        rbf, laplacian, product = kernel.parts
        assert rbf.width == RBF().default_width(X)
        assert laplacian.width == 7.0
        assert product.parts == (Polynomial(Polynomial().default_width(X)), Linear())
        assert kernel.weights == (1.0, 2.0, 1.0)

    def test_a_number_is_for_all_parts_without_one(self):
        kernel = RBF() + Laplacian(7.0) + RBF() * Chi2()
        assert kernel.needs_width
        decided = kernel.with_width(3.0)
        assert decided == RBF(3.0) + Laplacian(7.0) + RBF(3.0) * Chi2(3.0)
        assert not decided.needs_width
        expected = (
            r"^width=2\.0 was given, but no part of SumKernel\(.*\) needs a width\. Omit it, or "
            r"leave the width of a part open, e\.g\. RBF\(\)\.$"
        )
        with pytest.raises(InputError, match=expected):
            decided.with_width(2.0)

    def test_there_is_no_single_default(self, rows):
        expected = r"^a product of kernels has no single width: .* Use with_default_width\(kernel"
        with pytest.raises(InputError, match=expected):
            (RBF() * Chi2()).default_width(rows[0])

    def test_several_widths_are_chosen_from_data(self, rows):
        X = rows[0]
        kernel = several_widths(Laplacian(), (0.5, 1, 4.0), weights=(1, 2, 3))
        assert kernel.needs_width
        assert kernel_from_state(json.loads(json.dumps(kernel.state_dict()))) == kernel
        own = Laplacian().default_width(X)
        expected = SumKernel([Laplacian(own / 2), Laplacian(own), Laplacian(4 * own)], (1, 2, 3))
        assert with_default_width(kernel, X) == expected
        # Inside other kernels as well.
        inside = with_default_width(2 * kernel + Linear(), X)
        assert inside.parts == (*expected.parts, Linear())
        assert inside.weights == (2.0, 4.0, 6.0, 1.0)
        assert with_default_width(kernel * Linear(), X) == expected * Linear()
        assert kernel.with_width(3.0).parts == (Laplacian(1.5), Laplacian(3.0), Laplacian(12.0))

    def test_several_widths_of_a_given_width(self):
        assert several_widths(RBF(3.0)).parts == (RBF(1.5), RBF(3.0), RBF(6.0))

    def test_the_median_is_computed_once(self, rows):
        class Counting(RBF):
            calls = 0

            def distance(self, X, Z):
                Counting.calls += 1
                return super().distance(X, Z)

        with_default_width(several_widths(Counting(), (1.0, 2.0, 3.0)), rows[0])
        assert Counting.calls == 1

    def test_a_kernel_without_a_width_is_not_evaluated(self, rows):
        with pytest.raises(InputError, match="the laplacian kernel has no width yet"):
            (RBF(1.0) + Laplacian())(*rows)


class TestPreparedParts:
    """Parts that prepare sparse rows differently, with the same total number of columns."""

    class Part:
        def __init__(self, of_dense, of_sparse):
            self.of_dense, self.of_sparse = of_dense, of_sparse

        def prepare(self, X):
            sparse = scipy.sparse.issparse(X)
            n = self.of_sparse if sparse else self.of_dense
            values = np.arange(X.shape[0])[:, None] + np.linspace(0, 0.5, n)
            return values + 10 * self.of_dense

    @pytest.mark.parametrize("of_sparse", [(3, 2), (2, 3), (4, 4)])
    def test_are_distinguished(self, of_sparse):
        parts = (self.Part(2, of_sparse[0]), self.Part(3, of_sparse[1]))
        rows = PreparedParts.of(parts, np.zeros((1, 6)))
        for X in (np.zeros((5, 6)), scipy.sparse.csr_array((5, 6))):
            pieces = rows.split(rows.prepare(X))
            for piece, part in zip(pieces, parts, strict=True):
                np.testing.assert_array_equal(piece, part.prepare(X))


class TestEstimators:
    def test_kernel_cca_is_that_of_the_matrix(self, two_views, tmp_path):
        X, Y = two_views
        kernel = several_widths("rbf") + 0.1 * Linear()
        model = KernelCCA(2, kernel=kernel, reg=1e-3).fit(X, Y)
        decided = model.projection_.x.features.kernel
        own = RBF().default_width(X)
        assert decided == RBF(own / 2) + RBF(own) + RBF(2 * own) + 0.1 * Linear()
        model.save(tmp_path / "model.knoi")
        again = load(tmp_path / "model.knoi")
        np.testing.assert_array_equal(again.transform(X), model.transform(X))
        assert again.kernel == kernel

    @pytest.mark.parametrize("kernel", [RBF() * Polynomial(), RBF() + Laplacian()], ids=repr)
    def test_nystrom_with_all_points_is_exact(self, two_views, kernel):
        X, Y = two_views
        options = {"kernel": kernel, "reg": 1e-2, "random_state": 0}
        exact = KernelCCA(2, **options).fit(X, Y)
        nystrom = NystromCCA(2, rank=len(X), **options).fit(X, Y)
        np.testing.assert_allclose(nystrom.correlations_, exact.correlations_, rtol=1e-4)

    def test_knoi_with_columns(self, two_views):
        X, Y = two_views
        kernel = (RBF() + Linear(), RBF(4.0) * Laplacian())
        model = KNOI(1, kernel=kernel, rank=60, epochs=2, random_state=0).fit(X, Y)
        assert isinstance(model.projection_.x.features, KernelColumns)
        assert model.score(X, Y) > 0.5

    def test_the_width_of_the_estimator_applies_to_all_parts(self, two_views):
        X, Y = two_views
        model = KernelCCA(1, kernel=RBF() + Laplacian(5.0), width=(2.0, 3.0), reg=1e-2).fit(X, Y)
        assert model.projection_.x.features.kernel == RBF(2.0) + Laplacian(5.0)
        assert model.projection_.y.features.kernel == RBF(3.0) + Laplacian(5.0)

    def test_errors_name_the_view(self, two_views):
        X, Y = two_views
        with pytest.raises(InputError, match=r"view Y: row 0, column \d has -.* the chi2 kernel"):
            KernelCCA(1, kernel=(RBF() + Linear(), RBF() * Chi2())).fit(X, Y)
        with pytest.raises(InputError, match="view Y: all 200 sampled rows are identical"):
            KernelCCA(1, kernel=RBF() + Linear()).fit(X, np.ones_like(Y))
