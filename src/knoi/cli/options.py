"""What can be typed: the methods, the parsers of option values, and the options commands share.

Nothing heavy is imported at the top: `knoi --help` and shell completion load every command.
"""

import inspect
import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import typer

from knoi import checks
from knoi.checks import suggestion
from knoi.exceptions import InputError

if TYPE_CHECKING:
    from knoi.estimators.base import BaseCCA

Value = TypeVar("Value")


# --- Methods: adding one takes an entry here --------------------------------------------------


@dataclass(frozen=True)
class Method:
    """A value of `--method`."""

    estimator: str  # name of the class in `knoi`
    regs: tuple[float | str | None, ...]  # what `knoi tune` tries by default
    minibatches: bool = False  # trains in steps: prints its progress, can save checkpoints


METHODS = {
    "linear": Method("LinearCCA", regs=(0.0, 1e-6, 1e-4, 1e-2)),
    "kernel": Method("KernelCCA", regs=(1e-5, 1e-4, 1e-3, 1e-2)),
    "fourier": Method("FourierCCA", regs=(1e-7, 1e-6, 1e-5, 1e-4)),
    "nystrom": Method("NystromCCA", regs=(1e-7, 1e-6, 1e-5, 1e-4)),
    "knoi": Method("KNOI", regs=("auto",), minibatches=True),
    "dsgd": Method("DoublyStochasticCCA", regs=(0.0,), minibatches=True),
    "deep": Method("DeepCCA", regs=(None,), minibatches=True),
}

# Components by default, unless a view has fewer columns.
MOST_COMPONENTS = 10
# Values of `--kernel` that linear CCA ignores.
_LINEAR = ("linear", ("linear", "linear"))

# Values of `--metric`.
METRICS = ("auto", "learned", "diagonal", "none")
# Values of `--scale`.
SCALES = ("auto", "standard", "none")

# Options that set a parameter of the estimator, and the name of that parameter.
PARAMETERS = {
    "components": "n_components",
    "rank": "rank",
    "kernel": "kernel",
    "width": "width",
    "metric": "metric",
    "scale": "scale",
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


def resolve_method(method: str, options: Mapping[str, Any]) -> str:
    """Resolve auto: KNOI, or linear for the linear kernel if linear CCA takes all the options."""
    if method != "auto":
        return method
    given = {PARAMETERS[name] for name, value in options.items() if value is not None}
    takes_all = given - {"kernel", "random_state"} <= {*_parameters("linear")}
    return "linear" if options.get("kernel") in _LINEAR and takes_all else "knoi"


def make_model(
    method: str, options: Mapping[str, Any], settings: Mapping[str, Any], verbose: bool = False
) -> "BaseCCA":
    """Create the estimator of a method, from options (None if not given) and its own parameters."""
    import knoi
    from knoi.kernels import resolve

    known = _parameters(method)
    if options.get("kernel") is not None:  # a wrong name is an error before any data is opened
        own = "precomputed" if method == "kernel" else None
        checks.one_per_view(
            "kernel", options["kernel"], lambda _name, one: one if one == own else resolve(one)
        )
    parameters: dict[str, Any] = {"verbose": verbose} if "verbose" in known else {}
    for name, value in options.items():
        if value is None or ((method, name) == ("linear", "kernel") and value in _LINEAR):
            continue
        if PARAMETERS[name] in known:
            parameters[PARAMETERS[name]] = value
        elif name != "seed":  # it has a default, so it is given to every method
            takers = [other for other in METHODS if PARAMETERS[name] in _parameters(other)]
            raise usage_error(
                name, f"--method {method} has no --{name}; it is for {', '.join(takers)}."
            )
    estimator = METHODS[method].estimator
    for name in settings:
        if name not in known:
            message = f"{estimator} has no parameter {name!r}. It has: {', '.join(known)}."
            raise usage_error("set", message + suggestion(name, known))
    model: BaseCCA = getattr(knoi, estimator)(**{**parameters, **settings})
    return model


def usage_error(option: str, message: str) -> typer.BadParameter:
    """Return the error about an option, which exits with code 2."""
    return typer.BadParameter(message, param_hint=f"'--{option}'")


def _parameters(method: str) -> list[str]:
    import knoi

    return list(inspect.signature(getattr(knoi, METHODS[method].estimator)).parameters)


# --- Parsers of values ------------------------------------------------------------------------

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?:in)?)?(?:(\d+(?:\.\d+)?)s?)?")


def _invalid(text: str, wanted: str) -> typer.BadParameter:
    return typer.BadParameter(f"{text!r}: wanted {wanted}.")


