"""`knoi demo` from end to end."""

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
from tests.report.reading import ParsedPage, page_data

ROW = re.compile(
    r"^ *(\w+CCA|KNOI) +([\d.]+) +([\d.]+) +([\d.]+)% +([\d.]+)% +([\d,.]+) +([\d.]+)", re.M
)


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
    linear = rows["LinearCCA"]
    for name, (fitted, refit, first, tenth, median, _) in rows.items():
        assert 0 < fitted < 20
        assert 0 < refit < 20
        assert 0 < first <= tenth <= 100
        assert 1 <= median < 100
        assert name == "LinearCCA" or (fitted > linear[0] + 0.3 and refit > linear[1] + 0.3)
    assert re.search(r"chance +0 +- +0\.50% +5\.00% +100\.5 +-", demo[0])  # of 200


def test_output_names_every_step_and_file_in_80_columns_of_plain_text(demo):
    output, folder = demo
    assert re.findall(r"^\[(\d)/9\] ", output, re.M) == [*"123456789"]
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
    assert lines[1].endswith("(n_components=20, rank=500).fit(X, Y)")
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
        assert {row[0], f"{row[2]}%"} <= set(cells)
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
        A, B = (Z / np.linalg.norm(Z, axis=1)[:, None] for Z in (Zx[first.examples], Zy))
        np.testing.assert_array_equal(method.matches[:, 0], np.argmax(A @ B.T, axis=1))
    assert first.best.fitted == max(method.fitted for method in first.methods)
    assert (first.methods.index(first.best), 1) in best_cells(first)


def test_without_the_extra_results_are_printed_but_no_report(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert main(["demo", "--samples", "500", "--output", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert len(ROW.findall(output)) == 4
    assert "Report: not written. A report needs plotly" in output
    assert [path.name for path in tmp_path.iterdir()] == ["model.knoi"]


def test_quiet_prints_nothing_and_loads_no_other_extra(tmp_path):
    code = (
        "import sys; from knoi.cli import main; code = main(); "
        "print(sorted({'torch', 'h5py', 'zarr'} & set(sys.modules)), code)"
    )
    arguments = ["demo", "--samples", "500", "--output", str(tmp_path), "--quiet"]
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[] 0\n", "")
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_an_interrupted_demo_says_so_and_writes_nothing(error_line, monkeypatch):
    monkeypatch.setattr("knoi.demo.run_demo", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    assert error_line(130, "demo --output made") == "interrupted."
    assert os.listdir("made") == []
