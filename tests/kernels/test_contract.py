"""Names, states and parameters of kernels."""

import json

import numpy as np
import pytest

from knoi.exceptions import InputError, InputTypeError
from knoi.kernels import (
    KERNELS,
    RBF,
    ArcCosine,
    Chi2,
    Linear,
    Matern,
    Polynomial,
    SphericalPolynomial,
    kernel_from_state,
    resolve,
)

NAMES = (
    "'additive_chi2', 'arccosine', 'cauchy', 'chi2', 'intersection', 'laplacian', 'linear', "
    "'matern', 'polynomial', 'rbf', 'spherical_polynomial'"
)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_names_resolve_and_states_survive_json(name):
    kernel = resolve(name)
    assert type(kernel) is KERNELS[name]
    assert resolve(kernel) is kernel
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


def test_an_unknown_name_raises_with_the_known_ones():
    with pytest.raises(InputError) as raised:
        resolve("gaussian")
    assert str(raised.value) == f"there is no kernel 'gaussian'. Pass one of {NAMES}."


@pytest.mark.parametrize(("wrong", "given"), [(3, "3"), (RBF, "the class RBF")])
def test_what_is_not_a_kernel_raises(wrong, given):
    with pytest.raises(InputTypeError) as raised:
        resolve(wrong)
    assert str(raised.value) == (
        f"kernel is {given}: wanted a name or a kernel object. Pass one of {NAMES}, "
        "or an instance such as RBF(width=1.0)."
    )


def test_an_invalid_state_raises():
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
    with pytest.raises(InputError, match=r"width=-1\.0: wanted a finite number > 0\."):
        kernel_from_state({"name": "rbf", "width": -1.0})


@pytest.mark.parametrize("kernel", [RBF(), Polynomial(), Chi2()], ids=repr)
def test_a_width_must_be_chosen_before_use(kernel):
    assert kernel.needs_width
    assert not kernel.with_width(2).needs_width
    assert kernel.with_width(2).width == 2.0
    with pytest.raises(InputError) as raised:
        kernel(np.ones((2, 2)), np.ones((2, 2)))
    assert str(raised.value) == (
        f"the {kernel.name} kernel has no width yet. Pass one, e.g. "
        f"{type(kernel).__name__}(width=1.0), or let the estimator choose it by width='median'."
    )


def test_a_width_for_a_kernel_without_one_raises():
    assert not Linear().needs_width
    with pytest.raises(InputError) as raised:
        Linear().with_width(2.0)
    assert str(raised.value) == (
        "width=2.0 was given, but the linear kernel has no width. "
        "Omit it, or use a kernel that has one, e.g. 'rbf'."
    )


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Chi2(0), InputError, r"^width=0: wanted a finite number > 0\.$"),
        (lambda: Chi2(float("nan")), InputError, "width=nan: wanted a finite number > 0"),
        (lambda: RBF(float("inf")), InputError, "width=inf: wanted a finite number > 0"),
        (lambda: RBF([1.0]), InputTypeError, r"width=\[1.0\]: wanted a number > 0"),
        (lambda: RBF(True), InputTypeError, "width=True: wanted a number > 0"),
        (
            lambda: RBF("median"),
            InputTypeError,
            r"^width='median' was given to a rbf kernel: wanted a number or None\. "
            r"Pass a rule such as width='median' to the estimator instead\.$",
        ),
        (lambda: Matern(nu=0), InputError, "nu=0: wanted a finite number > 0"),
        (lambda: Polynomial(degree=0), InputError, "degree=0: wanted a whole number >= 1"),
        (lambda: Polynomial(degree=2.0), InputTypeError, "degree=2.0: wanted a whole number"),
        (lambda: Polynomial(coef0=-1), InputError, "coef0=-1: wanted a finite number >= 0"),
        (lambda: SphericalPolynomial(0), InputError, "degree=0: wanted a whole number >= 1"),
        (lambda: ArcCosine(order=3), InputError, "order=3: wanted 0, 1 or 2"),
        (lambda: ArcCosine(order="1"), InputTypeError, "order='1': wanted a whole number"),
    ],
)
def test_parameters_are_checked_at_once(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_kernels_are_compared_by_their_parameters():
    kernel = RBF(1.0)
    assert kernel == RBF(1)
    assert hash(kernel) == hash(RBF(1.0))
    assert kernel != Matern(1.0)
    with pytest.raises(AttributeError):
        kernel.width = 2.0
