"""The program `knoi`: registers the commands, and turns errors into one line and an exit code.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 the command was not
understood, 130 interrupted by Ctrl-C, 143 by SIGTERM.
"""

import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from knoi import __version__
from knoi.cli import demo, fit, info, report, retrieve, score, transform, tune
from knoi.cli.options import PARAMETERS, Debug
from knoi.cli.output import Interrupted, examples, paragraphs
from knoi.exceptions import InSampleWarning, KnoiError

# The base class of every error about the command line itself, in any version of typer.
_UsageError: Any = typer.BadParameter.__bases__[0]

app = typer.Typer(
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=examples(
        "knoi demo",
        "knoi fit X.npy Y.npy -o model.knoi --report report.html",
        "knoi fit --help   (all options of a command)",
    ),
)

# These modules import nothing heavy at the top: `knoi --help` and completion load them all.
for _module in (fit, transform, score, retrieve, tune, report, info, demo):
    _command = getattr(_module, _module.__name__.rpartition(".")[2])
    app.command(help=paragraphs(_command.__doc__), epilog=_module.EXAMPLES)(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in arguments
    try:
        with warnings.catch_warnings():
            # Once, and in one line: by default Python would print a line of our source, too.
            warnings.simplefilter("always", InSampleWarning)
            warnings.showwarning = _show_warning
            code = app(args=arguments, prog_name="knoi", standalone_mode=False, obj=arguments)
            sys.stdout.flush()  # here, where a closed pipe can be handled
    except _UsageError as error:
        if debug:
            raise
        message = _ended(error.format_message())
        where = "knoi" if error.ctx is None else error.ctx.command_path
        return _fail(f"{message} Options and examples: {where} --help", 2)
    except Interrupted as error:
        return _fail(str(error), error.code)
    except BrokenPipeError:
        # The reader, `head` for instance, has closed the pipe. Nothing more can be printed.
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
            f"out of memory ({error}). Set a limit with --memory, such as half of the machine's "
            "memory, or lower --rank.",
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
    return " ".join(map(_ended, [str(error), *getattr(error, "__notes__", ())]))


def _ended(text: str) -> str:
    return text if text.endswith((".", "?", "]", "'")) else f"{text}."


_OPTIONS = {parameter: f"--{option}" for option, parameter in PARAMETERS.items()}
_OPTIONS |= {"n_permutations": "--permutations", "images": "--images"}
# Names shared by the library and the command line can be ordinary words of a message.
_RENAMED = [name for name, option in _OPTIONS.items() if option != f"--{name}"]


def in_options(message: str) -> str:
    """Rewrite a message of the library for the command line: `rank=3` becomes `--rank 3`."""
    message = message.replace("resume=True", "--resume")
    message = message.replace("device=None", "no --device")
    message = re.sub(rf"\b({'|'.join(_OPTIONS)})=", lambda m: f"{_OPTIONS[m[1]]} ", message)
    return re.sub(rf"\b({'|'.join(_RENAMED)})\b", lambda m: _OPTIONS[m[1]], message)


@app.callback(invoke_without_command=True)
def _knoi(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    debug: Debug = False,
) -> None:
    """Canonical correlation analysis of two paired views, linear or with kernels, at any size."""
    if show_version:
        print(f"knoi {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
