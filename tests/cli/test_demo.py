"""`knoi demo` from end to end, and `knoi info` on what it and others wrote."""

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
from tests.report.reading import ParsedPage, page_data

ROW = re.compile(
    r"^ *(\w+CCA|KNOI) +([\d.]+) +([\d.]+) +([\d.]+)% +([\d.]+)% +([\d,.]+) +([\d.]+)", re.M
)
PROGRAM = "import sys; from knoi.cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Output and folder of one small demo."""
    folder = tmp_path_factory.mktemp("demo") / "made" / "by demo"
    arguments = ["demo", "--samples", "1000", "--output", str(folder)]
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout, folder


def test_kernel_methods_win_in_the_table(demo):
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
    assert re.search(r"chance +0 +- +0\.50% +5\.00% +100\.5 +-", demo[0])  # of 200


def test_output_names_every_step_and_file_in_80_columns_of_plain_text(demo):
    output, folder = demo
    assert [f"[{k}/{N_STEPS}]" in output for k in range(1, N_STEPS + 1)] == [True] * N_STEPS
    assert f"Report: {folder / 'report.html'}\n" in output
    best = max(ROW.findall(output), key=lambda row: float(row[1]))[0]
    assert f"Model:  {folder / 'model.knoi'} ({best}, " in output
    model = knoi.load(folder / "model.knoi")
    assert type(model).__name__ == best
    assert model.transform(np.zeros((3, 128), np.float32)).shape == (3, 20)
    assert sorted(path.name for path in folder.iterdir()) == ["model.knoi", "report.html"]
    table = output[output.index("held-out digits") : output.index("Report:")]
    assert max(map(len, table.splitlines())) <= 80
    assert "…" not in table
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", output)


def test_output_ends_with_python_that_runs(demo, two_views, capsys):
    lines = [line.strip() for line in demo[0].splitlines() if line.startswith("  ")][-3:]
    assert re.fullmatch(r"from knoi import (Fourier|Nystrom)CCA", lines[0])
    assert lines[1].endswith("(n_components=20, rank=500).fit(X, Y)")
    assert lines[2] == "print(model.score(X_test, Y_test))"
    X, Y = two_views
    quick = "\n".join(lines).replace("rank=500", "rank=50")
    exec(quick, {"X": X, "Y": Y, "X_test": X, "Y_test": Y})
    assert 0 < float(capsys.readouterr().out) <= 20


def test_report_shows_the_table_the_charts_and_the_halves(demo):
    output, folder = demo
    html = (folder / "report.html").read_text(encoding="utf-8")
    page, data = ParsedPage(html), page_data(html)
    assert len(page.all("img")) == 8 * (2 + 5 + 5)
    assert {"correlations", "recall"} <= page.ids
    cells = [re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<td>.*?</td>", html)]
    correlations, recall = data["correlations"]["series"], data["recall"]["series"]
    for (name, *row), line, recalls in zip(ROW.findall(output), correlations, recall, strict=True):
        assert name in page.texts
        assert row[0] in cells
        assert f"{row[2]}%" in cells
        assert line["name"] == recalls["name"] == name
        assert sum(line["values"]) == pytest.approx(float(row[0]), abs=0.01)
        assert recalls["values"][0] == pytest.approx(float(row[2]) / 100, abs=1e-3)
    marked = re.findall(r'class="tile correct">.*?<figcaption>(.*?)</figcaption>', html)
    assert set(marked) == {"✓ true"}
    assert html.count("✓ true") == len(marked)
    assert "knoi demo --samples 1000 --seed 0" in page.texts


def test_demo_is_repeatable_and_its_matches_are_the_nearest():
    steps = []
    first, again = run_demo(500, seed=3, on_step=steps.append), run_demo(500, seed=3)
    assert len(steps) == N_STEPS
    assert [row[:-1] for row in table_rows(first)] == [row[:-1] for row in table_rows(again)]
    digits = first.digits
    labels = digits.labels_test[first.examples]
    assert len(set(labels.tolist())) == len(labels) == 8
    for method in first.methods:
        Zx, Zy = method.model.transform(digits.X_test, digits.Y_test)
        assert method.fitted == pytest.approx(method.model.score(digits.X_test, digits.Y_test))
        A = Zx[first.examples] / np.linalg.norm(Zx[first.examples], axis=1)[:, None]
        B = Zy / np.linalg.norm(Zy, axis=1)[:, None]
        np.testing.assert_array_equal(method.matches[:, 0], np.argmax(A @ B.T, axis=1))
    assert first.best.fitted == max(method.fitted for method in first.methods)
    assert (first.methods.index(first.best), 1) in best_cells(first)


def test_without_the_extra_results_are_printed_but_no_report(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert main(["demo", "--samples", "500", "--output", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert len(ROW.findall(output)) == 4
    assert "Report: not written. A report needs plotly" in output
    assert "Run: pip install 'knoi[report]'" in output
    assert [path.name for path in tmp_path.iterdir()] == ["model.knoi"]


def test_quiet_prints_nothing_and_loads_no_other_extra(tmp_path):
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


def test_an_interrupted_demo_says_so_and_writes_nothing(tmp_path):
    arguments = ["demo", "--samples", "4000", "--output", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
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


def test_options_out_of_range(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for option, value, least in (("--samples", "499", 500), ("--seed", "-1", 0)):
        assert main(["demo", option, value]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert f"Invalid value for '{option}': " in err
        assert f"{least}. Options and examples: knoi demo --help" in err
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_a_file_is_reported_before_the_work(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    assert main(["demo", "--output", str(file)]) == 1
    assert capsys.readouterr() == (
        "",
        f"knoi: Nothing can be written to {file} as a folder (File exists). "
        "Give another one: --output DIR.\n",
    )
    assert file.read_text() == "mine"


def test_info_on_other_files_gives_one_line(tmp_path, capsys):
    missing, foreign = tmp_path / "missing.knoi", tmp_path / "foreign.txt"
    foreign.write_text("not a model at all")
    for path, message in ((missing, "There is no model file at "), (foreign, "")):
        assert main(["info", str(path)]) == 1
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith(f"knoi: {message}{path}")
