"""What can be typed: the methods, the parsers of option values, and the options commands share.

Nothing heavy is imported at the top: `knoi --help` and shell completion load every command.
"""

import inspect
import json
import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from knoi.exceptions import InputError

if TYPE_CHECKING:
    from knoi.estimators.base import BaseCCA

Value = TypeVar("Value")


# --- Methods: adding one takes an entry here --------------------------------------------------


@dataclass(frozen=True)
class Method:
    """A value of `--method`."""

    estimator: str  # name of the class in `knoi`
    regs: tuple[float | str, ...]  # what `knoi tune` tries by default
    minibatches: bool = False  # trains in steps: prints its progress, can save checkpoints


METHODS = {
    "linear": Method("LinearCCA", regs=(0.0, 1e-6, 1e-4, 1e-2)),
    "kernel": Method("KernelCCA", regs=(1e-5, 1e-4, 1e-3, 1e-2)),
    "fourier": Method("FourierCCA", regs=(1e-7, 1e-6, 1e-5, 1e-4)),
    "nystrom": Method("NystromCCA", regs=(1e-7, 1e-6, 1e-5, 1e-4)),
    "knoi": Method("KNOI", regs=("auto",), minibatches=True),
    "dsgd": Method("DoublyStochasticCCA", regs=(0.0,), minibatches=True),
}

# Options that set a parameter of the estimator, and the name of that parameter.
PARAMETERS = {
    "components": "n_components",
    "rank": "rank",
    "kernel": "kernel",
    "width": "width",
    "reg": "reg",
    "approximation": "approximation",
    "landmarks": "landmarks",
    "epochs": "epochs",
    "time": "max_time",
    "checkpoint": "checkpoint",
    "seed": "random_state",
    "memory": "memory_budget",
    "jobs": "n_jobs",
    "device": "device",
}


def estimator_options(context: typer.Context) -> dict[str, Any]:
    """Values of the options in `PARAMETERS` that the command has; None where not given."""
    return {name: context.params[name] for name in PARAMETERS if name in context.params}


def default_components(n_cols: tuple[int, int]) -> int:
    """Return the number of components for two views of so many columns."""
    return min(10, *n_cols)


def method_name(name: str) -> str:
    """Parse a method, or auto."""
    if name not in ("auto", *METHODS):
        raise typer.BadParameter(f"there is no method {name!r}. Choose auto, {', '.join(METHODS)}.")
    return name


def resolve_method(method: str, options: Mapping[str, Any]) -> str:
    """Resolve auto: KNOI, or linear for the linear kernel if linear CCA takes all the options."""
    if method != "auto":
        return method
    linear = options.get("kernel") in ("linear", ("linear", "linear"))
    known = _parameters("linear")
    given = {name for name, value in options.items() if value is not None} - {"kernel", "seed"}
    return "linear" if linear and all(PARAMETERS[name] in known for name in given) else "knoi"


def make_model(
    method: str, options: Mapping[str, Any], settings: Mapping[str, Any], verbose: bool = False
) -> "BaseCCA":
    """Create the estimator of a method.

    `options` are by the names in `PARAMETERS`, None where one was not given; `settings` are by the
    names of the estimator; `verbose` is for estimators that have the parameter.
    """
    import knoi
    from knoi.checks import one_per_view
    from knoi.kernels import resolve

    known = _parameters(method)
    if options.get("kernel") is not None:  # a wrong name is an error before any data is opened
        one_per_view("kernel", options["kernel"], lambda _name, one: resolve(one))
    parameters: dict[str, Any] = {"verbose": verbose} if "verbose" in known else {}
    for name, value in options.items():
        if value is None or (method == "linear" and (name, value) == ("kernel", "linear")):
            continue
        if PARAMETERS[name] in known:
            parameters[PARAMETERS[name]] = value
        elif name != "seed":  # it has a default, so it is given to every method
            takers = [other for other in METHODS if PARAMETERS[name] in _parameters(other)]
            raise typer.BadParameter(
                f"--method {method} has no --{name}; it is for {', '.join(takers)}.",
                param_hint=f"'--{name}'",
            )
    estimator = METHODS[method].estimator
    for name in settings:
        if name not in known:
            raise typer.BadParameter(
                f"{estimator} has no parameter {name!r}. It has: {', '.join(known)}.",
                param_hint="'--set'",
            )
    model: BaseCCA = getattr(knoi, estimator)(**{**parameters, **settings})
    return model


def _parameters(method: str) -> list[str]:
    import knoi

    return list(inspect.signature(getattr(knoi, METHODS[method].estimator)).parameters)


