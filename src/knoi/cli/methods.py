"""Methods by the names of the command line, and what each can be told."""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from knoi.estimators.base import BaseCCA

METHODS = {
    "linear": "LinearCCA",
    "kernel": "KernelCCA",
    "fourier": "FourierCCA",
    "nystrom": "NystromCCA",
    "knoi": "KNOI",
    "dsgd": "DoublyStochasticCCA",
}
# Those that learn from minibatches, and show how they are getting on themselves.
STEPWISE = ("knoi", "dsgd")

# What an estimator calls what an option sets, where the names differ.
PARAMETERS = {
    "components": "n_components",
    "memory": "memory_budget",
    "seed": "random_state",
    "time": "max_time",
    "jobs": "n_jobs",
}
# Given whether they are asked for or not, to those that take them.
_TAKEN_WHERE_KNOWN = ("seed", "verbose")


def method_named(name: str) -> str:
    """A method that is known, or auto."""
    if name not in ("auto", *METHODS):
        raise typer.BadParameter(f"there is no method {name!r}. Choose auto, {', '.join(METHODS)}.")
    return name


def chosen_method(method: str, options: Mapping[str, Any]) -> str:
    """What auto means: KNOI, which takes any size and needs no tuning; linear for that kernel."""
    if method != "auto":
        return method
    linear = options.get("kernel") in ("linear", ("linear", "linear"))
    known = _parameters("linear")
    others = (name for name, value in options.items() if value is not None and name != "kernel")
    if linear and all(name in _TAKEN_WHERE_KNOWN or _named(name) in known for name in others):
        return "linear"
    return "knoi"


def make_model(
    method: str, options: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> "BaseCCA":
    """The estimator of a method.

    Parameters
    ----------
    method : str
        A key of `METHODS`.
    options : mapping
        Values of options by their names, without dashes; None where an option was not given.
    settings : mapping, optional
        Further parameters by the names of the estimator.
    """
    import knoi
    from knoi.checks import one_per_view
    from knoi.kernels import resolve

    known = _parameters(method)
    if options.get("kernel") is not None:  # a name that is wrong is said before data is opened
        one_per_view("kernel", options["kernel"], lambda _name, one: resolve(one))
    parameters = {}
    for name, value in options.items():
        if value is None or (method == "linear" and (name, value) == ("kernel", "linear")):
            continue
        if _named(name) in known:
            parameters[_named(name)] = value
        elif name not in _TAKEN_WHERE_KNOWN:
            takers = [other for other in METHODS if _named(name) in _parameters(other)]
            raise typer.BadParameter(
                f"--method {method} has no --{name}; it is for {', '.join(takers)}.",
                param_hint=f"'--{name}'",
            )
    for name in settings or {}:
        if name not in known:
            raise typer.BadParameter(
                f"{METHODS[method]} has no parameter {name!r}. It has: {', '.join(known)}.",
                param_hint="'--set'",
            )
    model: BaseCCA = getattr(knoi, METHODS[method])(**{**parameters, **(settings or {})})
    return model


def _named(option: str) -> str:
    return PARAMETERS.get(option, option)


def _parameters(method: str) -> list[str]:
    import knoi

    constructor = inspect.signature(getattr(knoi, METHODS[method]))
    return list(constructor.parameters)
