"""Names, states, parameters: what every kernel promises besides its values."""

import json

import numpy as np
import pytest

from knoi.exceptions import InputError, InputTypeError
from knoi.kernels import (
    KERNELS,
    RBF,
    AdditiveChi2,
    ArcCosine,
    Chi2,
    Intersection,
    Linear,
    Matern,
    Polynomial,
    SphericalPolynomial,
    WidthKernel,
    kernel_from_state,
    resolve,
)

NAMES = (
    "'additive_chi2', 'arccosine', 'cauchy', 'chi2', 'intersection', 'laplacian', 'linear', "
    "'matern', 'polynomial', 'rbf', 'spherical_polynomial'"
)


def test_the_registry_is_complete():
    assert ", ".join(map(repr, sorted(KERNELS))) == NAMES
    assert all(kernel.name == name for name, kernel in KERNELS.items())


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_names_resolve_to_kernels_and_kernels_to_themselves(name):
    kernel = resolve(name)
    assert type(kernel) is KERNELS[name]
    assert resolve(kernel) is kernel


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_state_survives_json(name):
    kernel = resolve(name)
    if kernel.needs_width:
        kernel = kernel.with_width(np.float32(1.5))
    state = json.loads(json.dumps(kernel.state_dict()))
    assert state["name"] == name
    assert kernel_from_state(state) == kernel


def test_state_holds_every_parameter():
    assert Matern(1.3, nu=0.7).state_dict() == {"name": "matern", "width": 1.3, "nu": 0.7}
    assert RBF().state_dict() == {"name": "rbf", "width": None}
    assert Polynomial(2, degree=np.int64(4), coef0=0).state_dict() == {
        "name": "polynomial",
        "width": 2.0,
        "degree": 4,
        "coef0": 0.0,
    }


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(InputError) as raised:
        resolve("gaussian")
    assert str(raised.value) == f"there is no kernel 'gaussian'. Pass one of {NAMES}."


@pytest.mark.parametrize(("wrong", "came"), [(3, "3"), (None, "None"), (RBF, "the class RBF")])
def test_other_things_are_no_kernels(wrong, came):
    with pytest.raises(InputTypeError) as raised:
        resolve(wrong)
    assert str(raised.value) == (
        f"kernel is {came}; a name or a kernel object is wanted. Pass one of {NAMES}, "
        "or an instance such as RBF(width=1.0)."
    )


def test_a_foreign_state_is_refused():
    with pytest.raises(InputError, match="there is no kernel None"):
        kernel_from_state({"width": 1.0})
    with pytest.raises(InputError, match=r"there is no kernel \['rbf'\]"):
        kernel_from_state({"name": ["rbf"]})
    with pytest.raises(InputError) as raised:
        kernel_from_state({"name": "rbf", "width": 1.0, "gamma": 2.0})
    assert str(raised.value) == (
        "the rbf kernel has no parameter 'gamma'; it has width. "
        "The state was altered or is from a newer knoi."
    )
    with pytest.raises(InputError, match=r"width=-1\.0 cannot be used"):
        kernel_from_state({"name": "rbf", "width": -1.0})


@pytest.mark.parametrize("name", [n for n, k in KERNELS.items() if issubclass(k, WidthKernel)])
def test_a_width_must_be_decided_before_use(name):
    kernel = resolve(name)
    assert kernel.needs_width
    assert not kernel.with_width(2).needs_width
    assert kernel.with_width(2).width == 2.0
    with pytest.raises(InputError) as raised:
        kernel(np.ones((2, 2)), np.ones((2, 2)))
    assert str(raised.value) == (
        f"the {name} kernel has no width yet. Pass one, e.g. {type(kernel).__name__}(width=1.0), "
        "or let the estimator choose it by width='median'."
    )


@pytest.mark.parametrize(
    "kernel",
    [Linear(), ArcCosine(), SphericalPolynomial(), AdditiveChi2(), Intersection()],
    ids=repr,
)
def test_a_width_where_there_is_none_is_refused(kernel):
    assert not kernel.needs_width
    with pytest.raises(InputError) as raised:
        kernel.with_width(2.0)
    assert str(raised.value) == (
        f"width=2.0 was given, but the {kernel.name} kernel has no width. "
        "Leave it out, or choose a kernel that has one, e.g. 'rbf'."
    )


@pytest.mark.parametrize("width", [0, -1.0, float("nan"), float("inf")])
def test_widths_that_are_no_lengths(width):
    with pytest.raises(InputError) as raised:
        Chi2(width)
    assert str(raised.value) == (
        f"width={width!r} cannot be used: a finite number greater than 0 is wanted."
    )


def test_a_rule_is_for_the_estimator():
    with pytest.raises(InputTypeError) as raised:
        RBF("median")
    assert str(raised.value) == (
        "width='median' was given to a rbf kernel, which wants a number or None. "
        "Give a rule such as width='median' to the estimator instead."
    )


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: RBF([1.0]), InputTypeError, r"width=\[1.0\] cannot be used: a number is wanted."),
        (lambda: RBF(True), InputTypeError, "width=True cannot be used: a number is wanted."),
        (lambda: Matern(nu=0), InputError, "nu=0 .* a finite number greater than 0 is wanted."),
        (lambda: Polynomial(degree=0), InputError, "degree=0 .* an integer >= 1 is wanted."),
        (lambda: Polynomial(degree=2.0), InputTypeError, "degree=2.0 .* an integer is wanted."),
        (lambda: Polynomial(coef0=-1), InputError, "coef0=-1 .* of at least 0 is wanted."),
        (lambda: SphericalPolynomial(0), InputError, "degree=0 .* an integer >= 1 is wanted."),
        (lambda: ArcCosine(order=3), InputError, "order=3 .* 0, 1 or 2 is wanted."),
        (lambda: ArcCosine(order="1"), InputTypeError, "order='1' .* an integer is wanted."),
    ],
)
def test_parameters_are_checked_when_given(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_kernels_are_values():
    kernel = RBF(1.0)
    assert kernel == RBF(1)
    assert hash(kernel) == hash(RBF(1.0))
    assert kernel != Matern(1.0)
    with pytest.raises(AttributeError):
        kernel.width = 2.0