def seconds(text: str) -> float:
    """Parse a duration: 90, 90s, 10m, 1h30m."""
    match = _DURATION.fullmatch(text.strip().lower())
    parts = match.groups() if match else ()
    total = sum(float(part or 0) * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
    if not total:
        raise _invalid(text, "a duration, e.g. 90s, 10m or 1h30m")
    return total


def memory_size(text: str) -> str:
    """Check a size in bytes; the text itself is what estimators take."""
    from knoi.engine import parse_bytes

    try:
        parse_bytes(text)
    except InputError:
        raise _invalid(text, "a size, e.g. 500MB or 4GiB") from None
    return text


def image_size(text: str) -> tuple[int, int]:
    """Parse HEIGHTxWIDTH."""
    match = re.fullmatch(r"\s*([1-9]\d*)\s*[xX×]\s*([1-9]\d*)\s*", text)
    if match is None:
        raise _invalid(text, "height x width, e.g. 28x14")
    return int(match[1]), int(match[2])


def nonnegative(text: str, wanted: str) -> float:
    """Parse a finite number >= 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise _invalid(text, f"{wanted}, at least 0")
    return number


def number_or(*names: str) -> Callable[[str], float | str]:
    """Return the parser of a number >= 0, or of a name that may replace it."""
    wanted = f"a number, or {' or '.join(names)}"
    return lambda text: text if text in names else nonnegative(text, wanted)


def count_or_auto(text: str) -> int | str:
    """Parse a whole number >= 1, or auto."""
    return text if text == "auto" else count(text)


def count(text: str) -> int:
    """Parse a whole number >= 1."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise _invalid(text, "a whole number, at least 1")
    return int(text)


def pair_of(one: Callable[[str], Value]) -> Callable[[str], Value | tuple[Value, Value]]:
    """Return the parser of one value for both views, or of two as X:Y."""

    def parse(text: str) -> Value | tuple[Value, Value]:
        parts = [part.strip() for part in text.split(":")]
        if len(parts) > 2 or "" in parts:
            raise _invalid(text, "one value, or two as X:Y")
        return one(parts[0]) if len(parts) == 1 else (one(parts[0]), one(parts[1]))

    return parse


def list_of(one: Callable[[str], Value]) -> Callable[[str], list[Value]]:
    """Return the parser of values separated by commas."""
    return lambda text: [one(part) for part in text.split(",")]


def row_numbers(text: str) -> list[int]:
    """Parse row numbers from 0: 0,5,10-20, both ends of a range included."""
    rows: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
        if not numbers:
            raise _invalid(part, "row numbers from 0 and ranges, e.g. 0,5,10-20")
        rows.extend(numbers)
    return list(dict.fromkeys(rows))


def held_out_size(text: str) -> int | float:
    """Parse how much to hold out: a number of rows, or a fraction of them; 0 for none."""
    wanted = "a fraction of the rows below 1, such as 0.1, or a whole number of rows"
    number = nonnegative(text, wanted)
    if number >= 1 and number != int(number):
        raise _invalid(text, wanted)
    return number if number < 1 else int(number)


def kernel_width(text: str) -> float | str:
    """Parse a width as estimators take it: a number, median, a multiple (0.5x), or auto."""
    try:
        value: float | str = float(text)
    except ValueError:
        value = text
    try:
        checks.width("width", value)
    except InputError:
        raise _invalid(text, "a number, median, a multiple of it such as 0.5x, or auto") from None
    return value


def width_or_factor(text: str) -> float | checks.Factor:
    """Parse a width that is known beforehand: a number, a multiple of the median, or median."""
    found = checks.width("width", kernel_width(text))
    if found is None:
        raise _invalid(text, "a number, median, or a multiple of it such as 0.5x")
    return found


def setting(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE, the value as JSON or as text."""
    name, _, value = (part.strip() for part in text.partition("="))
    if not name or "=" not in text:
        raise _invalid(text, "NAME=VALUE, e.g. momentum=0.99")
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None if value.lower() == "none" else value
    return name, tuple(parsed) if isinstance(parsed, list) else parsed


def choice(*known: str) -> Callable[[str], str]:
    """Return the parser of one of these words."""

    def parse(text: str) -> str:
        if text not in known:
            wanted = f"{', '.join(known[:-1])} or {known[-1]}"
            raise typer.BadParameter(f"{text!r}: wanted {wanted}.{suggestion(text, known)}")
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


def view_option(text: str, *names: str) -> Any:
    """Create an option that selects one of the views."""
    return option("x|y", text, *names, parser=choice("x", "y"))


def completed(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return the shell completion of an option whose values are names; X:Y is completed, too."""

    def offer(incomplete: str) -> list[str]:
        first, colon, _ = incomplete.rpartition(":")
        offered = (f"{first}{colon}{name}" for name in names())
        return [value for value in offered if value.startswith(incomplete)]

    return offer


def _kernels() -> Iterable[str]:
    from knoi.kernels import KERNELS

    return sorted(KERNELS)


def _approximations() -> Iterable[str]:
    from knoi.features.registry import APPROXIMATIONS

    return ("auto", "nystrom", *APPROXIMATIONS)


def _landmarks() -> Iterable[str]:
    from knoi.features.landmarks import Selection

    return get_args(Selection)


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
_NAMES_OF_METHODS = ("auto", *METHODS)
MethodName = Annotated[
    str,
    option(
        "NAME",
        _METHODS,
        parser=choice(*_NAMES_OF_METHODS),
        autocompletion=completed(lambda: _NAMES_OF_METHODS),
    ),
]
_COMPONENTS = "Dimensions to project to; by default 10, or the number of columns if smaller."
Components = Annotated[int | None, option("N", _COMPONENTS, "--components", "-k", min=1)]

_fitting = partial(option, panel="How to fit")
_KERNEL = "rbf, laplacian, cauchy, matern, linear, polynomial, chi2, ...; X:Y sets one per view."
Kernel = Annotated[
    Any, _fitting("NAME", _KERNEL, parser=pair_of(str), autocompletion=completed(_kernels))
]
_RANK = "Features per view: more are more accurate, and slower."
Rank = Annotated[int | None, _fitting("N", _RANK, min=1)]
_WIDTH = (
    "Length scale of the kernel: a number, median, 0.5x (times the median), or auto (the default), "
    "the multiple that does best; X:Y sets one per view."
)
Width = Annotated[Any, _fitting("W", _WIDTH, parser=pair_of(kernel_width))]
_METRIC = (
    "Transform of the columns before the kernel: learned, diagonal, none, or auto (the default), "
    "which decides on held-out rows; X:Y sets one per view."
)
Metric = Annotated[
    Any,
    _fitting(
        "KIND",
        _METRIC,
        parser=pair_of(choice(*METRICS)),
        autocompletion=completed(lambda: METRICS),
    ),
]
_SCALE = (
    "Scale of the columns: standard divides each by its spread, none leaves them, auto (the "
    "default) decides on held-out rows; X:Y sets one per view."
)
Scale = Annotated[
    Any,
    _fitting(
        "KIND",
        _SCALE,
        parser=pair_of(choice(*SCALES)),
        autocompletion=completed(lambda: SCALES),
    ),
]
_REG = "Regularisation, relative to the variance of a view; X:Y sets one per view."
Reg = Annotated[Any, _fitting("R", _REG, parser=pair_of(number_or("auto")))]
_APPROXIMATION = (
    "Features that approximate the kernel: nystrom, fourier, random (chosen to suit the "
    "kernel), ..."
)
Approximation = Annotated[
    Any,
    _fitting(
        "NAME", _APPROXIMATION, parser=pair_of(str), autocompletion=completed(_approximations)
    ),
]
_LANDMARKS = "How nystrom features choose their landmarks: uniform, kmeans, leverage, ..."
Landmarks = Annotated[
    str | None, _fitting("NAME", _LANDMARKS, autocompletion=completed(_landmarks))
]
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
_TEXTS = (
    "A text for each row, such as a title: a file as for --labels (rows.csv:title); give it twice "
    "if X and Y differ."
)
Texts = Annotated[list[Path] | None, _report("FILE", _TEXTS, "--texts")]
_NAMES = "A name for each column of {}, where the file has none: as --labels, e.g. a vocabulary."
XNames = Annotated[Path | None, _report("FILE", _NAMES.format("X"), "--x-names")]
YNames = Annotated[Path | None, _report("FILE", _NAMES.format("Y"), "--y-names")]
Title = Annotated[str | None, _report("TEXT", "Heading of the report.")]


def text_files(texts: list[Path] | None) -> tuple[Path | None, Path | None]:
    """The files of `--texts` for X and for Y."""
    given: list[Path | None] = [*texts] if texts else [None]
    if len(given) > 2:
        raise usage_error("texts", "give it once for both views, or once for X and once for Y.")
    return given[0], given[-1]


def command_line(context: typer.Context, *more: str) -> str:
    """Return the command as it was typed, ready to be pasted, with further arguments."""
    typed = context.obj or [context.info_name or ""]  # `main` stores the arguments there
    return shlex.join(["knoi", *typed, *(argument for argument in more if argument not in typed)])