# --- Parsers of values ------------------------------------------------------------------------

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?:in)?)?(?:(\d+(?:\.\d+)?)s?)?")


def seconds(text: str) -> float:
    """Parse a duration: 90, 90s, 10m, 1h30m."""
    match = _DURATION.fullmatch(text.strip().lower())
    parts = [0.0 if part is None else float(part) for part in match.groups()] if match else []
    total = sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=bool(parts)))
    if not total:
        raise typer.BadParameter(f"{text!r} is not a duration. Wanted e.g. 90s, 10m or 1h30m.")
    return total


def memory_size(text: str) -> str:
    """Check a size in bytes; the text itself is what estimators take."""
    from knoi.engine import parse_bytes

    try:
        parse_bytes(text)
    except InputError:
        raise typer.BadParameter(f"{text!r} is not a size. Wanted e.g. 500MB or 4GiB.") from None
    return text


def image_size(text: str) -> tuple[int, int]:
    """Parse HEIGHTxWIDTH."""
    match = re.fullmatch(r"\s*(\d+)\s*[xX×]\s*(\d+)\s*", text)
    if match is None or 0 in (int(match[1]), int(match[2])):
        raise typer.BadParameter(f"{text!r} is not a size. Wanted height x width, e.g. 28x14.")
    return int(match[1]), int(match[2])


def word(text: str) -> str:
    """Parse a name."""
    if not text.strip():
        raise typer.BadParameter("it is empty. Give a name.")
    return text.strip()


def number_or(name: str) -> Callable[[str], Any]:
    """Return the parser of a number >= 0, or of the one name that may replace it."""

    def parse(text: str) -> Any:
        return name if text.strip() == name else nonnegative(text, f"a number, or {name}")

    return parse


def nonnegative(text: str, wanted: str = "a number") -> float:
    """Parse a finite number >= 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise typer.BadParameter(f"{text!r}: wanted {wanted}, at least 0.")
    return number


def count(text: str) -> int:
    """Parse a whole number >= 1."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r}: wanted a whole number, at least 1.")
    return int(text)


def pair_of(one: Callable[[str], Value]) -> Callable[[str], Any]:
    """Return the parser of one value for both views, or of two as X:Y."""

    def parse(text: str) -> Any:
        parts = text.split(":")
        if len(parts) > 2:
            raise typer.BadParameter(
                f"{text!r} has {len(parts)} parts. Wanted one value, or two as X:Y."
            )
        values = [one(part) for part in parts]
        return values[0] if len(values) == 1 else (values[0], values[1])

    return parse


def list_of(one: Callable[[str], Value]) -> Callable[[str], list[Value]]:
    """Return the parser of values separated by commas."""
    return lambda text: [one(part) for part in text.split(",")]


def row_numbers(text: str) -> list[int]:
    """Parse row numbers from 0: 0,5,10-20, both ends of a range included."""
    rows: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise typer.BadParameter(
                f"{part!r} is not a row number. Wanted numbers from 0 and ranges, e.g. 0,5,10-20."
            )
        first = int(match[1])
        rows.extend(range(first, (first if match[2] is None else int(match[2])) + 1))
    return list(dict.fromkeys(rows))


def held_out_size(text: str) -> int | float:
    """Parse how much to hold out: a number of rows, or a fraction of them; 0 for none."""
    number = nonnegative(text, "a fraction of the rows such as 0.1, or a number of rows")
    if number < 1:
        return number
    if number != int(number):
        raise typer.BadParameter(
            f"{text!r}: wanted a fraction of the rows below 1, such as 0.1, or a whole number of "
            "rows."
        )
    return int(number)


@dataclass(frozen=True)
class Factor:
    """A width as a multiple of the median distance."""

    times: float


def width_or_factor(text: str) -> float | Factor:
    """Parse a width: a number, a multiple of the median (0.5x), or median."""
    stripped = text.strip()
    if stripped == "median":
        return Factor(1.0)
    number = nonnegative(stripped.removesuffix("x"), "a number, or a multiple such as 0.5x")
    if number == 0:
        raise typer.BadParameter(f"{text!r}: wanted a width above 0.")
    return Factor(number) if stripped.endswith("x") else number


