"""Sums and products of kernels, and one kernel at several widths."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from knoi import KernelCCA, load
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

rbf, chi2, linear = oracle.rbf(2.0), oracle.chi2(3.0), oracle.linear()
cubic, matern = oracle.polynomial(2.0, 3, 1.0), oracle.matern(2.0, 1.5)
CASES = {
    "sum": (0.5 * RBF(2.0) + 2 * Linear(), lambda *p: 0.5 * rbf(*p) + 2 * linear(*p)),
    "product": (RBF(2.0) * Chi2(3.0) * Polynomial(2.0), lambda *p: rbf(*p) * chi2(*p) * cubic(*p)),
    "nested": (
        3 * (RBF(2.0) + Linear()) * Chi2(3.0) + Matern(2.0),
        lambda *p: 3 * (rbf(*p) + linear(*p)) * chi2(*p) + matern(*p),
    ),
    "no fast part": (Linear() + Polynomial(2.0), lambda *p: linear(*p) + cubic(*p)),
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(0, 2, (9, 4)), rng.uniform(0, 2, (7, 4))
    X[2, 1] = Z[3, 0] = 0.0
    for one in (X, Z):
        one.setflags(write=False)
    return X, Z


@pytest.mark.parametrize(("kernel", "pair"), CASES.values(), ids=CASES)
class TestValues:
    def test_equal_the_formula(self, backend, rows, kernel, pair):
        X, Z = (backend.asarray(one) for one in rows)
        expected = oracle.gram(pair, *rows)
        np.testing.assert_allclose(backend.to_numpy(kernel(X, Z)), expected, rtol=1e-12)
        diagonal = [pair(x, x) for x in rows[0]]
        np.testing.assert_allclose(backend.to_numpy(kernel.diag(X)), diagonal, rtol=1e-12)
        values = kernel.at_landmarks(Z)
        prepared = values.prepare(X)
        for columns in (slice(0, 7), slice(2, 5)):
            found = backend.to_numpy(values.block(prepared, columns))
            np.testing.assert_allclose(found, expected[:, columns], rtol=1e-9)
            out = backend.empty((9, columns.stop - columns.start))
            assert values.block(prepared, columns, out=out) is out
            np.testing.assert_array_equal(backend.to_numpy(out), found)
        assert values.scratch_per_row() > prepared.shape[1]

    def test_sparse_rows_and_landmarks(self, rows, kernel, pair):
        X, Z = rows
        expected = oracle.gram(pair, X, Z)
        some = scipy.sparse.csr_array(X)
        for landmarks in (Z, scipy.sparse.csr_array(Z)):
            np.testing.assert_allclose(kernel(some, landmarks), expected, rtol=1e-10)
            features = KernelColumns(kernel, landmarks)
            np.testing.assert_allclose(features.transform(some), expected, rtol=1e-9)
        single = KernelColumns(kernel, Z.astype(np.float32)).transform(some.astype(np.float32))
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, expected, rtol=1e-4)


ROWS = np.ones((3, 2))
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


def test_expressions_are_flat_and_numbers_come_first():
    nested = 2 * (RBF(1.0) + 3 * Linear()) + ArcCosine()
    assert nested == SumKernel((RBF(1.0), Linear(), ArcCosine()), (2.0, 6.0, 1.0))
    assert (2 * RBF(1.0)) * (Linear() * 3.0) == SumKernel((RBF(1.0) * Linear(),), (6.0,))
    assert RBF(1.0) * 1 == RBF(1.0)
    for number in (np.float64(2), np.float32(2), np.int64(2), 2):
        assert number * RBF(1.0) == RBF(1.0) * number == SumKernel((RBF(1.0),), (2.0,))
    assert SumKernel(["rbf", "linear"]) == RBF() + Linear()  # parts by name
    assert ProductKernel(["rbf", Chi2(2.0)]) == RBF() * Chi2(2.0)


def test_repr_is_the_expression():
    assert repr(0.5 * RBF(1.0) + Linear()) == "SumKernel(0.5 * RBF(width=1.0) + Linear())"
    product = (RBF(1.0) + Linear()) * ArcCosine()
    assert repr(product) == "ProductKernel((RBF(width=1.0) + Linear()) * ArcCosine(order=1))"
    assert repr(several_widths("rbf", (0.5, 1), learn=True)) == (
        "SumKernel(RBF(width=0.5 * default) + RBF(width=None), learn=True)"
    )


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: 0 * RBF(), InputError, "weight=0: wanted a finite number > 0"),
        (lambda: RBF() * True, InputTypeError, "weight=True: wanted a finite number > 0"),
        (lambda: RBF() + 1, TypeError, "unsupported operand"),
        (lambda: RBF() * "linear", TypeError, "can't multiply|unsupported operand"),
        (lambda: RBF() * np.ones(2), TypeError, "operand 'RBF' does not support ufuncs"),
        (lambda: SumKernel([]), InputError, "parts is empty: wanted at least one kernel"),
        (lambda: SumKernel("rbf"), InputTypeError, r"parts='rbf': wanted a list of kernels"),
        (lambda: ProductKernel([3]), InputTypeError, "kernel is 3: wanted a name or a kernel"),
        (lambda: SumKernel([RBF()], [1, 2]), InputError, "weights has 2 numbers for 1 kernels"),
        (lambda: SumKernel([RBF()], [0.0]), InputError, r"weights\[0\]=0\.0: wanted a finite"),
        (lambda: SumKernel([RBF()], 2.0), InputTypeError, r"weights=2\.0: wanted a list"),
        (lambda: SumKernel([RBF()], learn=1), InputTypeError, "learn=1: wanted True or False"),
        (lambda: SumKernel([RBF(1.0)], factors=[2.0]), InputError, "factors has 2 for RBF"),
        (lambda: several_widths(RBF(), learn=True) * Linear(), InputError, "cannot be learned"),
        (lambda: several_widths(Linear()), InputError, "needs a kernel with a width, e.g. RBF"),
        (lambda: several_widths(RBF(), ()), InputError, "factors has 0 numbers"),
        (lambda: resolve("sum"), InputError, "there is no kernel 'sum'. Pass one of"),
        (
            lambda: kernel_from_state({"name": "sum", "nu": 2}),
            InputError,
            "sum kernel has no par",
        ),
        (lambda: (RBF(1.0) + Linear()).with_width(2.0), InputError, "was given, but SumKernel"),
        (lambda: (RBF(1.0) + Laplacian())(ROWS, ROWS), InputError, "laplacian kernel has no width"),
    ],
)
def test_invalid_uses_raise(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_values_that_one_part_cannot_take_raise(rows):
    X = rows[0].copy()
    X[4, 2] = -1.0
    for kernel in (RBF(1.0) + Chi2(1.0), RBF(1.0) * Chi2(1.0)):
        assert kernel.nonnegative
        kernel.check(rows[0])
        with pytest.raises(InputError, match="row 14, column 2 has -1, but the chi2 kernel"):
            kernel.check(X, first_row=10)
    assert not (RBF() + Linear()).nonnegative
    (RBF() + Linear()).check(X)


class TestWidths:
    def test_every_part_without_one_gets_its_own(self, rows):
        X = rows[0]
        kernel = RBF() + 2 * Laplacian(7.0) + Polynomial() * Linear()
        assert kernel.needs_width
        own = RBF(RBF().default_width(X)), Polynomial(Polynomial().default_width(X))
        decided = with_default_width(kernel, X)
        assert decided == own[0] + 2 * Laplacian(7.0) + own[1] * Linear()
        assert not decided.needs_width
        assert kernel.with_width(3.0) == RBF(3.0) + 2 * Laplacian(7.0) + Polynomial(3.0) * Linear()

    def test_several_widths_are_chosen_from_data(self, rows):
        X = rows[0]
        kernel = several_widths(Laplacian(), (0.5, 1, 4.0), weights=(1, 2, 3))
        assert kernel.needs_width
        assert kernel_from_state(json.loads(json.dumps(kernel.state_dict()))) == kernel
        own = Laplacian().default_width(X)
        expected = SumKernel([Laplacian(own / 2), Laplacian(own), Laplacian(4 * own)], (1, 2, 3))
        assert with_default_width(kernel, X) == expected
        # Inside other kernels as well.
        assert with_default_width(2 * kernel + Linear(), X) == 2 * expected + Linear()
        assert with_default_width(kernel * Linear(), X) == expected * Linear()
        assert kernel.with_width(3.0).parts == (Laplacian(1.5), Laplacian(3.0), Laplacian(12.0))
        assert several_widths(RBF(3.0)).parts == (RBF(1.5), RBF(3.0), RBF(6.0))

    def test_the_median_is_computed_once(self, rows):
        class Counting(RBF):
            calls = 0

            def distance(self, X, Z):
                Counting.calls += 1
                return super().distance(X, Z)

        with_default_width(several_widths(Counting(), (1.0, 2.0, 3.0)), rows[0])
        assert Counting.calls == 1


def test_kernel_cca_chooses_widths_and_saves_them(two_views, tmp_path):
    X, Y = two_views
    kernel = several_widths("rbf") + 0.1 * Laplacian(5.0)
    model = KernelCCA(2, kernel=kernel, reg=1e-3, metric=None, scale=None, width="median").fit(X, Y)
    expected = several_widths(RBF(RBF().default_width(X))) + 0.1 * Laplacian(5.0)
    assert model.projection_.x.features.kernel == expected
    model.save(tmp_path / "model.knoi")
    again = load(tmp_path / "model.knoi")
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    assert again.kernel == kernel
    model.set_params(width=(2.0, 3.0)).fit(X, Y)
    for view, width in ((model.projection_.x, 2.0), (model.projection_.y, 3.0)):
        assert view.features.kernel == several_widths(RBF(width)) + 0.1 * Laplacian(5.0)
