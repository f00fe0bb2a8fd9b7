"""The documents say what is so: examples run, links lead somewhere, tables are current."""

import json
import re
import tomllib
from pathlib import Path

import pytest

import knoi
from benchmarks.tables import MISSING, main, refreshed
from knoi.arrays.blocks import MAX_CHUNK_ROWS, MIN_CHUNK_ROWS
from knoi.estimators.dual import DUAL_MATRICES, DUAL_VIEWS
from knoi.estimators.parameters import WIDTH_SAMPLE
from knoi.kernels import KERNELS
from knoi.projection import PIECE_ROWS

PROJECT = Path(__file__).parents[1]
SOURCE = PROJECT / "src" / "knoi"
DOCUMENTS = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")])
FENCED = re.compile(r"^```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)

README = (PROJECT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))


def blocks(text, kind):
    return [match["code"] for match in FENCED.finditer(text) if match["kind"] == kind]


def code_of(text):
    """Everything set as code, in blocks and in lines."""
    spans = re.findall(r"`([^`\n]+)`", FENCED.sub("", text))
    return "\n".join([*spans, *(match["code"] for match in FENCED.finditer(text))])


def anchors(text):
    """What GitHub makes of the headings, and mkdocstrings of what it describes."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE))


def test_the_readme_examples_run_and_give_what_they_say(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in blocks(README, "python"):
        exec(compile(code, "README.md", "exec"), names)
    linear, kernel, stochastic, samples, held_out = map(float, capsys.readouterr().out.split())
    assert abs(linear) < 0.15
    assert kernel == pytest.approx(1.7, abs=0.1)
    assert stochastic == pytest.approx(1.7, abs=0.1)
    assert held_out == pytest.approx(1.7, abs=0.15)
    assert samples > 0
    assert names["Zx"].shape == names["Zy"].shape == (1000, 2)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    text = FENCED.sub("", document.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        file = document.parent / path if path else document
        assert file.exists(), f"{document.name} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), f"no heading for {target}"


def test_every_public_name_is_explained():
    users = [PROJECT / "README.md", *PROJECT.glob("docs/**/*.md")]
    code = "\n".join(code_of(path.read_text(encoding="utf-8")) for path in users)
    assert [name for name in knoi.__all__ if not re.search(rf"\b{name}\b", code)] == []


def test_every_kernel_and_extra_is_listed():
    notation = code_of((PROJECT / "docs" / "notation.md").read_text(encoding="utf-8"))
    for name, kernel in KERNELS.items():
        assert name in notation.splitlines()
        assert re.search(rf"^{kernel.__name__}\b", notation, re.MULTILINE)
    extras = set(PYPROJECT["project"]["optional-dependencies"]) - {"test"}
    assert [extra for extra in extras if not re.search(rf"\[.*\b{extra}\b.*\]", README)] == []


def test_the_architecture_names_every_module_and_no_other():
    modules = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    wanted = {module for module in modules if not module.endswith("__init__.py")}
    wanted |= {f"{path.parent.relative_to(SOURCE)}/" for path in SOURCE.glob("*/__init__.py")}
    listed = re.findall(r"^\| \**`([\w/]+(?:\.py|/))`\** \|", ARCHITECTURE, re.MULTILINE)
    assert sorted(listed) == sorted(wanted)


def test_the_architecture_names_files_that_are_there():
    named = re.findall(r"`([\w./]+\.py)`", FENCED.sub("", ARCHITECTURE))
    places = (PROJECT, SOURCE)
    assert [name for name in named if not any((at / name).exists() for at in places)] == []
    path = blocks(ARCHITECTURE, "")[0]
    steps = re.findall(r"^ *((?:arrays|data|estimators|solvers)/\w+)", path, re.MULTILINE)
    assert len(steps) > 5
    assert [step for step in steps if not (SOURCE / f"{step}.py").exists()] == []


def test_the_architecture_shows_the_layers_that_are_enforced():
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    shown = blocks(ARCHITECTURE, "layers")[0].splitlines()
    assert shown == [layer.replace("knoi.", "") for layer in layers]


def test_the_numbers_in_the_text_are_those_of_the_code():
    architecture = " ".join(ARCHITECTURE.split())
    for said in (
        f"Not even {MIN_CHUNK_ROWS} rows: `MemoryBudgetError`",
        f"More than {MAX_CHUNK_ROWS:,} rows a chunk buy nothing",
        f"it plans {DUAL_MATRICES} N x N matrices and {DUAL_VIEWS} copies of both views",
        f"({WIDTH_SAMPLE} rows a view and their {WIDTH_SAMPLE**2 // 2_000_000} million distances)",
        f"The very first {PIECE_ROWS} rows go alone",
        f"map over pieces of {PIECE_ROWS} rows",
    ):
        assert said in architecture, said
    assert f"chunks stop growing at {MAX_CHUNK_ROWS:,} rows" in README
    assert f"{8 * DUAL_MATRICES} N² + {8 * DUAL_VIEWS} N (dx + dy) bytes" in README


def test_the_tables_are_current(capsys):
    assert main(["--check"]) == 0, capsys.readouterr().out


ORIGIN = {"date": "2024-05-06T07:08:09+00:00", "commit": "abc1234", "processor": "Chip", "cores": 2}


@pytest.fixture
def results(tmp_path):
    """An empty folder of results."""
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


def store(results, name, cells):
    cells = {key: {"origin": ORIGIN, **cell} for key, cell in cells.items()}
    (results / f"{name}.json").write_text(json.dumps({"cells": cells}))


def table(name, results):
    """The generated table as rows of cells, and its last line."""
    text = refreshed(f"before\n<!-- table:{name} -->\nold\n<!-- /table -->\nafter\n", results)
    first, *lines, last = text.splitlines()
    assert (first, lines[0], lines[-1], last) == (
        "before",
        f"<!-- table:{name} -->",
        "<!-- /table -->",
        "after",
    )
    rows = [line.strip("| ").split(" | ") for line in lines[1:-1] if line.startswith("|")]
    assert len({len(row) for row in rows}) == 1
    return rows, lines[-2]


@pytest.mark.parametrize("name", ["lopez_paz", "speed", "memory"])
def test_tables_without_results_say_so(name, results):
    rows, last = table(name, results)
    assert all(MISSING in row for row in rows[2:])
    assert last.startswith("Not measured yet: `python -m benchmarks.")


def test_the_published_table(results):
    store(
        results,
        "lopez_paz",
        {
            "linear rank=0 seed=0 width=median": {"fitted": 27.5, "refit": 28.25, "reg": 0.0},
            "fourier rank=1000 seed=0 width=median/sqrt2": {"by_reg": {"1e-05": {"fitted": 36.0}}},
            "fourier rank=1000 seed=1 width=median/sqrt2": {"by_reg": {"1e-05": {"fitted": 37.0}}},
            "fourier rank=1000 seed=0 width=median": {"fitted": 30.0, "refit": 31.0, "reg": 1e-6},
            "fourier rank=1000 seed=1 width=median": {"fitted": 31.0, "refit": 33.0, "reg": 1e-5},
            "nystrom rank=512 seed=0 width=median": {
                "fitted": 35.125,
                "refit": 1.0,
                "reg": 1e-7,
                "origin": {**ORIGIN, "date": "2024-05-09T00:00:00+00:00", "commit": "def5678+"},
            },
        },
    )
    rows, last = table("lopez_paz", results)
    assert rows[2] == ["LinearCCA", "–", "28.0", "27.50", "27.50", "28.25", "0"]
    by_run = {(row[0], row[1]): row[2:] for row in rows[3:]}
    ranks = ("512", "1000", "2000")
    assert list(by_run) == [(m, r) for m in ("FourierCCA", "NystromCCA") for r in ranks]
    two = " (mean of 2)"
    fourier = ["36.31", f"36.50{two}", f"30.50{two}", f"32.00{two}", "1e-06, 1e-05"]
    assert by_run["FourierCCA", "1000"] == fourier
    assert by_run["NystromCCA", "512"] == ["–", MISSING, "35.12", "1.00", "1e-07"]
    assert by_run["NystromCCA", "2000"] == ["43.15", *[MISSING] * 4]
    assert last == (
        "Measured by `python -m benchmarks.paper.lopez_paz` on Chip, 2 cores; "
        "2024-05-06 to 2024-05-09; commit `abc1234`, `def5678+`."
    )


def test_the_table_of_speed(results):
    seconds = {"ours_seconds": 1.2, "ratio": 1.2, "floor": 1.3}
    store(
        results,
        "speed_moments",
        {
            "rank=4096 columns=392 rows=16384": {"bare_seconds": 1.0, **seconds},
            "rank=512 columns=392 rows=16384": {"bare_seconds": 1.0, **seconds},
        },
    )
    rows, last = table("speed", results)
    assert [row[0] for row in rows[2:]] == [
        "moments of `FourierCCA`, rank 512, 392 columns a view",
        "moments of `FourierCCA`, rank 4096, 392 columns a view",
        "`LinearCCA` on 2 × 1,000,000 × 784 memory-mapped float32",
    ]
    assert rows[3][1:] == ["bare BLAS calls", "1.00", "1.20", "1.20", "1.3", "–", "–"]
    assert rows[4][1:] == ["a plain pass", *[MISSING] * 6]

    memory = {"peak_bytes": 300 * 2**20, "budget_bytes": 512 * 2**20}
    cell = {"plain_seconds": 2.0, "ours_seconds": 2.5, "ratio": 1.25, "floor": 1.5, **memory}
    store(results, "speed_linear_memmap", {"rows=5000 columns=9 budget=512MiB": cell})
    rows, last = table("speed", results)
    assert rows[4] == [
        "`LinearCCA` on 2 × 5,000 × 9 memory-mapped float32",
        *["a plain pass", "2.00", "2.50", "1.25", "1.5", "300 MiB", "512 MiB"],
    ]
    assert last.endswith("on Chip, 2 cores; 2024-05-06; commit `abc1234`.")


def test_the_table_of_memory(results):
    def cell(peak, budget):
        return {"peak_bytes": peak * 2**20, "budget_bytes": budget * 2**20}

    store(
        results,
        "memory",
        {
            "FourierCCA rank=4096 rows=20000 columns=392 budget=1.5GiB": cell(768, 1536),
            "FourierCCA rank=512 rows=50000 columns=392 budget=384MiB": cell(288, 384),
            "KernelCCA rows=4000 columns=100 budget=1000MiB": cell(900, 1000),
            "LinearCCA rows=5000 columns=9 budget=1GiB": cell(64, 1024),
            "LinearCCA rows=5000 columns=9 budget=48MiB": cell(60, 48),
        },
    )
    rows, last = table("memory", results)
    assert rows[0] == ["what", "memory_budget", "peak memory", "peak / budget"]
    linear = "`LinearCCA`, on 2 × 5,000 × 9 float32 from files"
    assert rows[2:] == [
        [linear, "48 MiB", "60 MiB", "1.25"],
        [linear, "1024 MiB", "64 MiB", "0.06"],
        ["`KernelCCA`, on 2 × 4,000 × 100 float32 from files", "1000 MiB", "900 MiB", "0.90"],
        [
            "`FourierCCA`, rank 512, on 2 × 50,000 × 392 float32 from files",
            *["384 MiB", "288 MiB", "0.75"],
        ],
        [
            "`FourierCCA`, rank 4096, on 2 × 20,000 × 392 float32 from files",
            *["1536 MiB", "768 MiB", "0.50"],
        ],
    ]
    assert last == (
        "Measured by `python -m benchmarks.speed.memory` on Chip, 2 cores; 2024-05-06; "
        "commit `abc1234`."
    )


def test_outdated_tables_are_noticed_and_rewritten(tmp_path, results, capsys):
    readme = tmp_path / "README.md"
    readme.write_text("# A\n\n<!-- table:speed -->\nold\n<!-- /table -->\n\ntext\n")
    before = readme.read_text()
    assert main(["--check"], project=tmp_path, results=results) == 1
    assert readme.read_text() == before
    assert capsys.readouterr().out == "README.md is out of date\nRun: python -m benchmarks.tables\n"
    assert main([], project=tmp_path, results=results) == 0
    assert "old" not in readme.read_text()
    assert readme.read_text().endswith("<!-- /table -->\n\ntext\n")
    assert main(["--check"], project=tmp_path, results=results) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- table:heights -->\n<!-- /table -->\n", "There is no table 'heights' to generate."),
        ("<!-- table:speed -->\n", "do not pair"),
        ("<!-- /table -->\n", "do not pair"),
        (
            "<!-- table:speed -->\n<!-- table:lopez_paz -->\n<!-- /table -->\n",
            "Table 'speed' is not closed",
        ),
    ],
)
def test_wrong_markers_are_refused(text, message, results):
    with pytest.raises(ValueError, match=message):
        refreshed(text, results)
