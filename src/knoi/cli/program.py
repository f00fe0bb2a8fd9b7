"""The program `knoi`: its commands, and how whatever goes wrong becomes one line and a code.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 it could not be done, 2 the
command was not understood, 130 interrupted (143 by SIGTERM).
"""

import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from knoi import __version__
from knoi.cli.bench import bench
from knoi.cli.demo import EXAMPLES as DEMO
from knoi.cli.demo import demo
from knoi.cli.fit import EXAMPLES as FIT
from knoi.cli.fit import fit
from knoi.cli.info import EXAMPLES as INFO
from knoi.cli.info import info
from knoi.cli.options import Debug, Invocation
from knoi.cli.report import EXAMPLES as REPORT
from knoi.cli.report import report
from knoi.cli.retrieve import EXAMPLES as RETRIEVE
from knoi.cli.retrieve import retrieve
from knoi.cli.score import EXAMPLES as SCORE
from knoi.cli.score import score
from knoi.cli.screen import paragraphs
from knoi.cli.stopped import Stopped
from knoi.cli.transform import EXAMPLES as TRANSFORM
from knoi.cli.transform import transform
from knoi.cli.tune import EXAMPLES as TUNE
from knoi.cli.tune import tune
from knoi.exceptions import InSampleWarning, KnoiError

# Every complaint about the command itself derives from it, whichever click typer was built on.
_UsageError: Any = typer.BadParameter.__bases__[0]

app = typer.Typer(add_completion=True, pretty_exceptions_enable=False, rich_markup_mode="rich")

# Their modules import nothing heavy at the top: `knoi --help` and completion load them all.
for _command, _examples in (
    (fit, FIT),
    (transform, TRANSFORM),
    (score, SCORE),
    (retrieve, RETRIEVE),
    (tune, TUNE),
    (report, REPORT),
    (info, INFO),
    (demo, DEMO),
):
    app.command(help=paragraphs(_command.__doc__), epilog=_examples)(_command)
app.add_typer(bench, name="bench")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in arguments
    try:
        with warnings.catch_warnings():
            # Said once, and in one line; by default Python would show a line of our source, too.
            warnings.simplefilter("always", InSampleWarning)
            warnings.showwarning = _show_warning
            code = app(
                args=arguments,
                prog_name="knoi",
                standalone_mode=False,
                obj=Invocation(tuple(arguments)),
            )
            sys.stdout.flush()  # here, where a closed pipe can be dealt with
    except _UsageError as error:
        if debug:
            raise
        message = error.format_message().rstrip(".")
        where = "knoi" if error.ctx is None else error.ctx.command_path
        return _fail(f"{message}. Options and examples: {where} --help", 2)
    except Stopped as error:
        return _fail(str(error), error.code)
    except BrokenPipeError:
        # Who reads has had enough, as `head` has. Nothing more can be said there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except (KnoiError, OSError) as error:
        if debug:
            raise
        return _fail(in_options(_with_notes(error)), 1)
    except MemoryError as error:
        if debug:
            raise
        return _fail(
            f"the memory is full ({error}). Give a bound by --memory, such as half of what the "
            "machine has, or lower --rank.",
            1,
        )
    if code == 130:
        return _fail("interrupted.", 130)
    return int(code or 0)


def _fail(message: str, code: int) -> int:
    print("knoi:", " ".join(message.splitlines()), file=sys.stderr)
    return code


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    kind = "" if issubclass(category, UserWarning) else f"{category.__name__}: "
    text = in_options(" ".join(str(message).split()))
    print(f"knoi: warning: {kind}{text}", file=sys.stderr)


def _with_notes(error: BaseException) -> str:
    said = [str(error), *getattr(error, "__notes__", ())]
    return " ".join(text if text.endswith((".", "]", "'")) else f"{text}." for text in said)


# Parameters of the estimators that have another name here.
_OPTIONS = {
    "n_components": "--components",
    "memory_budget": "--memory",
    "random_state": "--seed",
    "max_time": "--time",
    "n_jobs": "--jobs",
    "n_permutations": "--permutations",
}
_SAME = "rank|kernel|width|reg|approximation|landmarks|epochs|checkpoint|device"


def in_options(message: str) -> str:
    """A message of the library in the words of the command line: `rank=3` becomes `--rank 3`."""
    message = message.replace("resume=True", "--resume")
    message = re.sub(rf"\b({'|'.join(_OPTIONS)})=", lambda m: f"{_OPTIONS[m[1]]} ", message)
    message = re.sub(rf"\b({'|'.join(_OPTIONS)})\b", lambda m: _OPTIONS[m[1]], message)
    return re.sub(rf"\b({_SAME})=", r"--\1 ", message)


@app.callback(invoke_without_command=True)
def _knoi(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    debug: Debug = False,
) -> None:
    """Canonical correlation analysis of two views, linear and with kernels, at any size."""
    if show_version:
        print(f"knoi {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