def setting(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE, the value as JSON or as text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise typer.BadParameter(f"{text!r}: wanted NAME=VALUE, e.g. momentum=0.99.")
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None if value.strip().lower() == "none" else value.strip()
    return name.strip(), tuple(parsed) if isinstance(parsed, list) else parsed


def choice(*known: str) -> Callable[[str], str]:
    """Return the parser of one of these words."""

    def parse(text: str) -> str:
        if text not in known:
            raise typer.BadParameter(f"{text!r}: wanted {' or '.join(known)}.")
        return text

    return parse


def as_typed(value: Any) -> str:
    """Format a value, or a pair of them, as it is typed."""
    values = value if isinstance(value, list | tuple) else (value,)
    return ":".join(f"{one:.6g}" if isinstance(one, float) else str(one) for one in values)


# --- Options that several commands share ------------------------------------------------------


def option(metavar: str, text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """Create an option that takes a value, shown as `metavar`; `text` is its help."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, **more)


# `main` reads it from the arguments themselves, since it must work even where parsing fails.
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON document, and nothing else.")
]

_VIEW = (
    "One view: .npy, .npz, .h5:/DATASET, .zarr, .parquet, .csv, .tsv (also gzipped) or .mat; "
    "PATH:NAME selects an array or columns of a file that holds several."
)
ViewX = Annotated[Path, typer.Argument(metavar="X", help=_VIEW)]
ViewY = Annotated[Path, typer.Argument(metavar="Y", help="The other view, paired by row.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, as `knoi fit` writes.")]

_TEST = "Two files of pairs that are not used for the fit, to score the model on."
Test = Annotated[tuple[Path, Path] | None, option("X_TEST Y_TEST", _TEST, "--test")]
Seed = Annotated[int, option("N", "Makes the run repeatable.", min=0)]
_METHODS = f"auto (knoi; linear for --kernel linear), {', '.join(METHODS)}."
MethodName = Annotated[str, option("NAME", _METHODS, parser=method_name)]
_COMPONENTS = "Dimensions to project to; by default 10, or the number of columns if smaller."
Components = Annotated[int | None, option("N", _COMPONENTS, "--components", "-k", min=1)]

_fitting = partial(option, panel="How to fit")
_KERNEL = "rbf, laplacian, cauchy, matern, linear, polynomial, chi2, ...; X:Y sets one per view."
Kernel = Annotated[Any, _fitting("NAME", _KERNEL, parser=pair_of(word))]
_RANK = "Features per view: more are more accurate, and slower."
Rank = Annotated[int | None, _fitting("N", _RANK, min=1)]
_WIDTH = "Length scale of the kernel: a number or median (the default); X:Y sets one per view."
Width = Annotated[Any, _fitting("W", _WIDTH, parser=pair_of(number_or("median")))]
_REG = "Regularisation, relative to the variance of a view; X:Y sets one per view."
Reg = Annotated[Any, _fitting("R", _REG, parser=pair_of(number_or("auto")))]
_APPROXIMATION = (
    "Features that approximate the kernel: nystrom, fourier, random (chosen to suit the "
    "kernel), ..."
)
Approximation = Annotated[Any, _fitting("NAME", _APPROXIMATION, parser=pair_of(word))]
_LANDMARKS = "How nystrom features choose their landmarks: uniform, kmeans, leverage, ..."
Landmarks = Annotated[str | None, _fitting("NAME", _LANDMARKS)]
Epochs = Annotated[int | None, _fitting("N", "Passes over the data.", min=1)]
_TIME = "Stop training after 90s, 10m or 1h30m."
Seconds = Annotated[float | None, _fitting("TIME", _TIME, "--time", parser=seconds)]
_SET = "Any other parameter of the Python class, e.g. --set momentum=0.99; may be repeated."
Settings = Annotated[list[Any] | None, _fitting("NAME=VALUE", _SET, "--set", parser=setting)]

_machine = partial(option, panel="The machine")
_MEMORY = "Memory limit, e.g. 4GiB; by default half of the free memory."
Memory = Annotated[str | None, _machine("SIZE", _MEMORY, parser=memory_size)]
Jobs = Annotated[int | None, _machine("N", "Threads; by default every core.")]
Device = Annotated[str | None, _machine("NAME", "cpu or cuda (needs torch).")]

_report = partial(option, panel="The report")
_LABELS = (
    "A label for each row, to colour the report by: one per line of a text file, or one array or "
    "column of any format that a view may have."
)
Labels = Annotated[Path | None, _report("FILE", _LABELS)]
_IMAGES = "Rows are images of this height and width; give it twice if X and Y differ."
Images = Annotated[list[Any] | None, _report("HxW", _IMAGES, "--images", parser=image_size)]
Title = Annotated[str | None, _report("TEXT", "Heading of the report.")]


def command_line(context: typer.Context, *more: str) -> str:
    """Return the command as it was typed, ready to be pasted, with further arguments."""
    typed = context.obj or [context.info_name or ""]  # `main` stores the arguments there
    return shlex.join(["knoi", *typed, *(argument for argument in more if argument not in typed)])
