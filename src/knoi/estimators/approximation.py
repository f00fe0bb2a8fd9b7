"""The parameter `approximation`: a name, or a fitted map; checked, and made into a map."""

from typing import Any

from knoi.arrays.backend import Array
from knoi.arrays.random import View
from knoi.exceptions import InputError, InputTypeError
from knoi.features import FeatureMap
from knoi.features.approximations import APPROXIMATIONS, approximate
from knoi.kernels import Kernel


def approximation(name: str, value: Any, *, others: tuple[str, ...] = ()) -> Any:
    """A name that is known, of random features or one of `others`, or a fitted feature map."""
    if isinstance(value, FeatureMap):
        return value
    known = (*others, *APPROXIMATIONS)
    if isinstance(value, type) and issubclass(value, FeatureMap):
        raise InputTypeError(
            f"{name}={value.__name__} is a class: wanted a fitted map, e.g. {value.__name__}.fit("
            f"...), or a name: {', '.join(map(repr, known))}."
        )
    if isinstance(value, str) and value in known:
        return value
    raise InputError(
        f"{name}={value!r}: wanted one of {', '.join(map(repr, known))}, or a fitted feature map."
    )


def check_given(features: FeatureMap, view: View, n_cols: int, n_components: int) -> None:
    """Refuse a fitted map that is not of this view, or too small."""
    name = "XY"[view]
    if features.n_cols != n_cols:
        raise InputError(
            f"the feature map of {name} takes {features.n_cols} columns but {name} has {n_cols}. "
            "Pass a map fitted on the columns of the data."
        )
    check_rank(features, view, n_components)


def check_rank(features: FeatureMap, view: View, n_components: int) -> None:
    """Refuse a map that cannot hold the components."""
    if features.rank < n_components:
        raise InputError(
            f"the feature map of {'XY'[view]} has rank {features.rank}, below "
            f"n_components={n_components}. Pass a map of higher rank, or lower n_components."
        )


def fitted(
    name: str, sample: Array, kernel: Kernel, rank: int, seed: int, view: View, n_components: int
) -> FeatureMap:
    """The random features called `name`; errors name the view."""
    try:
        features = approximate(name, sample, kernel, rank, seed, view)
    except (InputError, InputTypeError) as error:
        raise type(error)(f"view {'XY'[view]}: {error}") from None
    check_rank(features, view, n_components)
    return features
