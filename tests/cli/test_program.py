"""The program itself: help with examples, completion, exit codes, errors of one line."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import knoi
from knoi.cli import app, main
from knoi.cli.output import show_rows, show_steps
from knoi.cli.program import in_options
from knoi.exceptions import InputError

COMMANDS = ("fit", "transform", "score", "retrieve", "tune", "report", "info", "demo")
FIT = "fit X.npy Y.npy -o m.knoi"
RETRIEVE = "retrieve linear.knoi X_test.npy Y_test.npy --rows"


def test_every_command_is_listed(run):
    shown = run("--help").out
    assert [name for name in COMMANDS if not re.search(rf"│ {name} ", shown)] == []
    assert run("").out == shown
    assert run("--version").out == f"knoi {knoi.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_use_existing_options(run, command):
    shown, _, examples = run(f"{command} --help").out.partition("Examples")
    # Wrapped at the width of the screen; all commands begin at the margin.
    lines = [line.strip() for line in re.split(r"(?= knoi )", " ".join(examples.split()))]
    assert all(line.startswith(f"knoi {command}") for line in lines)
    used, known = (set(re.findall(r"--[a-z][\w-]*|(?<= )-[a-z]\b", t)) for t in (examples, shown))
    assert used - {"-r"} <= known  # `jq -r` is another program's
    assert "\x1b" not in shown


def test_help_and_completion_load_nothing_heavy():
    code = (
        "import sys; from knoi.cli import main; code = main(['--help']); "
        "heavy = {'numpy', 'scipy', 'sklearn', 'torch', 'plotly', 'matplotlib', 'h5py'}; "
        "print(sorted(heavy & set(sys.modules)), code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[] 0"


def test_completion_prints_a_script_and_completes(capsys, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    with pytest.raises(SystemExit, match="0"):
        main(["--show-completion", "bash"])
    assert "complete -o default -F _knoi_completion knoi" in capsys.readouterr().out
    for words, offered in (
        ("knoi t", {"transform", "tune"}),
        ("knoi fit --res", {"--resume"}),
        ("knoi fit --method k", {"kernel", "knoi"}),
        ("knoi fit --kernel la", {"laplacian"}),
        ("knoi fit --kernel rbf:la", {"rbf:laplacian"}),
        ("knoi fit --landmarks kmeans+", {"kmeans++"}),
        ("knoi tune --approximation ny", {"nystrom"}),
    ):
        monkeypatch.setenv("_KNOI_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        with pytest.raises(SystemExit, match="0"):
            app(prog_name="knoi")
        assert set(capsys.readouterr().out.split()) == offered


USAGE_ERRORS = {
    "fit X.npy Y.npy": "Missing option '--output' / '-o'",
    f"{FIT} --widht 3": "No such option: --widht (Possible options: --width)",
    "fti X.npy": "No such command 'fti'. Did you mean 'fit'?",
    f"{FIT} --method knio": "'--method': 'knio': wanted auto, linear, kernel, ",
    f"{FIT} --metric lerned": "'--metric': 'lerned': wanted auto, learned, diagonal or none.",
    f"{FIT} --method fourier --epochs 3": "'--epochs': --method fourier has no --epochs",
    f"{FIT} --method linear --set rank=3": "'--set': LinearCCA has no parameter 'rank'",
    f"{FIT} --resume": "'--resume': there is nothing to resume from",
    f"{FIT} --images 3x2": "'--images': it is for the report",
    "fit X.npy Y.npy -o m.html --report m.html": "'--report': it is also the model file",
    "transform linear.knoi X.npy Y.npy --view y -o Z.npz": "'--view': y is for a single file.",
    f"{RETRIEVE} 1 --from z": "'--from': 'z': wanted x or y.",
    f"{RETRIEVE} 1 --json --csv": "'--csv': choose one of --json and --csv.",
    "demo --samples 499": "'--samples': ",
}
ERRORS = {
    # Paths.
    "fit X.npy Yy.npy -o m.knoi": "Y ('Yy.npy'): there is no file or folder 'Yy.npy'. Similar",
    "fit X.npy Y.npy -o X.npy": "--output X.npy is also an input, which it would overwrite",
    "fit X.npy Y.npy -o no/m.knoi": "--output no/m.knoi: there is no folder no",
    "fit X.npy Y.npy -o folder": "--output folder is a folder",
    "fit X.npy Y.npy -o text.csv": "--output text.csv exists and is not a model file",
    f"{FIT} --report page.txt": "--report page.txt: it is a web page",
    "demo --output text.csv": "Nothing can be written to text.csv as a folder (File exists)",
    # Arguments in the wrong places.
    "fit linear.knoi Y.npy -o m.knoi": "X is 'linear.knoi', a model file",
    "score X.npy Y.npy linear.knoi": "The model comes first, before the data",
    "info page.html": "page.html is a report",
    "info none.knoi": "There is no model file at none.knoi",
    "score text.csv X.npy Y.npy": "text.csv is not a knoi model",
    "score linear.knoi X_test.npy X_test.npy": "X has 6 columns and Y has 6, but the model was",
    f"{FIT} --test X.npy none.npy": "--test: Y ('none.npy'): there is no file or folder",
    f"{FIT} --test Y_test.npy X_test.npy": "--test: X has 4 columns and Y has 6, but the",
    # Values.
    "fit X.npy Y_test.npy -o m.knoi": "X has 400 rows but Y has 200",
    f"{FIT} --kernel rfb": "there is no kernel 'rfb'. Pass one of ",
    f"{FIT} --held-out 400": "--held-out: held_out is 400, of 400 rows. Pass",
    f"{FIT} -k 900 --quiet": "--components 900 with n_samples=400: CCA needs more rows",
    f"{FIT} --memory 1KB --quiet": "KNOI with rank",
    "tune X.npy Y.npy --held-out 0": "--held-out: held_out is 0.0, of 400 rows. Pass",
    f"{RETRIEVE} 3,200": "--rows has 200, but X has rows 0 to 199. Give rows in that range.",
}


@pytest.mark.parametrize(("code", "errors"), [(1, ERRORS), (2, USAGE_ERRORS)])
def test_errors(error_line, code, errors):
    Path("text.csv").write_text("a,b\n1,2\nx,3\n")
    Path("folder").mkdir()
    Path("page.html").touch()
    before = sorted(os.listdir())
    for command, expected in errors.items():
        printed = error_line(code, command)
        assert printed.removeprefix("Invalid value for ").startswith(expected)
        assert code == 1 or printed.endswith(" --help")
        assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("code", "option", "meant"),
    [
        (2, "--method konl", "knoi"),
        (2, "--set momentun=0.9", "momentum"),
        (1, "--kernel rfb", "rbf"),
        (1, "--approximation nistrom", "nystrom"),
        (1, "--landmarks kmean", "kmeans"),
    ],
)
def test_names_that_were_probably_meant_are_suggested(error_line, code, option, meant):
    assert f"Did you mean '{meant}'?" in error_line(code, f"{FIT} --rank 20 -k 2 -q {option}")


def test_a_missing_extra_is_reported_before_the_fit(error_line, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert "A report needs plotly, which is not" in error_line(1, f"{FIT} --report page.html")


def test_debug_shows_the_traceback(run):
    with pytest.raises(InputError, match="they are swapped"):
        run("score linear.knoi Y_test.npy X_test.npy --debug")


def test_out_of_memory_is_reported_in_one_line(error_line, monkeypatch):
    def full(*_):
        raise MemoryError("cannot allocate 9 TiB")

    monkeypatch.setattr("knoi.metrics.component_correlations", full)
    line = error_line(1, "score linear.knoi X_test.npy Y_test.npy")
    assert line.startswith("out of memory (cannot allocate 9 TiB). Set a limit")


def test_a_closed_pipe_prints_nothing(folder):
    code = "import sys; from knoi.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "info", str(folder / "linear.knoi")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as program:
        program.stdout.close()
        assert program.stderr.read() == ""
    assert program.returncode == 1


def test_messages_name_options():
    # Others are among the errors above.
    message = in_options("fit with resume=True, rank=5 (a rank) or memory_budget.")
    assert message == "fit with --resume, --rank 5 (a rank) or --memory."
    assert in_options("device='cuda': use device=None") == "--device 'cuda': use no --device"


def test_a_model_is_replaced_and_its_memory_and_jobs_do_not_bind_later_commands(run):
    assert run(f"{FIT} --method linear -k 1 -q").code == 0
    assert run(f"{FIT} --method linear -k 2 --memory 1MiB --jobs 1 -q").code == 0
    assert "4 columns → 4 features → 2 components" in run("info m.knoi").out
    # 1 MiB would not be enough for these rows.
    np.save("wide.npy", np.zeros((70_000, 6)))
    assert run("transform m.knoi wide.npy -o Z.npy -q").code == 0


def test_the_commands_of_the_readme_run(run):
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^knoi (\w+ .*?)(?: +#.*)?$", readme, re.M)
    assert {"fit", "score"} <= {command.split()[0] for command in commands}
    for command in commands:
        done = run(command)
        assert done.code == 0, done.err


def test_bars_on_a_terminal():
    console = Console(file=io.StringIO(), force_terminal=True, width=80, quiet=False)
    with show_steps(console, 2) as step:
        step("first")
        step("second")
    with show_rows(console, "Reading", 1000, then="solving") as show:
        for rows in (400, 1000):
            show(rows)
    for shown in ("second", "1/2", "1,000 of 1,000 rows  solving"):
        assert shown in console.file.getvalue()
