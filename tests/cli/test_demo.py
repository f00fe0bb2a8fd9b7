"""The command line: the demo from end to end, `info`, and errors of one line."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import knoi
from knoi.cli import app, main
from knoi.demo import N_STEPS, best_cells, run_demo, table_rows
from tests.html_page import Page

ROW = re.compile(
    r"^ *(\w+CCA|KNOI) +([\d.]+) +([\d.]+) +([\d.]+)% +([\d.]+)% +([\d,.]+) +([\d.]+)", re.M
)


def run_cli(*arguments, **environment):
    """The real program in a process of its own, its output piped."""
    code = "import sys; from knoi.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "80", **environment},
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Output and folder of one small demo."""
    folder = tmp_path_factory.mktemp("demo") / "made" / "by demo"
    arguments = ["demo", "--samples", "1000", "--output", str(folder)]
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout, folder


def test_demo_shows_a_table_in_which_the_kernel_methods_win(demo):
    rows = {name: [float(v.replace(",", "")) for v in row] for name, *row in ROW.findall(demo[0])}
    assert list(rows) == ["LinearCCA", "FourierCCA", "NystromCCA", "KNOI"]
    for fitted, refit, first, tenth, median, _ in rows.values():
        assert 0 < fitted < 20
        assert 0 < refit < 20
        assert 0 < first <= tenth <= 100
        assert 1 <= median < 100
    for kernel in ("FourierCCA", "NystromCCA", "KNOI"):
        fitted, refit = rows[kernel][:2]
        assert fitted > rows["LinearCCA"][0] + 0.3
        assert refit > rows["LinearCCA"][1] + 0.3
    assert re.search(r"guessing +0 +- +0\.50% +5\.00% +100\.5 +-", demo[0])  # of 200


def test_demo_shows_every_step_and_says_where_things_are(demo):
    output, folder = demo
    assert [f"[{k}/{N_STEPS}]" in output for k in range(1, N_STEPS + 1)] == [True] * N_STEPS
    assert f"Report: {folder / 'report.html'}\n" in output
    best = max(ROW.findall(output), key=lambda row: float(row[1]))[0]
    assert f"Model:  {folder / 'model.knoi'} ({best}, " in output
    assert type(knoi.load(folder / "model.knoi")).__name__ == best
    assert sorted(path.name for path in folder.iterdir()) == ["model.knoi", "report.html"]


def test_demo_ends_with_python_that_runs(demo, two_views, capsys):
    lines = [line.strip() for line in demo[0].splitlines() if line.startswith("  ")][-3:]
    assert re.fullmatch(r"from knoi import (Fourier|Nystrom)CCA", lines[0])
    assert lines[1].endswith("(n_components=20, rank=500).fit(X, Y)")
    assert lines[2] == "print(model.score(X_test, Y_test))"
    X, Y = two_views
    quick = "\n".join(lines).replace("rank=500", "rank=50")
    exec(quick, {"X": X, "Y": Y, "X_test": X, "Y_test": Y})
    assert 0 < float(capsys.readouterr().out) <= 20


def test_demo_fits_an_80_column_screen(demo):
    table = demo[0][demo[0].index("held-out digits") : demo[0].index("Report:")]
    assert max(map(len, table.splitlines())) <= 80
    assert "…" not in table


def test_demo_output_is_plain_text_when_piped(demo):
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", demo[0])


def test_demo_saves_a_model_that_projects(demo):
    model = knoi.load(demo[1] / "model.knoi")
    assert model.n_features_in_ == model.n_features_y_ == 128
    assert model.transform(np.zeros((3, 128), np.float32)).shape == (3, 20)


def test_report_shows_the_table_the_chart_and_the_halves(demo):
    output, folder = demo
    html = (folder / "report.html").read_text(encoding="utf-8")
    page = Page(html)
    assert len(page.all("img")) == 8 * (2 + 5 + 5)
    assert len(page.all("svg")) == 1
    assert not re.search("https?://", html)
    # The same numbers as on the screen.
    for name, *row in ROW.findall(output):
        cells = [re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<td>.*?</td>", html)]
        assert name in page.texts
        assert row[0] in cells
        assert f"{row[2]}%" in cells
    # Whoever is marked is also said to be right, and the other way round.
    marked = re.findall(r'class="tile marked">.*?<figcaption>(.*?)</figcaption>', html)
    assert marked
    assert set(marked) == {"✓ true"}
    assert html.count("✓ true") == len(marked)
    assert "knoi demo --samples 1000 --seed 0" in page.texts


def test_demo_is_repeatable_and_its_examples_are_right():
    steps = []
    first, again = run_demo(500, seed=3, on_step=steps.append), run_demo(500, seed=3)
    assert len(steps) == N_STEPS
    assert [m.fitted for m in first.methods] == [m.fitted for m in again.methods]
    assert [row[:-1] for row in table_rows(first)] == [row[:-1] for row in table_rows(again)]
    labels = first.digits.labels_test[first.examples]
    assert len(set(labels.tolist())) == len(labels) == 8
    for method in first.methods:
        Zx, Zy = method.model.transform(first.digits.X_test, first.digits.Y_test)
        assert method.fitted == pytest.approx(method.model.score(*_test_part(first)))
        A = Zx[first.examples] / np.linalg.norm(Zx[first.examples], axis=1)[:, None]
        B = Zy / np.linalg.norm(Zy, axis=1)[:, None]
        np.testing.assert_array_equal(method.matches[:, 0], np.argmax(A @ B.T, axis=1))
    assert first.best.fitted == max(m.fitted for m in first.methods)
    best_row = first.methods.index(first.best)
    assert (best_row, 1) in best_cells(first)


def _test_part(result):
    return result.digits.X_test, result.digits.Y_test


def test_the_program_runs_quietly_and_without_torch(tmp_path):
    code = (
        "import sys; from knoi.cli import main; code = main(); "
        "print(sorted({'torch', 'h5py', 'zarr'} & set(sys.modules)), code)"
    )
    arguments = ["demo", "--samples", "500", "--output", str(tmp_path), "--quiet"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[] 0\n", "")
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_interrupted_program_says_so_and_writes_nothing(tmp_path):
    code = "import sys; from knoi.cli import main; sys.exit(main())"
    arguments = ["demo", "--samples", "4000", "--output", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        while "Fitting FourierCCA" not in program.stdout.readline():
            assert program.poll() is None
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=120)
    assert (program.returncode, errors) == (130, "knoi: interrupted.\n")
    assert list(tmp_path.iterdir()) == []


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"knoi {knoi.__version__}\n"
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert "demo" in shown
    assert "info" in shown


HINT = "Options and examples: knoi demo --help"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["demo", "--samples", "499"],
            f"Invalid value for '--samples': 499 is too small, wanted 500 or more. {HINT}",
        ),
        (
            ["demo", "--seed", "-1"],
            f"Invalid value for '--seed': -1 is too small, wanted 0 or more. {HINT}",
        ),
        (["demo", "--samples", "many"], "Invalid value for '--samples': "),
        (["demo", "--frobnicate"], "No such option: --frobnicate"),
        (["divine"], "No such command 'divine'"),
        (["info"], "Missing argument 'MODEL'"),
    ],
)
def test_a_command_that_is_not_understood_gives_one_line_and_2(
    arguments, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"knoi: {message}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_a_file_is_refused_before_the_work(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    assert main(["demo", "--output", str(file)]) == 1
    assert capsys.readouterr() == (
        "",
        f"knoi: Nothing can be written to {file} as a folder (File exists). "
        "Give another one: --output DIR.\n",
    )
    assert file.read_text() == "mine"


def test_info_on_what_is_no_model_gives_one_line_and_1(tmp_path, capsys):
    missing, foreign = tmp_path / "missing.knoi", tmp_path / "foreign.txt"
    foreign.write_text("not a model at all")
    assert main(["info", str(missing)]) == 1
    assert capsys.readouterr() == (
        "",
        f"knoi: There is no model file at {missing}. Check the path.\n",
    )
    assert main(["info", str(foreign)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"knoi: {foreign} is not a knoi model")
    assert err.count("\n") == 1


def test_debug_shows_the_traceback(tmp_path):
    with pytest.raises(knoi.KnoiError, match="There is no model file"):
        main(["info", str(tmp_path / "missing.knoi"), "--debug"])


def test_info_shows_what_the_file_holds(two_views, tmp_path):
    X, Y = two_views
    model = knoi.NystromCCA(n_components=3, rank=50, width=(2.0, "median"), random_state=7)
    model.fit(X, Y).save(tmp_path / "m.knoi")
    done = run_cli("info", str(tmp_path / "m.knoi"), COLUMNS="200")
    assert (done.returncode, done.stderr) == (0, "")
    for shown in (
        "NystromCCA",
        f"knoi {knoi.__version__}, format 1",
        "rank=50",
        "random_state=7",
        "width=(2.0, 'median')",
        "6 columns -> 50 features -> 3 components",
        "4 columns -> 50 features -> 3 components",
        "RBF(width=2.0)",
        " ".join(f"{rho:.3f}" for rho in model.correlations_),
    ):
        assert shown in done.stdout
    assert "\x1b" not in done.stdout
